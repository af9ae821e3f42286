"""
The last changes of ownership in a group, from one look at its items to the next and from a host's own terms.

Pure. Knows no store, no clock and no page.

Theory: a token names a term, and a term has one owner. So a higher token is a change, told of once, whether this
host's own event or a look showed it first; an older token is a stale read; and what was freed under a token is not
owned again under the same one. A hand-over is one change, although the lease is free in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

from partitions.items import LeaseItem, SessionItem

__all__ = ["CHANGES_MAX", "Change", "Changes", "note_freed", "note_look", "note_taken"]

CHANGES_MAX: Final = 50
"""How many are kept: a screen or two. The log has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of ownership. `before` and `after` are host ids; None for nobody."""

    at_s: float
    """When this host learned of it, on its own clock."""
    kind: Literal["taken", "freed", "ended"]
    partition: str
    token: int
    before: str | None
    after: str | None
    how: str | None = None
    """As `LeaseAcquired.reason` has it, where this host took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    token: int
    host: str | None
    """Who has it; None where nobody does."""
    last: str | None
    """Who had it last."""


def _nothing() -> Mapping[str, _Seen]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What has been seen of a group; the oldest change comes first."""

    last: tuple[Change, ...] = ()
    seen: Mapping[str, _Seen] = field(default_factory=_nothing)
    has_looked: bool = False
    """What the first look shows has not changed: it was so before."""


def note_look(changes: Changes, leases: Iterable[LeaseItem], sessions: Iterable[SessionItem], now_s: float) -> Changes:
    """
    Note what one look at the group shows.

    Args:
        changes: What was noted before.
        leases: All leases, in any order.
        sessions: All sessions; an owner that is not among them is gone.
        now_s: The host's clock.
    """
    living = {session.session_id: session.host_id for session in sessions}
    seen: dict[str, _Seen] = {}
    last = changes.last
    for lease in leases:
        host = None if lease.owner is None else living.get(lease.owner)
        old = changes.seen.get(lease.partition)
        change: Change | None = None
        if old is None:
            new = _Seen(token=lease.token, host=host, last=host or lease.last_host)
            if host is not None:
                change = _change(now_s, "taken", lease, before=None, after=host)
        elif lease.token > old.token:
            new = _Seen(token=lease.token, host=host, last=host or lease.last_host)
            if host is not None:
                change = _change(now_s, "taken", lease, before=old.last, after=host)
            else:
                # Taken and freed again since the last look.
                change = _change(now_s, _freed_kind(lease), lease, before=lease.last_host, after=None)
        elif lease.token == old.token and old.host is not None and host is None:
            new = replace(old, host=None)
            change = _change(now_s, _freed_kind(lease), lease, before=old.host, after=None)
        else:
            new = old
        seen[lease.partition] = new
        if change is not None and changes.has_looked:
            last = _added(last, change)
    return Changes(last=last, seen=MappingProxyType(seen), has_looked=True)


def note_taken(
    changes: Changes, *, partition: str, token: int, host: str, before: str | None, how: str, now_s: float
) -> Changes:
    """Note a term that began on this host; `before` is the host id of the owner before, if there was one."""
    old = changes.seen.get(partition)
    if old is not None and old.token >= token:
        return changes
    was = before or (None if old is None else old.last)
    change = Change(at_s=now_s, kind="taken", partition=partition, token=token, before=was, after=host, how=how)
    new = _Seen(token=token, host=host, last=host)
    return replace(changes, last=_added(changes.last, change), seen=MappingProxyType({**changes.seen, partition: new}))


def note_freed(changes: Changes, *, partition: str, token: int, now_s: float) -> Changes:
    """Note a lease that this host has released."""
    old = changes.seen.get(partition)
    if old is None or old.token != token or old.host is None:
        return changes
    change = Change(at_s=now_s, kind="freed", partition=partition, token=token, before=old.host, after=None)
    new = replace(old, host=None)
    return replace(changes, last=_added(changes.last, change), seen=MappingProxyType({**changes.seen, partition: new}))


def _freed_kind(lease: LeaseItem) -> Literal["freed", "ended"]:
    return "ended" if lease.finished else "freed"


def _change(
    now_s: float,
    kind: Literal["taken", "freed", "ended"],
    lease: LeaseItem,
    *,
    before: str | None,
    after: str | None,
) -> Change:
    return Change(at_s=now_s, kind=kind, partition=lease.partition, token=lease.token, before=before, after=after)


def _added(last: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    if change.kind == "taken":
        # One line for a hand-over: that it was free for a moment goes without saying.
        last = tuple(
            each
            for each in last
            if not (each.kind == "freed" and each.partition == change.partition and each.token == change.token - 1)
        )
    return (*last, change)[-CHANGES_MAX:]
