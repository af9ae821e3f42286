"""
moto behind one lock: `python -m tests.servers.moto --port 5000`, for DynamoDB, Kinesis, SQS, IAM and STS.

moto reads, checks and writes without a lock, so that of concurrent conditional writes several succeed. Here its
application handles one request at a time; the bodies are read and the answers written outside the lock, over
connections that are kept.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import moto.sqs.models
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.servers.kinds import HOST
from tests.servers.lifeline import hold

__all__ = ["Application", "main"]

BODY_BYTES_MAX = 64 * 1024**2

Environ = dict[str, Any]


class Application:
    """moto's WSGI application, one request at a time; `locked=False` leaves it as it comes, to show why."""

    def __init__(self, *, locked: bool = True) -> None:
        self.moto = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.guard: AbstractContextManager[object] = self.lock if locked else nullcontext()
        if locked:
            wait_without(self.lock)

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length > BODY_BYTES_MAX:
            start_response("413 Content Too Large", [("Content-Length", "0"), ("Connection", "close")])
            return []
        # Read to its end: what is left of a body would be taken for the next request of the connection.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self.guard:
            return list(self.moto(environ, start_response))


def wait_without(lock: threading.Lock) -> None:
    """Let the long poll of SQS wait without the lock; else no message could arrive that it waits for."""
    wait = moto.sqs.models.Queue.wait_for_messages

    def wait_for_messages(self: moto.sqs.models.Queue, timeout: int) -> None:
        lock.release()
        try:
            wait(self, timeout)
        finally:
            lock.acquire()

    moto.sqs.models.Queue.wait_for_messages = wait_for_messages  # type: ignore[method-assign]


class Handler(MotoRequestHandler):
    """Keeps its connections, sends small answers at once, and writes no line for each request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: the log is for what goes wrong."""


def end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.moto", description="moto behind one lock.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--unlocked", action="store_true", help="moto as it comes, which lets several racers win")
    chosen = parser.parse_args(arguments)
    hold()
    signal.signal(signal.SIGTERM, end)
    application = Application(locked=not chosen.unlocked)
    make_server(HOST, chosen.port, application, threaded=True, request_handler=Handler).serve_forever()


if __name__ == "__main__":
    main()
