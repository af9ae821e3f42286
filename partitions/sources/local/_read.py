"""
What is read from the file of a local stream: the partitions, the next records of one, and where a start point lies.

Functions over a connection, each in one short read transaction; knows no thread and never waits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from partitions.errors import SourceMisconfigured
from partitions.positions import EARLIEST, END, Start, time_of
from partitions.sources._numbers import change_of, checked_number, resolved
from partitions.sources.base import Fetched, PartitionInfo, Record
from partitions.sources.local._file import reading, record_id

__all__ = ["Page", "fetch", "first_position", "list_partitions", "resolve_start"]

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What was fetched, and what a reader must know to go on and to wait."""

    fetched: Fetched
    position: str
    """From here the next fetch goes on."""
    number: int
    """The partition's number."""
    changed: int
    """The partition's last change that this page knows of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    """A partition's row, and what of its records is left: those numbered from `first` to `last`."""

    name: str
    number: int
    closed: bool
    first: int
    last: int
    changed: int


def list_partitions(db: sqlite3.Connection) -> tuple[PartitionInfo, ...]:
    """See `Source.list_partitions`; in the order of their births."""
    return tuple(
        PartitionInfo(partition=name, parents=tuple(json.loads(parents)), closed=bool(closed))
        for name, parents, closed in db.execute(
            "SELECT name, parents, closed FROM partitions WHERE listed ORDER BY number"
        )
    )


def resolve_start(db: sqlite3.Connection, start: Start) -> str:
    """See `Source.resolve_start`."""
    return resolved(start, _change(db))


def first_position(db: sqlite3.Connection, partition: str, point: str) -> str:
    """See `Source.first_position`."""
    with reading(db):
        row = _partition(db, partition)
        if point == EARLIEST:
            return EARLIEST
        if time_of(point) is not None:
            # A time without a record after it stays a time: a record before it may still come.
            after = _after(db, row, point)
            return point if after is None else str(after)
        return str(_last_with(db, row, "change", "<=", change_of(point, _change(db))))


def fetch(db: sqlite3.Connection, partition: str, position: str, *, records_max: int, bytes_max: int) -> Page:
    """Return the records after `position` that are there; see `Reader.read`."""
    with reading(db):
        row = _partition(db, partition)
        if position == END:
            return _page(row, END, Fetched(records=(), lag_s=0.0, ended=True))
        after = _after(db, row, position)
        if after is None:
            return _page(row, position, Fetched(records=(), lag_s=0.0, ended=row.closed))
        start = max(after, row.first - 1)
        records = _records(db, row, start, records_max, bytes_max)
        reached = start + len(records)
        lag_s = 0.0
        if reached < row.last:
            newest_s = _of(db, row, row.last, "time_s")
            lag_s = max(0.0, newest_s - (records[-1].time_s or 0.0))
        fetched = Fetched(
            records=records, lag_s=lag_s, ended=row.closed and reached == row.last, trimmed=after < row.first - 1
        )
        return _page(row, str(reached), fetched)


def _page(row: _Partition, position: str, fetched: Fetched) -> Page:
    return Page(fetched=fetched, position=position, number=row.number, changed=row.changed)


def _change(db: sqlite3.Connection) -> int:
    (change,) = db.execute("SELECT change FROM stream").fetchone()
    return int(change)


def _partition(db: sqlite3.Connection, partition: str) -> _Partition:
    found = db.execute("SELECT number, closed, last, changed FROM partitions WHERE name = ?", (partition,)).fetchone()
    if found is None:
        raise SourceMisconfigured(f"the stream has no partition {partition!r}; was it replaced by another stream?")
    number, closed, last, changed = found
    # Retention drops from the front, so that what is left has no gap.
    oldest = db.execute(
        "SELECT id FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1",
        (record_id(number, 1), record_id(number, last)),
    ).fetchone()
    first = last + 1 if oldest is None else oldest[0] - record_id(number, 0)
    return _Partition(name=partition, number=number, closed=bool(closed), first=first, last=last, changed=changed)


def _after(db: sqlite3.Connection, row: _Partition, position: str) -> int | None:
    """Return the number of the last record before what `position` stands for; None for a time that is still to come."""
    if position == EARLIEST:
        return row.first - 1
    if (time_s := time_of(position)) is not None:
        before = _last_with(db, row, "time_s", "<", time_s)
        return None if before == row.last else before
    return checked_number(row.name, position, row.last)


def _records(
    db: sqlite3.Connection, row: _Partition, start: int, records_max: int, bytes_max: int
) -> tuple[Record, ...]:
    records: list[Record] = []
    size = 0
    rows = db.execute(
        "SELECT id, time_s, key, headers, data FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
        (record_id(row.number, start + 1), record_id(row.number, row.last), records_max),
    )
    base = record_id(row.number, 0)
    for row_id, time_s, key, headers, data in rows:
        size += len(data)
        if records and size > bytes_max:
            rows.close()
            break
        records.append(
            Record(
                partition=row.name,
                position=str(row_id - base),
                key=key,
                data=data,
                time_s=time_s,
                headers=_NO_HEADERS if headers is None else MappingProxyType(json.loads(headers)),
            )
        )
    return tuple(records)


def _last_with(db: sqlite3.Connection, row: _Partition, column: str, relation: str, bound: float) -> int:
    """
    Return the number of the last record of which `column` `relation` `bound` holds; the one before the first if none.

    Both columns grow with the number, so that the answer is found by halving.
    """
    low, high = row.first - 1, row.last
    while low < high:
        middle = (low + high + 1) // 2
        (holds,) = db.execute(
            f"SELECT {column} {relation} ? FROM records WHERE id = ?", (bound, record_id(row.number, middle))
        ).fetchone()
        if holds:
            low = middle
        else:
            high = middle - 1
    return low


def _of(db: sqlite3.Connection, row: _Partition, number: int, column: str) -> float:
    (value,) = db.execute(f"SELECT {column} FROM records WHERE id = ?", (record_id(row.number, number),)).fetchone()
    return float(value)
