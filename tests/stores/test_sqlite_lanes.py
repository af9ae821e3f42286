"""The lanes of the SQLite store: what waits, what is given up, what goes together, and what goes first."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.stores._sqlite_file import LeaseFile
from partitions.stores._sqlite_lane import QUEUE_MAX, Lane, Pace
from partitions.stores.sqlite import SqliteStore, decide
from partitions.verbs import Applied, Child, Complete, Create, Refused, SaveCheckpoint, Verb
from tests.builders import a_beat, a_lease, a_register, a_session, an_acquire

__all__: list[str] = []

G = "group"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path, call_timeout_s=20.0)
    await made.create()
    await made.open()
    yield made
    await made.close()


@contextmanager
def locked(path: Path, *, timeout_s: float = 20.0) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of the file, as another process does in the middle of a transaction."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=timeout_s)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    finally:
        connection.close()


def create(partition: str) -> Create:
    return Create(partition=partition, position="@earliest")


def save(partition: str, seq: int, *, position: Any = None) -> SaveCheckpoint:
    where = str(seq) if position is None else position
    return SaveCheckpoint(partition=partition, owner="a:1", token=1, position=where, seq=seq)


async def owned(store: SqliteStore, partition: str) -> None:
    await store.submit(G, create(partition))
    await store.submit(G, an_acquire(a_lease(partition)))


def commits_in_log(path: Path) -> int:
    """Count the commits that the write-ahead log shows: frames that carry the size of the database."""
    log = Path(f"{path}-wal").read_bytes()
    frame_bytes = 24 + int.from_bytes(log[8:12], "big")
    salt = log[16:24]
    headers = (log[start : start + 24] for start in range(32, len(log), frame_bytes))
    return sum(1 for header in headers if header[8:16] == salt and header[4:8] != b"\0\0\0\0")


async def test_write_is_not_applied_when_its_caller_gave_up_while_it_waited(store: SqliteStore, path: Path) -> None:
    """A host that gave up a checkpoint has gone on; one that is applied later writes under a term that has ended."""
    with locked(path):
        for partition in ("first in line", "behind it"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.submit, G, create(partition))
                await anyio.wait_all_tasks_blocked()
                # Returns while the file is still locked: nobody waits for what was given up.
                tasks.cancel_scope.cancel()

    await store.submit(G, create("another"))

    assert await store.read_leases(G) == (a_lease("another"),)


async def test_write_of_another_caller_is_applied_when_the_one_before_it_gave_up(
    store: SqliteStore, path: Path
) -> None:
    """One caller's cancellation must not take its neighbours with it."""
    async with anyio.create_task_group() as tasks:
        with locked(path):
            scope = anyio.CancelScope()

            async def give_up() -> None:
                with scope:
                    await store.submit(G, create("given up"))

            tasks.start_soon(give_up)
            tasks.start_soon(store.submit, G, create("kept"))
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()

    assert await store.read_leases(G) == (a_lease("kept"),)


@pytest.mark.parametrize("verb", [create("p"), a_register()], ids=["lease", "session"])
async def test_busy_file_is_unavailable_before_the_caller_gives_up(path: Path, verb: Verb[Any]) -> None:
    """Else the caller's time-out comes first, and it cannot tell a busy store from a lost answer (rule 17)."""
    call_timeout_s = 1.0
    store = SqliteStore(path, call_timeout_s=call_timeout_s)
    await store.create()
    await store.open()
    with locked(path):
        began_s = time.monotonic()
        with anyio.fail_after(10), pytest.raises(StoreUnavailable, match="busy"):
            await store.submit(G, verb)
        waited_s = time.monotonic() - began_s

    assert store.busy_timeout_s <= waited_s < call_timeout_s
    # It was not kept for later.
    assert isinstance(await store.submit(G, verb), Applied)
    await store.close()


