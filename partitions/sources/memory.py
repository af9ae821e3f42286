"""
A stream in memory, for the virtual world: no thread, no file and no clock but the one it is given.

Knows no host and no lease. A synchronous core (`fetch_next_now`, `list_now`) does everything, so that a simulated
network can put itself between; the contract of `partitions.sources.base` is a thin layer over it.

Theory of operation: a partition's records are numbered 1, 2, 3, …, and a record's number is its position. Every record,
split, merge and close also takes the next number of the whole stream, its *change*; "latest" is the last change, so it
means the same moment in every partition. Partitions are never forgotten: one that is no longer listed still answers
that it has ended. A reader that waits holds no more than an event of its partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from partitions.errors import SourceMisconfigured
from partitions.positions import EARLIEST, END, Start, time_of
from partitions.sources._numbers import change_of, checked_number, number_of, resolved
from partitions.sources.base import Fetched, PartitionInfo, Record

__all__ = ["MemoryReader", "MemorySource"]


@dataclass(slots=True, kw_only=True)
class _Partition:
    """One partition; owned by its source. `changes[i]` belongs to `records[i]`, whose number is `trimmed + i + 1`."""

    name: str
    parents: tuple[str, ...] = ()
    closed: bool = False
    listed: bool = True
    trimmed: int = 0
    records: list[Record] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    news: anyio.Event | None = None
    """Set at the next change; made by the first reader that waits for it."""

    @property
    def last(self) -> int:
        return self.trimmed + len(self.records)

    def tell(self) -> None:
        """Wake every reader that waits for a change."""
        if self.news is not None:
            self.news.set()
            self.news = None


class MemorySource:
    """A `partitions.sources.base.Source` in memory, with the writer's side of the stream beside it."""

    def __init__(
        self, now_s: Callable[[], float], *, partitions: int = 1, name: str = "memory", incarnation: int = 1
    ) -> None:
        """
        Make a stream of the partitions "p0", "p1", ….

        Args:
            now_s: The clock of the stream, seconds, for the records' times.
            partitions: How many partitions it starts with.
            name: Its name.
            incarnation: Tells this stream from an earlier one of the same name.
        """
        self._now_s = now_s
        self._name = name
        self._identity = f"{name}#{incarnation}"
        self._change = 0
        self._partitions = {f"p{n}": _Partition(name=f"p{n}") for n in range(partitions)}

    # The writer's side.

    def put(self, partition: str, data: bytes, key: str | None = None, time_s: float | None = None) -> str:
        """Append one record and return its position; `time_s` is the clock's present time if not given."""
        home = self._open_one(partition)
        self._change += 1
        record = Record(
            partition=partition,
            position=str(home.last + 1),
            key=key,
            data=data,
            time_s=self._now_s() if time_s is None else time_s,
        )
        home.records.append(record)
        home.changes.append(self._change)
        home.tell()
        return record.position

    def split(self, partition: str) -> tuple[str, str]:
        """Close a partition and return the names of the two that go on from it: "p0" becomes "p0.0" and "p0.1"."""
        self.close_partition(partition)
        return self._bear(f"{partition}.0", partition), self._bear(f"{partition}.1", partition)

    def merge(self, a: str, b: str) -> str:
        """Close two partitions and return the name of the one that goes on from both: "p0" and "p1" become "p0+p1"."""
        if a == b:
            raise ValueError(f"partition {a!r} cannot be merged with itself; name two partitions")
        self._open_one(b)
        self.close_partition(a)
        self.close_partition(b)
        return self._bear(f"{a}+{b}", a, b)

    def close_partition(self, partition: str) -> None:
        """Let a partition take no more records."""
        home = self._open_one(partition)
        self._change += 1
        home.closed = True
        home.tell()

    def trim(self, partition: str, before_position: str) -> None:
        """Drop the records before the one at `before_position`, as a source's retention does."""
        home = self._known(partition)
        dropped = min(number_of(partition, before_position) - 1 - home.trimmed, len(home.records))
        if dropped > 0:
            del home.records[:dropped], home.changes[:dropped]
            home.trimmed += dropped
            home.tell()

    def delist(self, partition: str) -> None:
        """Drop a closed partition with all its records, as a source does when its last record is too old."""
        home = self._known(partition)
        if not home.closed:
            raise ValueError(f"partition {partition!r} is open; only a closed one can be dropped")
        self.trim(partition, str(home.last + 1))
        home.listed = False
        home.tell()

    # The synchronous core of the reader's side.

    def list_now(self) -> tuple[PartitionInfo, ...]:
        """See `Source.list_partitions`."""
        return tuple(
            PartitionInfo(partition=each.name, parents=each.parents, closed=each.closed)
            for each in self._partitions.values()
            if each.listed
        )

    def fetch_now(self, partition: str, position: str, records_max: int, bytes_max: int) -> Fetched:
        """Return the records after `position` that are there; see `Reader.read`."""
        return self.fetch_next_now(partition, position, records_max, bytes_max)[0]

    def fetch_next_now(self, partition: str, position: str, records_max: int, bytes_max: int) -> tuple[Fetched, str]:
        """Return the same as `fetch_now`, and the position from which the next read goes on."""
        if records_max < 1:
            raise ValueError(f"records_max={records_max}; expected 1 or more")
        home = self._known(partition)
        if position == END:
            return Fetched(records=(), lag_s=0.0, ended=True), END
        after = _after(home, position)
        if after is None:
            return Fetched(records=(), lag_s=0.0, ended=home.closed), position
        records: list[Record] = []
        size = 0
        for record in home.records[max(0, after - home.trimmed) :][:records_max]:
            size += len(record.data)
            if records and size > bytes_max:
                break
            records.append(record)
        reached = max(after, home.trimmed) + len(records)
        fetched = Fetched(
            records=tuple(records),
            lag_s=_lag_s(home.records[-1], records[-1]) if records else 0.0,
            ended=home.closed and reached == home.last,
            trimmed=after < home.trimmed,
        )
        return fetched, str(reached)

    def resolve_now(self, start: Start) -> str:
        """See `Source.resolve_start`."""
        return resolved(start, self._change)

    def first_position_now(self, partition: str, point: str) -> str:
        """See `Source.first_position`."""
        home = self._known(partition)
        if point == EARLIEST or time_of(point) is not None:
            # A time without a record after it stays a time: a record before it may still come.
            after = None if point == EARLIEST else _after(home, point)
            return point if after is None else str(after)
        last = change_of(point, self._change)
        return str(home.trimmed + sum(change <= last for change in home.changes))

    # The contract.

    @property
    def url(self) -> str:
        """See `Source.url`."""
        return f"memory:{self._name}"

    async def open(self) -> None:
        """See `Source.open`."""
        await anyio.lowlevel.checkpoint()

    async def close(self) -> None:
        """See `Source.close`."""
        await anyio.lowlevel.checkpoint()

    async def identity(self) -> str:
        """See `Source.identity`."""
        await anyio.lowlevel.checkpoint()
        return self._identity

    async def list_partitions(self) -> tuple[PartitionInfo, ...]:
        """See `Source.list_partitions`."""
        await anyio.lowlevel.checkpoint()
        return self.list_now()

    async def resolve_start(self, start: Start) -> str:
        """See `Source.resolve_start`."""
        await anyio.lowlevel.checkpoint()
        return self.resolve_now(start)

    async def first_position(self, partition: str, point: str) -> str:
        """See `Source.first_position`."""
        await anyio.lowlevel.checkpoint()
        return self.first_position_now(partition, point)

    def reader(self, partition: str, position: str) -> MemoryReader:
        """See `Source.reader`."""
        return MemoryReader(self, partition, position)

    async def changed(self, partition: str) -> None:
        """Wait for the next change of a partition; begin to wait before anything else awaits, and none is missed."""
        home = self._known(partition)
        if home.news is None:
            home.news = anyio.Event()
        await home.news.wait()

    def _known(self, partition: str) -> _Partition:
        if (home := self._partitions.get(partition)) is None:
            raise SourceMisconfigured(f"{self.url!r} has no partition {partition!r}")
        return home

    def _open_one(self, partition: str) -> _Partition:
        home = self._known(partition)
        if home.closed:
            raise ValueError(f"partition {partition!r} is closed; put records into an open one")
        return home

    def _bear(self, name: str, *parents: str) -> str:
        if name in self._partitions:
            raise ValueError(f"{self.url!r} has a partition {name!r} already")
        self._change += 1
        self._partitions[name] = _Partition(name=name, parents=parents)
        return name


