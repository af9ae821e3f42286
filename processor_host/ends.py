"""
Where a bounded replay ends: `until=` as a value, and the pure decision at which record a partition is over.

Knows no pump and no source. Positions are opaque, so they are compared for equality alone: a partition with an end
position is over once the record with that very position is done. Two more signs end it: what was handled last is that
position already (as after a fail-over), or nothing is left to read and the position was not met, which means that it
was passed before or that the source has dropped it.

A time ends a partition before its first record of that time or later. A source whose times do not rise may have
earlier ones behind it; those are not handled. Where nothing is left to read, a time is over only once it is past on
this host's wall clock, plus `CLOCKS_APART_S`, since the clocks of a host and of a source differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from partitions.positions import parse_start, time_of
from partitions.sources.base import Record
from processor_host.errors import SettingsError
from processor_host.starts import separated

__all__ = [
    "AtPosition",
    "BeforeTime",
    "Cut",
    "End",
    "Until",
    "UntilLatest",
    "UntilPositions",
    "UntilTime",
    "cut",
    "end_at",
    "end_of",
    "parse_until",
]

CLOCKS_APART_S: Final = 5.0
"""How far a source's clock may be behind this host's wall clock without costing a record at the very end."""

LATEST_AT_START: Final = "latest-at-start"
_EXPECTED: Final = (
    f"use {LATEST_AT_START}, a time such as 2026-01-31T06:00:00Z, or PARTITION=POSITION for each partition"
)
_PAIR: Final = re.compile(r"([^=]+)=(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilTime:
    """Everything before a time."""

    time_s: float
    """Seconds since 1970, on the source's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilPositions:
    """Each named partition up to a position, this record included; nothing of any other partition."""

    positions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilLatest:
    """Everything that was there when the host started."""


Until = UntilTime | UntilPositions | UntilLatest


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPosition:
    """A partition is over once the record at `position` is done; None: it is over from the start."""

    position: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTime:
    """A partition is over before its first record of this time or later."""

    time_s: float


End = AtPosition | BeforeTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What of some records is still to be handled, and whether the partition is over after that."""

    count: int
    """The first so many."""
    is_over: bool


def parse_until(value: str | Mapping[str, str] | Iterable[str]) -> Until:
    """
    Read what a user gave as `until`.

    Args:
        value: "latest-at-start", an ISO 8601 time (UTC where it names no zone), a mapping of partitions to positions,
            or texts PARTITION=POSITION, several of them or one with commas.

    Raises:
        SettingsError: it is none of these.
    """
    if isinstance(value, Mapping):
        return _positions(value.items())
    texts = separated(value) if isinstance(value, str) else list(value)
    if len(texts) == 1 and texts[0] == LATEST_AT_START:
        return UntilLatest()
    pairs = [_PAIR.fullmatch(text) for text in texts]
    if texts and all(pairs):
        return _positions([(pair[1], pair[2]) for pair in pairs if pair])
    if len(texts) == 1:
        try:
            time_s = time_of(parse_start(texts[0]))
        except ValueError:
            time_s = None
        if time_s is not None:
            return UntilTime(time_s=time_s)
    shown = ", ".join(repr(text) for text in texts) or "nothing"
    raise SettingsError(f"until: {shown} is no end; {_EXPECTED}")


def end_of(until: Until, partition: str, *, latest: str | None = None) -> End:
    """
    Return where one partition is over.

    Args:
        until: What the user gave.
        partition: Its id.
        latest: For `UntilLatest`, the partition's last position as the host started: the source's
            `first_position(partition, point)`, where `point` is what "latest" resolved to at the host's start.
    """
    match until:
        case UntilTime():
            return BeforeTime(time_s=until.time_s)
        case UntilPositions():
            return AtPosition(position=until.positions.get(partition))
        case UntilLatest():
            return end_at(latest)


def end_at(position: str | None) -> End:
    """Return the end that a position means: one made by `at_time` is that time, any other one is itself."""
    time_s = None if position is None else time_of(position)
    return AtPosition(position=position) if time_s is None else BeforeTime(time_s=time_s)


def cut(end: End, after: str, records: Sequence[Record], *, nothing_left: bool, now_s: float) -> Cut:
    """
    Decide which records are still to be handled.

    Args:
        end: The partition's.
        after: The position before the first of `records`: the last record done or handed on.
        records: What was read next, in order; none where a read brought nothing.
        nothing_left: Whether the source has no further record at this moment (a lag of 0, or the partition has ended).
        now_s: This host's wall clock, seconds since 1970.

    Returns:
        How many of them, and whether nothing behind those is to be handled.

    Raises:
        SettingsError: the end is a time, and the source's records have none.
    """
    if isinstance(end, AtPosition):
        if end.position is None or end.position == after:
            return Cut(count=0, is_over=True)
        for index, record in enumerate(records):
            if record.position == end.position:
                return Cut(count=index + 1, is_over=True)
        return Cut(count=len(records), is_over=nothing_left)
    for index, record in enumerate(records):
        if record.time_s is None:
            raise SettingsError(
                f"until: the record at {record.position!r} of {record.partition!r} has no time, so no time can end "
                f"the replay; use {LATEST_AT_START} or positions"
            )
        if record.time_s >= end.time_s:
            return Cut(count=index, is_over=True)
    return Cut(count=len(records), is_over=nothing_left and now_s >= end.time_s + CLOCKS_APART_S)


def _positions(pairs: Iterable[tuple[str, str]]) -> UntilPositions:
    positions: dict[str, str] = {}
    for partition, position in pairs:
        if not partition or not position or positions.setdefault(partition, position) != position:
            why = "has two ends" if partition and position else "is no PARTITION=POSITION"
            raise SettingsError(f"until: {partition}={position} {why}; {_EXPECTED}")
    if not positions:
        raise SettingsError(f"until: no partition is named; {_EXPECTED}")
    return UntilPositions(positions=MappingProxyType(positions))