async def test_reads_pass_while_the_file_is_locked(store: SqliteStore, path: Path) -> None:
    """A read that queued behind a waiting beat would hide from a host that its ask was answered."""
    await store.submit(G, create("p"))
    await store.submit(G, a_register())
    async with anyio.create_task_group() as tasks:
        with locked(path):
            tasks.start_soon(store.submit, G, a_beat())
            tasks.start_soon(store.submit, G, create("q"))
            await anyio.wait_all_tasks_blocked()

            assert await store.read_leases(G) == (a_lease("p"),)
            assert await store.read_sessions(G, consistent=True) == (a_session(),)
            assert await store.read_group(G) is None

    assert await store.read_session(G, "a:1") == a_session(beat=1)
    assert await store.read_lease(G, "q") == a_lease("q")


@pytest.mark.parametrize(("together_max", "commits"), [(32, 1), (1, 10)])
async def test_writes_that_wait_together_share_one_commit(path: Path, together_max: int, commits: int) -> None:
    """A commit costs a flush of the disk; each write is still decided on what the one before it left."""
    store = SqliteStore(path, call_timeout_s=20.0, together_max=together_max)
    await store.create()
    await store.open()
    await owned(store, "p")
    before = commits_in_log(path)
    answers: dict[int, Any] = {}

    async def submit(number: int, seq: int) -> None:
        answers[number] = await store.submit(G, save("p", seq))

    async with anyio.create_task_group() as tasks:
        with locked(path):
            for number, seq in enumerate([1, 3, 2, 4, 6, 5, 7, 8, 9, 10, 11, 12]):
                tasks.start_soon(submit, number, seq)
            await anyio.wait_all_tasks_blocked()

    held = [a_lease("p", owner="a:1", token=1, last_host="a", position=str(seq), seq=seq) for seq in range(13)]
    assert [answers[number] for number in range(6)] == [
        *(Applied(item=held[1]), Applied(item=held[3]), Refused(current=held[3])),
        *(Applied(item=held[4]), Applied(item=held[6]), Refused(current=held[6])),
    ]
    assert commits_in_log(path) - before == commits
    await store.close()


async def test_write_that_raises_fails_alone(store: SqliteStore, path: Path) -> None:
    """One host's bad position must not undo its neighbours' checkpoints, though they share a commit."""
    for partition in ("p", "q", "r"):
        await owned(store, partition)
    raised: list[BaseException] = []

    async def submit_bad() -> None:
        try:
            await store.submit(G, save("q", 1, position=object()))
        except sqlite3.Error as error:
            raised.append(error)

    async with anyio.create_task_group() as tasks:
        with locked(path):
            tasks.start_soon(store.submit, G, save("p", 1))
            tasks.start_soon(submit_bad)
            tasks.start_soon(store.submit, G, save("r", 1))
            await anyio.wait_all_tasks_blocked()

    assert "type 'object' is not supported" in str(raised[0])
    found = {lease.partition: (lease.position, lease.seq) for lease in await store.read_leases(G)}
    assert found == {"p": ("1", 1), "q": ("@earliest", 0), "r": ("1", 1)}


async def test_complete_is_undone_as_a_whole_when_a_child_cannot_be_written(store: SqliteStore) -> None:
    """A finished parent without its children is a hole in the stream; a child without it is handled too early."""
    await owned(store, "p")
    children = tuple(Child(partition=name, parents=("p",), position=at) for name, at in [("c", "0"), ("d", object())])  # type: ignore[arg-type]

    with pytest.raises(sqlite3.Error, match="not supported"):
        await store.submit(G, Complete(partition="p", owner="a:1", token=1, children=children))

    assert await store.read_leases(G) == (a_lease("p", owner="a:1", token=1, last_host="a"),)


async def test_beat_is_answered_before_the_checkpoints_that_were_there_first(path: Path) -> None:
    """A host whose processors checkpoint faster than the disk writes must not lose its session for it."""
    store = SqliteStore(path, call_timeout_s=60.0, together_max=1)
    await store.create()
    await store.open()
    await store.submit(G, a_register())
    names = [f"p-{number}" for number in range(200)]
    answered = 0

    async def submit(partition: str) -> None:
        nonlocal answered
        await store.submit(G, create(partition))
        answered += 1

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(submit, name)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            await store.submit(G, a_beat())
        answered_before_the_beats = answered

    assert answered == len(names)
    assert answered_before_the_beats < len(names) / 2
    await store.close()


