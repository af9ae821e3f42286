"""
The plan: which session should own each lease of a group (DESIGN section 6).

A pure function of the items that every host reads; no private setting enters it. Every host computes the plan for all
and performs only the steps that bring leases to itself. Knows no store, no clock and no step.

Theory of operation:

1. *Plannable* is a lease that is not finished, not paused and eligible (`partitions.lineage`). The others are nobody's
   business: they are not in the plan and count for nobody.
2. *A lease counts as* that of the session whose ask for its present term binds; else as its owner's, if that session
   exists; else it is free. An ask binds if its asker exists, is not draining and does not count `max_leases` leases
   already. Of two asks for one term the one in the owner's item goes first, then the order of session ids. An ask by
   nobody ("") never binds. So a move under way is not planned twice, and nobody snatches what was just released.
3. *An operator's session* (capacity 0) is given nothing, but a lease that counts as its own, owned or asked for, stays
   bound to it as long as it is there and not draining, and counts for nobody's quota: a lease under reset is neither
   snatched nor moved.
4. *The other leases are divided* among the sessions that may take some: capacity above 0 and not draining. In count
   mode every lease counts alike (`partitions.counts`), in load mode as what it weighs (`partitions.loads`); both say
   what moves, and why that comes to rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from partitions.counts import divide_by_count
from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.lineage import is_eligible
from partitions.loads import divide_by_load
from partitions.weights import LoadRule

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who should own what."""

    targets: Mapping[str, str | None]
    """
    Every plannable partition, in order, with the session id that should own it; None where nobody can take it (who
    owns such a lease keeps it for now, as a draining host does until it leaves).
    """


def plan(
    leases: Iterable[LeaseItem],
    sessions: Iterable[SessionItem],
    *,
    listed: frozenset[str] | None = None,
    load: LoadRule | None = None,
) -> Plan:
    """
    Say which session should own each lease.

    Args:
        leases: All leases of one group, in any order.
        sessions: All sessions of the group, read strongly consistent after `leases`, in any order. One that is dead but
            not fenced yet counts like any other; an owner that is missing here is gone, and its leases are free.
        listed: The partitions in a source listing read after `leases`, or None where there was none
            (`partitions.lineage.is_eligible`).
        load: How the weights of leases are balanced, as the group's item says (`partitions.weights.load_rule_of`); None
            for count mode.

    Returns:
        A plan whose shares are in proportion to capacity: in count mode to within one lease, reached with the fewest
        moves; in load mode as `partitions.loads` promises. Partitions that are finished, paused or still wait for a
        parent are not in it. A partition whose target is its owner needs no step; a balanced group's plan has no other
        kind.
    """
    by_partition = {lease.partition: lease for lease in leases}
    # From here on everything is in order of partition and session id, and so are all ties.
    living = {session.session_id: session for session in sorted(sessions, key=lambda session: session.session_id)}
    plannable = [
        lease
        for _, lease in sorted(by_partition.items())
        if not lease.finished and not lease.paused and is_eligible(lease, by_partition, listed)
    ]
    holders = _holders(plannable, living)

    targets: dict[str, str | None] = {}
    free: list[LeaseItem] = []
    held: dict[str, list[LeaseItem]] = {session_id: [] for session_id in living}
    for lease in plannable:
        holder = holders[lease.partition]
        targets[lease.partition] = holder
        if holder is None:
            free.append(lease)
        elif not _is_operator(living[holder]):
            held[holder].append(lease)

    takers = {session_id: session for session_id, session in living.items() if _is_taker(session)}
    if load is None:
        targets |= divide_by_count(free, held, takers, by_partition)
    else:
        targets |= divide_by_load(free, held, takers, by_partition, load)
    return Plan(targets=MappingProxyType(targets))


def _is_draining(session: SessionItem) -> bool:
    return session.draining or session.drain_asked


def _has_capacity(session: SessionItem) -> bool:
    # One session's nonsense (not a number, infinite) must not stop the plan of all hosts, nor take everything.
    return 0 < session.capacity < math.inf


def _is_taker(session: SessionItem) -> bool:
    return _has_capacity(session) and not _is_draining(session)


def _is_operator(session: SessionItem) -> bool:
    return not _has_capacity(session) and not _is_draining(session)


def _holders(leases: Sequence[LeaseItem], living: Mapping[str, SessionItem]) -> dict[str, str | None]:
    """Return the session that each lease counts as, by partition; None: the lease is free."""
    holders = {lease.partition: lease.owner if lease.owner in living else None for lease in leases}
    claims = list(_claims(leases, living))
    if not claims:
        return holders
    counts = Counter(holder for holder in holders.values() if holder is not None)
    # An ask that binds makes room at the owner, so that an asker that was full may not be so any more: until no more
    # binds. Without maxima one round settles all.
    bound = True
    while bound and claims:
        bound = False
        unbound: list[tuple[LeaseItem, list[str]]] = []
        for lease, askers in claims:
            holder = holders[lease.partition]
            for asker in askers:
                most = living[asker].max_leases
                if most is None or counts[asker] < most:
                    if holder is not None:
                        counts[holder] -= 1
                    counts[asker] += 1
                    holders[lease.partition] = asker
                    bound = True
                    break
            else:
                unbound.append((lease, askers))
        claims = unbound
    return holders


def _claims(leases: Iterable[LeaseItem], living: Mapping[str, SessionItem]) -> Iterator[tuple[LeaseItem, list[str]]]:
    """Yield the leases whose present term is asked for, with the askers that could bind, the first choice first."""
    standing: dict[str, list[tuple[str, str]]] = {}
    for session_id, session in living.items():
        for key, asker in session.asks.items():
            if asker in living and not _is_draining(living[asker]):
                standing.setdefault(key, []).append((session_id, asker))
    if not standing:
        return
    for lease in leases:
        asks = standing.get(ask_key(lease.partition, lease.token))
        if asks:
            yield lease, [asker for _, asker in sorted(asks, key=lambda ask: ask[0] != lease.owner)]
