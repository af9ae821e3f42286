"""
A call on its way from an event loop to a lane's thread and back.

Knows no lane and no item. The loop is the one that was running where the call was made: a store may be called from
several.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Call", "Work"]

R = TypeVar("R")
Work = Callable[[sqlite3.Connection], R]
"""What a call does with the lane's connection, in the lane's thread."""


class Call(Generic[R]):
    """One call; made on its caller's loop, where `future` is awaited."""

    __slots__ = ("_loop", "future", "give_up_at_s", "work")

    def __init__(self, work: Work[R], *, give_up_at_s: float) -> None:
        self.work = work
        self.give_up_at_s = give_up_at_s
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[R] = self._loop.create_future()

    def answer(self, result: R) -> None:
        """Give the result to the caller; from any thread."""
        self._tell(self._set_result, result)

    def fail(self, error: BaseException) -> None:
        """Raise the error at the caller; from any thread."""
        self._tell(self._set_error, error)

    def _tell(self, tell: Callable[[Any], None], what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(tell, what)
        except RuntimeError:
            # The caller's loop was closed meanwhile: nobody waits any more.
            return

    def _set_result(self, result: R) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _set_error(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)
