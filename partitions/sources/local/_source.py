"""
The reader's side of a local stream: a source over a few threads, however many partitions are read.

Knows no writer. Each call is one short function of `_read` in a thread, with a connection of its own; waiting is left
to the source's `Watch`, so that it holds no thread and ends at once when it is cancelled.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import anyio
import anyio.lowlevel
from anyio import to_thread

from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.positions import Start
from partitions.sources.base import Fetched, PartitionInfo
from partitions.sources.local import _read
from partitions.sources.local._faults import translated
from partitions.sources.local._file import connect, file_key, read_header
from partitions.sources.local._watch import POLL_S, Watch

__all__ = ["LocalReader", "LocalSource"]

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX: Final = 4
"""Reads at the same time. Each takes well under a millisecond, and Python runs one thread at a time."""

BUSY_TIMEOUT_S: Final = 1.0
"""A reader waits for a lock only while the WAL file is being set up or recovered."""


class LocalSource:
    """A `partitions.sources.base.Source` in an SQLite file. Used from one event loop."""

    def __init__(self, path: str | Path) -> None:
        """Name the file; `open` opens it."""
        self._path = Path(path).absolute()
        self._limiter: anyio.CapacityLimiter | None = None
        self._watch = Watch(self._path, connect=self._connect, check_file=self._check_file)
        # Guarded by the lock: threads take a connection and put it back.
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._file: tuple[int, int] | None = None
        self._identity = ""
        self._closed = False

    @property
    def url(self) -> str:
        """See `Source.url`."""
        return f"local://{self._path}"

    async def open(self) -> None:
        """See `Source.open`."""
        self._limiter = anyio.CapacityLimiter(THREADS_MAX)
        await to_thread.run_sync(self._open)

    async def close(self) -> None:
        """See `Source.close`."""
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._close)

    async def identity(self) -> str:
        """See `Source.identity`."""
        await anyio.lowlevel.checkpoint()
        self._opened()
        return self._identity

    async def list_partitions(self) -> tuple[PartitionInfo, ...]:
        """See `Source.list_partitions`."""
        return await self._run(_read.list_partitions)

    async def resolve_start(self, start: Start) -> str:
        """See `Source.resolve_start`."""
        return await self._run(_read.resolve_start, start)

    async def first_position(self, partition: str, point: str) -> str:
        """See `Source.first_position`."""
        return await self._run(_read.first_position, partition, point)

    def reader(self, partition: str, position: str) -> LocalReader:
        """See `Source.reader`."""
        return LocalReader(self, partition, position)

    async def fetch(self, partition: str, position: str, *, records_max: int, bytes_max: int) -> _read.Page:
        """Return the records that are there; for this source's readers."""
        return await self._run(_read.fetch, partition, position, records_max=records_max, bytes_max=bytes_max)

    async def changed(self, page: _read.Page, wait_s: float) -> bool:
        """Wait until there may be something after an empty page; false if not. For this source's readers."""
        return await self._watch.wait(page.number, page.changed, wait_s)

    async def _run(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        limiter = self._opened()

        def in_thread() -> T:
            self._check_file()
            db = self._take()
            try:
                with translated(self._path):
                    return read(db, *args, **kwargs)
            finally:
                self._put_back(db)

        return await to_thread.run_sync(in_thread, limiter=limiter)

    def _opened(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            raise SourceUnavailable(f"stream {str(self._path)!r} is not open; call open() first")
        return self._limiter

    def _open(self) -> None:
        self._file = file_key(self._path)
        db = self._connect()
        with translated(self._path):
            self._identity = read_header(db).identity
        self._put_back(db)

    def _close(self) -> None:
        self._watch.close()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _connect(self) -> sqlite3.Connection:
        db = connect(self._path, busy_timeout_s=BUSY_TIMEOUT_S, writable=False)
        try:
            self._check_file()
        except SourceMisconfigured:
            db.close()
            raise
        return db

    def _check_file(self) -> None:
        """Records of two files must not be mixed: positions of the one mean nothing in the other."""
        if file_key(self._path) != self._file:
            raise SourceMisconfigured(f"stream {str(self._path)!r} was replaced by another file while it was read")

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise SourceUnavailable(f"stream {str(self._path)!r} was closed by this process")
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _put_back(self, db: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(db)
                return
        db.close()


class LocalReader:
    """A `partitions.sources.base.Reader` of one partition of a `LocalSource`."""

    def __init__(self, source: LocalSource, partition: str, position: str) -> None:
        self._source = source
        self._partition = partition
        self._position = position
        self._empty: _read.Page | None = None
        """The last page, if it had nothing in it: as long as nothing changes, the next has nothing either."""

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        """See `Reader.read`."""
        if records_max < 1:
            raise ValueError(f"records_max={records_max}; expected 1 or more")
        until_s = anyio.current_time() + wait_s
        # Waiting first spares a thousand idle partitions their fetches; but a wait shorter than a poll proves nothing.
        if self._empty is not None and wait_s >= 2 * POLL_S and not await self._source.changed(self._empty, wait_s):
            return self._empty.fetched
        while True:
            page = await self._source.fetch(
                self._partition, self._position, records_max=records_max, bytes_max=bytes_max
            )
            # Only after the await: a read that is cancelled has given nobody these records.
            self._position = page.position
            if page.fetched.records or page.fetched.ended or page.fetched.trimmed:
                self._empty = None
                return page.fetched
            self._empty = page
            left_s = until_s - anyio.current_time()
            if left_s <= 0 or not await self._source.changed(page, left_s):
                return page.fetched

    async def close(self) -> None:
        """See `Reader.close`."""
        await anyio.lowlevel.checkpoint()
