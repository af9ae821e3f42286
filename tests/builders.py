"""
Small builders: an item with everything that a test does not care about filled in.

Knows no store and no host. What a test compares it names; the rest are these defaults.
"""

from __future__ import annotations

from typing import Any

from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.lock_verbs import AcquireLock
from partitions.positions import EARLIEST
from partitions.verbs import Acquire, Beat, Register

__all__ = ["a_beat", "a_group", "a_lease", "a_lock", "a_register", "a_session", "an_acquire", "an_acquire_of_lock"]

DURATION_S = 10.0
HANDOFF_S = 30.0
SOURCE = "local:s.db@1700000000"


def a_lease(partition: str = "p-0", /, **changes: Any) -> LeaseItem:
    """A lease that nobody has had yet: free, token 0, at the beginning."""
    return LeaseItem(partition=partition, **{"position": EARLIEST, **changes})


def a_session(session_id: str = "a:1", /, **changes: Any) -> SessionItem:
    """A session that was just registered. Its host id is the part of the session id before the last colon."""
    defaults = {"host_id": session_id.rpartition(":")[0], "duration_s": DURATION_S, "handoff_s": HANDOFF_S}
    return SessionItem(session_id=session_id, **{**defaults, **changes})


def a_lock(name: str = "nightly", /, **changes: Any) -> LockItem:
    """A lock that was acquired and released once."""
    return LockItem(name=name, **{"token": 1, **changes})


def a_group(**changes: Any) -> GroupItem:
    """The item of a group that started at the beginning of its stream."""
    return GroupItem(**{"source": SOURCE, "start": EARLIEST, **changes})


def a_register(session_id: str = "a:1", /, **changes: Any) -> Register:
    """The verb that makes `a_session`."""
    defaults = {"host_id": session_id.rpartition(":")[0], "duration_s": DURATION_S, "handoff_s": HANDOFF_S}
    return Register(session_id=session_id, **{**defaults, **changes})


def a_beat(session_id: str = "a:1", /, **changes: Any) -> Beat:
    """A beat of an idle host."""
    return Beat(session_id=session_id, **{"owned": 0, "load": 0.0, "draining": False, "known": None, **changes})


def an_acquire(seen: LeaseItem, session_id: str = "a:1", /, *, is_suspect: bool = False) -> Acquire:
    """The acquire of a session that saw the lease as `seen`."""
    return Acquire(
        partition=seen.partition,
        seen_owner=seen.owner,
        seen_token=seen.token,
        session_id=session_id,
        host_id=session_id.rpartition(":")[0],
        is_suspect=is_suspect,
    )


def an_acquire_of_lock(
    seen: LockItem | None, session_id: str = "a:1", /, *, name: str = "nightly", **changes: Any
) -> AcquireLock:
    """The acquire of a session that saw the lock as `seen`; None: that saw no item."""
    return AcquireLock(
        **{
            "name": name if seen is None else seen.name,
            "seen_owner": None if seen is None else seen.owner,
            "seen_token": None if seen is None else seen.token,
            "session_id": session_id,
            "host_id": session_id.rpartition(":")[0],
            **changes,
        }
    )
