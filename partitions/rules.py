"""
The rules of ownership, written once: what each verb needs and what it does (DESIGN section 4).

`apply(item, verb)` is a pure function of the stored item (None where there is none) and the verb. The memory store
is this function over a dict, the SQLite store runs it inside a write transaction, and the DynamoDB store says the same
in condition and update expressions; one conformance suite holds them together.

A refusal is a value that carries the stored item. Nothing here knows a clock: whether a session is dead is its
observer's business (`partitions.liveness`), and the store only checks that the observer saw the latest beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from partitions.items import ASKS_MAX, GroupItem, LeaseItem, LockItem, SessionItem
from partitions.lock_verbs import AcquireLock, RaiseLock, ReleaseLock
from partitions.positions import END
from partitions.verbs import (
    Acquire,
    Adopt,
    Applied,
    Ask,
    Attempt,
    Beat,
    Child,
    Complete,
    Create,
    Delete,
    Drain,
    Fence,
    Leave,
    NoteRestore,
    Pause,
    Prepare,
    Raise,
    Refused,
    Register,
    Release,
    Result,
    Resume,
    SaveCheckpoint,
    SetUp,
    Verb,
)

__all__ = ["PAUSE_REASON", "apply", "born"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

PAUSE_REASON: Final = "paused_because"
"""The field for people beside `paused`."""


def apply(item: T | None, verb: Verb[T]) -> Result[T]:
    """
    Decide one verb on one stored item.

    `Complete` decides the finished lease only; the store writes `born(child)` for every child that has no item, in the
    same transaction.

    Args:
        item: What the store holds under the verb's key, or None.
        verb: The write that was sent.

    Returns:
        `Applied` with what the store holds from now on (None: deleted), or `Refused` with what it holds.
    """
    rule: Callable[[Any, Any], Any] = _RULES[type(verb)]
    result: Result[T] = rule(item, verb)
    return result


def born(child: Child) -> LeaseItem:
    """Return the lease of a partition nobody has had yet: free, token 0."""
    return LeaseItem(partition=child.partition, position=child.position, parents=child.parents)


def _create(lease: LeaseItem | None, verb: Create) -> Result[LeaseItem]:
    if lease is not None:
        return Refused(current=lease)
    return Applied(item=LeaseItem(partition=verb.partition, position=verb.position, parents=verb.parents))


def _acquire(lease: LeaseItem | None, verb: Acquire) -> Result[LeaseItem]:
    if (
        lease is None
        or lease.owner != verb.seen_owner
        or lease.token != verb.seen_token
        or lease.finished
        or lease.paused
    ):
        return Refused(current=lease)
    return Applied(
        item=replace(
            lease,
            owner=verb.session_id,
            token=lease.token + 1,
            seq=0,
            last_host=verb.host_id,
            suspects=lease.suspects + int(verb.is_suspect),
        )
    )


def _is_owner(lease: LeaseItem, verb: SaveCheckpoint | Attempt | Prepare | Release | Complete) -> bool:
    return lease.owner == verb.owner and lease.token == verb.token


def _save_checkpoint(lease: LeaseItem | None, verb: SaveCheckpoint) -> Result[LeaseItem]:
    # The sequence number keeps a duplicate that is delivered late from moving the position back (rule 7).
    if lease is None or not _is_owner(lease, verb) or lease.seq >= verb.seq:
        return Refused(current=lease)
    weight = lease.weight if verb.weight is None else verb.weight
    return Applied(
        item=replace(
            lease,
            position=verb.position,
            seq=verb.seq,
            weight=weight,
            attempts=0 if verb.advances else lease.attempts,
            suspects=0 if verb.advances else lease.suspects,
            prepared=lease.prepared if verb.keeps_prepared else None,
        )
    )


def _attempt(lease: LeaseItem | None, verb: Attempt) -> Result[LeaseItem]:
    if lease is None or not _is_owner(lease, verb) or lease.seq >= verb.seq:
        return Refused(current=lease)
    if verb.position is None:
        return Applied(item=replace(lease, seq=verb.seq, attempts=lease.attempts + 1))
    return Applied(
        item=replace(lease, position=verb.position, seq=verb.seq, attempts=1, suspects=0, prepared=None),
    )


def _prepare(lease: LeaseItem | None, verb: Prepare) -> Result[LeaseItem]:
    if lease is None or not _is_owner(lease, verb) or lease.seq >= verb.seq:
        return Refused(current=lease)
    return Applied(item=replace(lease, seq=verb.seq, prepared=verb.prepared))


def _release(lease: LeaseItem | None, verb: Release) -> Result[LeaseItem]:
    if lease is None or not _is_owner(lease, verb):
        return Refused(current=lease)
    if verb.position is None or verb.seq is None:
        attempts = lease.attempts if verb.attempts is None else verb.attempts
        return Applied(item=replace(lease, owner=None, attempts=attempts))
    return Applied(
        item=replace(
            lease,
            owner=None,
            position=verb.position,
            seq=verb.seq,
            attempts=0 if verb.attempts is None else verb.attempts,
            suspects=0,
            prepared=lease.prepared if verb.keeps_prepared else None,
        )
    )


def _complete(lease: LeaseItem | None, verb: Complete) -> Result[LeaseItem]:
    if lease is None or not _is_owner(lease, verb):
        return Refused(current=lease)
    return Applied(
        item=replace(lease, owner=None, position=END, finished=True, attempts=0, suspects=0, prepared=None),
    )


def _pause(lease: LeaseItem | None, verb: Pause) -> Result[LeaseItem]:
    if lease is None or lease.token != verb.seen_token:
        return Refused(current=lease)
    extra = dict(lease.extra)
    if verb.reason is not None:
        extra[PAUSE_REASON] = verb.reason
    return Applied(item=replace(lease, paused=True, extra=MappingProxyType(extra)))


def _resume(lease: LeaseItem | None, verb: Resume) -> Result[LeaseItem]:
    if lease is None or lease.token != verb.seen_token:
        return Refused(current=lease)
    extra = {name: value for name, value in lease.extra.items() if name != PAUSE_REASON}
    return Applied(item=replace(lease, paused=False, attempts=0, suspects=0, extra=MappingProxyType(extra)))


def _raise(lease: LeaseItem | None, verb: Raise) -> Result[LeaseItem]:
    if lease is None or lease.token != verb.seen_token or lease.token >= verb.token:
        return Refused(current=lease)
    return Applied(item=replace(lease, token=verb.token))


def _delete(lease: LeaseItem | None, verb: Delete) -> Result[LeaseItem]:
    if lease is None or not lease.finished or lease.token != verb.seen_token:
        return Refused(current=lease)
    return Applied(item=None)


def _register(session: SessionItem | None, verb: Register) -> Result[SessionItem]:
    if session is not None:
        return Refused(current=session)
    return Applied(
        item=SessionItem(
            session_id=verb.session_id,
            host_id=verb.host_id,
            duration_s=verb.duration_s,
            handoff_s=verb.handoff_s,
            capacity=verb.capacity,
            max_leases=verb.max_leases,
            draining=verb.draining,
            extra=MappingProxyType(dict(verb.extra)),
        )
    )


def _beat(session: SessionItem | None, verb: Beat) -> Result[SessionItem]:
    # A beat never makes the item: a session that was fenced stays dead.
    if session is None:
        return Refused(current=None)
    handled = set(verb.handled)
    return Applied(
        item=replace(
            session,
            beat=session.beat + 1,
            owned=verb.owned,
            load=verb.load,
            draining=verb.draining,
            known=verb.known,
            sick=verb.sick,
            asks=MappingProxyType({key: asker for key, asker in session.asks.items() if key not in handled}),
        )
    )


def _fence(session: SessionItem | None, verb: Fence) -> Result[SessionItem]:
    if session is None or session.beat != verb.seen_beat:
        return Refused(current=session)
    return Applied(item=None)


def _leave(session: SessionItem | None, verb: Leave) -> Result[SessionItem]:
    return Refused(current=None) if session is None else Applied(item=None)


def _drain(session: SessionItem | None, verb: Drain) -> Result[SessionItem]:
    return Refused(current=None) if session is None else Applied(item=replace(session, drain_asked=True))


def _ask(session: SessionItem | None, verb: Ask) -> Result[SessionItem]:
    if (
        session is None
        or any(key in session.asks for key in verb.keys)
        or len(session.asks) + len(verb.keys) > ASKS_MAX
    ):
        return Refused(current=session)
    asks = dict(session.asks) | dict.fromkeys(verb.keys, verb.asker)
    return Applied(item=replace(session, asks=MappingProxyType(asks)))


def _acquire_lock(lock: LockItem | None, verb: AcquireLock) -> Result[LockItem]:
    if lock is None:
        if verb.seen_token is not None:
            return Refused(current=None)
        lock = LockItem(name=verb.name)
    elif (
        lock.owner != verb.seen_owner
        or lock.token != verb.seen_token
        or (not lock.expires and lock.owner not in (None, verb.session_id))
    ):
        return Refused(current=lock)
    return Applied(
        item=replace(
            lock,
            owner=verb.session_id,
            token=lock.token + 1,
            expires=verb.expires,
            holder=verb.host_id,
            extra=MappingProxyType({**lock.extra, **verb.extra}),
        )
    )


def _release_lock(lock: LockItem | None, verb: ReleaseLock) -> Result[LockItem]:
    if lock is None or lock.owner != verb.owner or lock.token != verb.token:
        return Refused(current=lock)
    return Applied(item=replace(lock, owner=None, holder=None))


def _raise_lock(lock: LockItem | None, verb: RaiseLock) -> Result[LockItem]:
    if lock is None:
        if verb.seen_token is not None:
            return Refused(current=None)
        lock = LockItem(name=verb.name)
    elif lock.token != verb.seen_token or lock.token >= verb.token:
        return Refused(current=lock)
    return Applied(item=replace(lock, token=verb.token))


def _set_up(group: GroupItem | None, verb: SetUp) -> Result[GroupItem]:
    return Applied(item=verb.item) if group is None else Refused(current=group)


def _adopt(group: GroupItem | None, verb: Adopt) -> Result[GroupItem]:
    if group is None or group.source != verb.seen_source:
        return Refused(current=group)
    return Applied(item=replace(group, source=verb.source))


def _note_restore(group: GroupItem | None, verb: NoteRestore) -> Result[GroupItem]:
    if group is None or group.restore_count != verb.seen_count:
        return Refused(current=group)
    return Applied(item=replace(group, restore_count=group.restore_count + 1))


_RULES: Final[dict[type, Callable[[Any, Any], Any]]] = {
    Create: _create,
    Acquire: _acquire,
    SaveCheckpoint: _save_checkpoint,
    Attempt: _attempt,
    Prepare: _prepare,
    Release: _release,
    Complete: _complete,
    Pause: _pause,
    Resume: _resume,
    Raise: _raise,
    Delete: _delete,
    Register: _register,
    Beat: _beat,
    Fence: _fence,
    Leave: _leave,
    Drain: _drain,
    Ask: _ask,
    AcquireLock: _acquire_lock,
    ReleaseLock: _release_lock,
    RaiseLock: _raise_lock,
    SetUp: _set_up,
    Adopt: _adopt,
    NoteRestore: _note_restore,
}
