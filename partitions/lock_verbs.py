"""
The verbs about locks: each one conditional request, as those of `partitions.verbs` are.

Knows no store. A lock's item is made by its first acquire, so `seen_token` is None for who saw no item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from partitions.items import LockItem, Scalar
from partitions.verbs import Verb

__all__ = ["AcquireLock", "LockVerb", "RaiseLock", "ReleaseLock"]

_NOTHING: Final[Mapping[str, Scalar]] = MappingProxyType({})


# A factory, because Python 3.11 takes every default that cannot be hashed for a mutable one.
def _nothing() -> Mapping[str, Scalar]:
    return _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class LockVerb(Verb[LockItem]):
    """A write on the item of the lock `name`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLock(LockVerb):
    """
    Begin a term of a lock: become the owner, under a token that is one higher. Makes the item where there is none.

    A lock that does not expire is taken from nobody but the sender itself.
    """

    seen_owner: str | None
    seen_token: int | None
    """None where there was no item."""
    session_id: str
    host_id: str
    expires: bool = True
    extra: Mapping[str, Scalar] = field(default_factory=_nothing)
    """Fields for people; they are added to what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLock(LockVerb):
    """
    End a term of a lock in the store: it is free, and keeps its token.

    Sent by its owner, by a later process of its holder where it does not expire, or by an operator who has seen both.
    """

    owner: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseLock(LockVerb):
    """
    Raise a lock's token, and leave the rest: after the store itself went back in time, or for an imported lock.

    Makes a free lock where there is no item. Otherwise as `Raise`.
    """

    seen_token: int | None
    """None where there was no item."""
    token: int
    """The new one; above the old."""
