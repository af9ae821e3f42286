"""
Calls of a store under a time-out, and the waits between two tries.

The waits grow and are spread at random, so that hosts which failed together do not come back together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import anyio

from partitions.errors import StoreUnavailable

__all__ = ["Waits", "call", "is_cancelled"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Growing waits: `first_s` doubled by each attempt up to `most_s`, each spread over its upper half."""

    first_s: float
    most_s: float

    def after(self, attempt: int, random: Random) -> float:
        """Return how long to wait after the failed `attempt` (1, 2, …), seconds."""
        # The exponent is bounded because an outage of days must not overflow a float.
        full_s = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 32))
        return full_s * (0.5 + random.random() / 2)


async def call(send: Callable[[], Awaitable[R]], timeout_s: float) -> R:
    """
    Await one call of a store, at most `timeout_s` seconds.

    Raises:
        StoreUnavailable: no answer in time; the write may or may not have been applied.
    """
    try:
        with anyio.fail_after(max(0.0, timeout_s)):
            return await send()
    except TimeoutError as error:
        raise StoreUnavailable(f"no answer within {timeout_s:.3g} s") from error
    except anyio.get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        # Something inside the store's client was cancelled, such as a task that it shares with another call. Passed on
        # it would look like a cancellation of the caller, and end a session or a pump without a word.
        raise StoreUnavailable("something that the call waited for was cancelled") from error


def is_cancelled() -> bool:
    """
    Say whether somebody cancels the running task: a cancel scope around it, or `Task.cancel`.

    False where a cancellation that arrives here was raised by what the task waits for, and means nobody but that.
    """
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)
