"""
moto behind one lock: `python -m tests.servers.moto --port 5000`, for DynamoDB, Kinesis, SQS, IAM and STS.

moto reads, checks and writes without a lock, so that of concurrent conditional writes several succeed. Here its
application handles one request at a time; requests are read and answers written outside the lock, over
connections that are kept.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from types import FrameType
from typing import Any

import moto.sqs.models
from moto.dynamodb.parsing.validators import UpdateExpressionValidator, Validator
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


def pause_updates(pause_s: float) -> None:
    """Let each UpdateItem wait after its condition held, so that a race that can go wrong does."""
    validate = UpdateExpressionValidator.validate

    def validate_after_pause(self: Validator) -> Any:
        time.sleep(pause_s)
        return validate(self)

    if pause_s > 0:
        UpdateExpressionValidator.validate = validate_after_pause  # type: ignore[method-assign]


class Handler(MotoRequestHandler):
    """Keeps its connections, which werkzeug's own never does, and writes no line for each request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Head and body leave together.
    wbufsize = -1

    def run_wsgi(self) -> None:
        """Read the whole request, have it handled, and send the whole answer."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            # The body stays unread, so that nothing else can follow on this connection.
            self.close_connection = True
            self.send_error(HTTPStatus.LENGTH_REQUIRED, f"Content-Length up to {BODY_BYTES_MAX} is needed")
            return
        environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(self.rfile.read(int(length)))
        heads: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], _: object = None, /) -> Callable[[bytes], None]:
            heads.append((status, headers))
            return unsupported

        try:
            body = b"".join(self.server.app(environ, start_response))
            status, headers = heads[-1]
        # moto's own faults, such as an operation that it lacks: an answer, and the rest goes on.
        except Exception:
            self.log_error("%s", traceback.format_exc())
            body, status, headers = b"{}", "500 Internal Server Error", []
        self.send_answer(status, headers, body)

    def send_answer(self, status: str, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response_only(int(code), reason)
        for name, value in headers:
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


def unsupported(_: bytes) -> None:
    raise NotImplementedError("moto returns its answers and writes none")


def end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.moto", description="moto behind one lock.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--unlocked", action="store_true", help="moto as it comes, which lets several racers win")
    parser.add_argument("--pause-s", type=float, default=0.0, help="pause of an update between its check and its write")
    chosen = parser.parse_args(arguments)
    pause_updates(chosen.pause_s)
    hold()
    signal.signal(signal.SIGTERM, end)
    application = Application(locked=not chosen.unlocked)
    make_server(HOST, chosen.port, application, threaded=True, request_handler=Handler).serve_forever()


if __name__ == "__main__":
    main()
