"""
Retirement: which finished leases may be deleted, so that a stream that reshards for years does not grow the table.

Pure but for its memory of when the source stopped listing what. A lease that is deleted while its partition may still
be listed is found again and replayed, so it stays until the source has not listed it for an hour on this host's own
clock, and until every child has started (`partitions.lineage`).
"""

from __future__ import annotations

from collections.abc import Iterable

from partitions.items import LeaseItem
from partitions.lineage import may_delete

__all__ = ["UNLISTED_S", "Retirement"]

UNLISTED_S = 3600.0
"""How long the source must not have listed a partition: longer than any of its listings is out of date."""


class Retirement:
    """What one host has seen of the partitions that the source no longer lists."""

    def __init__(self) -> None:
        self._unlisted_since_s: dict[str, float] = {}

    def note(self, leases: Iterable[LeaseItem], listed: frozenset[str], now_s: float) -> tuple[LeaseItem, ...]:
        """
        Note a listing, and return the leases that may be deleted now.

        Args:
            leases: All leases of the group, read before the listing was asked for.
            listed: The partitions that the source lists.
            now_s: This host's clock.
        """
        leases = tuple(leases)
        gone = [lease for lease in leases if lease.finished and lease.partition not in listed]
        # Only what is still gone is remembered: one that is listed again begins anew.
        self._unlisted_since_s = {lease.partition: self._unlisted_since_s.get(lease.partition, now_s) for lease in gone}
        return tuple(
            lease
            for lease in gone
            if now_s - self._unlisted_since_s[lease.partition] >= UNLISTED_S and may_delete(lease, leases, listed)
        )

    def forget(self, partition: str) -> None:
        """Drop a partition whose lease was deleted; should it be seen once more, it begins anew."""
        self._unlisted_since_s.pop(partition, None)
