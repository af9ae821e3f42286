"""
Load mode: the leases of a group divided by weight (DESIGN section 6).

Knows no state of a lease and no store: it is told which leases are free, which count as whose, and who may take some.
`partitions.planner` tells it, and `partitions.weights` says what each lease counts as.

Theory of operation. A session's *level* is the weight of the leases that count as its own, divided by its capacity. The
*fair level* is that of all leases over all capacities, and *T* is the threshold's share of it.

1. *Free leases are placed at once*, all of them, then those of draining hosts, then those that somebody has above its
   `max_leases`. Each goes to a session with room: of the host that had it last, else of a host that had one of its
   parents. The others follow, the heaviest first: to the highest ranking (rendezvous hash) of those that it does not
   lift above the fair level, else to whoever is the lowest with it. What was placed then moves on as 2 and 3 say, only
   without a bound, for none of it is being processed. So a lease that was released for somebody, and whose ask is gone
   already, goes on to where it was going: it counts as its last host's, and leaves that once more.
2. *Leases move for the sake of balance only between two sessions of which the higher could be lowered by more than T*
   if the two shared evenly. So moves begin at a distance of two T, for equal capacities, and end in the middle of that:
   measured weights may waver by that much without moving anything.
3. *Such a move goes as far as is fair*: until the higher one is down at the fair level or the lower one up, or, where
   the fair level does not lie between them, until they meet. The heaviest leases that fit go first, so that few do.
   Where none fits, the lightest goes if that leaves the lower one below the higher one's old level by more than T. So
   a newcomer gets its share also where each of the others is hardly above the fair level.
4. *At most `moves_max` leases are on their way for the sake of balance*, those counted that are asked for already; the
   rest follow once these have arrived.
5. *Only leases that stand at their owner move*: one that was asked for, by whomever, is on its way and left alone.

Where it ends. Between two sessions at rest, h above l, l with room and h with a lease to give, of which the lightest
weighs w: level(h) − level(l) ≤ max(w / capacity(l) + T, T · (capacity(h) + capacity(l)) / capacity(l)). With T = 0 that
is w / capacity(l): less than the heaviest movable weight. A threshold above 0 gives away what no worthwhile move mends.

Why it comes to rest, and does not swing. Every move leaves both sessions below the old level of the higher one. So the
levels, sorted from the highest down, only ever fall in the order of a dictionary; there are finitely many divisions,
and none comes twice. This holds by the true weights too as long as no level is measured wrongly by more than T/2: a
move is made only where the measured distance leaves more than T to spare, and two levels are wrong by T together at
most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.quotas import whole_weights
from partitions.ranks import last_host_of, leaving, number_of, parents_hosts_of, rank
from partitions.weights import LoadRule, units_of

__all__ = ["divide_by_load"]


def divide_by_load(
    free: Sequence[LeaseItem],
    held: Mapping[str, Sequence[LeaseItem]],
    takers: Mapping[str, SessionItem],
    by_partition: Mapping[str, LeaseItem],
    rule: LoadRule,
) -> dict[str, str | None]:
    """
    Return the new targets of the leases that are free or are to leave whoever has them.

    Args:
        free: Leases that nobody has, in order.
        held: The others by the session that each counts as, operators' left out.
        takers: The sessions that may take leases, in order.
        by_partition: All leases of the group.
        rule: The threshold, and how many leases may be on their way.
    """
    evicted = [lease for session_id, mine in held.items() if session_id not in takers for lease in mine]
    surplus: list[LeaseItem] = []
    staying: dict[str, list[LeaseItem]] = {}
    for session_id, session in takers.items():
        mine = held[session_id]
        over = 0 if session.max_leases is None else max(0, len(mine) - max(0, session.max_leases))
        out = leaving(mine, session_id, over) if over else []
        gone = {lease.partition for lease in out}
        surplus += out
        staying[session_id] = [lease for lease in mine if lease.partition not in gone]

    units = units_of([*free, *evicted, *surplus, *(lease for mine in staying.values() for lease in mine)])
    loads = _Loads(staying, takers, units, by_partition, rule)
    targets: dict[str, str | None] = {}
    for pool in (free, evicted, surplus):
        targets |= loads.place(pool)
    targets |= loads.settle((*free, *evicted, *surplus), targets)
    under_way = sum(
        lease.owner in takers and lease.owner != session_id for session_id, mine in staying.items() for lease in mine
    )
    return targets | loads.moves(rule.moves_max - under_way)


class _Loads:
    """What each session carries, while one plan is being made."""

    def __init__(
        self,
        staying: Mapping[str, Sequence[LeaseItem]],
        takers: Mapping[str, SessionItem],
        units: Mapping[str, int],
        by_partition: Mapping[str, LeaseItem],
        rule: LoadRule,
    ) -> None:
        self._takers = takers
        self._staying = staying
        self._units = units
        self._by_partition = by_partition
        self._capacities = whole_weights({session_id: session.capacity for session_id, session in takers.items()})
        self._capacity_sum = sum(self._capacities.values())
        self._total = sum(units.values())
        self._allowance = rule.threshold * self._total / self._capacity_sum if takers else 0.0
        """T, as a level."""
        self._carried = {
            session_id: sum(units[lease.partition] for lease in mine) for session_id, mine in staying.items()
        }
        self._fair = {
            session_id: self._total * capacity // self._capacity_sum
            for session_id, capacity in self._capacities.items()
        }
        """What each session carries at the fair level, rounded down."""
        most = {
            session_id: len(units) if session.max_leases is None else session.max_leases
            for session_id, session in takers.items()
        }
        self._room = {session_id: max(0, count - len(staying[session_id])) for session_id, count in most.items()}
        self._numbers = {session_id: number_of(session_id) for session_id in takers}
        self._of_host: dict[str, list[str]] = {}
        for session_id, session in takers.items():
            self._of_host.setdefault(session.host_id, []).append(session_id)

    def _level(self, session_id: str, more: int = 0) -> float:
        # The quotient of whole numbers is rounded correctly, so two levels that are equal compare as equal.
        return (self._carried[session_id] + more) / self._capacities[session_id]

    def _take(self, session_id: str, units: int) -> None:
        self._carried[session_id] += units
        self._room[session_id] -= 1

    # --- Leases that need somebody ----------------------------------------------------------------------------------

    def place(self, pool: Sequence[LeaseItem]) -> dict[str, str | None]:
        """Give every lease of `pool` a session while there is room, None after."""
        placed: dict[str, str | None] = {}
        heaviest_first = sorted(pool, key=lambda lease: -self._units[lease.partition])
        for hosts_of in (last_host_of, parents_hosts_of):
            for lease in heaviest_first:
                if lease.partition not in placed:
                    hosts = hosts_of(lease, self._by_partition)
                    wanted = [session_id for host in hosts for session_id in self._of_host.get(host, ())]
                    with_room = [session_id for session_id in wanted if self._room[session_id]]
                    if with_room:
                        placed[lease.partition] = taker = self._highest(lease, with_room)
                        self._take(taker, self._units[lease.partition])
        for lease in heaviest_first:
            if lease.partition not in placed:
                placed[lease.partition] = self._anybody(lease, self._units[lease.partition])
        return placed

    def settle(self, pool: Iterable[LeaseItem], placed: Mapping[str, str | None]) -> dict[str, str | None]:
        """Move what was just placed until no exchange of it is worth while."""
        mine: dict[str, list[LeaseItem]] = {session_id: [] for session_id in self._takers}
        for lease in pool:
            taker = placed[lease.partition]
            if taker is not None:
                mine[taker].append(lease)
        return self._move(mine, None)

    def _anybody(self, lease: LeaseItem, units: int) -> str | None:
        open_ones = [session_id for session_id, room in self._room.items() if room]
        if not open_ones:
            return None
        carried, fair = self._carried, self._fair
        fitting = [session_id for session_id in open_ones if carried[session_id] + units <= fair[session_id]]
        if not fitting:
            levels = {session_id: self._level(session_id, units) for session_id in open_ones}
            lowest = min(levels.values())
            fitting = [session_id for session_id, level in levels.items() if level == lowest]
        taker = self._highest(lease, fitting)
        self._take(taker, units)
        return taker

    def _highest(self, lease: LeaseItem, session_ids: Sequence[str]) -> str:
        if len(session_ids) == 1:
            return session_ids[0]
        number = number_of(lease.partition)
        return max(session_ids, key=lambda session_id: rank(number, self._numbers[session_id]))

    # --- Moves for the sake of balance ------------------------------------------------------------------------------

    def moves(self, most: int) -> dict[str, str | None]:
        """Move up to `most` leases that stand at their owners from sessions that are too high to such as are low."""
        standing = {
            session_id: [
                lease
                for lease in mine
                if lease.owner == session_id
                and ask_key(lease.partition, lease.token) not in self._takers[session_id].asks
            ]
            for session_id, mine in self._staying.items()
        }
        return self._move(standing, most)

    def _move(self, movable: Mapping[str, list[LeaseItem]], most: int | None) -> dict[str, str | None]:
        moved: dict[str, str | None] = {}
        left = dict(movable)
        ready: set[str] = set()
        while most is None or len(moved) < most:
            found = self._next(left, ready)
            if found is None:
                break
            giver, taker, leases = found
            if most is not None:
                leases = leases[: most - len(moved)]
            going = {lease.partition for lease in leases}
            for lease in leases:
                self._carried[giver] -= self._units[lease.partition]
                self._room[giver] += 1
                self._take(taker, self._units[lease.partition])
            moved |= dict.fromkeys(going, taker)
            left[giver] = [lease for lease in left[giver] if lease.partition not in going]
            if most is None:
                # It stands still, and may as well go farther. What is being processed moves once in a plan.
                left[taker] = [*left[taker], *leases]
                ready.discard(taker)
        return moved

    def _next(self, movable: dict[str, list[LeaseItem]], ready: set[str]) -> tuple[str, str, list[LeaseItem]] | None:
        """Find the highest session that has something to give, and the lowest that should take it."""
        levels = {session_id: self._level(session_id) for session_id in self._takers}
        takers = [session_id for session_id, room in self._room.items() if room]
        lowest = min((levels[session_id] for session_id in takers), default=math.inf)
        for giver in sorted(levels, key=lambda session_id: (-levels[session_id], session_id)):
            if levels[giver] - lowest <= self._allowance:
                break
            if giver not in ready:
                # Only here, because most sessions give nothing in most plans.
                movable[giver] = self._sorted(movable[giver], giver)
                ready.add(giver)
            if not movable[giver]:
                continue
            lightest = self._units[movable[giver][-1].partition]
            for taker in sorted(takers, key=lambda session_id: (self._level(session_id, lightest), session_id)):
                leases = self._exchange(giver, taker, movable[giver])
                if leases:
                    return giver, taker, leases
        return None

    def _sorted(self, leases: Iterable[LeaseItem], session_id: str) -> list[LeaseItem]:
        """Return the heaviest first; of equal ones those that rank lowest with the session, whoever takes them."""
        number = self._numbers[session_id]
        return sorted(
            leases, key=lambda lease: (-self._units[lease.partition], rank(number_of(lease.partition), number))
        )

    def _exchange(self, giver: str, taker: str, movable: Sequence[LeaseItem]) -> list[LeaseItem]:
        """Return what should go from one session to another; nothing where that is not worth a move."""
        of_giver, of_taker = self._capacities[giver], self._capacities[taker]
        high, low = self._carried[giver], self._carried[taker]
        even = high * of_taker - low * of_giver  # Over the sum of both capacities: then their levels are equal.
        if even / (of_giver + of_taker) / of_giver <= self._allowance:
            return []
        amount = even // (of_giver + of_taker)
        excess = high * self._capacity_sum - self._total * of_giver
        deficit = self._total * of_taker - low * self._capacity_sum
        if excess > 0 and deficit > 0:
            amount = min(excess, deficit) // self._capacity_sum

        fitting: list[LeaseItem] = []
        sum_of_fitting = 0
        for lease in movable:
            units = self._units[lease.partition]
            if units <= amount - sum_of_fitting and len(fitting) < self._room[taker]:
                fitting.append(lease)
                sum_of_fitting += units
        above = [lease for lease in movable if self._units[lease.partition] > amount]
        if not above:
            return fitting
        lightest = above[-1]
        units = self._units[lightest.partition]
        if not self._level(taker, units) < self._level(giver) - self._allowance:
            return fitting
        alone = max(self._level(giver, -units), self._level(taker, units))
        together = max(self._level(giver, -sum_of_fitting), self._level(taker, sum_of_fitting))
        return [lightest] if alone <= together else fitting
