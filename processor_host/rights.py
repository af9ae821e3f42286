"""
Whether a store lets a host do what it lives on, tried before anything is taken.

A right that is missing shows only in the call that needs it: a host that may register and not beat would lose each of
its sessions after one duration, and one that may not fence would wait for ever for the leases of the dead. So each kind
of call is made once that a start does not make anyway, about a session and a partition that nobody ever has: the writes
are refused by their conditions, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from partitions.errors import StoreUnavailable
from partitions.retries import call
from partitions.stores.base import Store
from partitions.verbs import Beat, Leave

__all__ = ["check_rights"]

NOBODY: Final = "processor-host-check:0"
"""A session id that no host takes: their random parts are longer."""

CALL_S: Final = 2.0
"""Four of them, and the start around them, stay below 15 s."""


async def check_rights(store: Store, group: str) -> None:
    """
    Make each call once that nothing can come of.

    One that fails for now is passed over: the host has patience with those, and tells of them.

    Args:
        store: An open store.
        group: The group whose items the host is about to use; rights may be limited to it.

    Raises:
        StoreMisconfigured: a call is denied; the text names the action, the resource and what to do.
    """
    beat = Beat(session_id=NOBODY, owned=0, load=0.0, draining=False, known=None)
    tries: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: store.submit(group, beat),
        lambda: store.submit(group, Leave(session_id=NOBODY)),
        lambda: store.read_leases(group),
        lambda: store.read_some_leases(group, [NOBODY]),
    )
    for send in tries:
        try:
            await call(send, CALL_S)
        except StoreUnavailable:
            continue
