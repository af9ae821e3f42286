"""
Weighing: how much one partition brings to its host, as a moving average of a rate.

Knows no clock, no lease and no plan; what is added up (bytes, seconds of handling) is the caller's. The average is
published with the checkpoints, and whoever has the lease next goes on from there.

Theory: of two rates the newer one counts more, and what lies `MEMORY_S` back counts a third of what is new. A rate that
swings wildly from second to second hardly moves such an average, and a burst must last to move a partition. Measured
from nothing, it is the plain mean until it has been measured for longer than its memory.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["LEAST", "MEMORY_S", "Weigher"]

MEMORY_S: Final = 120.0
"""How long a rate is remembered, seconds: a move costs a pause, and a burst of half a minute is not worth one."""

LEAST: Final = 1e-9
"""What an idle partition weighs: 0 means that nobody has measured it."""


class Weigher:
    """The moving average of one partition, for one term."""

    def __init__(self, weight: float, now_s: float) -> None:
        """
        Begin where the last owner stopped.

        Args:
            weight: The stored weight; 0, or nonsense, where there is none.
            now_s: The host's clock, seconds.
        """
        self._has_prior = 0 < weight < math.inf
        self._weight = weight if self._has_prior else 0.0
        self._began_s = now_s
        self._since_s = now_s
        self._amount = 0.0

    def add(self, amount: float) -> None:
        """Count what was just handled."""
        self._amount += amount

    def weight(self, now_s: float) -> float:
        """Return the average up to now, a rate a second; never 0, except where no time has passed to measure any."""
        passed_s = now_s - self._since_s
        if passed_s > 0:
            share = -math.expm1(-passed_s / MEMORY_S)
            if not self._has_prior:
                share = max(share, passed_s / (now_s - self._began_s))
            self._weight += share * (self._amount / passed_s - self._weight)
            self._since_s = now_s
            self._amount = 0.0
        elif not self._has_prior and self._since_s == self._began_s:
            return 0.0
        return max(self._weight, LEAST)
