"""
Counts in sentences for people.
"""

from __future__ import annotations

__all__ = ["count_of"]


def count_of(number: int, what: str) -> str:
    """Return "1 record", "2 records", "0 records"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
