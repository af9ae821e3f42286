"""
Count mode: the leases of a group divided by number (DESIGN section 6).

Knows no ask, no state of a lease and no store: it is told which leases are free, which count as whose, and who may take
some. `partitions.planner` tells it.

Theory of operation:

1. *Quotas* are in proportion to capacity (`partitions.quotas`). Who may not take any has quota 0.
2. *Nothing moves that need not*: a session gives up exactly what it has above its quota. Which ones it is does not
   depend on who takes them (`partitions.ranks.leaving`).
3. *What is to be placed*: free leases first, since they stand still, then those of draining hosts, then the rest. Each
   goes to a session with room: of the host that had it last, else of a host that had one of its parents, else the
   highest ranking (rendezvous hash). Where all are full, the rest stay without a target.

Why it comes to rest: a move makes one session's excess and another's room smaller by one, and quotas are chosen for
the least sum of excesses. So whatever part of a plan is carried out, the plan for the state after it has as many moves
fewer, and a state in balance yields itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitions.items import LeaseItem, SessionItem
from partitions.quotas import Share, quotas
from partitions.ranks import last_host_of, leaving, number_of, parents_hosts_of, rank

__all__ = ["divide_by_count"]


def divide_by_count(
    free: Sequence[LeaseItem],
    held: Mapping[str, Sequence[LeaseItem]],
    takers: Mapping[str, SessionItem],
    by_partition: Mapping[str, LeaseItem],
) -> dict[str, str | None]:
    """
    Return the new targets of the leases that are free or are to leave whoever has them.

    Args:
        free: Leases that nobody has, in order.
        held: The others by the session that each counts as, operators' left out.
        takers: The sessions that may take leases, in order.
        by_partition: All leases of the group.
    """
    quota = quotas(
        len(free) + sum(map(len, held.values())),
        (
            Share(
                session_id=session_id,
                capacity=session.capacity,
                max_leases=session.max_leases,
                held=len(held[session_id]),
            )
            for session_id, session in takers.items()
        ),
    )
    evicted: list[LeaseItem] = []
    surplus: list[LeaseItem] = []
    for session_id, mine in held.items():
        if session_id not in quota:
            evicted += mine
        elif len(mine) > quota[session_id]:
            surplus += leaving(mine, session_id, len(mine) - quota[session_id])

    rooms = _Rooms(
        by_session={session_id: max(0, count - len(held[session_id])) for session_id, count in quota.items()},
        takers=takers,
        by_partition=by_partition,
    )
    targets: dict[str, str | None] = {}
    for pool in (free, evicted, surplus):
        targets |= rooms.place(pool)
    return targets


class _Rooms:
    """How many more leases each session may take, while one plan is being made."""

    def __init__(
        self,
        *,
        by_session: dict[str, int],
        takers: Mapping[str, SessionItem],
        by_partition: Mapping[str, LeaseItem],
    ) -> None:
        self._left = {session_id: room for session_id, room in by_session.items() if room > 0}
        self._numbers = {session_id: number_of(session_id) for session_id in self._left}
        self._of_host: dict[str, list[str]] = {}
        for session_id in self._left:
            self._of_host.setdefault(takers[session_id].host_id, []).append(session_id)
        self._by_partition = by_partition

    def place(self, pool: Sequence[LeaseItem]) -> dict[str, str | None]:
        """Give every lease of `pool` a session while there is room, None after."""
        placed: dict[str, str | None] = {}
        for hosts_of in (last_host_of, parents_hosts_of):
            for lease in pool:
                if lease.partition not in placed:
                    hosts = hosts_of(lease, self._by_partition)
                    wanted = [session_id for host in hosts for session_id in self._of_host.get(host, ())]
                    taker = self._take(lease, [session_id for session_id in wanted if session_id in self._left])
                    if taker is not None:
                        placed[lease.partition] = taker
        for lease in pool:
            if lease.partition not in placed:
                placed[lease.partition] = self._take(lease, list(self._left))
        return placed

    def _take(self, lease: LeaseItem, takers: Sequence[str]) -> str | None:
        """Use up one room of the highest ranking of `takers`, all of which have room; None where there is none."""
        if not takers:
            return None
        taker = takers[0]
        if len(takers) > 1:
            number = number_of(lease.partition)
            ranks = [rank(number, self._numbers[session_id]) for session_id in takers]
            taker = takers[ranks.index(max(ranks))]
        self._left[taker] -= 1
        if not self._left[taker]:
            del self._left[taker]
        return taker
