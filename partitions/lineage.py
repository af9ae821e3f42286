"""
Lineage: in which order the partitions of a split or a merge are processed, and when a finished one may be forgotten.

Knows no plan, no store and no clock: pure functions of lease items and of what the source lists.

A child goes on where its parents ended. Its records must not be read before the last of theirs, or per key the order
is lost. So a lease that nobody has ever held (token 0) waits until every parent is finished. One that was started has
passed this gate already and is never held back again, whatever its parents' items say.

Only the parents themselves are looked at, never theirs, so that a source that lists a circle makes nothing loop here.
The partitions of a circle wait for one another for good: no order of reading them would be right.

`listed` is what the source listed in a listing that was read *after* the leases. Only such a one tells a parent that
was finished and deleted from one that nobody has discovered yet; an older one may lack a parent born since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partitions.items import LeaseItem

__all__ = ["is_eligible", "may_delete"]


def is_eligible(lease: LeaseItem, by_partition: Mapping[str, LeaseItem], listed: frozenset[str] | None) -> bool:
    """
    Say whether the order of the stream allows that this lease is held.

    Args:
        lease: The lease in question, a member of `by_partition`.
        by_partition: All leases of the group, by partition.
        listed: The partitions in a source listing read after these leases, or None where there was none.

    Returns:
        False for a lease that was never started (token 0) while a parent is not finished. A parent without an item
        counts as finished only if `listed` is given and lacks it.

    Source: DESIGN section 6; "a child shard is not read before its parent" of the Kinesis developer guide.
    """
    if lease.token > 0 or not lease.parents:
        return True
    return all(_is_done(parent, by_partition, listed) for parent in lease.parents)


def may_delete(lease: LeaseItem, leases: Iterable[LeaseItem], listed: frozenset[str]) -> bool:
    """
    Say whether the items allow that this lease is deleted.

    The rest is the caller's: that the source has not listed the partition for an hour on the caller's own clock. A
    listing that lacks it once may be a fault of the source, and what is deleted and listed again is replayed.

    Args:
        lease: The lease to delete.
        leases: All leases of the group, in any order.
        listed: The partitions in a source listing read after `leases`.

    Returns:
        True if the lease is finished, `listed` lacks its partition, and every child in `leases` was started (token
        above 0). A child without an item was deleted itself, or does not need this item to begin: once `listed` lacks
        the parent, a parent without an item counts as finished.
    """
    if not lease.finished or lease.partition in listed:
        return False
    return all(other.token > 0 for other in leases if lease.partition in other.parents)


def _is_done(parent: str, by_partition: Mapping[str, LeaseItem], listed: frozenset[str] | None) -> bool:
    item = by_partition.get(parent)
    if item is not None:
        return item.finished
    return listed is not None and parent not in listed
