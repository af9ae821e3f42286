"""
Delays: which steps of a plan wait for now (DESIGN section 6).

Pure: no store, no clock. They filter what this host does, never what is planned: the plan is the same for all. A step
that waits is no reason to read anything either, so what is held back is told to `processor_host.steps` and to
`processor_host.reads` alike.

Two waits, both off by default:

- After a host joined, asks for the sake of mere balance wait for `steal_delay_s`. Free leases and those of draining
  hosts move at once. So where a deployment starts a new host before it stops an old one, the leases of the old go
  straight to the new one, which is empty still, instead of all hosts shifting theirs twice.
- What a host had that is gone, and that did not drain, waits for it for `rejoin_grace_s`, so that a host that crashed
  and starts again under its name finds its own partitions. Whoever drains has given its partitions away on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.planner import Plan

__all__ = ["Comings", "Delays", "HeldBack", "held_back", "note_sessions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """The waits in force, seconds; 0 is off."""

    steal_delay_s: float = 0.0
    rejoin_grace_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comings:
    """Who came and who went, as this host has seen it on its own clock."""

    first_s: float = math.inf
    """When this host first looked."""
    joined_s: float = -math.inf
    """When it last saw a session for the first time."""
    sessions: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    """The sessions of the last look: the host id of each, and whether it was draining, or an operator's."""
    gone_s: Mapping[str, float] = field(default_factory=dict)
    """By host id, since when it has no session; minus infinity where nobody waits. Forgotten after the grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """Partitions whose next step waits."""

    free: frozenset[str] = frozenset()
    """Nobody takes them yet."""
    asks: frozenset[str] = frozenset()
    """Nobody asks for them yet."""


def note_sessions(comings: Comings, sessions: Iterable[SessionItem], now_s: float, delays: Delays) -> Comings:
    """Return what is known of comings and goings after a look at the sessions."""
    sessions = tuple(sessions)
    # An operator's command (capacity 0) is nobody's replacement, and does not come back for what it has let go.
    takers = {one.session_id for one in sessions if one.capacity > 0}
    seen = {
        one.session_id: (one.host_id, one.draining or one.drain_asked or one.session_id not in takers)
        for one in sessions
    }
    first_s = min(comings.first_s, now_s)
    hosts = {host_id for host_id, _ in seen.values()}
    gone = {
        host_id: at_s
        for host_id, at_s in comings.gone_s.items()
        if host_id not in hosts and now_s < max(at_s, first_s) + delays.rejoin_grace_s
    }
    for session_id, (host_id, drained) in comings.sessions.items():
        if session_id not in seen and host_id not in hosts:
            gone[host_id] = -math.inf if drained else now_s
    return Comings(
        first_s=first_s,
        joined_s=now_s if takers - comings.sessions.keys() else comings.joined_s,
        sessions=seen,
        gone_s=gone,
    )


def held_back(
    plan: Plan,
    leases: Iterable[LeaseItem],
    sessions: Iterable[SessionItem],
    comings: Comings,
    now_s: float,
    delays: Delays,
) -> HeldBack:
    """
    Say which steps of a plan wait.

    Those of other hosts are judged by this host's clock and settings too: they have the same ones, by and large, and
    only whether a read is worth while depends on it.

    Args:
        plan: The plan of exactly these leases and sessions.
        leases: All leases of the group.
        sessions: All sessions of the group.
        comings: What `note_sessions` returned for these sessions.
        now_s: This host's clock.
        delays: The waits in force.
    """
    by_id = {session.session_id: session for session in sessions}
    hosts = {session.host_id for session in by_id.values()}
    no_steals = now_s < comings.joined_s + delays.steal_delay_s
    free: set[str] = set()
    asks: set[str] = set()
    if not no_steals and not delays.rejoin_grace_s:
        return HeldBack()
    for lease in leases:
        target = plan.targets.get(lease.partition)
        owner = None if lease.owner is None else by_id.get(lease.owner)
        if target is None or lease.owner == target:
            continue
        if owner is None:
            last = lease.last_host
            if last is not None and last not in hosts:
                since_s = comings.gone_s.get(last, comings.first_s)
                if now_s < since_s + delays.rejoin_grace_s:
                    free.add(lease.partition)
        elif (
            no_steals
            and not owner.draining
            and not owner.drain_asked
            and ask_key(lease.partition, lease.token) not in owner.asks
        ):
            asks.add(lease.partition)
    return HeldBack(free=frozenset(free), asks=frozenset(asks))
