"""
Reading ahead: from the last record handed on, never further than there is room, and again after any fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import anyio
import pytest

from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.positions import EARLIEST
from partitions.sources.base import Fetched, Reader, Record, Source
from processor_host.buffer import ByteBudget, Chunk, RecordBuffer
from processor_host.events import LagSeen, PartitionGap, ReadFailed
from processor_host.reading import READ_GRACE_S, ReadAhead
from tests.stage import VIRTUAL_TIME, Stage, about, beside
from tests.world.diary import passes
from tests.world.network import Call, PlaceSource

__all__: list[str] = []

READ_WAIT_S = 20.0


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def reads(call: Call) -> bool:
    return call.operation == "source.read"


class Opened(PlaceSource):
    """The source of a stage, which notes where readers were opened and how many of them were closed."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.network)
        self.positions: list[str] = []
        self.closed = 0
        self.on_read: Any = None

    def reader(self, partition: str, position: str) -> Reader:
        self.positions.append(position)
        return _OpenedReader(self, super().reader(partition, position))


@dataclass
class _OpenedReader:
    source: Opened
    reader: Reader

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        if self.source.on_read is not None:
            await self.source.on_read()
        return await self.reader.read(records_max=records_max, bytes_max=bytes_max, wait_s=wait_s)

    async def close(self) -> None:
        self.source.closed += 1
        await self.reader.close()


@dataclass
class Reading:
    """One reader ahead of nobody: chunks stay in its buffer until the test takes them."""

    stage: Stage
    source: Source
    buffer: RecordBuffer
    done: anyio.Event = field(default_factory=anyio.Event)

    async def take(self, count: int) -> list[Record]:
        """Handle chunks until so many records came."""
        records: list[Record] = []
        while len(records) < count:
            chunk = await self.next()
            records += chunk.records
        return records

    async def next(self) -> Chunk:
        chunk = await self.buffer.get()
        assert chunk is not None
        self.buffer.done()
        return chunk

    async def run(self, position: str) -> None:
        await ReadAhead(
            source=self.source,
            partition="p0",
            position=position,
            records_max=10,
            bytes_max=1000,
            wait_s=READ_WAIT_S,
            random=Random(1),
            on_event=self.stage.tell,
        ).run(self.buffer)
        self.done.set()


@asynccontextmanager
async def reading(
    stage: Stage, *, source: Source | None = None, position: str = EARLIEST, records_max: int = 20
) -> AsyncIterator[Reading]:
    buffer = RecordBuffer(ByteBudget(10**6), records_max=records_max, bytes_max=10**5)
    ahead = Reading(stage, source or stage.source_of_a_host(), buffer)
    async with beside(partial(ahead.run, position)):
        yield ahead


def put(stage: Stage, count: int, *, size: int = 1) -> None:
    for _ in range(count):
        stage.source.put("p0", b"x" * size)


def positions(records: list[Record]) -> list[int]:
    return [int(record.position) for record in records]


async def test_reader_hands_on_every_record_in_order() -> None:
    """No gap and no repeat, over many reads."""
    stage = Stage()
    put(stage, 95)
    async with reading(stage) as ahead:
        assert positions(await ahead.take(95)) == list(range(1, 96))


async def test_reader_goes_on_after_the_position_it_is_given() -> None:
    """A position is the last record done."""
    stage = Stage()
    put(stage, 20)
    async with reading(stage, position="15") as ahead:
        assert positions(await ahead.take(5)) == [16, 17, 18, 19, 20]


async def test_reader_reads_no_further_ahead_than_there_is_room() -> None:
    """Bounded by the bound and one read: a slow processor must not fill the memory."""
    stage = Stage()
    put(stage, 500)
    async with reading(stage, records_max=25) as ahead:
        await passes(60)
        before = stage.network.fetched["p0"]
        await ahead.take(10)
        await passes(60)

        assert (before, stage.network.fetched["p0"]) == (30, 40)


async def test_reader_waits_for_records_that_come_later() -> None:
    """An idle partition is read with one request per wait, and what comes is handed on at once."""
    stage = Stage()
    async with reading(stage) as ahead:
        await anyio.sleep(2 * READ_WAIT_S + 5)
        requests = len(stage.network.calls)
        put(stage, 1)
        with anyio.fail_after(0.1):
            chunk = await ahead.next()

        # What brought nothing was not handed on either.
        assert (positions(list(chunk.records)), requests) == ([1], 3)


async def test_reader_ends_with_the_partition() -> None:
    """Nothing will ever follow, and the pump must know."""
    stage = Stage()
    put(stage, 3)
    stage.source.close_partition("p0")
    async with reading(stage) as ahead:
        chunk = await ahead.next()
        with anyio.fail_after(1):
            await ahead.done.wait()

        assert (positions(list(chunk.records)), chunk.ended, len(stage.network.calls)) == ([1, 2, 3], True, 1)


async def test_reader_hands_on_an_end_without_records() -> None:
    """A partition that was closed when everything was read already."""
    stage = Stage()
    async with reading(stage) as ahead:
        await passes(1)
        stage.source.close_partition("p0")
        chunk = await ahead.next()

        assert (chunk.records, chunk.ended) == ((), True)


