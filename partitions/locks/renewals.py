"""
The renewal of leases that end with a session: one beat of it renews them all.

Knows no lock but by the name in a message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from partitions.errors import StoreUnavailable
from partitions.locks.leases import LockLease
from partitions.sessions import Session as Life

__all__ = ["by_beat"]


def by_beat(life: Life, *, call_timeout_s: float) -> Callable[[LockLease], Awaitable[None]]:
    """
    Return what renews a lease by a beat of its session.

    Args:
        life: The session.
        call_timeout_s: How long the beat may take, seconds.
    """

    async def renew(lease: LockLease) -> None:
        with anyio.move_on_after(call_timeout_s):
            await life.renew()
            return
        if (denied := life.beats.denied) is not None:
            raise type(denied)(str(denied)) from denied
        raise StoreUnavailable(
            f"lock {lease.name!r}: no beat was answered within {call_timeout_s:.3g} s; "
            f"it is held for {lease.remaining_s():.3g} s more, and beats are tried again"
        )

    return renew
