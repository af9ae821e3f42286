"""
The file of a local stream: its tables, how it is made, recognised and opened.

Knows neither readers nor writers.

Theory of operation:

- A partition's records are numbered 1, 2, 3, … in the order of their commits: the number is assigned inside the
  transaction that writes the record, so no reader can see a number before a lower one. It is the record's position.
- A record's row id is its partition's number and its own number in one integer, so that a partition is read in one
  sweep without an index, and a record by its number without a search.
- Every record, split, merge, close and trim takes the next number of the whole stream, its *change*. "latest" is the
  last change: one moment in all partitions. Times of records never run backwards, so that a time can be searched for.
- The file is in WAL mode: readers never wait for writers. `synchronous` is FULL: after a power cut that took back
  records, a group's checkpoints would lie after the end and the next records would be passed over.
- A partition takes the keys whose hash is in its range. A split halves the range and a merge joins two neighbours, so
  that the records of one key are always in a line of parents and children.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from partitions.errors import SourceMisconfigured
from partitions.sources.local._faults import absence, check_beside, translated

__all__ = [
    "HASHES",
    "PARTITIONS_MAX",
    "Header",
    "connect",
    "create_file",
    "file_key",
    "read_header",
    "reading",
    "record_id",
    "writing",
]

APPLICATION_ID: Final = 0x70687374
"""Tells a stream from any other SQLite file, such as a lease file."""

LEASES_ID: Final = 0x50484C53
"""What `partitions.stores.sqlite` writes into a lease file, which is easily named in the place of a stream."""

USER_VERSION: Final = 1
"""Raised when a file of the version before can no longer be read or written."""

HASHES: Final = 2**32
"""Keys are spread over so many hash values."""

PARTITIONS_MAX: Final = 10_000
"""Partitions that a stream may start with."""

_NUMBER_BITS: Final = 40
"""Bits of a row id that number the record within its partition; the upper 23 name the partition."""

_WAL_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a big import leaves of the WAL file is cut back to this."""

