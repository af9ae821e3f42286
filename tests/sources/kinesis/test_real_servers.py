"""The source on servers that speak the protocol themselves: each shows what it is right about."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from partitions.positions import EARLIEST
from partitions.sources.base import Fetched, PartitionInfo, Record, Source
from partitions.sources.kinesis import KinesisSource
from partitions.stores.memory import MemoryStore
from processor_host import Batch, HostSettings, PartitionProcessor, ProcessorHost
from processor_host.urls import open_source
from tests.sources.kinesis.streams import Stream, made_stream

__all__: list[str] = []

pytestmark = pytest.mark.usefixtures("aws_dummies")

SERVERS = ["moto", *(pytest.param(name, marks=pytest.mark.servers) for name in ("kinesis_local", "kinesalite"))]
WAIT_S = 5.0


@pytest.fixture
def endpoint_url(request: pytest.FixtureRequest, server: str) -> str:
    url: str = request.getfixturevalue(f"{server}_url")
    return url


def name() -> str:
    return f"s-{uuid4().hex[:12]}"


async def opened(stream: Stream, query: str = "") -> Source:
    source = open_source(f"{stream.url}&idle_read_s=0.2{query}")
    await source.open()
    return source


async def read_all(source: Source, partition: str, position: str, count: int) -> list[Record]:
    """Read until so many records have come, or the partition has ended."""
    reader = source.reader(partition, position)
    records: list[Record] = []
    with anyio.fail_after(30):
        while len(records) < count:
            fetched = await reader.read(records_max=500, bytes_max=1 << 20, wait_s=WAIT_S)
            assert not fetched.trimmed
            records += fetched.records
            if fetched.ended:
                break
    return records


@pytest.mark.parametrize("server", SERVERS)
async def test_records_are_read_in_order_from_any_position(endpoint_url: str) -> None:
    """The client, the signature, base64 and times as they go over a network."""
    async with made_stream(endpoint_url, name(), shards=1) as stream:
        source = await opened(stream)
        data = [f"record {n}".encode() for n in range(25)]
        await stream.put([(f"key-{n}", each) for n, each in enumerate(data)])
        [info] = await source.list_partitions()

        records = await read_all(source, info.partition, EARLIEST, 25)
        resumed = await read_all(source, info.partition, records[9].position, 15)
        at_end = await source.reader(info.partition, records[-1].position).read(records_max=9, bytes_max=99, wait_s=0.5)

        assert info == PartitionInfo(partition="shardId-000000000000")
        assert [record.data for record in records] == data
        assert [record.key for record in records] == [f"key-{n}" for n in range(25)]
        assert resumed == records[10:]
        assert at_end == Fetched(records=(), lag_s=0.0)
        assert all(record.time_s is not None and record.time_s > 1e9 for record in records)
        await source.close()


@pytest.mark.parametrize("server", SERVERS)
async def test_latest_leaves_out_what_was_there(endpoint_url: str) -> None:
    """C48, over the clock of the server: two of these know whole seconds alone."""
    async with made_stream(endpoint_url, name(), shards=1) as stream:
        await stream.put([("old", b"old")])
        source = await opened(stream, "&start=latest")
        # A record of the very millisecond would be at the start, not before it.
        await anyio.sleep(0.01)
        point = await source.resolve_start("earliest")
        await stream.put([("new", b"new")])
        [info] = await source.list_partitions()

        records = await read_all(source, info.partition, await source.first_position(info.partition, point), 1)

        assert [record.data for record in records] == [b"new"]
        await source.close()


@pytest.mark.parametrize("server", SERVERS)
async def test_stream_made_anew_under_the_same_name_has_another_identity(endpoint_url: str) -> None:
    """A group must not go on with the positions of the old one."""
    async with made_stream(endpoint_url, name(), shards=1) as stream:
        source = await opened(stream)
        before = await source.identity()

        assert await source.identity() == before
        assert stream.name in before
        assert before.rpartition("@")[2].replace(".", "").isdigit()
        await source.close()


@pytest.mark.servers
@pytest.mark.parametrize("server", ["kinesis_local", "kinesalite"])
async def test_split_and_merge_end_the_parents_and_name_them(endpoint_url: str) -> None:
    """Real answers at the end of a shard, and real lineage of a merge."""
    async with made_stream(endpoint_url, name(), shards=2) as stream:
        source = await opened(stream)
        await stream.put([(f"key-{n}", b"before") for n in range(40)])
        first, second = await stream.open_shards()
        await stream.split(first)
        _, right, _ = await stream.open_shards()
        await stream.merge(right, second)
        await stream.put([(f"key-{n}", b"after") for n in range(40)])
        infos = {info.partition: info for info in await source.list_partitions()}
        records = {
            each: await read_all(source, each, EARLIEST, 1000) if info.closed else [] for each, info in infos.items()
        }

        merged = f"shardId-{4:012}"
        assert [info.closed for info in infos.values()] == [True, True, False, True, False]
        assert infos[f"shardId-{2:012}"].parents == infos[f"shardId-{3:012}"].parents == (first["ShardId"],)
        assert set(infos[merged].parents) == {right["ShardId"], second["ShardId"]}
        assert sum(map(len, records.values())) == 40
        assert {record.data for each in records.values() for record in each} == {b"before"}
        await source.close()


# --- Flights ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def flights(flights_file: Path) -> list[bytes]:
    return gzip.decompress(flights_file.read_bytes()).splitlines()


class Flights(PartitionProcessor):
    """Notes what it gets."""

    def __init__(self, seen: list[Record], news: list[anyio.Event]) -> None:
        self._seen = seen
        self._news = news

    async def process(self, batch: Batch) -> None:
        for record in batch:
            self._seen.append(record)
        self._news[0].set()


async def flow(stream: Stream, lines: list[bytes], *, within_s: float) -> list[Record]:
    """Put the flights while three hosts handle them; return what they got."""
    store, seen, news = MemoryStore(), list[Record](), [anyio.Event()]
    settings = {"lease_duration_s": 3.0, "discovery_interval_s": 5.0, "checkpoint_interval_s": 1.0}
    hosts = [
        ProcessorHost(
            group="g",
            source=f"{stream.url}&idle_read_s=0.2",
            store=store,
            processor=lambda: Flights(seen, news),
            settings=HostSettings(host_id=each, **settings),  # type: ignore[arg-type]
        )
        for each in "abc"
    ]
    entries = [(json.loads(line)["tailnum"] or "none", line) for line in lines]
    async with hosts[0], hosts[1], hosts[2]:
        await stream.put(entries)
        known: set[bytes] = set()
        looked_at = 0
        with anyio.fail_after(within_s):
            while len(known) < len(lines):
                known |= {record.data for record in seen[looked_at:]}
                looked_at = len(seen)
                news[0] = anyio.Event()
                if len(known) < len(lines):
                    await news[0].wait()
    return seen


def check_order_of_keys(seen: list[Record], lines: list[bytes]) -> None:
    """Fail unless the flights of each aircraft came, the first time, in the order of the file, and all of them did."""
    first = list(dict.fromkeys(record.data for record in seen))
    by_key: dict[str, list[int]] = defaultdict(list)
    for line in first:
        flight = json.loads(line)
        by_key[flight["tailnum"]].append(flight["id"])
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(len(lines)))
    assert {key: sorted(numbers) for key, numbers in by_key.items()} == by_key


@pytest.mark.servers
@pytest.mark.parametrize("server", ["ministack"])
async def test_flights_of_a_fast_server_are_all_handled(endpoint_url: str, flights: list[bytes]) -> None:
    """Volume without resharding, for there this server loses what is unread."""
    async with made_stream(endpoint_url, name(), shards=4) as stream:
        seen = await flow(stream, flights, within_s=90)

    check_order_of_keys(seen, flights)


@pytest.mark.servers
@pytest.mark.parametrize("server", ["ministack"])
async def test_shard_that_vanishes_with_its_tail_ends_with_a_gap(endpoint_url: str) -> None:
    """A server that drops a parent at once shows what a stopped host finds after the retention."""
    async with made_stream(endpoint_url, name(), shards=1) as stream:
        source = await opened(stream)
        await stream.put([("k", f"{n}".encode()) for n in range(5)])
        [info] = await source.list_partitions()
        [first, *_] = await read_all(source, info.partition, EARLIEST, 5)
        [shard] = await stream.open_shards()
        await stream.split(shard)

        fetched = await source.reader(info.partition, first.position).read(records_max=9, bytes_max=999, wait_s=WAIT_S)

        assert isinstance(source, KinesisSource)
        assert fetched == Fetched(records=(), lag_s=0.0, ended=True, trimmed=True)
        await source.close()
