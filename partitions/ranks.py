"""
Ranks: which session a lease goes to where several would do, and where it was before.

Knows no plan. The same on every machine and in every run, so that hosts do not race for the same lease, and little of
it changes when a session comes or goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from partitions.items import LeaseItem

__all__ = ["last_host_of", "leaving", "number_of", "parents_hosts_of", "rank"]

# A Mersenne prime: multiplying by a number below it permutes the others, so one digest for each name is enough, where a
# digest for each pair would take about a second for 10,000 free leases and 100 sessions.
_PRIME: Final = 2**61 - 1


def number_of(name: str) -> int:
    """Return the number of a partition or a session: the same on every machine and in every run."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (_PRIME - 1) + 1


def rank(partition: int, session: int) -> int:
    """Return how well two numbers go together (rendezvous or highest-random-weight hashing)."""
    return partition * session % _PRIME


def last_host_of(lease: LeaseItem, by_partition: Mapping[str, LeaseItem]) -> list[str]:
    """Return the host that had this lease last, if any had."""
    return [] if lease.last_host is None else [lease.last_host]


def parents_hosts_of(lease: LeaseItem, by_partition: Mapping[str, LeaseItem]) -> list[str]:
    """Return the hosts that had the parents last."""
    parents = [by_partition[parent] for parent in lease.parents if parent in by_partition]
    return [parent.last_host for parent in parents if parent.last_host is not None]


def leaving(mine: Sequence[LeaseItem], session_id: str, count: int) -> list[LeaseItem]:
    """
    Choose `count` of the leases that count as this session, which are to leave it.

    Those it owns go before those it has only asked for, whose handoff has begun; then those go that rank lowest with
    it. Who takes them has no say, so two hosts whose snapshots differ by a newcomer mean the same ones.
    """
    if count == len(mine):
        return list(mine)
    number = number_of(session_id)
    ranked = sorted(mine, key=lambda lease: (lease.owner != session_id, rank(number_of(lease.partition), number)))
    return ranked[:count]
