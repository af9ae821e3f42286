"""
How the partitions of a local stream change and how they stand: split, merge, close, trim, delist, describe.

Functions within a transaction that their caller began; they know no file and no lock. Each change takes one number of
the stream and writes it into the partitions it touches, so that waiting readers look again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from partitions.sources._numbers import number_of
from partitions.sources.local._file import read_header, record_id

__all__ = ["Description", "PartitionDescription", "close_partition", "delist", "describe", "merge", "split", "trim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition as it is in the file."""

    partition: str
    parents: tuple[str, ...]
    closed: bool
    listed: bool
    """False once a closed partition was dropped; it stays known, so that its name is never used again."""
    hash_low: int
    hash_high: int
    """It takes the keys whose hash is at least `hash_low` and less than this."""
    records: int
    """Those that are left."""
    last: str
    """The position of the last record that was ever appended; "0" if there was none."""
    last_time_s: float | None
    """The time of that record, seconds since 1970; None if it is not left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A stream as it is in its file."""

    name: str
    identity: str
    created_s: float
    partitions: tuple[PartitionDescription, ...]
    """Every one that it ever had, in the order of their births."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    number: int
    last: int
    closed: bool
    low: int
    high: int


def split(db: sqlite3.Connection, partition: str) -> tuple[str, str]:
    """See `LocalStream.split`."""
    row = _close(db, partition)
    if row.high - row.low < 2:
        raise ValueError(f"partition {partition!r} takes one hash value and cannot be split")
    middle = (row.low + row.high) // 2
    return _bear(db, [partition], row.low, middle), _bear(db, [partition], middle, row.high)


def merge(db: sqlite3.Connection, a: str, b: str) -> str:
    """See `LocalStream.merge`."""
    if a == b:
        raise ValueError(f"partition {a!r} cannot be merged with itself; name two partitions")
    rows = _close(db, a), _close(db, b)
    low, high = sorted(rows, key=lambda row: row.low)
    if low.high != high.low:
        raise ValueError(f"partitions {a!r} and {b!r} are not neighbours; their ranges of hashes must adjoin")
    return _bear(db, [a, b], low.low, high.high)


def close_partition(db: sqlite3.Connection, partition: str) -> None:
    """See `LocalStream.close_partition`."""
    _close(db, partition)


def trim(db: sqlite3.Connection, partition: str, before_position: str) -> int:
    """See `LocalStream.trim`."""
    row = _row(db, partition)
    before = min(number_of(partition, before_position), row.last + 1)
    return _drop(db, row, before - 1)


def delist(db: sqlite3.Connection, partition: str) -> int:
    """See `LocalStream.delist`."""
    row = _row(db, partition)
    if not row.closed:
        raise ValueError(f"partition {partition!r} is open; only a closed one can be dropped")
    db.execute("UPDATE partitions SET listed = 0 WHERE number = ?", (row.number,))
    return _drop(db, row, row.last)


def describe(db: sqlite3.Connection) -> Description:
    """Return the stream as it is."""
    header = read_header(db)
    rows = db.execute(
        "SELECT number, name, parents, closed, listed, hash_low, hash_high, last FROM partitions ORDER BY number"
    )
    return Description(
        name=header.name,
        identity=header.identity,
        created_s=header.created_s,
        partitions=tuple(_described(db, *row) for row in rows.fetchall()),
    )


def _described(
    db: sqlite3.Connection,
    number: int,
    name: str,
    parents: str,
    closed: int,
    listed: int,
    low: int,
    high: int,
    last: int,
) -> PartitionDescription:
    oldest = db.execute(
        "SELECT id FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1",
        (record_id(number, 1), record_id(number, last)),
    ).fetchone()
    newest = db.execute("SELECT time_s FROM records WHERE id = ?", (record_id(number, last),)).fetchone()
    return PartitionDescription(
        partition=name,
        parents=tuple(json.loads(parents)),
        closed=bool(closed),
        listed=bool(listed),
        hash_low=low,
        hash_high=high,
        # Retention drops from the front, so that what is left has no gap.
        records=0 if oldest is None else record_id(number, last) - oldest[0] + 1,
        last=str(last),
        last_time_s=None if newest is None else newest[0],
    )


def _row(db: sqlite3.Connection, partition: str) -> _Row:
    found = db.execute(
        "SELECT number, last, closed, hash_low, hash_high FROM partitions WHERE name = ?", (partition,)
    ).fetchone()
    if found is None:
        raise ValueError(f"the stream has no partition {partition!r}")
    number, last, closed, low, high = found
    return _Row(number=number, last=last, closed=bool(closed), low=low, high=high)


def _close(db: sqlite3.Connection, partition: str) -> _Row:
    row = _row(db, partition)
    if row.closed:
        raise ValueError(f"partition {partition!r} is closed already")
    db.execute("UPDATE partitions SET closed = 1, changed = ? WHERE number = ?", (_next_change(db), row.number))
    return row


def _bear(db: sqlite3.Connection, parents: Sequence[str], low: int, high: int) -> str:
    (number,) = db.execute("SELECT max(number) + 1 FROM partitions").fetchone()
    db.execute(
        "INSERT INTO partitions (number, name, parents, hash_low, hash_high, changed) VALUES (?, ?, ?, ?, ?, ?)",
        (number, f"p{number}", json.dumps(parents), low, high, _next_change(db)),
    )
    return f"p{number}"


def _drop(db: sqlite3.Connection, row: _Row, upto: int) -> int:
    dropped = db.execute(
        "DELETE FROM records WHERE id BETWEEN ? AND ?", (record_id(row.number, 1), record_id(row.number, upto))
    ).rowcount
    db.execute("UPDATE partitions SET changed = ? WHERE number = ?", (_next_change(db), row.number))
    return dropped


def _next_change(db: sqlite3.Connection) -> int:
    db.execute("UPDATE stream SET change = change + 1")
    (change,) = db.execute("SELECT change FROM stream").fetchone()
    return int(change)