@pytest.mark.parametrize(
    "error", [SourceUnavailable("throttled"), SourceMisconfigured("denied"), ValueError("a bug"), OSError("broken")]
)
async def test_reader_tries_again_right_after_the_last_record_whatever_a_source_raises(error: Exception) -> None:
    """Failures of single partitions stay single: nothing is skipped, repeated or given up."""
    stage = Stage()
    put(stage, 40)
    source = Opened(stage)
    async with reading(stage, source=source) as ahead:
        got = await ahead.take(10)
        stage.disturb(reads, raises=error, times=3)
        got += await ahead.take(30)
        put(stage, 5)
        got += await ahead.take(5)

        assert positions(got) == list(range(1, 46))
    failed = stage.events_of(ReadFailed)
    assert [(event.partition, event.error, event.attempt) for event in failed] == [
        ("p0", f"{type(error).__name__}: {error}", attempt) for attempt in (1, 2, 3)
    ]
    assert [low <= event.pause_s <= 2 * low for event, low in zip(failed, (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    # A new reader each time, from the last record handed on; and each of them is closed in the end.
    assert source.positions[0] == EARLIEST
    assert len(set(source.positions[1:])) == 1
    assert (len(source.positions), source.closed) == (4, 4)


async def test_reader_pauses_as_long_as_it_says() -> None:
    """What a log line promises is what a person waits for."""
    stage = Stage()
    put(stage, 1)
    stage.disturb(reads, raises=SourceUnavailable("throttled"), times=4)
    async with reading(stage) as ahead:
        await ahead.take(1)

    times = [at_s for at_s, call in stage.network.calls if reads(call)]
    assert [later - earlier for earlier, later in pairwise(times[:5])] == [
        about(event.pause_s) for event in stage.events_of(ReadFailed)
    ]


async def test_reader_begins_to_count_anew_after_a_read_that_worked() -> None:
    """Ten faults in a year are no outage."""
    stage = Stage()
    put(stage, 10)
    async with reading(stage) as ahead:
        await ahead.take(10)
        for _ in range(3):
            fault = stage.disturb(reads, raises=SourceUnavailable("throttled"), times=1)
            await anyio.sleep(READ_WAIT_S + 5)
            assert fault.hits == 1

    assert {event.attempt for event in stage.events_of(ReadFailed)} == {1}


async def test_reader_gives_up_a_read_that_is_never_answered() -> None:
    """A connection that hangs must not end the reading of its partition."""
    stage = Stage()
    put(stage, 1)
    stage.disturb(reads, lose_answer=True, times=1)
    async with reading(stage) as ahead:
        began_s = stage.now_s
        await ahead.take(1)

        assert READ_WAIT_S + READ_GRACE_S <= stage.now_s - began_s <= READ_WAIT_S + READ_GRACE_S + 1
        assert [event.error for event in stage.events_of(ReadFailed)] == ["TimeoutError: "]


async def test_reader_goes_on_when_a_source_raises_a_cancellation_of_its_own() -> None:
    """A client whose inner task was cancelled raises that here; nobody has cancelled the reading."""
    stage = Stage()
    put(stage, 10)
    source = Opened(stage)

    async def broken() -> None:
        source.on_read = None
        inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    async with reading(stage, source=source) as ahead:
        got = await ahead.take(10)
        source.on_read = broken
        await anyio.sleep(READ_WAIT_S + 5)
        put(stage, 10)
        with anyio.fail_after(60):
            got += await ahead.take(10)

        assert positions(got) == list(range(1, 21))
        assert len(stage.events_of(ReadFailed)) == 1


async def test_reader_tells_of_records_that_the_source_has_dropped() -> None:
    """They are lost, and somebody must know from where on."""
    stage = Stage()
    put(stage, 20)
    stage.source.trim("p0", "11")
    async with reading(stage, position="4") as ahead:
        assert positions(await ahead.take(10)) == list(range(11, 21))

    assert stage.events_of(PartitionGap) == [PartitionGap(partition="p0", position="4")]


async def test_reader_tells_how_far_the_partition_is_behind() -> None:
    """Also where nothing came: an idle partition has no lag."""
    stage = Stage()
    for n in range(11):
        stage.source.put("p0", b"x", time_s=100.0 + n)
    async with reading(stage) as ahead:
        chunks = [await ahead.next(), await ahead.next()]
        await anyio.sleep(READ_WAIT_S + 1)

    assert [chunk.lag_s for chunk in chunks] == [1.0, 0.0]
    assert [event.lag_s for event in stage.events_of(LagSeen)] == [1.0, 0.0, 0.0]
    assert [event.records for event in stage.events_of(LagSeen)] == [10, 1, 0]


async def test_reader_is_closed_when_the_reading_is_cancelled() -> None:
    """A connection for each hand-over would be left behind."""
    stage = Stage()
    put(stage, 1)
    source = Opened(stage)
    async with reading(stage, source=source) as ahead:
        await ahead.take(1)

    assert (len(source.positions), source.closed) == (1, 1)
