"""
Why a run on virtual time cannot go on, told by the names of what runs.

It knows callbacks and tasks, but no loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .places import AnyHandle

__all__ = [
    "Deadlock",
    "Livelock",
    "RealTimeExceeded",
    "VirtualTimeError",
    "chain_of",
    "label",
    "listed",
    "name_of",
]

NAMES_MAX = 30  # In the message of an error.


class VirtualTimeError(RuntimeError):
    """A run cannot go on: a fault of the test or of the code under test. The message names the tasks."""


class Deadlock(VirtualTimeError):
    """Nothing is ready and no timer is left, so nothing could ever happen again."""

    def __init__(self, *, at_s: float, tasks: Sequence[str], frozen: Sequence[str]) -> None:
        self.at_s, self.tasks, self.frozen = at_s, tasks, frozen
        places = f"; frozen places, to be thawed or killed: {listed(frozen)}" if frozen else ""
        super().__init__(f"at {at_s} s nothing is ready and no timer is left; waiting: {listed(tasks)}{places}")


class Livelock(VirtualTimeError):
    """Callbacks keep each other busy at one instant, so time would never move again."""

    def __init__(self, *, at_s: float, steps: int, tasks: Sequence[str]) -> None:
        self.at_s, self.steps, self.tasks = at_s, steps, tasks
        super().__init__(f"{steps} callbacks ran and it still is {at_s} s; about to run: {listed(tasks)}")


class RealTimeExceeded(VirtualTimeError):
    """The run takes longer on the real clock than it may."""

    def __init__(self, *, at_s: float, limit_s: float, tasks: Sequence[str]) -> None:
        self.at_s, self.limit_s, self.tasks = at_s, limit_s, tasks
        super().__init__(f"{limit_s} s of real time are over at virtual time {at_s} s; pending: {listed(tasks)}")


def label(handle: AnyHandle) -> str:
    """The name of the task that a callback steps, else of the callback."""
    owner = getattr(handle._callback, "__self__", None)
    return owner.get_name() if isinstance(owner, asyncio.Task) else name_of(handle._callback)


def name_of(function: object) -> str:
    """Its name in its module."""
    return str(getattr(function, "__qualname__", type(function).__name__))


def chain_of(task: asyncio.Task[Any]) -> str:
    """The coroutines down to the await where a task is, each with its line."""
    chain: list[str] = []
    coro: object = task.get_coro()
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        chain.append(f"{name_of(coro)}:{frame.f_lineno}")
        coro = getattr(coro, "cr_await", None)
    return " > ".join(chain)


def listed(names: Sequence[str]) -> str:
    """Names for a message, not too many."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more if names else "nothing"
