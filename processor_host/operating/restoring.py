"""
After a store was restored from a backup: tokens and checkpoints went back in time, and tokens must not.

Every fencing token is raised by 10^9, so that each is above all that were ever given out, whatever the backup had
forgotten; then the group's item counts the restore. Run twice, or again after it was cut short, it raises once more,
which does no harm. Checkpoints stay as they are in the backup: what was handled since is handled again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from partitions.items import LeaseItem, LockItem
from partitions.unreadable import is_stand_in
from partitions.verbs import Applied, NoteRestore, Raise
from processor_host.errors import UserError
from processor_host.operating.locking import raise_lock
from processor_host.operating.operator import Operator
from processor_host.operating.stopped import fence_the_dead

__all__ = ["RAISED_BY", "Restored", "note_restored", "raise_to"]

RAISED_BY: Final = 10**9
"""More acquires than any partition has seen between a backup and its restore."""
WRITES_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was done to a group."""

    group: str
    partitions: int
    """The leases whose tokens were raised."""
    locks: int
    """The locks whose tokens were."""
    restore_count: int
    """0 for a group that has locks alone, and no item to count in."""


async def note_restored(operator: Operator) -> Restored:
    """
    Raise every token of the group, and count the restore.

    Raises:
        UserError: nobody has set the group up, nor does it have locks; or a host of it lives, or one that has locks.
        StoreError: the store is away or broken; some tokens may be raised.
    """
    locks = [lock for lock in await operator.locks() if not is_stand_in(lock)]
    # Locks need no host, and so no item of the group.
    item = None if locks and await operator.store.read_group(operator.group) is None else await operator.group_item()
    await fence_the_dead(operator)
    leases = (await operator.snapshot()).leases
    at_once = anyio.CapacityLimiter(WRITES_AT_ONCE)

    async def one(lease: LeaseItem) -> None:
        async with at_once:
            await raise_to(operator, lease, lease.token + RAISED_BY)

    async def one_lock(lock: LockItem) -> None:
        async with at_once:
            await raise_lock(operator, lock.name, lock.token + RAISED_BY, seen_token=lock.token)

    async with anyio.create_task_group() as tasks:
        for lease in leases.values():
            tasks.start_soon(one, lease, name=f"raise {lease.partition}")
        for lock in locks:
            tasks.start_soon(one_lock, lock, name=f"raise lock {lock.name}")
    if item is None:
        return Restored(group=operator.group, partitions=len(leases), locks=len(locks), restore_count=0)
    result = await operator.submit(NoteRestore(seen_count=item.restore_count))
    found = result.item if isinstance(result, Applied) else result.current
    if found is None or found.restore_count != item.restore_count + 1:
        raise UserError(f"the item of group {operator.group!r} was changed meanwhile; run the command again")
    return Restored(
        group=operator.group, partitions=len(leases), locks=len(locks), restore_count=found.restore_count
    )


async def raise_to(operator: Operator, lease: LeaseItem, token: int) -> None:
    """
    Raise one token.

    Raises:
        UserError: the lease has moved on meanwhile: some host lives.
        StoreError: the store is away or broken.
    """
    result = await operator.submit(Raise(partition=lease.partition, seen_token=lease.token, token=token))
    # Refused at the very token that is wanted, it is the echo of an earlier try (rule 9).
    if not isinstance(result, Applied) and (result.current is None or result.current.token != token):
        raise UserError(
            f"partition {lease.partition!r} of group {operator.group!r} was changed meanwhile, so a host is alive; "
            "stop all hosts of the group and run the command again"
        )
