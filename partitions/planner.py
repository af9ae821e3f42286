"""
The plan: which session should own each lease of a group, in count mode (DESIGN section 6).

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
4. *Quotas* divide the other leases among the sessions that may take some: capacity above 0 and not draining
   (`partitions.quotas`). Anybody else has quota 0.
5. *Nothing moves that need not*: a session gives up exactly what it has above its quota. Leases it owns go before those
   it has only asked for, whose handoff has begun; then those go that rank lowest with it. Who takes a lease never
   decides which one leaves, so two hosts whose snapshots differ by a newcomer mean the same ones.
6. *What is to be placed*: free leases first, since they stand still, then those of draining hosts, then the rest. Each
   goes to a session with room: of the host that had it last, else of a host that had one of its parents, else the
   highest ranking (rendezvous hash). Where all are full, the rest stay without a target.

Why it comes to rest: a move makes one session's excess and another's room smaller by one, and quotas are chosen for
the least sum of excesses. So whatever part of a plan is carried out, the plan for the state after it has as many moves
fewer, and a state in balance yields itself.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.lineage import is_eligible
from partitions.quotas import Share, quotas

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who should own what."""

    targets: Mapping[str, str | None]
    """
    Every plannable partition, in order, with the session id that should own it; None where nobody can take it (who
    owns such a lease keeps it for now, as a draining host does until it leaves).
    """


def plan(leases: Iterable[LeaseItem], sessions: Iterable[SessionItem], *, listed: frozenset[str] | None = None) -> Plan:
    """
    Say which session should own each lease.

    Args:
        leases: All leases of one group, in any order.
        sessions: All sessions of the group, read strongly consistent after `leases`, in any order. One that is dead but
            not fenced yet counts like any other; an owner that is missing here is gone, and its leases are free.
        listed: The partitions in a source listing read after `leases`, or None where there was none
            (`partitions.lineage.is_eligible`).

    Returns:
        A plan whose shares are in proportion to capacity to within one lease, reached with the fewest moves. Partitions
        that are finished, paused or still wait for a parent are not in it. A partition whose target is its owner
        needs no step; a balanced group's plan has no other kind.
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

    quota = quotas(
        len(free) + sum(map(len, held.values())),
        (
            Share(
                session_id=session_id,
                capacity=session.capacity,
                max_leases=session.max_leases,
                held=len(held[session_id]),
            )
            for session_id, session in living.items()
            if _is_taker(session)
        ),
    )
    evicted: list[LeaseItem] = []
    surplus: list[LeaseItem] = []
    for session_id, mine in held.items():
        if session_id not in quota:
            evicted += mine
        elif len(mine) > quota[session_id]:
            surplus += _leaving(mine, session_id, len(mine) - quota[session_id])

    rooms = _Rooms(
        by_session={session_id: max(0, count - len(held[session_id])) for session_id, count in quota.items()},
        living=living,
        by_partition=by_partition,
    )
    for pool in (free, evicted, surplus):
        targets |= rooms.place(pool)
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


def _leaving(mine: Sequence[LeaseItem], session_id: str, count: int) -> list[LeaseItem]:
    """Choose `count` of the leases that count as this session: owned before asked for, then the lowest ranking."""
    if count == len(mine):
        return list(mine)
    number = _number(session_id)
    ranked = sorted(mine, key=lambda lease: (lease.owner != session_id, _rank(_number(lease.partition), number)))
    return ranked[:count]


class _Rooms:
    """How many more leases each session may take, while one plan is being made."""

    def __init__(
        self,
        *,
        by_session: dict[str, int],
        living: Mapping[str, SessionItem],
        by_partition: Mapping[str, LeaseItem],
    ) -> None:
        self._left = {session_id: room for session_id, room in by_session.items() if room > 0}
        self._numbers = {session_id: _number(session_id) for session_id in self._left}
        self._of_host: dict[str, list[str]] = {}
        for session_id in self._left:
            self._of_host.setdefault(living[session_id].host_id, []).append(session_id)
        self._by_partition = by_partition

    def place(self, pool: Sequence[LeaseItem]) -> dict[str, str | None]:
        """Give every lease of `pool` a session while there is room, None after."""
        placed: dict[str, str | None] = {}
        for hosts_of in (self._last_host, self._parents_hosts):
            for lease in pool:
                if lease.partition not in placed:
                    wanted = [session_id for host in hosts_of(lease) for session_id in self._of_host.get(host, ())]
                    taker = self._take(lease, [session_id for session_id in wanted if session_id in self._left])
                    if taker is not None:
                        placed[lease.partition] = taker
        for lease in pool:
            if lease.partition not in placed:
                placed[lease.partition] = self._take(lease, list(self._left))
        return placed

    @staticmethod
    def _last_host(lease: LeaseItem) -> list[str]:
        return [] if lease.last_host is None else [lease.last_host]

    def _parents_hosts(self, lease: LeaseItem) -> list[str]:
        parents = [self._by_partition[parent] for parent in lease.parents if parent in self._by_partition]
        return [parent.last_host for parent in parents if parent.last_host is not None]

    def _take(self, lease: LeaseItem, takers: Sequence[str]) -> str | None:
        """Use up one room of the highest ranking of `takers`, all of which have room; None where there is none."""
        if not takers:
            return None
        taker = takers[0]
        if len(takers) > 1:
            number = _number(lease.partition)
            ranks = [_rank(number, self._numbers[session_id]) for session_id in takers]
            taker = takers[ranks.index(max(ranks))]
        self._left[taker] -= 1
        if not self._left[taker]:
            del self._left[taker]
        return taker


# --- Rendezvous hash ------------------------------------------------------------------------------------------------

# A Mersenne prime: multiplying by a number below it permutes the others, so one digest for each name is enough, where a
# digest for each pair would take about a second for 10,000 free leases and 100 sessions.
_PRIME: Final = 2**61 - 1


def _number(name: str) -> int:
    """Return the number of a partition or a session: the same on every machine and in every run."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (_PRIME - 1) + 1


def _rank(partition: int, session: int) -> int:
    """Return how well two numbers go together (rendezvous or highest-random-weight hashing)."""
    return partition * session % _PRIME
