"""
The two numbered sources behind one face, so that one suite holds both: a clock, a writer and the source itself.

Records are appended by key as a producer would; `put` finds a key that goes to the partition a test wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from partitions.sources.base import Record, Source
from partitions.sources.local import Entry, LocalSource, LocalStream, hash_of
from partitions.sources.memory import MemorySource

__all__ = ["Driver", "LocalDriver", "MemoryDriver", "driver_of"]

HASHES = 2**32


class Driver(Protocol):
    """What a test needs of a stream. `time_s` is the stream's clock, moved by the test alone."""

    time_s: float
    ranges: dict[str, tuple[int, int]]
    """Open partition → the hashes of the keys it takes."""

    @property
    def source(self) -> Source: ...
    def key_of(self, partition: str) -> str: ...
    def append(self, key: str, data: bytes, writer: int = 0) -> Record: ...
    def append_to(self, partition: str, key: str) -> None: ...
    def split(self, partition: str) -> tuple[str, str]: ...
    def merge(self, a: str, b: str) -> str: ...
    def close_partition(self, partition: str) -> None: ...
    def trim(self, partition: str, before_position: str) -> None: ...
    def delist(self, partition: str) -> None: ...
    def put(self, partition: str, data: bytes) -> Record: ...


class Ranges:
    """Which partition takes which keys, as the test reckons it."""

    def __init__(self, partitions: int) -> None:
        self.time_s = 1_000.0
        bounds = [HASHES * n // partitions for n in range(partitions + 1)]
        self.ranges = {f"p{n}": (bounds[n], bounds[n + 1]) for n in range(partitions)}

    def home(self, key: str) -> str:
        return next(name for name, (low, high) in self.ranges.items() if low <= hash_of(key) < high)

    def key_of(self, partition: str) -> str:
        return next(key for key in map(str, count()) if self.home_or_none(key) == partition)

    def home_or_none(self, key: str) -> str | None:
        return next((name for name, (low, high) in self.ranges.items() if low <= hash_of(key) < high), None)

    def split_range(self, partition: str, children: tuple[str, str]) -> None:
        low, high = self.ranges.pop(partition)
        middle = (low + high) // 2
        self.ranges.update({children[0]: (low, middle), children[1]: (middle, high)})

    def merge_range(self, a: str, b: str, child: str) -> None:
        (low, _), (_, high) = sorted([self.ranges.pop(a), self.ranges.pop(b)])
        self.ranges[child] = (low, high)


class MemoryDriver(Ranges):
    """A stream in memory."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.source = MemorySource(lambda: self.time_s, partitions=partitions)

    def append(self, key: str, data: bytes, writer: int = 0) -> Record:
        partition = self.home(key)
        position = self.source.put(partition, data, key)
        return Record(partition=partition, position=position, key=key, data=data, time_s=self.time_s)

    def append_to(self, partition: str, key: str) -> None:
        self.source.put(partition, b"", key)

    def put(self, partition: str, data: bytes) -> Record:
        return self.append(self.key_of(partition), data)

    def split(self, partition: str) -> tuple[str, str]:
        children = self.source.split(partition)
        self.split_range(partition, children)
        return children

    def merge(self, a: str, b: str) -> str:
        child = self.source.merge(a, b)
        self.merge_range(a, b, child)
        return child

    def close_partition(self, partition: str) -> None:
        self.source.close_partition(partition)
        del self.ranges[partition]

    def trim(self, partition: str, before_position: str) -> None:
        self.source.trim(partition, before_position)

    def delist(self, partition: str) -> None:
        self.source.delist(partition)


class LocalDriver(Ranges):
    """A stream in a file, with several writers as different processes would have them."""

    WRITERS = 3

    def __init__(self, path: Path, partitions: int) -> None:
        super().__init__(partitions)
        LocalStream.create(path, partitions=partitions, now_s=lambda: self.time_s).close()
        self.writers = [LocalStream.open(path, now_s=lambda: self.time_s) for _ in range(self.WRITERS)]
        self.source = LocalSource(path)

    def append(self, key: str, data: bytes, writer: int = 0) -> Record:
        ((partition, position),) = self.writers[writer].append([Entry(data=data, key=key)])
        assert partition == self.home(key)
        return Record(partition=partition, position=position, key=key, data=data, time_s=self.time_s)

    def append_to(self, partition: str, key: str) -> None:
        self.writers[0].append([Entry(data=b"", key=key)])

    def put(self, partition: str, data: bytes) -> Record:
        return self.append(self.key_of(partition), data)

    def split(self, partition: str) -> tuple[str, str]:
        children = self.writers[0].split(partition)
        self.split_range(partition, children)
        return children

    def merge(self, a: str, b: str) -> str:
        child = self.writers[1].merge(a, b)
        self.merge_range(a, b, child)
        return child

    def close_partition(self, partition: str) -> None:
        self.writers[2].close_partition(partition)
        del self.ranges[partition]

    def trim(self, partition: str, before_position: str) -> None:
        self.writers[0].trim(partition, before_position)

    def delist(self, partition: str) -> None:
        self.writers[0].delist(partition)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


@contextmanager
def driver_of(kind: str, folder: Path, partitions: int) -> Iterator[Driver]:
    """A fresh stream of the kind "memory" or "local"; its source is not open."""
    if kind == "memory":
        yield MemoryDriver(partitions)
        return
    local = LocalDriver(folder / "stream.db", partitions)
    try:
        yield local
    finally:
        local.close()
