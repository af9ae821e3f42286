"""
`processor-host run` as a process: signals, and the status with which it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partitions.sources.local import Entry, LocalStream

__all__: list[str] = []

pytestmark = [pytest.mark.processes]

STARTED = "host.ready"

SLOW = """
import time
import anyio
from processor_host import Batch, PartitionProcessor

async def quick(batch: Batch) -> None: ...

async def patient(batch: Batch) -> None:
    print("reached", flush=True)
    await anyio.sleep(3600)

async def stuck(batch: Batch) -> None:
    print("reached", flush=True)
    while True:
        try:
            await anyio.sleep(3600)
        except BaseException:
            pass

async def busy_executor(batch: Batch) -> None:
    import asyncio
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    print("reached", flush=True)

async def busy_thread(batch: Batch) -> None:
    import threading
    threading.Thread(target=time.sleep, args=(3600,)).start()
    print("reached", flush=True)

async def blocking(batch: Batch) -> None:
    print("reached", flush=True)
    time.sleep(3600)

def child(up) -> None:
    up.set()
    time.sleep(3600)

async def forking(batch: Batch) -> None:
    import multiprocessing
    context = multiprocessing.get_context("fork")
    up = context.Event()
    forked = context.Process(target=child, args=(up,))
    forked.start()
    # What comes before the interpreter is ready there, no handler ever sees.
    up.wait()
    forked.terminate()
    await anyio.to_thread.run_sync(forked.join, 5)
    print("the child ended with", forked.exitcode, flush=True)
    forked.kill()

class Threaded(PartitionProcessor):
    def process(self, batch) -> None:
        print("reached", flush=True)
        time.sleep(3600)
"""


class Process:
    """A host as a process of its own."""

    def __init__(self, folder: Path, processor: str, *more: str) -> None:
        (folder / "slow.py").write_text(SLOW)
        self._log = folder / "host.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "processor_host", "run", processor, "--group", "orders"),
                    *("--source", "local:s.db", "--store", "sqlite:leases.db", "--log-format", "json", *more),
                ],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def wait_for(self, text: str) -> None:
        give_up_s = time.monotonic() + 20
        while text not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < give_up_s, self._log.read_text()
            time.sleep(0.05)

    def log(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]

    def status(self, within_s: float) -> int:
        """Wait for its end and return its status."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended within {within_s} s; its log:\n{self.log()}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A current folder with a stream."""
    LocalStream.create(tmp_path / "s.db", partitions=2).close()
    return tmp_path


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Processes that are ended with the test."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.end()


def put(folder: Path) -> None:
    stream = LocalStream.open(folder / "s.db")
    stream.append([Entry(data=b"{}", key=None)])
    stream.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_in_order_at_the_first_signal(number: signal.Signals, folder: Path, started: list[Process]) -> None:
    """Status 0, the leases released, and the session gone: nobody waits for this host."""
    started.append(host := Process(folder, "slow:quick"))
    host.wait_for(STARTED)
    host.process.send_signal(number)

    assert host.status(10) == 0
    assert host.events()[-1] == "host.stopped"
    with sqlite3.connect(folder / "leases.db") as file:
        assert file.execute("SELECT count(*) FROM sessions").fetchone() == (0,)


@pytest.mark.parametrize(
    ("processor", "number", "status", "within_s"),
    [
        ("slow:patient", signal.SIGTERM, 143, 3),
        ("slow:stuck", signal.SIGINT, 130, 8),
        ("slow:blocking", signal.SIGTERM, 143, 8),
    ],
)
def test_run_ends_soon_after_the_second_signal_whatever_the_processor_does(
    processor: str, number: signal.Signals, status: int, within_s: float, folder: Path, started: list[Process]
) -> None:
    """Who asks twice means it; a processor that blocks or swallows its cancellation must not keep the process."""
    put(folder)
    started.append(host := Process(folder, processor))
    host.wait_for("reached")
    host.process.send_signal(number)
    time.sleep(1.2)
    host.process.send_signal(number)

    assert host.status(within_s) == status
    cancelled = [line["reason"] for line in host.lines() if line["event"] == "host.cancelled"]
    # A loop that is blocked cannot log it.
    assert cancelled == ([] if processor == "slow:blocking" else ["second signal, stopping at once"])


