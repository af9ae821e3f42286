"""
Where a group starts: `start=` as a value, one start for the stream and positions for single partitions.

Pure; knows no source. What a start becomes is resolved by the source, once; positions are the source's own and opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from partitions.positions import parse_start

__all__ = ["Starts", "parse_starts", "separated"]

_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})


def _nowhere() -> Mapping[str, str]:
    return _NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Where the partitions of a new group start."""

    point: str = "earliest"
    """For every partition that has no position of its own, as `parse_start` returns it."""
    positions: Mapping[str, str] = field(default_factory=_nowhere)
    """The last record that counts as done, by partition."""


def separated(text: str) -> list[str]:
    """Return the parts of a text in which commas separate pairs; without a pair it is one, commas and all."""
    return [part.strip() for part in text.split(",")] if "=" in text else [text]


def parse_starts(value: str | Mapping[str, str]) -> Starts:
    """
    Read what a user gave as `start`.

    Args:
        value: "earliest", "latest", an ISO 8601 time, PARTITION=POSITION, or several of these with commas, at most one
            of them without a partition; or a mapping of partitions to positions.

    Raises:
        ValueError: it is none of these; the message names what is expected.
    """
    if isinstance(value, Mapping):
        pairs = [(str(partition), str(position)) for partition, position in value.items()]
        points = []
    else:
        parts = separated(value)
        pairs = [(part.partition("=")[0], part.partition("=")[2]) for part in parts if "=" in part]
        points = [parse_start(part) for part in parts if "=" not in part]
    positions: dict[str, str] = {}
    for partition, position in pairs:
        if not partition or not position or positions.setdefault(partition, position) != position:
            why = "starts at two positions" if partition and position else "is no PARTITION=POSITION"
            raise ValueError(f"start: {partition}={position} {why}; name each partition once, as in p0=41")
    if len(points) > 1:
        raise ValueError(f"start={value!r} has {len(points)} starts for the whole stream; give one, and the partitions")
    return Starts(point=points[0] if points else "earliest", positions=MappingProxyType(positions))
