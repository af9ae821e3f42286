"""
Plays the demo on Kinesis and DynamoDB that are served here: `python -m tests.demo.on_servers [OPTION]…`.

The demo itself takes the addresses of servers that run; this starts two, plays, and stops them, whatever happens. The
options are the demo's. kinesis-local, because of the servers on which a shard ends as in AWS it alone also names the
children, and the demo's few records do not make it slow; moto behind one lock, because a completed partition needs
transactions and it comes with the environment of the tests, so that Node is all that is needed beside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from processor_host.demo.orphans import PARENT
from tests.aws_calls import FOLDER
from tests.servers import DUMMY_CREDENTIALS, ServerFailed, ServerNotInstalled, started

__all__ = ["main"]

KINESIS = "kinesis-local"
DYNAMODB = "moto"
SIZE = ["--partitions", "4", "--rate", "10"]
"""40 records a second; kinesis-local takes 182 where a shard is full."""
STARTS_FAILED = 3


def main() -> int:
    """Play, and return the demo's exit status; 3 where a server does not start."""
    demo: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, frame: FrameType | None) -> None:
        if demo is None:
            raise SystemExit(128 + number)
        demo.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, hand_on)
    forget_user()
    print(f"{KINESIS} and {DYNAMODB} start, for Kinesis and DynamoDB", file=sys.stderr, flush=True)
    try:
        with started(KINESIS) as kinesis, started(DYNAMODB) as dynamodb:
            command = [sys.executable, "-m", "processor_host.demo", *SIZE]
            command += ["--kinesis", kinesis.url, "--dynamodb", dynamodb.url, *sys.argv[1:]]
            # A session of its own: Ctrl-C comes from here, once. The demo ends where this process is gone.
            demo = subprocess.Popen(command, env={**os.environ, PARENT: str(os.getpid())}, start_new_session=True)
            status = demo.wait()
            return status if status >= 0 else 128 - status
    except (ServerNotInstalled, ServerFailed) as error:
        print(error, file=sys.stderr)
        return STARTS_FAILED


def forget_user() -> None:
    """Put credentials of nobody in place of what the user has, for servers and demo: a profile can be a hindrance."""
    for name in list(os.environ):
        if name.startswith("AWS_") and name != FOLDER:
            del os.environ[name]
    os.environ.update(DUMMY_CREDENTIALS)


if __name__ == "__main__":
    sys.exit(main())
