"""
How long the terms of one session may go on: its end, and the deadlines of the asks it was shown.

Written by the session alone; everybody else does one lookup (rule 5). Knows no store and starts no task. The session
writes here *before* it tells anybody, so that code which was blocked meanwhile cannot go on under an ask it has not
seen (rule 16). Its beats may write from a thread of their own: lookups need no lock, and the two writes of the
session's end have one, because an end is final.

An ask lives here in two ways. While it *stands* in the session's item, a beat may remove it, but only once its term
has ended here and can no longer begin (rule 11). Its *deadline* is kept until it is past and no acquire of the
partition waits for its answer (rule 10), also after the ask was removed: the answer may bring the term it names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from threading import Lock

from partitions.clocks import Clock
from partitions.items import parse_ask_key

__all__ = ["SessionTable"]

IsOpen = Callable[[str, int], bool]
"""Says of a partition and a token whether that term goes on here, or may still begin or be on its way to the store."""


class SessionTable:
    """The end of a session and the asks it was shown, in seconds of its host's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[str, float] = {}
        self._standing: Mapping[str, str] = {}
        self._valid_until_s = -math.inf
        self._is_closed = False
        self._ending = Lock()

    @property
    def valid_until_s(self) -> float:
        """From when on no term goes on. -inf before the session is registered and once it is over."""
        return self._valid_until_s

    def extend(self, until_s: float) -> None:
        """Let terms go on until then, unless the session is over: an answer may come while it ends elsewhere."""
        with self._ending:
            if not self._is_closed:
                self._valid_until_s = until_s

    def until_s(self, key: str) -> float:
        """Return when the term with this ask key ends at the latest: the session's end or the ask's deadline."""
        return min(self._valid_until_s, self._deadlines.get(key, math.inf))

    def is_valid(self, key: str) -> bool:
        """Say whether the term with this ask key may still go on at this moment."""
        return self._clock.now_s() < self.until_s(key)

    def remaining_s(self, key: str) -> float:
        """Return how long the term with this ask key may still go on, seconds; 0.0 where it has ended."""
        return max(0.0, self.until_s(key) - self._clock.now_s())

    def ask_deadline_s(self, key: str) -> float:
        """Return the deadline of the ask under this key; infinity where none was shown."""
        return self._deadlines.get(key, math.inf)

    def is_asked(self, key: str) -> bool:
        """Say whether an ask for this term was shown and is not forgotten."""
        return key in self._deadlines

    def show(self, asks: Mapping[str, str], deadline_s: float) -> tuple[str, ...]:
        """
        Take the asks of a beat's answer.

        Args:
            asks: All that stand in the session's item.
            deadline_s: The deadline of those that were not shown before.

        Returns:
            The keys that are new.
        """
        new = tuple(key for key in asks if key not in self._deadlines)
        for key in new:
            self._deadlines[key] = deadline_s
        self._standing = dict(asks)
        return new

    def handled(self, is_open: IsOpen) -> tuple[str, ...]:
        """Return the keys that the next beat may remove: shown, and their term is not open and never will be."""
        return tuple(key for key in self._standing if not _names_open_term(key, is_open))

    def forget(self, is_open: IsOpen) -> None:
        """Drop each ask that no longer stands, whose deadline is past and whose term cannot begin any more."""
        now_s = self._clock.now_s()
        for key, deadline_s in tuple(self._deadlines.items()):
            if key not in self._standing and now_s >= deadline_s and not _names_open_term(key, is_open):
                del self._deadlines[key]

    def close(self) -> None:
        """End the session: no term is valid from here on."""
        with self._ending:
            self._is_closed = True
            self._valid_until_s = -math.inf


def _names_open_term(key: str, is_open: IsOpen) -> bool:
    try:
        partition, token = parse_ask_key(key)
    except ValueError:
        # Not written by this product; it names no term, so a beat may clear it away.
        return False
    return is_open(partition, token)
