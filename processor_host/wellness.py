"""
How one host is: what its partitions say, when it gives everything away for that, and how long it then keeps away.

Owns the state behind `processor_host.sickness`, and is fed with the host's events; knows no session and no pump.

Theory of operation:
- A host is sick once everything has failed for `sick_after_s`. It tells the others so from half of that time on: where
  hosts fall sick one after the other, the first must see that the next is no better before it gives everything away.
- After it has given everything away it rests, twice as long each time, and takes part again on probation: it goes on
  telling that it is sick until something succeeds. So two sick hosts do not pass their partitions to and fro.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from partitions.clocks import Clock
from partitions.events import Event
from partitions.retries import Waits
from processor_host.events import BatchHandled, ProcessorFailed, PumpEnded
from processor_host.sickness import Health, Other, should_drain

__all__ = ["Wellness"]

TELL_SHARE: Final = 0.5
"""From this share of `sick_after_s` on the others are told."""
REST_TIMES_MAX: Final = 15
"""Where the doubling of the rests ends, in times of `sick_after_s`: a quarter of an hour with the default."""
FAILING_STAGES: Final = frozenset({"open", "process", "decode"})
"""Where user code cannot handle what it is handed. A `close` that fails has handled it."""


class Wellness:
    """
    How one host is, over all of its sessions.

    Attributes:
        rests_until_s: Until when it keeps away; None while it takes part.
    """

    def __init__(self, *, sick_after_s: float, clock: Clock, random: Random) -> None:
        self.rests_until_s: float | None = None
        self._sick_after_s = sick_after_s
        self._clock = clock
        self._random = random
        self._waits = Waits(first_s=sick_after_s, most_s=REST_TIMES_MAX * sick_after_s)
        self._health = Health()
        self._rests = 0
        """In a row, nothing having succeeded between them."""

    def on_event(self, event: Event) -> None:
        """Take note of what became of records."""
        match event:
            case BatchHandled():
                self._health = self._health.succeeded(event.partition)
                self._rests = 0
            case ProcessorFailed(stage=stage) if stage in FAILING_STAGES:
                self._health = self._health.failed(event.partition, self._clock.now_s())
            case PumpEnded():
                self._health = self._health.gone(event.partition)

    @property
    def is_sick(self) -> bool:
        """Whether everything has failed for `sick_after_s`."""
        return self._health.is_sick(self._clock.now_s(), self._sick_after_s)

    @property
    def is_told(self) -> bool:
        """Whether the others are to know: it is about to be sick, or was, and nothing has succeeded since."""
        return self._rests > 0 or self._health.is_sick(self._clock.now_s(), TELL_SHARE * self._sick_after_s)

    def should_drain(self, *, told_beats: int, others: Iterable[Other]) -> bool:
        """Decide whether the host gives everything away; see `sickness.should_drain` for the arguments."""
        return self.is_sick and should_drain(told_beats=told_beats, others=others)

    def begin_rest(self) -> float:
        """Keep away from here on; return for how long, seconds."""
        self._rests += 1
        pause_s = self._waits.after(self._rests, self._random)
        self.rests_until_s = self._clock.now_s() + pause_s
        return pause_s

    def end_rest(self) -> None:
        """Take part again."""
        self.rests_until_s = None

    def text(self) -> str | None:
        """Say for people why the host is not ready, or is about not to be; None where all is well."""
        if self.rests_until_s is not None:
            left_s = max(0.0, self.rests_until_s - self._clock.now_s())
            return f"everything failed on this host while another was well; it takes part again in {left_s:.0f} s"
        since_s = self._health.sick_since_s()
        if since_s is None or not self.is_told:
            return None
        return f"everything has failed on this host for {self._clock.now_s() - since_s:.0f} s"
