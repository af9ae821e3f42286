"""
Beside the body: runs one coroutine while the body of an `async with` runs, and raises what either raises as it is.

Knows no host. A task group wraps errors; whoever writes `except StoreMisconfigured` around a host must still catch it.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Self

import anyio
from anyio.abc import TaskStatus

from processor_host.errors import only_error

__all__ = ["Background", "RunsBeside"]


class Background:
    """One coroutine beside a body."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def start(self, run: Callable[..., Coroutine[Any, Any, Any]], name: str) -> None:
        """
        Start `run(task_status=…)`; return once it says that it has started.

        Raises:
            Exception: what `run` raised before.
        """
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        try:
            await tasks.start(run, name=name)
        except BaseException:  # Whatever it was, the group is left before it goes on.
            await self.end(*sys.exc_info())
            raise

    async def end(self, *error: Any) -> bool | None:
        """Wait for the coroutine, once the body has ended with `error`, or with (None, None, None)."""
        try:
            return await self._stack.__aexit__(*error)
        except BaseExceptionGroup as group:
            only = only_error(group)
            if only is error[1]:
                # The body's own: it goes on as it is.
                return False
            raise only from group


class RunsBeside(ABC):
    """What `async with` runs beside its body, and stops at the end of it."""

    _background: Background | None = None

    @abstractmethod
    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> int:
        """Run until `stop` or `cancel` is called; tell `task_status` once the body may begin."""

    @abstractmethod
    def stop(self) -> None:
        """Ask for an orderly stop."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop at once."""

    async def __aenter__(self) -> Self:
        """Start it and run it beside the body, whose end stops it in order; raises as `run` does."""
        self._background = Background()
        await self._background.start(self.run, f"{type(self).__name__} beside a body")
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        """Stop it and wait for it; an exception of the body cancels it instead."""
        assert self._background is not None  # Set by __aenter__.
        (self.stop if error[0] is None else self.cancel)()
        return await self._background.end(*error)
