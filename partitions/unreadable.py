"""
What stands for an item that cannot be read, as after a slip of somebody who edited the table by hand.

Knows no store. One bad item must not end the planning of a whole group (DESIGN rule 15), nor may it be left out: a
partition without its lease would be made anew, its children would begin before it is done, and the leases of a session
that is missing would be taken from a host that lives. So each gets a stand-in that moves nothing:

- A lease counts as paused, under a token that no verb can have seen: nobody takes it, its owner gives it up, its
  children wait. Repaired, it goes on.
- A session counts as one of an operator that lives for ever: nothing is planned for it and nothing is taken from it.
  Its own host cannot read the answers to its beats, ends it, and begins another.
- A lock counts as held for ever by nobody that lives, under such a token: nobody takes it, its holder gives it up.

The stand-in says why in the field for people, where `plan` and the status page show it. It is never written.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from partitions.items import LeaseItem, LockItem, SessionItem
from partitions.positions import EARLIEST
from partitions.rules import PAUSE_REASON

__all__ = ["is_stand_in", "lease_in_place", "lock_in_place", "session_in_place"]

UNSEEN: Final = -1
"""A token, or a beat, that no item ever has."""

FOR_EVER_S: Final = 1e9
"""Longer than any host runs, seconds, and still a number that every reader of JSON takes."""


def lease_in_place(partition: str, why: str) -> LeaseItem:
    """Return what stands for a lease that cannot be read; `why` is for people."""
    reason = MappingProxyType({PAUSE_REASON: why})
    return LeaseItem(partition=partition, position=EARLIEST, token=UNSEEN, paused=True, extra=reason)


def session_in_place(session_id: str, why: str) -> SessionItem:
    """Return what stands for a session that cannot be read; `why` is for people."""
    return SessionItem(
        session_id=session_id,
        host_id=session_id.rpartition(":")[0],
        beat=UNSEEN,
        duration_s=FOR_EVER_S,
        handoff_s=FOR_EVER_S,
        capacity=0.0,
        extra=MappingProxyType({"unreadable": why}),
    )


def lock_in_place(name: str, why: str) -> LockItem:
    """Return what stands for a lock that cannot be read; `why` is for people."""
    extra = MappingProxyType({"unreadable": why})
    return LockItem(name=name, owner="", token=UNSEEN, expires=False, holder="", extra=extra)


def is_stand_in(item: object) -> bool:
    """Say whether an item only stands for one that cannot be read."""
    return (isinstance(item, LeaseItem | LockItem) and item.token == UNSEEN) or (
        isinstance(item, SessionItem) and item.beat == UNSEEN
    )
