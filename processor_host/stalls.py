"""
Stalls: notices when something blocks the event loop of a host, so that nothing else on it runs.
"""

from __future__ import annotations

import anyio

from partitions.clocks import Clock
from partitions.events import OnEvent, tell
from processor_host.events import LoopStalled

__all__ = ["watch_stalls"]

TICK_S = 0.25
"""How often the loop is looked at."""
STALL_S = 1.0
"""A tick that is later than this is told."""


async def watch_stalls(clock: Clock, on_event: OnEvent) -> None:
    """Tell each time that the loop was blocked for `STALL_S` or more, once it goes on; until cancelled."""
    while True:
        before_s = clock.now_s()
        await anyio.sleep(TICK_S)
        stall_s = clock.now_s() - before_s - TICK_S
        if stall_s >= STALL_S:
            tell(on_event, LoopStalled(stall_s=stall_s))
