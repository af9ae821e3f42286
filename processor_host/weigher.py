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
from collections.abc import Callable
from typing import Final

__all__ = ["BYTES", "LEAST", "MEMORY_S", "SECONDS", "Scales", "Weigher"]

BYTES: Final = "bytes"
"""Weights are bytes of payload a second."""

SECONDS: Final = "seconds"
"""Weights are seconds of handling a second."""

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


class Scales:
    """
    What the partitions of one host weigh: a weigher for each term that goes on.

    Attributes:
        weighed_by: What the group weighs by, `BYTES` or `SECONDS`; None where it does not, as long as it is not known.
    """

    def __init__(self) -> None:
        self.weighed_by: str | None = None
        self._weighers: dict[str, tuple[Callable[[], bool], Weigher]] = {}

    def begin(self, partition: str, weight: float, now_s: float, *, is_held: Callable[[], bool]) -> Weigher | None:
        """Weigh a partition for as long as it is held, from the weight that is stored; None where nobody weighs."""
        if self.weighed_by is None:
            return None
        weigher = Weigher(weight, now_s)
        self._weighers[partition] = (is_held, weigher)
        return weigher

    def total(self, now_s: float) -> float:
        """Return what all that are still held weigh together."""
        self._weighers = {name: (is_held, weigher) for name, (is_held, weigher) in self._weighers.items() if is_held()}
        return math.fsum(weigher.weight(now_s) for _, weigher in self._weighers.values())
