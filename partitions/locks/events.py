"""
What locks tell their user: one frozen event each, given to `on_event` as those of `partitions.events` are.

Knows no store. `lock` is the name of the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from partitions.events import Event

__all__ = ["LockAcquired", "LockEnd", "LockEnded", "LockReleaseFailed", "LockReleased", "LocksUnread"]


class LockEnd(Enum):
    """Why a term of a lock ended on this host."""

    RELEASED = "released"
    """Given back on purpose."""
    SESSION_ENDED = "session ended"
    """The session ran out, was fenced or left; a lock that does not expire ends here when its host stops looking."""
    SEEN_TAKEN = "seen taken"
    """A read of the store showed another owner or token, or no item."""
    STORE_GONE = "store gone"
    """The table or the file itself is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAcquired(Event):
    """A term began here. `previous_owner` is the session that held the lock and is gone; None where it was free."""

    lock: str
    token: int
    previous_owner: str | None
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEnded(Event):
    """A term ended on this host; nothing more may be done under it."""

    lock: str
    token: int
    reason: LockEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReleased(Event):
    """The store has the lock as free, or as the next owner's."""

    lock: str
    token: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReleaseFailed(Event):
    """The release was not answered. It is sent again once a beat, and the lock is free once the session is gone."""

    lock: str
    token: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocksUnread(Event):
    """The items of the locks that are held here could not be read; they are looked at again a beat later."""

    error: str
