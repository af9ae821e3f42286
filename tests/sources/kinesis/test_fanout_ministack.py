"""Fan-out on a server that speaks it by itself: real subscriptions, and the five seconds between two of them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module

import anyio
import pytest
from click.testing import CliRunner

from partitions.positions import EARLIEST
from partitions.sources.base import Reader, Record
from partitions.sources.kinesis import KinesisSource, parse_url
from processor_host.cli.stream import stream as stream_command
from tests.sources.kinesis.streams import Stream, made_stream

__all__: list[str] = []

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("aws_dummies")]


@asynccontextmanager
async def made(endpoint_url: str, shards: int) -> AsyncIterator[Stream]:
    async with made_stream(endpoint_url, f"fanout-{uuid.uuid4().hex[:8]}", shards=shards) as stream:
        yield stream


@asynccontextmanager
async def opened(stream: Stream, consumer: str | None = "group") -> AsyncIterator[KinesisSource]:
    mode = "" if consumer is None else f"&mode=fanout&consumer={consumer}"
    source = KinesisSource(parse_url(f"{stream.url}{mode}"))
    await source.open()
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def reading(source: KinesisSource, partition: str, position: str = EARLIEST) -> AsyncIterator[Reader]:
    reader = source.reader(partition, position)
    try:
        yield reader
    finally:
        await reader.close()


async def read(reader: Reader, count: int) -> list[Record]:
    found: list[Record] = []
    with anyio.fail_after(30):
        while len(found) < count:
            fetched = await reader.read(records_max=100, bytes_max=1_000_000, wait_s=1.0)
            assert not fetched.trimmed
            found += fetched.records
    return found


def entries(count: int, first: int = 0) -> list[tuple[str, bytes]]:
    return [(f"key-{number % 7}", b"%d" % number) for number in range(first, first + count)]


def numbers(records: Sequence[Record]) -> list[int]:
    return [int(record.data) for record in records]


async def test_fanout_reads_what_is_there_and_what_comes(ministack_url: str) -> None:
    """All records, once, in order, through one subscription and several reads."""
    async with made(ministack_url, 1) as stream, opened(stream) as source:
        (info,) = await source.list_partitions()
        await stream.put(entries(1200))
        async with reading(source, info.partition) as reader:
            there = await read(reader, 1200)
            await stream.put(entries(50, 1200))
            came = await read(reader, 50)

    assert numbers(there + came) == list(range(1250))


async def test_fanout_goes_on_where_polling_ended_and_back(ministack_url: str) -> None:
    """Positions mean the same in both modes: a group may change its mode between two starts."""
    async with made(ministack_url, 1) as stream, opened(stream) as pushed, opened(stream, None) as polled:
        (info,) = await pushed.list_partitions()
        await stream.put(entries(300))
        async with reading(polled, info.partition) as reader:
            first = await read(reader, 100)
        async with reading(pushed, info.partition, first[99].position) as reader:
            second = (await read(reader, 100))[:100]
        async with reading(polled, info.partition, second[99].position) as reader:
            third = await read(reader, 100)

    assert numbers(first[:100] + second + third) == list(range(300))


async def test_fanout_of_the_next_host_takes_over(ministack_url: str) -> None:
    """A host that hangs holds the subscription; within five seconds of its beginning a second one is refused."""
    async with made(ministack_url, 1) as stream, opened(stream) as old, opened(stream) as new:
        (info,) = await old.list_partitions()
        await stream.put(entries(10))
        async with reading(old, info.partition) as hung, reading(new, info.partition) as reader:
            first = await read(hung, 10)
            began_s = anyio.current_time()
            again = await read(reader, 10)
            took_s = anyio.current_time() - began_s
            await stream.put(entries(5, 10))
            more = await read(reader, 5)

    assert numbers(first) == numbers(again) == list(range(10))
    assert numbers(more) == list(range(10, 15))
    assert 3.0 < took_s < 20.0


async def test_fanout_ends_when_its_shard_was_split(ministack_url: str) -> None:
    """The children are read from their beginning, by the same consumer."""
    async with made(ministack_url, 1) as stream, opened(stream) as source:
        (info,) = await source.list_partitions()
        await stream.put(entries(20))
        async with reading(source, info.partition) as parent:
            before = await read(parent, 20)
            await stream.split((await stream.open_shards())[0])
            await stream.put(entries(20, 20))
            with anyio.fail_after(20):
                while not (await parent.read(records_max=1, bytes_max=1, wait_s=1.0)).ended:
                    pass
        after: list[Record] = []
        children = [each for each in await source.list_partitions() if info.partition in each.parents]
        for child in children:
            async with reading(source, child.partition) as reader:
                with anyio.move_on_after(2):
                    while True:
                        after += (await reader.read(records_max=100, bytes_max=10_000, wait_s=0.5)).records

    assert len(children) == 2
    assert (numbers(before), sorted(numbers(after))) == (list(range(20)), list(range(20, 40)))


@pytest.mark.parametrize("consumer", ["group", None], ids=["pushed", "polled"])
async def test_aggregate_is_unpacked_and_gone_on_inside(ministack_url: str, consumer: str | None) -> None:
    """A restart at any of its records repeats none before it and loses none after it."""
    import_module("aws_kinesis_agg.deaggregator")
    aggregator = import_module("aws_kinesis_agg.aggregator").RecordAggregator()
    for number in range(1, 4):
        aggregator.add_user_record(f"user-{number}", b"%d" % number)
    key, _, packed = aggregator.clear_and_get().get_contents()
    async with made(ministack_url, 1) as stream, opened(stream, consumer) as source:
        (info,) = await source.list_partitions()
        await stream.put([("plain", b"0"), (key, packed), ("plain", b"4")])
        async with reading(source, info.partition) as reader:
            whole = await read(reader, 5)
        rests = []
        for done in whole[:-1]:
            async with reading(source, info.partition, done.position) as reader:
                rests.append(numbers(await read(reader, 4 - int(done.data))))

    assert [each.key for each in whole] == ["plain", "user-1", "user-2", "user-3", "plain"]
    assert [numbers(whole), *rests] == [list(range(first, 5)) for first in range(5)]


async def test_deregister_removes_the_consumer_and_only_on_request(ministack_url: str) -> None:
    """A consumer costs money as long as it is there; a host that stops may come back in a minute."""
    async with made(ministack_url, 1) as stream:
        async with opened(stream) as source:
            (info,) = await source.list_partitions()
            await stream.put(entries(1))
            async with reading(source, info.partition) as reader:
                await read(reader, 1)
        command = ["deregister", f"{stream.url}&mode=fanout&consumer=group"]
        results = [await anyio.to_thread.run_sync(CliRunner().invoke, stream_command, command) for _ in range(2)]

    assert [(each.exit_code, each.stdout) for each in results] == [
        (0, f"removed consumer group of {command[1]}\n"),
        (2, ""),
    ]
    assert "the stream has no consumer 'group'" in results[1].stderr
