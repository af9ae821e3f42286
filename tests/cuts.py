"""
Cuts: one call cancelled at each of its scheduling points, each time in a world of its own.

Knows no store and no session. The call is driven step by step; when it suspends for the n-th time its caller's scope is
cancelled, so that the cancellation strikes at that very await, or at the next one that is not shielded.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from itertools import count
from typing import Any

import anyio

from tests.world.loop import run_virtual

__all__ = ["Cut", "at_every_point"]

POINTS_MAX = 500
"""A call with more of them does not end."""


class Cut:
    """Cancels the one call that a scenario makes `during` it."""

    def __init__(self, point: int) -> None:
        self.point = point
        self.reached = False

    async def during(self, call: Callable[[], Awaitable[object]]) -> bool:
        """Await `call()` and cancel it at this cut's point; say whether it ended before the cancellation."""
        with anyio.CancelScope() as scope:
            await self._driven(call(), scope)
        return not scope.cancelled_caught

    @types.coroutine
    def _driven(self, call: Awaitable[object], scope: anyio.CancelScope) -> Generator[Any, Any, None]:
        steps = call.__await__()
        error: BaseException | None = None
        value: Any = None
        for point in count():
            try:
                waited_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration:
                return
            if point == self.point:
                self.reached = True
                scope.cancel()
            error = None
            try:
                value = yield waited_for
            except BaseException as thrown:
                # Not contained but handed on, into the call.
                error = thrown


def at_every_point(scenario: Callable[[Cut], Awaitable[None]]) -> int:
    """
    Run a scenario once for each scheduling point of the call that it makes, and once with the call uncut.

    Returns:
        How many points there are.
    """
    for point in range(POINTS_MAX):
        cut = Cut(point)
        try:
            run_virtual(lambda cut=cut: scenario(cut))  # type: ignore[misc]
        except BaseException as error:
            error.add_note(f"cancelled at scheduling point {point}")
            raise
        if not cut.reached:
            return point
    raise AssertionError(f"the call has more than {POINTS_MAX} scheduling points; it should end")
