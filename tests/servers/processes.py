"""
Starting and stopping a server: a real process on a free port of loopback, ready when it answers, gone afterwards.

The waits are polls with a bound. A stop is SIGTERM and, if that does not help, SIGKILL, by the process id; the
process is waited for, so that none is left.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from tests.servers.kinds import HOST, KINDS, Kind

__all__ = ["DUMMY_CREDENTIALS", "Server", "ServerFailed", "running", "started"]

DUMMY_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Environment variables for the clients in tests; the servers check no signature."""

START_S_MAX = 60.0
STOP_S_MAX = 5.0
ANSWER_S_MAX = 5.0
POLL_S = 0.05
STARTS_MAX = 3
LOG_LINES_SHOWN = 40

# Below the ports that the kernel gives to outgoing connections, which could take a port between its choice and
# the server's start.
PORTS = range(20_000, 32_000)

PROBES = {
    "dynamodb": ("DynamoDB_20120810.ListTables", "application/x-amz-json-1.0"),
    "kinesis": ("Kinesis_20131202.ListStreams", "application/x-amz-json-1.1"),
}


class ServerFailed(RuntimeError):
    """A server ended or did not answer in time; the message has the end of its log."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        lines = log.read_text("utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        super().__init__("\n".join([f"{name} {what}; the end of its log {log}:", *lines]))
        self.name = name
        self.log = log


class Server:
    """One running server."""

    def __init__(self, kind: Kind, port: int, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.kind = kind
        self.port = port
        self.log = log
        """What the process wrote to its outputs."""
        self._process = process

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def url(self) -> str:
        """What a client takes as `endpoint_url`."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        """
        Return when the server has answered a call of its service.

        Raises:
            ServerFailed: It ended, or did not answer within `START_S_MAX` seconds.
        """
        until_s = time.monotonic() + START_S_MAX
        while time.monotonic() < until_s:
            if not self.is_running:
                raise ServerFailed(self.name, f"ended at its start with status {self._process.returncode}", self.log)
            if answers(self.url, self.kind.speaks):
                return
            time.sleep(POLL_S)
        raise ServerFailed(self.name, f"did not answer within {START_S_MAX:g} s", self.log)

    def wait(self) -> None:
        """Return when the process has ended by itself."""
        self._process.wait()

    def stop(self) -> None:
        """End the process, at the latest after twice `STOP_S_MAX` seconds; one that has ended stays so."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S_MAX)
        if self._process.stdin is not None:
            self._process.stdin.close()


@contextmanager
def started(name: str, *, port: int | None = None, log_folder: Path | None = None) -> Iterator[Server]:
    """
    A server for the length of the block, which it begins ready and ends gone.

    Args:
        name: One of `KINDS`.
        port: The port, for one that comes back where it was; None picks a free one.
        log_folder: Where its log goes, `<name>-<port>.log`; None: a temporary folder, removed at the end.

    Raises:
        ServerNotInstalled: `make servers` has not been run.
        ServerFailed: It did not get ready; the message has the end of its log.
    """
    with ExitStack() as stack:
        if log_folder is None:
            log_folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="test-server-")))
        server = launch(KINDS[name], port, log_folder)
        stack.callback(server.stop)
        yield server


@asynccontextmanager
async def running(name: str, *, port: int | None = None, log_folder: Path | None = None) -> AsyncIterator[Server]:
    """As `started`, without holding up the event loop while it starts and stops."""
    manager = started(name, port=port, log_folder=log_folder)
    # The start is not abandoned by a cancellation: it is bounded, and its process has to be stopped.
    with anyio.CancelScope(shield=True):
        server = await anyio.to_thread.run_sync(manager.__enter__)
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(manager.__exit__, None, None, None)


def launch(kind: Kind, port: int | None, folder: Path) -> Server:
    """Start it and wait until it is ready; another port is tried if the chosen one was taken meanwhile."""
    kind.check_installed()
    for attempt in range(STARTS_MAX):
        server = spawn(kind, port or free_port(kind.ports), folder)
        try:
            server.wait_until_ready()
        except ServerFailed:
            taken = not server.is_running and port is None
            server.stop()
            if not taken or attempt == STARTS_MAX - 1:
                raise
        except BaseException:  # Also Ctrl-C and a time-out of pytest: the process must not stay.
            server.stop()
            raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")


def spawn(kind: Kind, port: int, folder: Path) -> Server:
    log = folder / f"{kind.name}-{port}.log"
    environment = {**os.environ, **DUMMY_CREDENTIALS, **kind.environment(port), "SERVERS_LIFELINE": "stdin"}
    with log.open("ab") as output:
        # A session of its own: Ctrl-C at the terminal ends the tests, and these then the server.
        process = subprocess.Popen(
            kind.command(port),
            cwd=kind.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(kind, port, log, process)


def free_port(successive: int) -> int:
    """The first of some successive ports that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        if all(is_free(port + step) for step in range(successive)):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


def answers(url: str, service: str) -> bool:
    """Whether a call of that service is answered with success."""
    target, kind = PROBES[service]
    credential = f"Credential=test/20260101/us-east-1/{service}/aws4_request"
    headers = {
        "X-Amz-Target": target,
        "X-Amz-Date": "20260101T000000Z",
        "Content-Type": kind,
        "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host;x-amz-date;x-amz-target, Signature=0",
    }
    request = urllib.request.Request(url, data=b"{}", headers=headers, method="POST")
    # Without the proxies of the environment: loopback is never behind one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_S_MAX) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
