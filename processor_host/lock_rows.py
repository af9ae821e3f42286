"""
The locks of a group as a person sees them: who holds each, and whether that one is there.

Pure: made from items that somebody else read. Reads no clock and no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from partitions.items import LockItem, Scalar, SessionItem
from partitions.unreadable import is_stand_in

__all__ = ["LockRow", "LockState", "holder_of", "row_of", "rows_of"]

LockState = Literal["held", "kept", "free", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRow:
    """One lock of a group."""

    name: str
    state: LockState
    """
    "kept": held without a registered owner, because it does not expire. "free" also where its owner's session is gone.
    "unreadable": nobody takes it until somebody mends its item; `about` says why.
    """
    holder: str | None
    """The host id of who holds it."""
    owner: str | None
    """The session that acquired it; it may be gone where the lock is kept."""
    token: int
    """Of the present term, or of the last one."""
    expires: bool
    about: Mapping[str, Scalar]
    """Fields for people."""

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON can hold it."""
        return {name: getattr(self, name) for name in self.__slots__} | {"about": dict(self.about)}


def rows_of(locks: Iterable[LockItem], sessions: Mapping[str, SessionItem]) -> tuple[LockRow, ...]:
    """
    Say of each lock who holds it, by name.

    Args:
        locks: As they were read.
        sessions: All sessions of the group by their ids, read after the locks: an owner that is missing is gone.
    """
    return tuple(row_of(lock, sessions) for lock in sorted(locks, key=lambda lock: lock.name))


def row_of(lock: LockItem, sessions: Mapping[str, SessionItem]) -> LockRow:
    """Say of one lock who holds it; see `rows_of`."""
    state: LockState = "free"
    if is_stand_in(lock):
        state = "unreadable"
    elif lock.owner in sessions:
        state = "held"
    elif lock.owner is not None and not lock.expires:
        state = "kept"
    is_free = state == "free"
    return LockRow(
        name=lock.name,
        state=state,
        holder=None if is_free else holder_of(lock),
        owner=None if is_free else lock.owner or None,
        token=lock.token,
        expires=lock.expires,
        about=MappingProxyType({} if is_free else dict(lock.extra)),
    )


def holder_of(lock: LockItem) -> str | None:
    """Return the host id of who holds a lock; None where nobody does."""
    # An item of another version may lack it; a session id begins with the host's.
    return lock.holder or (lock.owner or "").rpartition(":")[0] or None