class MemoryReader:
    """A `partitions.sources.base.Reader` of one partition of a `MemorySource`."""

    def __init__(self, source: MemorySource, partition: str, position: str) -> None:
        self._source = source
        self._partition = partition
        self._position = position

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        """See `Reader.read`."""
        await anyio.lowlevel.checkpoint()
        fetched = self._fetch(records_max, bytes_max)
        with anyio.move_on_after(wait_s):
            while not (fetched.records or fetched.ended or fetched.trimmed):
                await self._source.changed(self._partition)
                fetched = self._fetch(records_max, bytes_max)
        return fetched

    async def close(self) -> None:
        """See `Reader.close`."""
        await anyio.lowlevel.checkpoint()

    def _fetch(self, records_max: int, bytes_max: int) -> Fetched:
        fetched, self._position = self._source.fetch_next_now(self._partition, self._position, records_max, bytes_max)
        return fetched


def _after(home: _Partition, position: str) -> int | None:
    """Return the number of the last record before what `position` stands for; None for a time that is still to come."""
    if position == EARLIEST:
        return home.trimmed
    if (time_s := time_of(position)) is not None:
        for index, record in enumerate(home.records):
            if record.time_s is not None and record.time_s >= time_s:
                return home.trimmed + index
        return None
    return checked_number(home.name, position, home.last)


def _lag_s(newest: Record, last: Record) -> float:
    if newest.time_s is None or last.time_s is None:
        return 0.0
    return max(0.0, newest.time_s - last.time_s)
