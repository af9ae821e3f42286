"""
Named leases: "only one of us does this", in the same store and under the same sessions as the leases on partitions.

Guaranteed: at most one holder of a lock that has not ended, as long as the rates of the hosts' clocks differ by less
than `CLOCK_DRIFT`. Not guaranteed: that a holder which was frozen notices in time that it has ended. What it still
writes must be fenced by the token (`LockLease.token`), which each acquire raises, or by `LockLease.condition_check`.
The token stays in the item after a release; an item that somebody deletes starts at 1 again, and fences nothing older.
"""

from partitions.current import current_lease
from partitions.errors import LockLost
from partitions.locks.contending import Locks
from partitions.locks.events import (
    LockAcquired,
    LockEnd,
    LockEnded,
    LockReleased,
    LockReleaseFailed,
    LocksUnread,
)
from partitions.locks.leaders import Holder, Leader, run_as_leader
from partitions.locks.leases import LockLease
from partitions.locks.sessions import Session

__all__ = [
    "Holder",
    "Leader",
    "LockAcquired",
    "LockEnd",
    "LockEnded",
    "LockLease",
    "LockLost",
    "LockReleaseFailed",
    "LockReleased",
    "Locks",
    "LocksUnread",
    "Session",
    "current_lease",
    "run_as_leader",
]
