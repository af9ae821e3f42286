"""
Stalls: whether the main loop of a host goes round, seen from it and from the loop of the beats.

Knows no session and no store. What a `LoopWatch` does:

- `tick` runs on the main loop; a tick that is late is told once the loop goes on, with how long nothing else ran.
- `watch` runs on the loop of the beats, where there is one. It counts how long no sign of life has come (`Pulse`)
  *while it ran itself*: a process that was suspended, or code that kept the interpreter to itself, stops both loops,
  and the main one is not to blame. After a second it tells what the main thread is at, while it still is.
- What `watch` tells, it tells in a thread of its own (`Aside`): an observer that hangs, as a log whose reader is away,
  may be the very thing that blocks the main loop, and must not stop the beats as well.
- `why_held` says there that no more beats may be sent: a host whose main loop has not gone round for the limit handles
  nothing, and the others must get its partitions.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from threading import Thread, get_ident
from typing import Final

import anyio

from partitions.clocks import Clock
from partitions.events import Event, OnEvent, tell
from processor_host.events import BeatsHeld, LoopBlocked, LoopStalled

__all__ = ["Aside", "LoopWatch", "Pulse", "stack_of"]

TICK_S: Final = 0.25
"""How often each loop looks."""
STALL_S: Final = 1.0
"""A tick that is later than this is told."""
FRAMES_MAX: Final = 30
"""Of a stack, the innermost; whoever blocks is among the last."""


class Pulse:
    """
    Counts the signs that the host's own code runs on its loop; any other thread's count for nothing.

    Calls that block come one after the other where many partitions are ready: the loop comes round only after the last
    of them. What the host does between two of them shows that it is not one call that hangs.
    """

    def __init__(self) -> None:
        self.count = 0
        self.thread: int | None = None
        """That of the loop, once it is watched."""

    def note(self) -> None:
        """Note one sign of life."""
        if get_ident() == self.thread:
            self.count += 1


class LoopWatch:
    """Watches one main loop; made on it."""

    def __init__(
        self,
        clock: Clock,
        *,
        pulse: Pulse,
        limit_s: float,
        on_event: OnEvent,
        on_blocked: OnEvent,
        stack_of: Callable[[int], str],
    ) -> None:
        """
        Begin to watch.

        Args:
            clock: This host's clock.
            pulse: Gets the ticks, beside whatever else is noted there.
            limit_s: No more beats once there has been no sign of life for so long.
            on_event: Gets `LoopStalled`, on the main loop.
            on_blocked: Gets `LoopBlocked` and `BeatsHeld`, on the loop of the beats, which it must not stop.
            stack_of: Returns what a thread is at, by its identity.
        """
        self._clock = clock
        self._limit_s = limit_s
        self._on_event = on_event
        self._on_blocked = on_blocked
        self._stack_of = stack_of
        self._thread = pulse.thread = get_ident()
        self._pulse = pulse
        self._blocked_s = 0.0
        """For how long there has been no sign of life; written by the watch alone."""

    async def tick(self) -> None:
        """Go round on the main loop, and tell each time that something kept it from that; until cancelled."""
        while True:
            before_s = self._clock.now_s()
            await anyio.sleep(TICK_S)
            self._pulse.note()
            stall_s = self._clock.now_s() - before_s - TICK_S
            if stall_s >= STALL_S:
                tell(self._on_event, LoopStalled(stall_s=stall_s))

    async def watch(self) -> None:
        """Look at the main loop from another one, and tell what blocks it; until cancelled."""
        seen = self._pulse.count
        is_blocked_told = is_held_told = False
        self._blocked_s = 0.0
        while True:
            before_s = self._clock.now_s()
            await anyio.sleep(TICK_S)
            if seen != self._pulse.count:
                seen = self._pulse.count
                self._blocked_s = 0.0
                is_blocked_told = is_held_told = False
                continue
            # Longer than it meant to wait, the watch did not run itself.
            self._blocked_s += min(self._clock.now_s() - before_s, TICK_S)
            if self._blocked_s >= STALL_S and not is_blocked_told:
                is_blocked_told = True
                tell(self._on_blocked, LoopBlocked(stall_s=self._blocked_s, stack=self._stack_of(self._thread)))
            if self._blocked_s > self._limit_s and not is_held_told:
                is_held_told = True
                stack = self._stack_of(self._thread)
                tell(self._on_blocked, BeatsHeld(stall_s=self._blocked_s, limit_s=self._limit_s, stack=stack))

    def why_held(self) -> str | None:
        """Return why no beat may be sent; None where there was a sign of life within the limit."""
        if self._blocked_s <= self._limit_s:
            return None
        return f"the main loop has been blocked for {self._blocked_s:.3g} s, longer than {self._limit_s:.3g} s"


class Aside:
    """Passes events on in a thread, one after the other, and waits for nobody."""

    def __init__(self, on_event: OnEvent) -> None:
        """`on_event` gets them; while it hangs, those that come are dropped."""
        self._on_event = on_event
        self._thread: Thread | None = None

    def on_event(self, event: Event) -> None:
        """Have an event told, and return at once."""
        if self._thread is not None and self._thread.is_alive():
            # One thread at most: stall after stall, an observer that never returns would collect them.
            return
        # A daemon: a process that ends must not wait for an observer that hangs.
        self._thread = Thread(target=tell, args=(self._on_event, event), name="stalls", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The machine has no thread left. A stall that nobody hears of is no reason to end the beats.
            self._thread = None


def stack_of(thread: int) -> str:
    """Return the stack of a thread as Python prints one, the innermost frame last; empty where there is no such."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)[-FRAMES_MAX:])
