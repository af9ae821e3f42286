"""Serve a person: `python -m tests.servers NAME [--port N]` runs one server until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.servers.kinds import KINDS, ServerNotInstalled
from tests.servers.processes import DUMMY_CREDENTIALS, ServerFailed, started

__all__ = ["main"]


def main() -> int:
    """Start the server, say where it is and which variables a client needs, and stop it at a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description="One test server, until Ctrl-C.")
    parser.add_argument("name", choices=sorted(KINDS))
    parser.add_argument("--port", type=int, help="a free one if left out")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with started(chosen.name, port=chosen.port) as server:
            print(f"{server.name} serves at {server.url} (pid {server.pid}, log {server.log}); Ctrl-C ends it")
            print("export", *(f"{name}={value}" for name, value in DUMMY_CREDENTIALS.items()), flush=True)
            server.wait()
            print(f"{server.name} has ended by itself", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except (ServerNotInstalled, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
