"""The SQLite store with real processes: all begin at once, and one is killed in the middle of its writes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from partitions.items import LeaseItem
from partitions.stores.sqlite import SqliteStore
from partitions.verbs import Applied, SaveCheckpoint
from tests.builders import a_lease, a_session, an_acquire
from tests.stores.sqlite_child import CALL_TIMEOUT_S, CONTESTED, G

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.essential]

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def child(what: str, path: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that waits for a line before it begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.sqlite_child", what, str(path), name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path, call_timeout_s=CALL_TIMEOUT_S)
    await store.open()
    return store


async def test_store_is_made_once_when_eight_processes_begin_at_once(tmp_path: Path) -> None:
    """Eight hosts of a new group start together: no "database is locked", one file, one owner of the one lease."""
    path = tmp_path / "leases.db"
    names = [f"host-{number}" for number in range(8)]
    with ExitStack() as stack:
        processes = [stack.enter_context(child("begin", path, name)) for name in names]
        for process in processes:
            begin(process)
        told = [process.communicate(timeout=60) for process in processes]

    assert [error for _, error in told if error] == []
    assert sorted(int(answer) for answer, _ in told) == [0] * 7 + [1]
    store = await opened(path)
    sessions = await store.read_sessions(G, consistent=True)
    assert sorted(sessions, key=lambda session: session.session_id) == [a_session(f"{name}:1") for name in names]
    (lease,) = await store.read_leases(G)
    winner = names[[int(answer) for answer, _ in told].index(1)]
    assert lease == a_lease(CONTESTED, owner=f"{winner}:1", token=1, last_host=winner)
    await store.close()


async def test_file_is_whole_and_holds_what_was_answered_after_its_writer_was_killed(tmp_path: Path) -> None:
    """A checkpoint that was answered is there for the next owner; one that was not may be, but nothing is torn."""
    path = tmp_path / "leases.db"
    await SqliteStore(path).create()
    for round_number in range(3):
        answered: dict[str, int] = {}
        with child("checkpoint", path, f"host-{round_number}") as process:
            begin(process)
            assert process.stdout is not None
            for _ in range(100):
                partition, seq = process.stdout.readline().split()
                answered[partition] = int(seq)
            process.send_signal(signal.SIGKILL)
            # What it wrote before it died is still in the pipe; a half line at the end is no answer.
            *lines, _ = process.stdout.read().split("\n")
            answered |= {partition: int(seq) for partition, seq in (line.split() for line in lines)}

        store = await opened(path)
        stored: dict[str, LeaseItem] = {lease.partition: lease for lease in await store.read_leases(G)}
        assert {name: stored[name].seq >= seq for name, seq in answered.items()} == dict.fromkeys(answered, True)
        for name in answered:
            lease = stored[name]
            assert lease.position == str(lease.seq)
            taken = await store.submit(G, an_acquire(lease, "b:1"))
            assert isinstance(taken, Applied)
            saved = SaveCheckpoint(partition=name, owner="b:1", token=2, position="b", seq=1)
            assert isinstance(await store.submit(G, saved), Applied)
        await store.close()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
