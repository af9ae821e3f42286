"""
The writer's side of a local stream: append, import, split, merge, close, trim, describe.

Knows no reader. Every method is one transaction that is written whole or not at all, and blocks its thread; any number
of processes and threads may write at the same time, one after the other.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from partitions.sources.local import _shape
from partitions.sources.local._append import Appender, Entry
from partitions.sources.local._faults import translated
from partitions.sources.local._file import connect, create_file, reading, writing

__all__ = ["Imported", "LocalStream"]

BUSY_TIMEOUT_S: Final = 30.0
"""How long a writer waits for another one, seconds: a big import on a slow machine holds the file so long."""

_CHUNK: Final = 5_000
"""Entries of an import that are in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import has written."""

    records: int
    by_partition: Mapping[str, int]
    """Partition → records, of every open partition, in the order of their births."""


class LocalStream:
    """
    The writer's side of one stream. May be shared by threads.

    Every method may raise `SourceUnavailable` (another writer did not end in time; the disk is full) and
    `SourceMisconfigured` (the file is read-only, or damaged). Nothing was written then.
    """

    def __init__(self, path: Path, db: sqlite3.Connection, now_s: Callable[[], float]) -> None:
        """Use `create` or `open`."""
        self._path = path
        self._db = db
        self._now_s = now_s
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        partitions: int,
        now_s: Callable[[], float] = time.time,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> Self:
        """
        Create a stream of the partitions "p0", "p1", … and open it; see `open`.

        Raises:
            ValueError: the number of partitions is not possible.
            FileExistsError: something of this name is there; it was left as it is.
        """
        create_file(Path(path).absolute(), partitions=partitions, now_s=now_s())
        return cls.open(path, now_s=now_s, busy_timeout_s=busy_timeout_s)

    @classmethod
    def open(
        cls, path: str | Path, *, now_s: Callable[[], float] = time.time, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> Self:
        """
        Open a stream that is there.

        Args:
            path: Its file.
            now_s: The clock for the records' times, seconds since 1970.
            busy_timeout_s: How long to wait for another writer, seconds.

        Raises:
            SourceMisconfigured: the file is not there, not a stream, of another version, or denied.
        """
        file = Path(path).absolute()
        return cls(file, connect(file, busy_timeout_s=busy_timeout_s, writable=True), now_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Twice does nothing."""
        with self._lock:
            self._db.close()

    def append(self, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
        """
        Append records, all or none, and return partition and position of each.

        Raises:
            ValueError: a key is no text that can be stored.
            SourceMisconfigured: the partition that took a key was closed without children.
        """
        with self._writing() as db:
            appender = Appender(db, self._now_s())
            placed = appender.append(entries)
            appender.finish()
        return placed

    def import_entries(self, entries: Iterable[Entry], *, progress: Callable[[int], None] | None = None) -> Imported:
        """
        Append any number of records in one transaction: whatever `entries` raises leaves the stream as it was.

        Other writers wait until it is done; readers do not.

        Args:
            entries: The records, in order; read a few thousand at a time.
            progress: Called with the number of records done so far.

        Raises:
            ValueError: as for `append`.
            SourceMisconfigured: as for `append`.
        """
        done = 0
        with self._writing() as db:
            appender = Appender(db, self._now_s())
            rest = iter(entries)
            while chunk := tuple(islice(rest, _CHUNK)):
                appender.append(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done)
            by_partition = appender.finish()
        return Imported(records=done, by_partition=by_partition)

    def split(self, partition: str) -> tuple[str, str]:
        """
        Close a partition and return the names of the two that take one half of its keys each.

        Raises:
            ValueError: the partition is not there, is closed, or takes only one hash value.
        """
        with self._writing() as db:
            return _shape.split(db, partition)

    def merge(self, a: str, b: str) -> str:
        """
        Close two partitions that take neighbouring hashes, and return the name of the one that takes the keys of both.

        Raises:
            ValueError: a partition is not there or closed, or they are not neighbours.
        """
        with self._writing() as db:
            return _shape.merge(db, a, b)

    def close_partition(self, partition: str) -> None:
        """
        Let a partition take no more records. Nothing takes its keys from here on.

        Raises:
            ValueError: the partition is not there, or closed already.
        """
        with self._writing() as db:
            _shape.close_partition(db, partition)

    def trim(self, partition: str, before_position: str) -> int:
        """
        Drop the records before the one at `before_position`, as a source's retention does; return how many.

        Raises:
            ValueError: the partition is not there.
        """
        with self._writing() as db:
            return _shape.trim(db, partition, before_position)

    def delist(self, partition: str) -> int:
        """
        Drop a closed partition with all its records, as a source does when its last record is too old; return how many.

        Raises:
            ValueError: the partition is not there, or open.
        """
        with self._writing() as db:
            return _shape.delist(db, partition)

    def describe(self) -> _shape.Description:
        """Return the stream as it is."""
        with self._lock, translated(self._path), reading(self._db):
            return _shape.describe(self._db)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translated(self._path), writing(self._db):
            yield self._db
