"""
A virtual world whose hosts read a scripted Kinesis: real hosts, the memory store, and the product's own source.

The leases and the network are those of `tests.world`; only the source behind them is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from partitions.sources.kinesis import KinesisPlace, KinesisSource
from partitions.sources.memory import MemorySource
from partitions.verbs import Acquire, Complete
from tests.sources.kinesis.scripted import EPOCH_S, Scripted, ScriptedClient
from tests.sources.kinesis.stages import LoopClock
from tests.world.loop import running_loop
from tests.world.world import World

__all__ = ["KinesisWorld", "check_parents_first", "kinesis_world"]


@dataclass(slots=True)
class KinesisWorld(World):
    """A world whose `source` is not used: its hosts read `kinesis`."""

    kinesis: Scripted = field(init=False)
    client: ScriptedClient = field(init=False)

    def write(self, count: int, shard: str, *, key: str = "k") -> list[bytes]:
        """Write so many records into a shard; return their data."""
        data = [f"{shard}/{key}/{self.random.getrandbits(64):x}".encode() for _ in range(count)]
        for each in data:
            self.kinesis.put(shard, each, key)
        return data

    def delivered(self, partition: str | None = None) -> list[bytes]:
        """Return the data of the records that were started, in that order."""
        return [entry.data for entry in self.handled(partition)]

    def is_done(self, data: list[bytes]) -> bool:
        """Say whether each of these records was finished."""
        return {entry.data for entry in self.journal if entry.end_s is not None} >= set(data)


async def kinesis_world(
    *, shards: int, seed: int = 1, settings: Mapping[str, Any] | None = None, **scripted: Any
) -> KinesisWorld:
    """Make a world with an open source on a stream of so many shards."""
    world = KinesisWorld(partitions=0, seed=seed, settings=settings or {})
    world.kinesis = Scripted(lambda: EPOCH_S + running_loop().time(), **scripted)
    world.kinesis.make(shards)
    world.client = ScriptedClient(world.kinesis)
    source = KinesisSource(
        KinesisPlace(streams=("orders",)), client=world.client, clock=LoopClock(), random=Random(seed)
    )
    await source.open()
    # The network asks nothing of it but the contract.
    world.network.source = cast("MemorySource", source)
    return world


def check_parents_first(world: World) -> None:
    """Fail where a shard was acquired, or a record of it started, before each of its parents was complete."""
    parents = {lease.partition: lease.parents for lease in world.leases().values()}
    done_s = {write.verb.partition: write.at_s for write in world.network.applied(Complete)}
    begun = [(write.verb.partition, write.at_s) for write in world.network.applied(Acquire)]
    begun += [(entry.partition, entry.start_s) for entry in world.handled()]
    for partition, at_s in begun:
        for parent in parents[partition]:
            assert done_s.get(parent, float("inf")) <= at_s, f"{partition} at {at_s} before {parent} was complete"
