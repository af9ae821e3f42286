"""How readers of a local stream wait: few threads, no open transaction, nothing missed, an end at once."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from partitions.errors import PartitionsError, SourceUnavailable
from partitions.positions import EARLIEST
from partitions.sources.base import Fetched
from partitions.sources.local import Entry, LocalSource, LocalStream
from partitions.sources.local._read import Page
from partitions.sources.local._source import THREADS_MAX

__all__: list[str] = []

LONG_S = 30.0
PARTITIONS = 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    LocalStream.create(tmp_path / "s.db", partitions=PARTITIONS).close()
    return tmp_path / "s.db"


@pytest.fixture
async def source(path: Path) -> AsyncIterator[LocalSource]:
    source = LocalSource(path)
    await source.open()
    yield source
    await source.close()


async def read(source: LocalSource, partition: str, wait_s: float = LONG_S) -> Fetched:
    return await source.reader(partition, EARLIEST).read(records_max=100, bytes_max=10_000, wait_s=wait_s)


async def test_waiting_readers_share_one_thread(source: LocalSource) -> None:
    """A thousand idle partitions must not be a thousand threads: each of them would poll."""
    before = {thread.name for thread in threading.enumerate()}

    async with anyio.create_task_group() as tasks:
        for n in range(PARTITIONS):
            tasks.start_soon(read, source, f"p{n}")
        await anyio.wait_all_tasks_blocked()
        await read(source, "p0", wait_s=0.04)
        started = [thread for thread in threading.enumerate() if thread.name not in before]
        tasks.cancel_scope.cancel()

    assert [thread.name for thread in started if thread.name.startswith("watch")] == ["watch s.db"]
    assert len(started) <= 1 + THREADS_MAX


async def test_waiting_reader_holds_no_transaction(source: LocalSource, path: Path) -> None:
    """One that is left open keeps the WAL file from being cut back: it would grow as long as the host is idle."""
    async with anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(read, source, f"p{n}")
        await anyio.wait_all_tasks_blocked()
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE stream SET name = name")
            other.commit()
            busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        tasks.cancel_scope.cancel()

    assert busy == 0


async def test_waiting_readers_that_have_nothing_new_are_not_woken(source: LocalSource, path: Path) -> None:
    """Each wake costs a read: with many partitions one busy one would keep all readers reading."""
    idle = source.reader("p1", EARLIEST)
    page = await source.fetch("p1", EARLIEST, records_max=1, bytes_max=1)
    seen: list[bool] = []

    async def wait_for_nothing() -> None:
        seen.append(await source.changed(page, 0.3))

    with LocalStream.open(path) as stream:
        key = next(f"{n}" for n in range(10_000) if stream.append([Entry(data=b"", key=f"{n}")])[0][0] == "p0")
        page = await source.fetch("p1", EARLIEST, records_max=1, bytes_max=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_nothing)
            await anyio.wait_all_tasks_blocked()
            stream.append([Entry(data=b"x", key=key)])
    await idle.close()

    assert seen == [False]


class CountingSource(LocalSource):
    """Counts how often the file is read."""

    fetches = 0

    async def fetch(self, partition: str, position: str, *, records_max: int, bytes_max: int) -> Page:
        self.fetches += 1
        return await super().fetch(partition, position, records_max=records_max, bytes_max=bytes_max)


async def test_reader_that_knows_of_nothing_new_does_not_read_the_file_again(path: Path) -> None:
    """A thousand idle partitions that are read once a second would be a thousand reads a second."""
    source = CountingSource(path)
    await source.open()
    reader = source.reader("p0", EARLIEST)
    for _ in range(3):
        await reader.read(records_max=1, bytes_max=1, wait_s=0.05)
    await source.close()

    assert source.fetches == 1


async def test_wait_ends_at_once_where_the_change_is_known_already(source: LocalSource, path: Path) -> None:
    """The thread wakes for a change only once; a reader that begins to wait after that must not wait for the next."""
    page = await source.fetch("p0", EARLIEST, records_max=1, bytes_max=1)
    with LocalStream.open(path) as stream:
        stream.append([Entry(data=b"x", key=f"{n}") for n in range(1_000)])
    with anyio.fail_after(LONG_S / 3):
        # The thread has told another reader of the change by then.
        other = await source.fetch("p1", EARLIEST, records_max=1, bytes_max=1)
        assert await source.changed(replace(other, changed=0), LONG_S)

        assert await source.changed(page, LONG_S)


async def test_no_record_is_missed_between_a_read_and_its_wait(source: LocalSource, path: Path) -> None:
    """A wake that comes just before the wait begins must count: else the record waits for the next one."""
    chosen = random.Random(7)
    late: list[str] = []

    async def follow(partition: str, upto: int) -> None:
        reader = source.reader(partition, EARLIEST)
        done = 0
        while done < upto:
            fetched = await reader.read(records_max=2, bytes_max=10_000, wait_s=LONG_S)
            if not fetched.records:
                late.append(partition)
                return
            done += len(fetched.records)

    with LocalStream.open(path) as stream, anyio.fail_after(LONG_S):
        keys = [f"{n}" for n in range(8)]
        homes = [partition for partition, _ in stream.append([Entry(data=b"", key=key) for key in keys])]
        async with anyio.create_task_group() as tasks:
            for home in set(homes):
                tasks.start_soon(follow, home, homes.count(home) * 41)
            for _ in range(40):
                for key in keys:
                    await anyio.to_thread.run_sync(stream.append, [Entry(data=b"", key=key)])
                    await anyio.sleep(chosen.choice([0.0, 0.0, 0.001, 0.005]))

    assert late == []


async def test_close_ends_every_wait_at_once(path: Path) -> None:
    """A source that is closed under a reader must not leave it waiting."""
    source = LocalSource(path)
    await source.open()
    errors: list[PartitionsError] = []

    async def wait_for_it(partition: str) -> None:
        try:
            await read(source, partition)
        except PartitionsError as error:
            errors.append(error)

    with anyio.fail_after(LONG_S / 3):
        async with anyio.create_task_group() as tasks:
            for n in range(3):
                tasks.start_soon(wait_for_it, f"p{n}")
            await anyio.wait_all_tasks_blocked()
            await source.close()

    assert [type(error) for error in errors] == [SourceUnavailable] * 3
    assert [thread.name for thread in threading.enumerate() if thread.name == "watch s.db"] == []


async def test_watch_goes_on_after_a_fault_of_the_file(source: LocalSource, path: Path) -> None:
    """A passing fault must not leave the readers of this host waiting for a thread that has died."""
    moved = path.with_name("moved.db")
    errors: list[PartitionsError] = []

    async def wait_for_it() -> None:
        try:
            await read(source, "p0")
        except PartitionsError as error:
            errors.append(error)

    with anyio.fail_after(LONG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_it)
            await anyio.wait_all_tasks_blocked()
            await anyio.Path(path).rename(moved)
        await anyio.Path(moved).rename(path)
        with LocalStream.open(path) as stream:
            stream.append([Entry(data=b"x", key=f"{n}") for n in range(100)])
        reader = source.reader("p0", EARLIEST)
        await reader.read(records_max=1_000, bytes_max=10_000, wait_s=0.0)
        answers: list[Fetched] = []
        while not answers:
            # The thread looks again after a second; until then a wait says what was wrong.
            try:
                answers.append(await reader.read(records_max=1_000, bytes_max=10_000, wait_s=0.1))
            except PartitionsError:
                await anyio.sleep(0.01)

    assert len(errors) == 1
    assert answers == [Fetched(records=(), lag_s=0.0)]
