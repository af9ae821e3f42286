"""
A steady flow: how many records a producer should make now.

Pure; knows neither clock nor stream.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Flow"]

BEHIND_MAX_S: Final = 1.0
"""How much a producer that was late makes up for at once."""


class Flow:
    """Counts what is due; a producer asks, makes as many or fewer, and says how many."""

    def __init__(self, rate: float, now_s: float) -> None:
        """Begin at `now_s`, with so many records a second."""
        self._rate = rate
        self._due = 0.0
        self._before_s = now_s

    def due(self, now_s: float) -> int:
        """Return how many records are due."""
        self._due = min(self._due + (now_s - self._before_s) * self._rate, self._rate * BEHIND_MAX_S)
        self._before_s = now_s
        return int(self._due)

    def made(self, count: int) -> None:
        """Note that so many of those were made."""
        self._due -= count
