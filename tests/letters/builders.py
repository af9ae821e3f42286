"""
Builders of letters: everything filled in that a test does not care about.
"""

from __future__ import annotations

from typing import Any

from processor_host.letters.base import Letter

__all__ = ["a_letter"]


def a_letter(position: str = "7", **changes: Any) -> Letter:
    """The letter of a record of "p0" that failed three times."""
    data = changes.pop("data", b'{"delay":1}')
    values: dict[str, Any] = {
        "group": "delays",
        "partition": "p0",
        "position": position,
        "after": "6",
        "key": "N123",
        "data": data,
        "data_bytes": len(data),
        "headers": {"h": "x"},
        "record_time_s": 1_700_000_000.25,
        "source": "local:s.db",
        "stage": "process",
        "error": "ValueError: bad",
        "traceback": "Traceback (most recent call last):\nValueError: bad\n",
        "attempts": 3,
        "host_id": "a",
        "token": 4,
        "time_s": 1_700_000_100.5,
        **changes,
    }
    return Letter(**values)
