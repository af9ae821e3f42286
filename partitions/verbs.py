"""
The verbs: everything that may be written to a store, each one conditional request (DESIGN section 4).

A verb says what its sender has seen and what it wants; `partitions.rules` says when it applies and what it does. Knows
no store. A store answers a verb with `Applied` or `Refused`: a lost race is a value. Those about locks are in
`partitions.lock_verbs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from partitions.items import GroupItem, Known, LeaseItem, LockItem, Prepared, Scalar, SessionItem

__all__ = [
    "Acquire",
    "Adopt",
    "Applied",
    "Ask",
    "Attempt",
    "Beat",
    "Child",
    "Complete",
    "Create",
    "Delete",
    "Drain",
    "Fence",
    "GroupVerb",
    "Leave",
    "LeaseVerb",
    "NoteRestore",
    "Pause",
    "Prepare",
    "Raise",
    "Refused",
    "Register",
    "Release",
    "Result",
    "Resume",
    "SaveCheckpoint",
    "SessionVerb",
    "SetUp",
    "Verb",
]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

_NOTHING: Final[Mapping[str, Scalar]] = MappingProxyType({})


# A factory, because Python 3.11 takes every default that cannot be hashed for a mutable one.
def _nothing() -> Mapping[str, Scalar]:
    return _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(Generic[T]):
    """The verb took effect; `item` is what the store has held since (None: the item was deleted)."""

    item: T | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Generic[T]):
    """
    The condition did not hold and nothing was changed; `current` is what the store holds (None: no such item).

    It may be the sender's own earlier success, where an answer was lost: compare before declaring loss (rule 9).
    """

    current: T | None


Result = Applied[T] | Refused[T]


class Verb(Generic[T]):
    """One conditional write on one kind of item."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseVerb(Verb[LeaseItem]):
    """A write on the lease item of `partition`."""

    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionVerb(Verb[SessionItem]):
    """A write on the item of the session `session_id`."""

    session_id: str


class GroupVerb(Verb[GroupItem]):
    """A write on the group's own item."""

    __slots__ = ()


# --- Leases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(LeaseVerb):
    """
    Make the lease of a partition that has none: free, token 0.

    Only for a partition in a source listing read *after* the lease read that lacked it, else a lease that was deleted
    at its end is made again and replayed.
    """

    position: str
    """The fixed point where the group starts in this partition."""
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire(LeaseVerb):
    """Begin a term: become the owner, under a token that is one higher."""

    seen_owner: str | None
    seen_token: int
    session_id: str
    host_id: str
    is_suspect: bool = False
    """
    Whether the owner that was seen may have died of a record: it did not release, and neither was it this session nor
    an earlier one of this very process, which lives.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint(LeaseVerb):
    """Store how far the owner has come."""

    owner: str
    token: int
    position: str
    seq: int
    weight: float | None = None
    """The new weight; None leaves the stored one."""
    advances: bool = True
    """False where the position is the stored one: then nothing is known to be done, and the counts stay."""
    keeps_prepared: bool = False
    """Whether what is prepared is still pending: its own position comes after this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(LeaseVerb):
    """Count a call that is about to begin with one record, before it can kill the process."""

    owner: str
    token: int
    seq: int
    """A number as those of checkpoints have, so that a duplicate that is delivered late counts nothing."""
    position: str | None = None
    """The record before it, which is done: this is its checkpoint too. None where the stored position is that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(LeaseVerb):
    """Store an application's state beside a checkpoint that is pending; the stored position stays."""

    owner: str
    token: int
    seq: int
    """A number as those of checkpoints have, so that a duplicate that is delivered late brings nothing back."""
    prepared: Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(LeaseVerb):
    """End a term in the store: the lease is free. May carry the last checkpoint; a weight of None is left."""

    owner: str
    token: int
    position: str | None = None
    """The last checkpoint, or None to leave the stored one."""
    seq: int | None = None
    """The number of that checkpoint; given exactly when `position` is."""
    attempts: int | None = None
    """
    Failed calls in a row with the first record that is not done, which the next owner goes on counting. None leaves the
    stored count, or begins anew after a checkpoint.
    """
    keeps_prepared: bool = False
    """As for a checkpoint; without one what is prepared stays anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A partition that goes on where a finished one ended."""

    partition: str
    parents: tuple[str, ...]
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete(LeaseVerb):
    """
    End a partition that was processed to its end, and create its known children in the same transaction.

    A child that is there already, as after the other half of a merge, stays as it is.
    """

    owner: str
    token: int
    children: tuple[Child, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(LeaseVerb):
    """Take the partition out of the plan until it is resumed; the owner is untouched. `reason` is for people."""

    seen_token: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(LeaseVerb):
    """Put a paused partition back into the plan; whoever does that says that the cause is mended, so counts end."""

    seen_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise(LeaseVerb):
    """
    Raise a fencing token, and leave the rest: after the store itself went back in time, or for an imported lease.

    Only while all hosts are stopped: the term of an owner under the old token is over by it.
    """

    seen_token: int
    token: int
    """The new one; above the old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(LeaseVerb):
    """Remove the lease of a finished partition that the source has stopped listing for good."""

    seen_token: int


# --- Sessions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(SessionVerb):
    """Begin a session: make its item, with beat 0 and no asks."""

    host_id: str
    duration_s: float
    handoff_s: float
    capacity: float = 1.0
    max_leases: int | None = None
    draining: bool = False
    extra: Mapping[str, Scalar] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(SessionVerb):
    """Stay alive: raise the beat, publish the state, remove the asks that were handled. Never creates the item."""

    owned: int
    load: float
    draining: bool
    known: Known | None
    sick: bool = False
    handled: tuple[str, ...] = ()
    """Exact ask keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(SessionVerb):
    """Delete a session that was seen dead, on condition of the very beat that was observed."""

    seen_beat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(SessionVerb):
    """End one's own session; only after every term has ended locally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(SessionVerb):
    """Ask a host, as an operator, to give everything away and leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(SessionVerb):
    """
    Ask the owner `session_id` for leases. Refused as a whole where one of the keys stands or too many would stand.
    """

    keys: tuple[str, ...]
    """`ask_key(partition, token)` of each; at least one, no two alike."""
    asker: str
    """The session that will acquire; "" for nobody."""


# --- The group ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp(GroupVerb):
    """Make the group's item where there is none."""

    item: GroupItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(GroupVerb):
    """Let the group go on with another stream, on condition of the one that was seen."""

    seen_source: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRestore(GroupVerb):
    """Count a restore of the store from a backup, on condition of the count that was seen."""

    seen_count: int
