"""
Where a record of a local stream goes, and how it gets there: the hash of its key, and the open partition that takes it.

Works within a transaction that its caller began; knows no file and no lock.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from partitions.errors import SourceMisconfigured
from partitions.sources.local._file import record_id

__all__ = ["Appender", "Entry", "hash_of"]

_Row = tuple[int, int, float, str | None, str | None, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is to be appended: a record that has no place yet."""

    data: bytes
    key: str | None = None
    """Records of one key go to one partition, in order; those without go to any."""
    headers: Mapping[str, str] | None = None


@lru_cache(maxsize=65_536)
def hash_of(key: str) -> int:
    """
    Return the hash of a key, the same in every process and version: from 0 to 2^32 - 1.

    Raises:
        ValueError: the key has half of a surrogate pair in it, which is no text that can be stored.
    """
    try:
        return int.from_bytes(blake2b(key.encode("utf-8"), digest_size=4).digest(), "big")
    except UnicodeEncodeError:
        raise ValueError(f"key {key!r} is no text that can be stored; it has half a surrogate pair in it") from None


@dataclass(slots=True, kw_only=True)
class _Home:
    """A partition that takes records; `last` moves as they come."""

    number: int
    name: str
    low: int
    high: int
    last: int
    added: int = 0


class Appender:
    """Appends records within one transaction. Nothing is complete before `finish`."""

    def __init__(self, db: sqlite3.Connection, now_s: float) -> None:
        """Read the state of the stream; `now_s` is the present time, seconds since 1970."""
        self._db = db
        state: tuple[int, float] = db.execute("SELECT change, time_s FROM stream").fetchone()
        self._change, last_s = state
        # Never backwards, also where the clock was set back: times are searched by halving.
        self._time_s = max(now_s, last_s)
        self._homes = tuple(
            _Home(number=number, name=name, low=low, high=high, last=last)
            for number, name, low, high, last in db.execute(
                "SELECT number, name, hash_low, hash_high, last FROM partitions WHERE NOT closed ORDER BY hash_low"
            )
        )
        self._lows = [home.low for home in self._homes]

    def append(self, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
        """
        Append records and return partition and position of each.

        Raises:
            ValueError: a key is no text that can be stored.
            SourceMisconfigured: no open partition takes a key.
        """
        rows: list[_Row] = []
        placed: list[tuple[str, str]] = []
        for entry in entries:
            # Records without a key go round: the stream's own count says whose turn it is, for all writers together.
            home = self._of_key(entry.key) if entry.key is not None else self._any()
            home.last += 1
            home.added += 1
            self._change += 1
            headers = json.dumps(dict(entry.headers)) if entry.headers else None
            rows.append((record_id(home.number, home.last), self._change, self._time_s, entry.key, headers, entry.data))
            placed.append((home.name, str(home.last)))
        self._db.executemany("INSERT INTO records (id, change, time_s, key, headers, data) VALUES (?,?,?,?,?,?)", rows)
        return tuple(placed)

    def finish(self) -> dict[str, int]:
        """Write the state of the stream if it got any record, and return how many each open partition got."""
        if any(home.added for home in self._homes):
            self._db.execute("UPDATE stream SET change = ?, time_s = ?", (self._change, self._time_s))
        self._db.executemany(
            "UPDATE partitions SET last = ?, changed = ? WHERE number = ?",
            [(home.last, self._change, home.number) for home in self._homes if home.added],
        )
        return {home.name: home.added for home in sorted(self._homes, key=lambda home: home.number)}

    def _of_key(self, key: str) -> _Home:
        hashed = hash_of(key)
        at = bisect_right(self._lows, hashed) - 1
        if at < 0 or hashed >= self._homes[at].high:
            raise SourceMisconfigured(
                f"no open partition takes the key {key!r}: the one that took it was closed for good"
            )
        return self._homes[at]

    def _any(self) -> _Home:
        if not self._homes:
            raise SourceMisconfigured("every partition of the stream is closed; it takes no more records")
        return self._homes[self._change % len(self._homes)]
