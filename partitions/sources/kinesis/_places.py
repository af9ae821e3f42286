"""
Places in a shard: what a position means, and how Kinesis is asked to read on from there.

Pure. A position is `<sequence>` (a whole raw record is done) or `<sequence>/<sub>` (a packed one is done up to this
piece), beside the words of `partitions.positions`.

Theory of operation. Kinesis silently goes on at the oldest record where the one that an iterator names was trimmed: no
error, no mark. So reading goes on *at* the record that was done last, not after it. If it is the first to come, nothing
is missing, and it is passed over; if another one comes, the place was trimmed. (So a shard that was idle for longer
than its retention looks like a gap as well: what was between is gone, and nobody can say that it was nothing.)

A start at a time is asked of Kinesis no later than its own present, which it insists on, and what comes before the time
is passed over here: the SDK sends whole seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from partitions.errors import SourceMisconfigured
from partitions.positions import EARLIEST, END, time_of

__all__ = ["AtEnd", "AtHorizon", "AtRecord", "AtTime", "Place", "iterator_at", "place_of", "position_at"]

_POSITION: Final = re.compile(r"([0-9]{1,129})(?:/([0-9]{1,9}))?", re.ASCII)
"""The sequence numbers that GetShardIterator takes (ministack's begin with zeros), and a place inside one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtHorizon:
    """Before the oldest record that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """Before the first record of this time, seconds since 1970 on the clock of Kinesis, or of a later one."""

    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRecord:
    """After a raw record, or after one piece of it."""

    sequence: str
    sub: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEnd:
    """After the last record of a shard that has ended."""


Place = AtHorizon | AtTime | AtRecord | AtEnd


def place_of(partition: str, position: str) -> Place:
    """
    Read a position.

    Raises:
        SourceMisconfigured: it is none of this source's.
    """
    if position == EARLIEST:
        return AtHorizon()
    if position == END:
        return AtEnd()
    if (time_s := time_of(position)) is not None:
        return AtTime(time_s=time_s)
    if (match := _POSITION.fullmatch(position)) is None:
        raise SourceMisconfigured(
            f"position {position!r} of partition {partition!r} is not one of Kinesis; expected a sequence number, "
            "or one with a number after a slash; was the group started on another kind of source?"
        )
    sequence, sub = match.groups()
    return AtRecord(sequence=sequence, sub=None if sub is None else int(sub))


def position_at(sequence: str, sub: int | None) -> str:
    """Return the position of a record: after it, and all before it."""
    return sequence if sub is None else f"{sequence}/{sub}"


def iterator_at(place: Place, *, present_s: float) -> Mapping[str, Any]:
    """
    Return what GetShardIterator is asked so that reading goes on at `place`.

    Args:
        place: Not the end.
        present_s: A time that the clock of Kinesis has passed already, seconds since 1970; the later the better.
    """
    match place:
        case AtHorizon():
            return {"ShardIteratorType": "TRIM_HORIZON"}
        case AtRecord(sequence=sequence):
            return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": sequence}
        case AtTime(time_s=time_s):
            at_s = min(time_s, present_s)
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(at_s, UTC)}
        case AtEnd():
            raise ValueError("there is nothing to read after the end of a partition")
