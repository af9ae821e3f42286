"""
Positions and points of the sources that number things: records within a partition, changes within a stream.

Knows no source. A position is the decimal number of the last record done, and 0 is before the first. A point is
"change:<n>": what was there when the stream had seen n changes.
"""

from __future__ import annotations

from typing import Final

from partitions.errors import SourceMisconfigured
from partitions.positions import EARLIEST, Start, time_of

__all__ = ["change_of", "checked_number", "number_of", "resolved"]

_CHANGE: Final = "change:"


def number_of(partition: str, position: str) -> int:
    """
    Return the number in a position.

    Raises:
        SourceMisconfigured: the position is not a number.
    """
    if not (position.isascii() and position.isdecimal()):
        raise SourceMisconfigured(
            f"position {position!r} of partition {partition!r} is not one of this source; expected a decimal number"
        )
    return int(position)


def checked_number(partition: str, position: str, last: int) -> int:
    """
    Return the number in a position of a partition whose last record has the number `last`.

    Raises:
        SourceMisconfigured: the position is not a number, or is after the last record. Reading on from there would pass
            over every record up to it, without a word.
    """
    if (number := number_of(partition, position)) > last:
        raise SourceMisconfigured(
            f"position {position!r} is after the last record {str(last)!r} of partition {partition!r}; "
            "was the stream replaced by an older copy?"
        )
    return number


def resolved(start: Start, change: int) -> str:
    """
    Return the fixed point that `start` means in a stream that has seen `change` changes.

    Raises:
        ValueError: `start` is not a start.
    """
    if start == "earliest":
        return EARLIEST
    if start == "latest":
        return f"{_CHANGE}{change}"
    if time_of(start) is not None:
        return start
    raise ValueError(f"start {start!r} is not a start; use earliest, latest or a position made by at_time")


def change_of(point: str, change: int) -> int:
    """
    Return the number of the last change that a point includes, in a stream that has seen `change` changes.

    Raises:
        SourceMisconfigured: the point was not made by `resolved`, or not for this stream.
    """
    number = point.removeprefix(_CHANGE)
    if number == point or not (number.isascii() and number.isdecimal()) or int(number) > change:
        raise SourceMisconfigured(
            f"start point {point!r} is not one of this stream, which has seen {change} changes; "
            "was the group started on another one?"
        )
    return int(number)
