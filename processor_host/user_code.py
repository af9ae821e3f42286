"""
Calls of user code: what it raises is told from a cancellation and from the end of the lease.

Knows no pump. Whatever user code does, its partition alone is concerned.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from partitions.current import HeldLease
from partitions.errors import LeaseLost

__all__ = ["UserFailed", "call_user", "text_of"]


class UserFailed(Exception):
    """
    User code raised; it is to be run again from the checkpoint. Caught by the pump, never seen by a user.

    Attributes:
        stage: What was called, as "open", "process" or "close".
        error: What it raised.
    """

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage}: {text_of(error)}")
        self.stage = stage
        self.error = error


def text_of(error: BaseException) -> str:
    """Return the type and the text of what user code raised, whose `__str__` may raise too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # Containment: to tell of a failure must not be another one.
        return type(error).__name__


async def call_user(lease: HeldLease, stage: str, call: Callable[[], Awaitable[None]]) -> None:
    """
    Await `call`, which runs user code under `lease`.

    Raises:
        UserFailed: it raised.
        LeaseLost: it noticed that `lease` has ended.
    """
    before = _cancellations()
    try:
        awaitable = call()
        if not inspect.isawaitable(awaitable):
            raise TypeError(f"{stage} is not async; write `async def {stage}`")
        await awaitable
        await _absorb(before)
    except LeaseLost as error:
        if lease.is_held():
            # Of some other lease, which is the user's business.
            raise UserFailed(stage, error) from error
        raise
    except anyio.get_cancelled_exc_class() as error:
        if anyio.current_effective_deadline() == -math.inf:
            # It may be one of the user's own that came on top. That one no cancel scope would catch, and the pump would
            # be over without a release, so the cancellation itself is raised.
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        # Nobody cancelled this task: user code did so itself, or awaited something of its own that was. Passing it on
        # would end the pump without a word and keep the lease without a processor.
        await _absorb(before)
        raise UserFailed(stage, error) from error
    except (KeyboardInterrupt, GeneratorExit):
        # Not the partition's: the whole process, or this very coroutine, is to end.
        raise
    except BaseException as error:  # Containment: trouble of one partition stays there, a `sys.exit` too.
        await _absorb(before)
        raise UserFailed(stage, error) from error


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _absorb(before: int) -> None:
    """
    Take back what user code has asked of this task with `Task.cancel`, delivered or not.

    Left over, it would hit the next await of the pump, and no cancel scope would end its own cancellation any more.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling() <= before or anyio.current_effective_deadline() == -math.inf:
        return
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if anyio.current_effective_deadline() == -math.inf:
            raise
    while task.cancelling() > before:
        task.uncancel()
