"""
What a holder still owes the store: writes of it that may have left a lock to a session that does not hold it.

Pure: knows no clock and no store. An acquire whose answer was lost may have been applied, or may be applied still; it
is never adopted (DESIGN rule 8), for one's own late release could free what one believes to hold. So the lock is looked
at once a beat until it is certain that it is not this session's: by then somebody, maybe this session itself, has
acquired it again under a higher token, or it was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from partitions import rules
from partitions.items import LockItem, Scalar
from partitions.lock_verbs import AcquireLock
from partitions.verbs import Applied

__all__ = ["Next", "Owed", "acquire_of", "after_acquire", "next_of"]


class Next(Enum):
    """What is to be done about something owed, from what the store shows."""

    RELEASE = "release"
    """The store has the lock as the session's."""
    WAIT = "wait"
    """The acquire may still arrive."""
    NOTHING = "nothing"
    """The store has moved on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """A term that the store may have and nobody holds."""

    name: str
    owner: str
    token: int
    expires: bool
    acquire: AcquireLock | None
    """The acquire that was not answered; None where it is a release that was not."""


def acquire_of(
    name: str,
    seen: LockItem | None,
    *,
    session_id: str,
    host_id: str,
    expires: bool,
    extra: Mapping[str, Scalar],
) -> AcquireLock:
    """Return the acquire of a lock on condition that it is as it was seen; None: that it has no item."""
    return AcquireLock(
        name=name,
        seen_owner=None if seen is None else seen.owner,
        seen_token=None if seen is None else seen.token,
        session_id=session_id,
        host_id=host_id,
        expires=expires,
        extra=extra,
    )


def after_acquire(verb: AcquireLock) -> Owed:
    """Return what is owed once an acquire was sent, until it is answered."""
    return Owed(
        name=verb.name,
        owner=verb.session_id,
        token=(verb.seen_token or 0) + 1,
        expires=verb.expires,
        acquire=verb,
    )


def next_of(item: LockItem | None, owed: Owed) -> Next:
    """Return what is to be done, from the lock as a consistent read or an answer showed it."""
    if item is not None and (item.owner, item.token) == (owed.owner, owed.token):
        return Next.RELEASE
    if owed.acquire is not None and isinstance(rules.apply(item, owed.acquire), Applied):
        return Next.WAIT
    return Next.NOTHING