_TABLES: Final = (
    "CREATE TABLE stream (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, stream_id TEXT NOT NULL,"
    " created_s REAL NOT NULL, change INTEGER NOT NULL, time_s REAL NOT NULL)",
    "CREATE TABLE partitions (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, parents TEXT NOT NULL,"
    " hash_low INTEGER NOT NULL, hash_high INTEGER NOT NULL, closed INTEGER NOT NULL DEFAULT 0,"
    " listed INTEGER NOT NULL DEFAULT 1, last INTEGER NOT NULL DEFAULT 0, changed INTEGER NOT NULL)",
    "CREATE TABLE records (id INTEGER PRIMARY KEY, change INTEGER NOT NULL, time_s REAL NOT NULL, key TEXT,"
    " headers TEXT, data BLOB NOT NULL)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a stream is, for as long as its file is there."""

    name: str
    stream_id: str
    created_s: float

    @property
    def identity(self) -> str:
        """The name and what no other stream has."""
        created = datetime.fromtimestamp(self.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{self.name}/{created}/{self.stream_id}"


def record_id(partition: int, number: int) -> int:
    """Return the row id of a record."""
    return (partition << _NUMBER_BITS) + number


def file_key(path: Path) -> tuple[int, int]:
    """
    Return what tells this file from another one under the same path.

    Raises:
        SourceMisconfigured: there is no such file, or this user may not look.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise SourceMisconfigured(absence(path, error)) from error
    return status.st_dev, status.st_ino


def connect(path: Path, *, busy_timeout_s: float, writable: bool) -> sqlite3.Connection:
    """
    Open the file of a stream, for one thread at a time. Never creates one.

    Raises:
        SourceMisconfigured: the file is not there, not a stream, of another version, or this user may not open it.
        SourceUnavailable: a passing fault.
    """
    file_key(path)
    if path.is_dir():
        raise SourceMisconfigured(f"{str(path)!r} is a folder; expected the file of a stream")
    check_beside(path)
    with translated(path):
        # Opened for writing also where it is only read, since reading in WAL mode writes the -shm file. SQLite goes
        # on to read-only by itself where the file must not be written. It is never opened as immutable, which would
        # need neither: a writer that comes later would not be noticed.
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _recognise(db, path)
            if writable:
                db.execute("PRAGMA synchronous = FULL")
                db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
            else:
                db.execute("PRAGMA query_only = ON")
        except BaseException:  # The connection has no other owner; whatever it was, it goes on.
            db.close()
            raise
    return db


def read_header(db: sqlite3.Connection) -> Header:
    """Return what the stream is."""
    name, stream_id, created_s = db.execute("SELECT name, stream_id, created_s FROM stream").fetchone()
    return Header(name=name, stream_id=stream_id, created_s=created_s)


def create_file(path: Path, *, partitions: int, now_s: float) -> None:
    """
    Make the file of a stream of the partitions "p0", "p1", ….

    Raises:
        ValueError: the number of partitions is not from 1 to `PARTITIONS_MAX`.
        FileExistsError: something of this name is there; it was left as it is.
        SourceMisconfigured: the folder is not there, or this user may not write it.
        SourceUnavailable: the disk is full, or another passing fault. No file is left behind.
    """
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise ValueError(f"partitions={partitions} is not possible; use 1 to {PARTITIONS_MAX}")
    try:
        # Exclusive: of two that create the same stream at once, one is told.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except FileExistsError:
        raise FileExistsError(f"{str(path)!r} exists already; delete it or use another name") from None
    except OSError as error:
        remedy = (
            "create the folder first" if isinstance(error, FileNotFoundError) else "allow it, or use another folder"
        )
        raise SourceMisconfigured(f"{str(path)!r} cannot be created: {error.strerror}; {remedy}") from error
    try:
        _fill(path, partitions, now_s)
    except BaseException:  # Half a file must not be left to be taken for a stream, whatever stopped it.
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            with suppress(FileNotFoundError):
                name.unlink()
        raise


def _fill(path: Path, partitions: int, now_s: float) -> None:
    with translated(path):
        db = sqlite3.connect(path, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            with writing(db):
                for statement in _TABLES:
                    db.execute(statement)
                db.execute(
                    "INSERT INTO stream VALUES (1, ?, ?, ?, 0, ?)", (path.name, secrets.token_hex(8), now_s, now_s)
                )
                bounds = [HASHES * n // partitions for n in range(partitions + 1)]
                db.executemany(
                    "INSERT INTO partitions (number, name, parents, hash_low, hash_high, changed)"
                    " VALUES (?, ?, '[]', ?, ?, 0)",
                    [(n, f"p{n}", bounds[n], bounds[n + 1]) for n in range(partitions)],
                )
                # In the same transaction: a file without them is not taken for a stream.
                db.execute(f"PRAGMA user_version = {USER_VERSION}")
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        finally:
            db.close()


def _recognise(db: sqlite3.Connection, path: Path) -> None:
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application_id == LEASES_ID:
        raise SourceMisconfigured(
            f"{str(path)!r} is a lease file, not a stream; name a file that 'processor-host stream create' made"
        )
    if application_id != APPLICATION_ID:
        raise SourceMisconfigured(
            f"{str(path)!r} is not a stream but an SQLite file of another kind (application id {application_id:#x}); "
            "name a file that 'processor-host stream create' made"
        )
    if version != USER_VERSION:
        raise SourceMisconfigured(
            f"stream {str(path)!r} has schema version {version}, expected {USER_VERSION}; "
            "use the version of processor-host that made it"
        )


@contextmanager
def reading(db: sqlite3.Connection) -> Iterator[None]:
    """One moment of the file for several reads. Short: an open one keeps the WAL file from being cut back."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """All writes of the body or none of them, and no other writer between."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        # SQLite has ended it by itself after some faults, such as a full disk.
        if db.in_transaction:
            db.execute("ROLLBACK")
