"""
What the items of a group say to a person: who owns which partition, how far it is, who waits for whom.

Pure: made from items that somebody else read, and from what was seen of the beats if they were watched. Reads no clock
and no store. Two readings a moment apart may disagree, as where a lease moved between the read of the leases and that
of the sessions; what is shown is then one of the two truths.

As JSON (`Status.as_json`, for scripts; fields may be added, those here stay):

    group, source, start      the group; `source` is the identity of its stream
    counts                    {"owned", "asked", "free", "paused", "ended", "hosts"}: partitions by state, and hosts
    partitions                one object each, by name: partition, state, paused, owner (session id), host, token,
                              position, last_host, asker (session id, or "" for nobody in particular), asker_host,
                              lag_s, parents, reason (of a pause, or null)
    hosts                     one object each: session_id, host_id, beat, alive, unchanged_s, owned, asks, capacity,
                              max_leases, load, draining, duration_s, about (fields for people)
    locks                     one object each, by name: name, state ("held", "kept", "free" or "unreadable"), holder
                              (host id), owner (session id), token, expires, about

What is not known is null: `alive` and `unchanged_s` where the beats were not watched, `lag_s` without a source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from partitions.items import GroupItem, LeaseItem, LockItem, Scalar, SessionItem, ask_key
from partitions.liveness import LiveView, expires_at_s
from partitions.rules import PAUSE_REASON
from processor_host.lock_rows import LockRow, rows_of

__all__ = ["HostRow", "PartitionRow", "State", "Status", "status_of"]

State = Literal["owned", "asked", "free", "paused", "ended"]

STATES: Final[tuple[State, ...]] = ("owned", "asked", "free", "paused", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition."""

    partition: str
    state: State
    """"asked": owned, and another host waits for it. "free" also where the owner's session is gone."""
    paused: bool
    """Also where it is still owned: its owner is about to let go."""
    owner: str | None
    """The session id of the owner; None where nobody owns it."""
    host: str | None
    """The host id of the owner."""
    token: int
    position: str
    last_host: str | None
    asker: str | None
    """The session that waits for it, "" where it is to be given to nobody in particular."""
    asker_host: str | None
    """The host id of the asker; its session id where that session is gone."""
    lag_s: float | None
    """Seconds between the newest record and the first one that no checkpoint covers."""
    parents: tuple[str, ...]
    reason: str | None
    """Why it is paused, where somebody has said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """One session of a host."""

    session_id: str
    host_id: str
    beat: int
    alive: bool | None
    """Whether its beat moved within its duration; None where nobody watched."""
    unchanged_s: float | None
    """For how long the beat has not moved on the watcher's clock."""
    owned: int
    """As the leases say, not as the host published it."""
    asks: int
    """How many of its partitions are asked for."""
    capacity: float
    max_leases: int | None
    load: float
    draining: bool
    duration_s: float
    about: Mapping[str, Scalar]
    """Fields for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A group at one moment."""

    group: str
    source: str
    start: str
    partitions: tuple[PartitionRow, ...]
    hosts: tuple[HostRow, ...]
    locks: tuple[LockRow, ...] = ()
    """Empty also where they were not read."""

    def counts(self) -> dict[str, int]:
        """Return how many partitions are in each state, and how many hosts there are."""
        found: dict[str, int] = dict.fromkeys(STATES, 0)
        for row in self.partitions:
            found[row.state] += 1
        return {**found, "hosts": len(self.hosts)}

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON can hold it; the shape is in the docstring of this module."""
        return {
            "group": self.group,
            "source": self.source,
            "start": self.start,
            "counts": self.counts(),
            "partitions": [{**_values(row), "parents": list(row.parents)} for row in self.partitions],
            "hosts": [{**_values(row), "about": dict(row.about)} for row in self.hosts],
            "locks": [row.as_json() for row in self.locks],
        }


def status_of(
    group: str,
    item: GroupItem,
    leases: Iterable[LeaseItem],
    sessions: Iterable[SessionItem],
    *,
    view: LiveView | None = None,
    lags_s: Mapping[str, float | None] | None = None,
    locks: Iterable[LockItem] = (),
) -> Status:
    """
    Put together what a group's items say.

    Args:
        group: Its name.
        item: The group's own item.
        leases: All of its leases, in any order.
        sessions: All of its sessions, read after the leases: an owner that is not among them is gone.
        view: What was seen of the beats, up to now; None where they were read once only.
        lags_s: The lag of each partition, where the source was asked.
        locks: Those of the group, read before the sessions.
    """
    by_id = {session.session_id: session for session in sessions}
    rows = tuple(
        _partition_row(lease, by_id, None if lags_s is None else lags_s.get(lease.partition))
        for lease in sorted(leases, key=lambda lease: _natural(lease.partition))
    )
    return Status(
        group=group,
        source=item.source,
        start=item.start,
        partitions=rows,
        hosts=tuple(
            _host_row(session, rows, view)
            for session in sorted(by_id.values(), key=lambda one: _natural(one.session_id))
        ),
        locks=rows_of(locks, by_id),
    )


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts `p-10` after `p-9`."""
    # Eighteen digits at a time: Python refuses to read a number of thousands, which a name may hold.
    return tuple((text, int(digits or -1)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name))


def _partition_row(lease: LeaseItem, sessions: Mapping[str, SessionItem], lag_s: float | None) -> PartitionRow:
    owner = None if lease.owner is None else sessions.get(lease.owner)
    asker = None if owner is None else owner.asks.get(ask_key(lease.partition, lease.token))
    asking = None if asker is None else sessions.get(asker)
    return PartitionRow(
        partition=lease.partition,
        state=_state(lease, owner, asker),
        paused=lease.paused,
        owner=None if owner is None else owner.session_id,
        host=None if owner is None else owner.host_id,
        token=lease.token,
        position=lease.position,
        last_host=lease.last_host,
        asker=asker,
        asker_host=asker or None if asking is None else asking.host_id,
        lag_s=lag_s,
        parents=lease.parents,
        reason=_reason(lease),
    )


def _reason(lease: LeaseItem) -> str | None:
    reason = lease.extra.get(PAUSE_REASON) if lease.paused else None
    return None if reason is None else str(reason)


def _state(lease: LeaseItem, owner: SessionItem | None, asker: str | None) -> State:
    if lease.finished:
        return "ended"
    if owner is not None:
        # Also one that is paused: it is still handled until its owner has let go.
        return "owned" if asker is None else "asked"
    return "paused" if lease.paused else "free"


def _host_row(session: SessionItem, rows: Iterable[PartitionRow], view: LiveView | None) -> HostRow:
    mine = [row for row in rows if row.owner == session.session_id]
    seen = None if view is None else view.seen.get(session.session_id)
    return HostRow(
        session_id=session.session_id,
        host_id=session.host_id,
        beat=session.beat,
        alive=None if view is None or seen is None else view.at_s < expires_at_s(seen),
        unchanged_s=None if view is None or seen is None else view.at_s - seen.since_s,
        owned=len(mine),
        asks=sum(row.asker is not None for row in mine),
        capacity=session.capacity,
        max_leases=session.max_leases,
        load=session.load,
        draining=session.draining or session.drain_asked,
        duration_s=session.duration_s,
        about=session.extra,
    )


def _values(row: PartitionRow | HostRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}
