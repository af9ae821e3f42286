"""
The contract of a store: all that the library asks of the place where items live. Write another store from this alone.

A store keeps, for many groups side by side, one item per session, one per lease, one per lock and one for the group
(`partitions.items`), and answers verbs (`partitions.verbs`) as `partitions.rules.apply` does. It knows no host, no
clock and no plan; it never decides whether a session is alive.

What every store promises:

- **Every write is one atomic, conditional request.** Of any number of writers that race on one item, the result is as
  if they had come one after the other, each deciding on the item as the one before left it. `Complete` writes the
  finished lease and all its children together or not at all.
- **A refused write returns the stored item**, as it was when the condition was checked or read consistently after.
- **Doubt is a value, a broken store is an exception.** `Refused` where the condition does not hold; `StoreUnavailable`
  where the write may or may not have been applied; `StoreMisconfigured` where no retry can help. A conflict with a
  transaction is neither: it is retried inside.
- **Reads are consistent** unless a method says otherwise: a read that begins after a write was answered shows it.
  `read_leases` may be made of pages that are read one after the other; a page is consistent in itself.
- **An abandoned call is bounded.** A caller may cancel any call. A write whose caller gave up may still be applied, but
  the store must not hold it back on purpose (for instance in a queue) and send it later.
- **Fields that a store does not know are kept** (`extra`).

How it covers what Azure's `ILeaseManager` asks of a lease manager: the store exists (`exists`), create it if not
(`create`), delete it (`delete`), create a lease if not there (`Create`), get one (`read_lease`), get all cheaply
(`read_leases`), acquire, also from another owner (`Acquire`, after an `Ask` or a `Fence`), keep alive (`Beat`: once for
all leases of a host), release (`Release`), update with a checkpoint (`SaveCheckpoint`), delete one (`Delete`), the
lease duration (`SessionItem.duration_s`).

A store may also be a `TransactionalStore`: users then store writes of their own together with a checkpoint. And it may
be a `LoopStore`: hosts then beat from a thread of their own, which a processor that blocks does not stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.transactions import Collector, Commit, Outcome
from partitions.verbs import Result, Verb

__all__ = [
    "READ_SOME_MAX",
    "LoopStore",
    "Store",
    "TransactionalStore",
    "Transactions",
    "check_some",
    "store_for_beats",
    "transactions_of",
]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

READ_SOME_MAX: Final = 100
"""Partitions, or locks, in one read of some: as many as DynamoDB's BatchGetItem takes."""


class Store(Protocol):
    """
    A place where the items of many groups live.

    Every method may raise `StoreUnavailable` and `StoreMisconfigured`. Time-outs are the caller's: it cancels.
    """

    @property
    def url(self) -> str:
        """How a user names this store, for messages."""
        ...

    async def open(self) -> None:
        """
        Connect. Never creates anything. Called before any other method but `exists` and `create`; where it is open
        already, nothing happens.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection and thread. Twice does nothing."""
        ...

    async def exists(self) -> bool:
        """Say whether the store is there. False only where it is certain that it is not."""
        ...

    async def create(self) -> None:
        """Create the store where it is not there; one that is there is left as it is."""
        ...

    async def delete(self) -> None:
        """Delete the store with every group in it."""
        ...

    async def submit(self, group: str, verb: Verb[T]) -> Result[T]:
        """
        Do one conditional write.

        Args:
            group: The group whose items are meant.
            verb: What is wanted and on which condition.

        Returns:
            `Applied` with the item as it has been since, or `Refused` with the one that is stored.
        """
        ...

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        """Return every lease of the group, in any order."""
        ...

    async def read_some_leases(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """Return the leases of these partitions, in any order; those that have no item are left out. At most 100."""
        ...

    async def read_lease(self, group: str, partition: str) -> LeaseItem | None:
        """Return one lease, or None where it has no item."""
        ...

    async def read_sessions(self, group: str, *, consistent: bool) -> tuple[SessionItem, ...]:
        """
        Return every session of the group, in any order.

        Args:
            group: The group.
            consistent: False allows an answer that is some moments old. Good enough to observe beats, never to find
                out that an owner is gone.
        """
        ...

    async def read_session(self, group: str, session_id: str) -> SessionItem | None:
        """Return one session, or None where it has no item."""
        ...

    async def read_lock(self, group: str, name: str) -> LockItem | None:
        """Return one lock, or None where it has no item. One that cannot be read is shown as `unreadable` says."""
        ...

    async def read_some_locks(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """Return the locks of these names, in any order; those that have no item are left out. At most 100."""
        ...

    async def read_locks(self, group: str) -> tuple[LockItem, ...]:
        """Return every lock of the group, in any order."""
        ...

    async def read_group(self, group: str) -> GroupItem | None:
        """Return the group's own item, or None where nobody has set the group up."""
        ...


class Transactions(Protocol):
    """What a store offers for user transactions (`partitions.transactions`), beside being a `Store`."""

    def begin(self) -> Collector:
        """Return a new collector of operations, for one transaction. Sends nothing."""
        ...

    async def commit(self, group: str, commit: Commit) -> Outcome:
        """
        Store a checkpoint and the user's operations together, or nothing at all.

        Applies only as `partitions.transactions.decide` says. Tries once: who calls knows how much time is left. That
        the lease refuses it goes before everything else that is wrong, since then the rest may be the echo of an
        earlier success.

        Returns:
            See `Outcome`. The item of `Applied` may be None: not every store answers a transaction with what it wrote.

        Raises:
            StoreUnavailable: it may or may not have been applied, or may be applied later.
            StoreMisconfigured: no retry helps, and nothing was applied.
        """
        ...

    def condition_check(
        self, group: str, *, partition: str, owner: str, token: int, resource: bool
    ) -> Mapping[str, Any]:
        """
        Return what a user puts into a transaction of their own to fence it by a lease; see `Lease.condition_check`.

        Raises:
            TransactionsUnsupported: users send nothing to this store themselves.
        """
        ...

    def lock_check(self, group: str, *, name: str, owner: str, token: int, resource: bool) -> Mapping[str, Any]:
        """
        Return the same for a lock.

        Raises:
            TransactionsUnsupported: as `condition_check`.
        """
        ...


class TransactionalStore(Store, Protocol):
    """A store with user transactions."""

    @property
    def transactions(self) -> Transactions | None:
        """What it offers for them; None where it wraps a store that offers nothing."""
        ...


def transactions_of(store: Store) -> Transactions | None:
    """Return what a store offers for user transactions; None where it is no `TransactionalStore`."""
    found: Transactions | None = getattr(store, "transactions", None)
    return found


class LoopStore(Store, Protocol):
    """A store that can serve beats on another event loop."""

    def for_beats(self) -> Store | None:
        """
        Return a store of the same items for the beats, leaves and registers of another event loop.

        Returns:
            This very store, where it serves several loops; a new one, which is not open, with connections of its own;
            None where what it was given serves one loop only.
        """
        ...


def store_for_beats(store: Store) -> Store | None:
    """Return the store for beats on another event loop; None where there is none. See `LoopStore.for_beats`."""
    made: Callable[[], Store | None] | None = getattr(store, "for_beats", None)
    return None if made is None else made()


def check_some(ids: Sequence[str], *, what: str = "partitions") -> None:
    """
    Check that one read may ask for these, in every store, so that who asks for more fails in any test.

    Raises:
        ValueError: they are more than `READ_SOME_MAX`.
    """
    if len(ids) > READ_SOME_MAX:
        raise ValueError(f"{len(ids)} {what} in one read, expected at most {READ_SOME_MAX}; split them")
