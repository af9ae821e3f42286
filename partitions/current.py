"""
The lease under which the running code works, of a partition or of a lock.

Knows neither: whoever begins a term makes its lease the current one for what works under it. It is kept in the context
of a task, so it is seen in everything that is called, awaited or started there, also in threads, and nowhere else; and
what is started there and outlives its term still sees the same lease, which has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import anyio

__all__ = ["HeldLease", "current_lease", "working_under"]


class HeldLease(Protocol):
    """
    What leases of partitions and of locks have in common (`partitions.leases.Lease`, `partitions.locks.LockLease`).

    Attributes:
        token: The fencing token of the term; hand it to whatever can compare it.
        ended: Set once the term has ended, for whatever reason.
    """

    token: int
    ended: anyio.Event

    def is_held(self) -> bool:
        """Say whether the term goes on at this very moment."""
        ...

    def ensure_held(self) -> None:
        """Return if the term goes on; else raise `LeaseLost`."""
        ...

    def remaining_s(self) -> float:
        """Return how long it goes on if nothing more is heard from the store, seconds."""
        ...

    async def renew(self) -> bool:
        """Have the store confirm it now; False if it has ended."""
        ...

    async def release(self) -> bool:
        """End it, then free it in the store."""
        ...

    def guard(self) -> AbstractContextManager[None]:
        """Cancel the body when it ends."""
        ...

    def condition_check(self, *, resource: bool = False) -> Mapping[str, Any]:
        """Return what fences a DynamoDB transaction of your own by it."""
        ...


_current: ContextVar[HeldLease | None] = ContextVar("partitions_current_lease", default=None)


def current_lease() -> HeldLease | None:
    """Return the lease under which the caller works, anywhere in its call tree; None outside of one."""
    return _current.get()


@contextmanager
def working_under(lease: HeldLease) -> Iterator[None]:
    """Make `lease` the current one for the body and everything it calls, awaits or starts."""
    token = _current.set(lease)
    try:
        yield
    finally:
        _current.reset(token)
