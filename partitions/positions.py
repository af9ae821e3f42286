"""
Positions: opaque strings of a source, and the few that every source knows.

A position is *the last record done*; reading resumes after it. Only the source that made a position can read it:
nothing here compares two of them. Positions are strings because numbers wider than 38 digits do not fit a DynamoDB
number. Words that start with "@" are reserved for this module.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EARLIEST", "END", "Start", "at_time", "parse_start", "time_of"]

EARLIEST: Final = "@earliest"
"""Before the oldest record that the partition has."""

END: Final = "@end"
"""After the last record of a partition that has ended: it was processed to its end."""

_AT: Final = "@time:"

Start = str
"""Where a group starts: "earliest", "latest", or a position made by `at_time`."""


def at_time(time_s: float) -> str:
    """Return the position before the first record at or after `time_s` (seconds of the source's own clock)."""
    return f"{_AT}{time_s!r}"


def time_of(position: str) -> float | None:
    """Return the time in a position made by `at_time`, seconds; None for any other position."""
    return float(position.removeprefix(_AT)) if position.startswith(_AT) else None


def parse_start(text: str) -> Start:
    """
    Read what a user wrote for `start`: `earliest`, `latest` or an ISO 8601 time.

    A time without a zone is UTC, so that two hosts in different zones start at the same record.

    Raises:
        ValueError: the text is none of these; the message names what is expected.
    """
    from datetime import UTC, datetime

    if text in ("earliest", "latest"):
        return text
    if text.startswith(_AT):
        return at_time(float(text.removeprefix(_AT)))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"start={text!r} is not a start; use earliest, latest or a time such as 2026-01-31T06:00:00Z"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return at_time(when.timestamp())