async def test_lane_stays_away_from_the_lock_after_a_commit(path: Path) -> None:
    """The lock has no queue: who has just let go of it is the first to try, and would keep the others out."""
    await SqliteStore(path).create()
    file = LeaseFile(path, folder=path.parent)
    lane = Lane("leases", file, wait_max_s=20.0, pace=Pace(together_max=1, poll_s=0.001, gap_s=1.0))
    await lane.open()
    answered: list[str] = []

    async def submit(partition: str) -> None:
        await lane.write(lambda connection: decide(connection, G, create(partition)))
        answered.append(partition)
        if partition == "first":
            with locked(path, timeout_s=0) as another:
                assert another.execute("SELECT partition FROM leases").fetchall() == [("first",)]

    async with anyio.create_task_group() as tasks:
        with locked(path):
            tasks.start_soon(submit, "first")
            tasks.start_soon(submit, "second")
            await anyio.wait_all_tasks_blocked()

    assert answered == ["first", "second"]
    lane.stop()
    await lane.stopped()


async def test_call_is_refused_at_once_when_too_many_wait(store: SqliteStore, path: Path) -> None:
    """A queue without a bound would answer everybody too late instead of somebody in time."""
    async with anyio.create_task_group() as tasks:
        with locked(path):
            for number in range(QUEUE_MAX):
                tasks.start_soon(store.submit, G, create(str(number)))
            await anyio.wait_all_tasks_blocked()

            with pytest.raises(StoreUnavailable, match=f"{QUEUE_MAX} calls waiting"):
                await store.submit(G, create("one too many"))
            tasks.cancel_scope.cancel()

    assert isinstance(await store.submit(G, create("after")), Applied)


async def test_close_answers_those_who_wait(store: SqliteStore, path: Path) -> None:
    """A caller that waits for ever keeps its host from stopping; and nothing is written after the close."""
    failed: list[str] = []

    async def submit(verb: Verb[Any]) -> None:
        try:
            await store.submit(G, verb)
        except StoreUnavailable as error:
            failed.append(str(error))

    with locked(path), anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(submit, create("p"))
            tasks.start_soon(submit, a_register())
            await anyio.wait_all_tasks_blocked()
            await store.close()

    assert [text.partition(": ")[2] for text in sorted(failed)] == [
        "the lane for leases is closed",
        "the lane for sessions is closed",
    ]
    await store.open()
    assert await store.read_leases(G) == ()
    assert await store.read_sessions(G, consistent=True) == ()


async def test_store_that_is_not_open_says_so(path: Path) -> None:
    """A call that hangs, or that opens by itself, hides the mistake."""
    store = SqliteStore(path)

    with pytest.raises(StoreMisconfigured, match=r"is not open; call open\(\) first"):
        await store.read_leases(G)


async def test_store_answers_callers_on_several_event_loops(store: SqliteStore) -> None:
    """The session runs on a loop of its own, in a thread, beside the host's (rule 16)."""

    async def beats() -> list[int]:
        items = [await store.submit(G, a_beat()) for _ in range(20)]
        return [item.item.beat for item in items if isinstance(item, Applied) and item.item is not None]

    async def checkpoints() -> None:
        for seq in range(1, 21):
            await store.submit(G, save("p", seq))

    await store.submit(G, a_register())
    await owned(store, "p")
    found: list[list[int]] = []

    async def beats_elsewhere() -> None:
        found.append(await anyio.to_thread.run_sync(anyio.run, beats))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beats_elsewhere)
            tasks.start_soon(checkpoints)

    assert found == [list(range(1, 21))]
    assert (await store.read_leases(G))[0].seq == 20