@pytest.mark.parametrize("processor", ["slow:stuck", "slow:Threaded"])
def test_run_tells_by_its_status_that_a_processor_was_still_running(
    processor: str, folder: Path, started: list[Process]
) -> None:
    """Its lease is left to run out, since its records may still be on their way somewhere."""
    put(folder)
    timings = ["--lease-duration-s", "1", "--drain-timeout-s", "1", "--handoff-s", "1"]
    started.append(host := Process(folder, processor, *timings))
    host.wait_for("reached")
    host.process.send_signal(signal.SIGTERM)

    assert host.status(10) == 4
    (stopped,) = [line for line in host.lines() if line["event"] == "host.stopped"]
    assert (stopped["partitions"], stopped["level"]) == (["p0"], "error")
    with sqlite3.connect(folder / "leases.db") as file:
        owners = file.execute("SELECT partition, owner IS NULL FROM leases ORDER BY partition").fetchall()
    assert owners == [("p0", 0), ("p1", 1)]


def test_process_that_user_code_forks_is_ended_by_a_signal(folder: Path, started: list[Process]) -> None:
    """What a fork inherits must not take it for a stop of the host: whoever ends a pool waits for its members."""
    put(folder)
    started.append(host := Process(folder, "slow:forking"))
    host.wait_for("the child ended with")

    assert f"the child ended with {-signal.SIGTERM}\n" in host.log()
    assert host.process.poll() is None


def test_run_ends_in_order_at_a_doubled_signal(folder: Path, started: list[Process]) -> None:
    """A supervisor that signals a process and its group asks once."""
    started.append(host := Process(folder, "slow:quick"))
    host.wait_for(STARTED)
    # Two of one kind may reach the process as one.
    host.process.send_signal(signal.SIGINT)
    host.process.send_signal(signal.SIGTERM)

    assert host.status(10) == 0
    assert host.events()[-1] == "host.stopped"


@pytest.mark.parametrize(("level", "shown"), [("info", False), ("debug", True)])
def test_run_tells_a_lost_lease_file_without_a_traceback(
    level: str, shown: bool, folder: Path, started: list[Process]
) -> None:
    """What happened and what to do is one line; where it came through is for who asks."""
    started.append(host := Process(folder, "slow:quick", "--lease-duration-s", "1", "--log-level", level))
    host.wait_for(STARTED)
    (folder / "leases.db").unlink()

    assert host.status(10) == 1
    failed = [line for line in host.lines() if line["event"] == "host.failed"]
    assert [("was deleted, moved or replaced" in line["error"], "exception" in line) for line in failed] == [
        (True, shown)
    ]
    assert failed[0]["hint"] == "mend what the error names, and start the host again once its cause is gone"
    assert ("Traceback" in host.log()) == shown


def test_run_is_loaded_only_when_it_is_called() -> None:
    """Loading takes longest at a start; Ctrl-C meanwhile must not end in a traceback, so it is inside the program."""
    code = "import sys, processor_host.cli; print([name for name in sys.modules if 'processor_host.cli.' in name])"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )

    assert loaded.stdout == "['processor_host.cli.errors']\n"


@pytest.mark.parametrize("processor", ["slow:busy_executor", "slow:busy_thread"])
@pytest.mark.parametrize("fails", [False, True])
def test_run_is_not_kept_by_a_thread_that_user_code_has_started(
    processor: str, fails: bool, folder: Path, started: list[Process]
) -> None:
    """A process that holds nothing and does not end is started anew by no supervisor."""
    put(folder)
    started.append(host := Process(folder, processor))
    host.wait_for("reached")
    if fails:
        for file in folder.glob("leases.db*"):
            file.unlink()
    else:
        host.process.send_signal(signal.SIGTERM)

    # The lease duration, where it fails; then twice what the end waits for: the loop's threads, and the others.
    assert host.status(25) == (1 if fails else 0)
    assert host.events()[-1] == ("host.failed" if fails else "host.stopped")
