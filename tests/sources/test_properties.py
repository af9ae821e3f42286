"""Whatever is written and however it is read: nothing lost, nothing twice, each key in order over splits and merges."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.positions import EARLIEST
from partitions.sources.base import Fetched, Reader, Record
from tests.sources.drivers import Driver, LocalDriver, driver_of

__all__: list[str] = []

KEYS = [f"key {n}" for n in range(12)]
RECORD_LIMITS = st.integers(1, 5)
BYTE_LIMITS = st.integers(1, 20)


@dataclass(frozen=True)
class Append:
    writer: int
    keys: list[str]


@dataclass(frozen=True)
class Split:
    which: int


@dataclass(frozen=True)
class Merge:
    which: int


@dataclass(frozen=True)
class Read:
    which: int
    records_max: int
    bytes_max: int


@dataclass(frozen=True)
class Resume:
    """A new reader from the position of any record that was read before: a new owner after a checkpoint."""

    which: int
    back: int


STEPS = st.lists(
    st.one_of(
        st.builds(
            Append, st.integers(0, LocalDriver.WRITERS - 1), st.lists(st.sampled_from(KEYS), min_size=1, max_size=6)
        ),
        st.builds(Split, st.integers(0, 99)),
        st.builds(Merge, st.integers(0, 99)),
        st.builds(Read, st.integers(0, 99), RECORD_LIMITS, BYTE_LIMITS),
        st.builds(Resume, st.integers(0, 99), st.integers(0, 3)),
    ),
    min_size=5,
    max_size=60,
)


@dataclass
class World:
    """What was written, and how far each partition was read."""

    driver: Driver
    written: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    closed: set[str] = field(default_factory=set)
    readers: dict[str, Reader] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    names: list[str] = field(default_factory=list)

    def write(self, step: Append | Split | Merge) -> None:
        open_ones = sorted(self.driver.ranges, key=lambda name: self.driver.ranges[name])
        match step:
            case Append(writer, keys):
                for key in keys:
                    self.driver.time_s += 1.0
                    data = f"{key} {len(self.by_key[key])}".encode()
                    record = self.driver.append(key, data, writer)
                    self.by_key[key].append(data)
                    self.written[record.partition].append(record)
            case Split(which):
                name = open_ones[which % len(open_ones)]
                self.names += self.driver.split(name)
                self.closed.add(name)
            case Merge(which) if len(open_ones) > 1:
                at = which % (len(open_ones) - 1)
                a, b = open_ones[at : at + 2]
                self.names.append(self.driver.merge(b, a))
                self.closed |= {a, b}

    def reader(self, name: str) -> Reader:
        if name not in self.readers:
            self.readers[name] = self.driver.source.reader(name, EARLIEST)
        return self.readers[name]

    def expected(self, name: str, records_max: int, bytes_max: int) -> Fetched:
        """The rule of the contract, from what was written."""
        after = self.written[name][self.done[name] :]
        records: list[Record] = []
        for record in after[:records_max]:
            if records and sum(len(each.data) for each in [*records, record]) > bytes_max:
                break
            records.append(record)
        rest = after[len(records) :]
        lag_s = (rest[-1].time_s or 0.0) - (records[-1].time_s or 0.0) if rest else 0.0
        return Fetched(records=tuple(records), lag_s=lag_s, ended=name in self.closed and not rest)

    async def read(self, name: str, records_max: int, bytes_max: int) -> Fetched:
        expected = self.expected(name, records_max, bytes_max)
        fetched = await self.reader(name).read(records_max=records_max, bytes_max=bytes_max, wait_s=0.0)
        assert fetched == expected
        self.done[name] += len(fetched.records)
        return fetched

    def resume(self, name: str, back: int) -> None:
        self.done[name] = max(0, self.done[name] - back)
        position = self.written[name][self.done[name] - 1].position if self.done[name] else EARLIEST
        self.readers[name] = self.driver.source.reader(name, position)


async def check(driver: Driver, steps: list[Append | Split | Merge | Read | Resume]) -> None:
    await driver.source.open()
    try:
        world = World(driver, names=list(driver.ranges))
        for step in steps:
            match step:
                case Read(which, records_max, bytes_max):
                    await world.read(world.names[which % len(world.names)], records_max, bytes_max)
                case Resume(which, back):
                    world.resume(world.names[which % len(world.names)], back)
                case _:
                    world.write(step)
        assert await read_as_a_group(world) == {key: data for key, data in world.by_key.items() if data}
    finally:
        await driver.source.close()


async def read_as_a_group(world: World) -> dict[str, list[bytes]]:
    """Read everything from the start, each partition only after its parents have ended."""
    world.readers.clear()
    world.done.clear()
    by_key: dict[str, list[bytes]] = defaultdict(list)
    ended: set[str] = set()
    left = list(await world.driver.source.list_partitions())
    while left:
        info = next(info for info in left if ended.issuperset(info.parents))
        left.remove(info)
        while (fetched := await world.read(info.partition, 3, 1 << 20)).records:
            for record in fetched.records:
                by_key[record.key or ""].append(record.data)
            if fetched.ended:
                break
        if fetched.ended:
            ended.add(info.partition)
    return by_key


@pytest.mark.parametrize("kind", ["memory", "local"])
@settings(max_examples=40)
@given(steps=STEPS)
async def test_source_loses_repeats_and_reorders_nothing(
    kind: str, steps: list[Append | Split | Merge | Read | Resume]
) -> None:
    """Several writers, readers with any limits, resumed anywhere, over splits and merges."""
    with tempfile.TemporaryDirectory() as folder, driver_of(kind, Path(folder), partitions=2) as driver:
        await check(driver, steps)
