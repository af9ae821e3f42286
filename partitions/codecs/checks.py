"""
Checks that a term goes on in the store, for transactions of a user's own.

Knows no verb and no client: a check changes nothing.
"""

from __future__ import annotations

from partitions.codecs.drafts import Draft
from partitions.codecs.keys import Key, lease_key, lock_key
from partitions.codecs.writes import Operation, Write

__all__ = ["held_check", "lock_check"]


def held_check(group: str, partition: str, *, owner: str, token: int) -> Write:
    """Return the check that a lease is held by this owner under this token, for a transaction."""
    return _check(lease_key(group, partition), owner, token)


def lock_check(group: str, name: str, *, owner: str, token: int) -> Write:
    """Return the check that a lock is held by this owner under this token, for a transaction."""
    return _check(lock_key(group, name), owner, token)


def _check(key: Key, owner: str, token: int) -> Write:
    draft = Draft(key)
    draft.is_owner(owner, token)
    return draft.done(Operation.CHECK)
