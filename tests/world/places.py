"""
Callbacks and the places they run on: simulated machines that freeze and die.

It knows no time and no queue; the loop owns those and asks here which callbacks may run.

Every callback carries a `contextvars.Context`, and `PLACE` in it names the machine that it runs on: what the code of a
place starts, awaits or sets a timer for stays in that place. So a machine is frozen by setting its callbacks aside and
killed by dropping them. A wake-up belongs to the one who is woken, not to the one who wakes.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any

__all__ = ["GRAVEYARD", "PLACE", "AnyHandle", "Killed", "Places", "ReadyHandle", "Timer", "place_of"]

PLACE: ContextVar[str | None] = ContextVar("PLACE", default=None)
"""The simulated machine that the running code is on; None is the world itself: servers, the network, the test."""

GRAVEYARD: list[object] = []
"""
Tasks, callbacks and generators of dead places, until the process ends.

Whoever drops the last reference to a suspended coroutine runs its `finally` blocks. So would the interpreter, when it
exits and clears this module: hence one reference too many.
"""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(GRAVEYARD))


class Killed(Exception):
    """The task that was waited for ran in a place that was killed: it has no result and never will."""

    def __init__(self, *, place: str, task: str) -> None:
        self.place, self.task = place, task
        super().__init__(f"place {place!r} was killed while {task!r} ran there")


class ReadyHandle(asyncio.Handle):
    """asyncio's handle, made without its checks for debug mode: they are half of its cost."""

    __slots__ = ()
    _callback: Callable[..., object]
    _context: Context
    _loop: asyncio.AbstractEventLoop
    _repr: None
    _source_traceback: None

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class Timer(asyncio.TimerHandle):
    """asyncio's timer, with the attributes that the loop reads."""

    __slots__ = ()
    _callback: Callable[..., object]
    _context: Context
    _scheduled: bool


AnyHandle = ReadyHandle | Timer


def place_of(handle: AnyHandle) -> str | None:
    """Where a callback runs."""
    return handle._context.get(PLACE)


class Places:
    """Which machines there are, and which of them are frozen, with what was set aside, or dead."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._dead: set[str] = set()
        self._frozen: dict[str, list[AnyHandle]] = {}
        self._deaths: dict[str, asyncio.Future[None]] = {}

    @property
    def frozen(self) -> tuple[str, ...]:
        """In the order in which they were frozen."""
        return tuple(self._frozen)

    @property
    def all_run(self) -> bool:
        """Whether `may_run` is true of everything."""
        return not self._frozen and not self._dead

    def is_frozen(self, place: str) -> bool:
        """Whether it was frozen, and neither thawed nor killed since."""
        return place in self._frozen

    def is_dead(self, place: str | None) -> bool:
        """Whether it was killed; the world never is."""
        return place in self._dead

    def may_run(self, handle: AnyHandle) -> bool:
        """Whether the callback runs now; else it is kept here, for `thaw` or for ever."""
        place = place_of(handle)
        if place is None:
            return True
        if place in self._dead:
            GRAVEYARD.append(handle)
            return False
        if (aside := self._frozen.get(place)) is not None:
            aside.append(handle)
            return False
        return True

    def enter(self, place: str) -> None:
        """Know a place from now on; ValueError where it is dead."""
        self.check_not_dead(place)
        self._known.add(place)

    def freeze(self, place: str) -> None:
        """Set aside what is to run there; ValueError where that cannot be."""
        self._check_stoppable(place)
        if place in self._frozen:
            raise ValueError(f"place {place!r} is frozen already; thaw or kill it")
        self._frozen[place] = []

    def thaw(self, place: str) -> list[AnyHandle]:
        """What was set aside, in its order; ValueError where it is not frozen."""
        if place not in self._frozen:
            raise ValueError(f"place {place!r} is not frozen; frozen are {sorted(self._frozen)}")
        return self._frozen.pop(place)

    def kill(self, place: str) -> None:
        """Let nothing run there any more; ValueError where that cannot be."""
        self._check_stoppable(place)
        self._dead.add(place)
        GRAVEYARD.extend(self._frozen.pop(place, ()))
        if (death := self._deaths.get(place)) is not None and not death.done():
            death.set_result(None)

    def death_of(self, place: str, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Done once the place is dead; one future for all who ask."""
        if place not in self._deaths:
            self._deaths[place] = loop.create_future()
            if place in self._dead:
                self._deaths[place].set_result(None)
        return self._deaths[place]

    def check_not_dead(self, place: str | None) -> None:
        """ValueError where it is."""
        if place in self._dead:
            raise ValueError(f"place {place!r} is dead, and no name is used twice; use another one")

    def _check_stoppable(self, place: str) -> None:
        if place not in self._known:
            raise ValueError(f"nothing ever ran in place {place!r}; known are {sorted(self._known)}")
        self.check_not_dead(place)
        if place == PLACE.get():
            # The running step would go on to its next await.
            raise ValueError(f"place {place!r} cannot stop itself; do it through in_world")
