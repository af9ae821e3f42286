"""Clocks of simulated machines: each has a zero and a rate of its own, and may stand still. None is a wall clock."""

from __future__ import annotations

from tests.world.loop import running_loop

__all__ = ["PlaceClock"]


class PlaceClock:
    """A clock of one place: it may run fast or slow within the allowed drift, and it may stand still."""

    def __init__(self, *, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.rate = rate
        self._offset_s = offset_s
        self._stood_s = 0.0
        self._stopped_at_s: float | None = None

    def now_s(self) -> float:
        """See `partitions.clocks.Clock`."""
        now_s = running_loop().time() if self._stopped_at_s is None else self._stopped_at_s
        return (now_s - self._stood_s) * self.rate + self._offset_s

    @property
    def stands_still(self) -> bool:
        """Whether it was stopped and does not go on yet."""
        return self._stopped_at_s is not None

    def stand_still(self) -> None:
        """Stop, as the clock of a virtual machine that is suspended and does not count it."""
        self._stopped_at_s = running_loop().time()

    def go_on(self) -> None:
        """Run again from where it stood."""
        assert self._stopped_at_s is not None
        self._stood_s += running_loop().time() - self._stopped_at_s
        self._stopped_at_s = None
