"""
What load mode promises of a group at rest (`partitions.loads`), worked out from its items in another way.

Between two sessions, h above l, where l has room and h has a lease to give, of which the lightest weighs w, T being the
threshold's share of the fair level: level(h) − level(l) ≤ max(w / capacity(l) + T, T · (capacity(h) + capacity(l)) /
capacity(l)).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from statistics import fmean
from typing import Final

from partitions.items import GroupItem, LeaseItem, SessionItem
from partitions.weights import AVERAGE, LIGHTEST

__all__ = ["uneven_levels"]

ROUNDED: Final = 1e-9
"""Of a level: quotients of whole numbers are compared."""


def uneven_levels(leases: Iterable[LeaseItem], sessions: Iterable[SessionItem], group: GroupItem) -> list[str]:
    """
    Return each pair of sessions that is farther apart than promised.

    Args:
        leases: All that are in the plan, each with an owner among the sessions.
        sessions: Those that may take leases.
        group: The item with the threshold.
    """
    leases = tuple(leases)
    measured = [lease.weight for lease in leases if lease.weight > 0]
    average = fmean(measured) if measured else 0.0
    counts_as = {
        lease.partition: max(LIGHTEST, round(AVERAGE * lease.weight / average)) if lease.weight > 0 else AVERAGE
        for lease in leases
    }
    mine = {item.session_id: [lease for lease in leases if lease.owner == item.session_id] for item in sessions}
    by_id = {item.session_id: item for item in sessions}
    levels = {
        name: sum(counts_as[lease.partition] for lease in owned) / by_id[name].capacity for name, owned in mine.items()
    }
    allowance = group.load_threshold * sum(counts_as.values()) / sum(item.capacity for item in by_id.values())
    found = []
    for high, low in permutations(levels, 2):
        most = by_id[low].max_leases
        if levels[high] <= levels[low] or not mine[high] or (most is not None and len(mine[low]) >= most):
            continue
        of_high, of_low = by_id[high].capacity, by_id[low].capacity
        lightest = min(counts_as[lease.partition] for lease in mine[high])
        most_apart = max(lightest / of_low + allowance, allowance * (of_high + of_low) / of_low)
        if levels[high] - levels[low] > most_apart + ROUNDED:
            apart = f"{high} at {levels[high]:g}, {low} at {levels[low]:g}"
            found.append(f"{apart}, expected at most {most_apart:g} between them: {counts_as}")
    return found
