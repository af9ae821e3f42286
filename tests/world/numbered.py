"""
Tasks and cancel scopes that order alike in every run, and anyio adapted to them.

It knows the loop only as something that gives out numbers.

asyncio and anyio keep tasks and nested cancel scopes in sets, and cancel them in the order in which the set iterates:
by their hash, which is an address unless somebody says otherwise. Here it is a number that the loop gives out, so that
a run repeats. Every loop counts from 1, or the second run in one process would find other places in its sets.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, NoReturn, TypeVar
from unittest import mock

from anyio._backends import _asyncio as anyio_asyncio

__all__ = ["VirtualTask", "anyio_on_virtual_time", "refuse_io", "refuse_threads"]

T = TypeVar("T")


class VirtualTask(asyncio.Task[T]):
    """A task that hashes by its number in the loop; one without a name is named by it."""

    def __init__(self, coro: Any, *, loop: Any, name: object, context: Context) -> None:
        # Before the base class, which puts the task into a set.
        self.number: int = loop.next_number()
        self.context = context
        super().__init__(coro, loop=loop, name=f"task {self.number}" if name is None else str(name), context=context)

    def __hash__(self) -> int:
        return self.number


class NumberedCancelScope(anyio_asyncio.CancelScope):
    """A cancel scope that hashes by its number in the loop."""

    __slots__ = ("_number",)

    def __init__(self, deadline: float = math.inf, shield: bool = False) -> None:
        super().__init__(deadline=deadline, shield=shield)
        next_number = numbering_of_running_loop()
        self._number = id(self) if next_number is None else next_number()

    def __hash__(self) -> int:
        return self._number


@contextlib.contextmanager
def anyio_on_virtual_time() -> Iterator[None]:
    """While this is entered, anyio's cancel scopes are numbered, and loops that number are refused its threads."""
    backend = anyio_asyncio.AsyncIOBackend
    in_thread = backend.run_sync_in_worker_thread

    async def run_sync_in_worker_thread(cls: object, *args: Any, **kwargs: Any) -> Any:
        if numbering_of_running_loop() is not None:
            refuse_threads()
        return await in_thread(*args, **kwargs)

    with (
        mock.patch.object(anyio_asyncio, "CancelScope", NumberedCancelScope),
        mock.patch.object(backend, "run_sync_in_worker_thread", classmethod(run_sync_in_worker_thread)),
    ):
        yield


def numbering_of_running_loop() -> Callable[[], int] | None:
    """None on real time: such a loop, in another thread, may use anyio while a virtual one runs."""
    return getattr(asyncio.get_running_loop(), "next_number", None)


def refuse_threads() -> NoReturn:
    """What stands in for every way into a thread."""
    raise RuntimeError("threads cannot run on virtual time; use code without them, or a loop on real time")


def refuse_io(*_: object) -> NoReturn:
    """What stands in for watching a file descriptor."""
    raise RuntimeError("virtual time waits for no socket, pipe or process; use memory streams, or a loop on real time")
