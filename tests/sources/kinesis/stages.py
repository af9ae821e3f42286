"""
One scripted stream and a source on it, on virtual time, and what a reader returned.

Knows no host; those of `hosts` do.
"""

from __future__ import annotations

from random import Random

from partitions.sources.base import Fetched, Reader, Record
from partitions.sources.kinesis import KinesisPlace, KinesisSource
from tests.sources.kinesis.scripted import EPOCH_S, Scripted, ScriptedClient
from tests.world.loop import running_loop

__all__ = ["LONG_S", "SHARD", "LoopClock", "Stage", "read", "read_all"]

LONG_S = 20.0
SHARD = "shardId-000000000000"


class LoopClock:
    """The loop's time."""

    def now_s(self) -> float:
        return running_loop().time()


class Stage:
    """One stream and a source on it."""

    def __init__(self, *, idle_read_s: float = 1.0, **more: object) -> None:
        self.kinesis = Scripted(lambda: EPOCH_S + running_loop().time(), **more)  # type: ignore[arg-type]
        self.kinesis.make(1)
        self.client = ScriptedClient(self.kinesis)
        self.source = KinesisSource(
            KinesisPlace(streams=("orders",), idle_read_s=idle_read_s),
            client=self.client,
            clock=LoopClock(),
            random=Random(1),
        )

    async def open(self) -> None:
        await self.source.open()
        self.kinesis.asked.clear()

    def put(self, count: int, shard: str = SHARD, data: bytes = b"") -> tuple[Record, ...]:
        """Records as a reader returns them."""
        made = []
        for n in range(count):
            payload = data or f"{n}".encode()
            position = self.kinesis.put(shard, payload)
            time_s = self.kinesis.shards[shard].entries[-1].time_s
            made.append(Record(partition=shard, position=position, key="k", data=payload, time_s=time_s))
        return tuple(made)

    def iterators(self) -> list[str]:
        return [ask.arguments["ShardIteratorType"] for ask in self.kinesis.calls("GetShardIterator")]


async def read(reader: Reader, *, records_max: int = 100, bytes_max: int = 1 << 20, wait_s: float = 0.0) -> Fetched:
    return await reader.read(records_max=records_max, bytes_max=bytes_max, wait_s=wait_s)


async def read_all(reader: Reader, count: int) -> list[Record]:
    """Read until so many records have come."""
    records: list[Record] = []
    while len(records) < count:
        records += (await read(reader, wait_s=LONG_S)).records
    return records
