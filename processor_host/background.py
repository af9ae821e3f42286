"""
Beside the body: runs one coroutine while the body of an `async with` runs, and raises what either raises as it is.

Knows no host. A task group wraps errors; whoever writes `except StoreMisconfigured` around a host must still catch it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import anyio

from processor_host.errors import only_error

__all__ = ["Background"]


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
