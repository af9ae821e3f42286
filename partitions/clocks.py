"""
Clocks: the one way in which the library reads time and waits.

Passed in, never global, so that tests own time. Knows no store. How far two clocks may differ (`CLOCK_DRIFT`) is said
where the observer's rule is, which reads no clock.
"""

from __future__ import annotations

import time
from typing import Protocol

import anyio

from partitions.liveness import CLOCK_DRIFT

__all__ = ["CLOCK_DRIFT", "BootClock", "Clock", "sleep_until", "wait_until"]


SHORTEST_S = 1e-9
"""
No wait is shorter. What rounding leaves over between two clocks may be too little to move the loop's own time, and a
loop whose time stands still while something is ready, as a simulated one, would never come to the end of it.
"""


class Clock(Protocol):
    """
    A clock of one host. Its zero means nothing; only differences do. Wall clocks are for people.

    Waiting is the event loop's: who has waited reads the clock again, because the two may differ.
    """

    def now_s(self) -> float:
        """Return the seconds since some moment; counts on while the machine is suspended; never runs backwards."""
        ...


class BootClock:
    """The machine's clock that counts suspend where there is one (`CLOCK_BOOTTIME`), else the monotonic one."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_s(self) -> float:
        """See `Clock.now_s`."""
        return time.clock_gettime(self._id)


async def sleep_until(clock: Clock, at_s: float) -> None:
    """Wait until `clock` shows `at_s`, however early a single sleep wakes."""
    while (left_s := at_s - clock.now_s()) > 0:
        await anyio.sleep(max(left_s, SHORTEST_S))


async def wait_until(clock: Clock, at_s: float, event: anyio.Event) -> None:
    """Wait until `event` is set or `clock` shows `at_s` (infinity: for the event only)."""
    while not event.is_set() and (left_s := at_s - clock.now_s()) > 0:
        with anyio.move_on_after(max(left_s, SHORTEST_S)):
            await event.wait()
