"""
Calls of user code: what it raises is told from a cancellation and from the end of the lease.

Knows no pump. Whatever user code does, its partition alone is concerned.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from partitions.errors import LeaseLost
from partitions.leases import Lease

__all__ = ["UserFailed", "call_user"]


class UserFailed(Exception):
    """
    User code raised; it is to be run again from the checkpoint. Caught by the pump, never seen by a user.

    Attributes:
        stage: What was called: "open", "process" or "close".
        error: What it raised.
    """

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error


async def call_user(lease: Lease, stage: str, call: Callable[[], Awaitable[None]]) -> None:
    """
    Await `call`, which runs user code under `lease`.

    Raises:
        UserFailed: it raised.
        LeaseLost: it noticed that `lease` has ended.
    """
    try:
        awaitable = call()
        if not inspect.isawaitable(awaitable):
            raise TypeError(f"{stage} is not async; write `async def {stage}`")
        await awaitable
    except LeaseLost as error:
        if lease.is_held():
            # Of some other lease, which is the user's business.
            raise UserFailed(stage, error) from error
        raise
    except (Exception, SystemExit) as error:  # Containment: trouble of one partition stays there, a `sys.exit` too.
        raise UserFailed(stage, error) from error
    except anyio.get_cancelled_exc_class() as error:
        if anyio.current_effective_deadline() == -math.inf:
            # It may be one of the user's own that came on top. That one no cancel scope would catch, and the pump would
            # be over without a release, so the cancellation itself is raised.
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        # Nobody cancelled this task: user code awaited something of its own that was. Passing it on would end the
        # pump without a word and keep the lease without a processor.
        raise UserFailed(stage, error) from error
