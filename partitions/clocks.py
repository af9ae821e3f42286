"""
Clocks: the one way in which the library reads time and waits.

Passed in, never global, so that tests own time. Knows no store.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

import anyio

__all__ = ["CLOCK_DRIFT", "BootClock", "Clock", "sleep_until"]

CLOCK_DRIFT: Final = 0.01
"""
How far the rates of two hosts' clocks may differ, as a ratio.

Crystals differ by 1e-4 at most and a clock that is being slewed by 5e-4; 1 % leaves room for a virtual machine under
steal and costs 0.1 s of fail-over at a duration of 10 s. A holder counts less, an observer counts more by it.
"""


class Clock(Protocol):
    """A clock of one host. Its zero means nothing; only differences do. Wall clocks are for people."""

    def now_s(self) -> float:
        """Return the seconds since some moment; counts on while the machine is suspended; never runs backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait about `seconds` of this clock; may wake early or late, so read the clock again."""
        ...


class BootClock:
    """The machine's clock that counts suspend where there is one (`CLOCK_BOOTTIME`), else the monotonic one."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_s(self) -> float:
        """See `Clock.now_s`."""
        return time.clock_gettime(self._id)

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await anyio.sleep(max(0.0, seconds))


async def sleep_until(clock: Clock, at_s: float) -> None:
    """Wait until `clock` shows `at_s`, however early a single sleep wakes."""
    while (left_s := at_s - clock.now_s()) > 0:
        await clock.sleep(left_s)
