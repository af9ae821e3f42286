"""
The items in the store, as frozen data: sessions, leases, locks and the group (DESIGN section 3).

Knows no store and no rule. `extra` keeps the fields that this version does not know, and the fields for people (wall
times, host name, pid, version, status URL); no code reads them to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from zlib import crc32

__all__ = [
    "ASKS_MAX",
    "PREPARED_BYTES_MAX",
    "SCHEMA_VERSION",
    "GroupItem",
    "Known",
    "LeaseItem",
    "LockItem",
    "Prepared",
    "Scalar",
    "SessionItem",
    "ask_key",
    "known_of",
    "parse_ask_key",
]

SCHEMA_VERSION: Final = 1
"""Raised only for an incompatible change of the items."""

ASKS_MAX: Final = 64
"""Asks that may stand in one session's item; it must stay small, for every host reads it in every beat period."""

PREPARED_BYTES_MAX: Final = 4096
"""What an application may store beside a pending checkpoint, bytes of UTF-8; every host reads it with every lease."""

Scalar = str | int | float | bool | None
"""What a field of `extra` may hold, so that every store can keep it."""

_NOTHING: Final[Mapping[str, Scalar]] = MappingProxyType({})
_NO_ASKS: Final[Mapping[str, str]] = MappingProxyType({})


# Factories, because Python 3.11 takes every default that cannot be hashed for a mutable one.
def _nothing() -> Mapping[str, Scalar]:
    return _NOTHING


def _no_asks() -> Mapping[str, str]:
    return _NO_ASKS


def ask_key(partition: str, token: int) -> str:
    """Return the key of an ask: it names the term, so that it can never mean a later one."""
    return f"{partition}@{token}"


def parse_ask_key(key: str) -> tuple[str, int]:
    """
    Return the partition and the token that an ask key names.

    Raises:
        ValueError: the key was not made by `ask_key`.
    """
    partition, separator, token = key.rpartition("@")
    if not separator or not token.isdigit():
        raise ValueError(f"ask key {key!r} is not '<partition>@<token>'")
    return partition, int(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How many open leases a host last read, and a checksum of their partition ids: two hosts that differ must read."""

    count: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionItem:
    """One life of a host in its group. It holds its leases as long as this item is there and its beat moves."""

    session_id: str
    """`<host id>:<random>`; never used again."""
    host_id: str
    beat: int = 0
    duration_s: float
    """How long the session lives after a beat, seconds; never changes within a session."""
    handoff_s: float
    """How long the owner may take to drain what it is asked for, seconds; at least `duration_s`; never changes."""
    owned: int = 0
    load: float = 0.0
    capacity: float = 1.0
    """The share it takes in proportion to the others'. 0: never the target of a plan, as for an operator's command."""
    max_leases: int | None = None
    draining: bool = False
    drain_asked: bool = False
    """An operator's wish; no beat clears it."""
    known: Known | None = None
    sick: bool = False
    """Everything that it was handed has failed for a while."""
    asks: Mapping[str, str] = field(default_factory=_no_asks)
    """`"<partition>@<token>"` → the asker's session id, or "" for nobody. At most `ASKS_MAX`."""
    extra: Mapping[str, Scalar] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What an application stored before it commits elsewhere, for whoever must find out whether it did."""

    state: str
    """The application's own; at most `PREPARED_BYTES_MAX` bytes of UTF-8."""
    position: str
    """The checkpoint that is pending: to be stored once the application's commit is known to have happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseItem:
    """The right to process one partition, and how far it was processed."""

    partition: str
    owner: str | None = None
    """The session id that holds it; None when free."""
    token: int = 0
    """The fencing token: raised by one by every acquire, never lowered."""
    position: str
    """The checkpoint: everything up to it is done."""
    seq: int = 0
    """The number of the last checkpoint of this term, so that one delivered late cannot move the position back."""
    parents: tuple[str, ...] = ()
    finished: bool = False
    """Processed to its end."""
    paused: bool = False
    weight: float = 0.0
    last_host: str | None = None
    attempts: int = 0
    """Calls that were begun and not ended well with the record right after `position`, as far as they were counted."""
    suspects: int = 0
    """Terms in a row whose owner may have died of a record: none was released, and the checkpoint has not moved."""
    prepared: Prepared | None = None
    extra: Mapping[str, Scalar] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockItem:
    """
    A named lease, which anybody of the group may make by acquiring it. It has no position, so no plan moves it.

    Whoever sees `owner` as a session that is gone may take it over, unless `expires` is false.
    """

    name: str
    owner: str | None = None
    """The session id that acquired it; None when free."""
    token: int = 0
    """The fencing token: raised by one by every acquire. It stays after a release; a deleted item starts at 1 again."""
    expires: bool = True
    """Whether the lock ends with its owner's session. Where it does not, only a release under its token frees it."""
    holder: str | None = None
    """The stable name of the owner's host, by which a later process may release a lock that does not expire."""
    extra: Mapping[str, Scalar] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupItem:
    """What all hosts of a group must agree on."""

    schema_version: int = SCHEMA_VERSION
    source: str
    """The identity of the stream: its name and its creation time or equivalent."""
    start: str
    """Where the group started: a fixed point of the whole stream that the source resolved once ("latest" moves)."""
    plan_mode: str = "count"
    """"count": every lease counts alike; "load": as what it weighs."""
    load_threshold: float = 0.1
    """In load mode: what an exchange between two hosts must be able to take off the heavier, of the fair load."""
    moves_max: int = 10
    """In load mode: leases on their way for the sake of balance at the same time, at most."""
    weighed_by: str = "bytes"
    """What weights are measured in: "bytes" of payload a second, or "seconds" of handling a second."""
    restore_count: int = 0
    extra: Mapping[str, Scalar] = field(default_factory=_nothing)


def known_of(leases: Iterable[LeaseItem]) -> Known:
    """Return the count and an order-independent checksum of the leases that are not finished."""
    count = 0
    checksum = 0
    for lease in leases:
        if not lease.finished:
            count += 1
            checksum = (checksum + crc32(lease.partition.encode())) & 0xFFFFFFFF
    return Known(count=count, checksum=checksum)
