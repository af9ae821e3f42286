"""
A store whose every call is timed: it tells one `StoreCalled` for each and changes nothing else.

Knows no store. Calls are named after their verb (`acquire`, `save_checkpoint`) or their method (`read_leases`); making
and deleting the store itself are `create_store` and `delete_store`, since verbs have the short names.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from partitions.events import OnEvent, tell
from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.stores.base import Store, Transactions, transactions_of
from partitions.transactions import Again, Collector, Commit, Failed, Outcome
from partitions.verbs import Applied, Refused, Result, Verb
from processor_host.events import StoreCalled

__all__ = ["OPERATIONS", "OUTCOMES", "ObservedStore", "operation_of"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)
R = TypeVar("R")

OPERATIONS: Final = (
    # The writes, one for each verb.
    *("create", "acquire", "save_checkpoint", "attempt", "prepare", "release", "complete"),
    *("pause", "resume", "delete", "raise"),
    *("register", "beat", "fence", "leave", "drain", "ask", "set_up", "adopt", "note_restore"),
    # A user's transaction.
    "commit",
    *("read_leases", "read_some_leases", "read_lease", "read_sessions", "read_session", "read_group"),
    *("open", "exists", "create_store", "delete_store"),
)
"""Every operation that is told of."""

_UNCONDITIONAL: Final = ("open", "create_store", "delete_store")

OUTCOMES: Final = ("applied", "refused", "read", "failed", "abandoned")
"""What may become of a call. "abandoned": its caller gave up, so that a write may or may not have been applied."""


def operation_of(verb: Verb[Any]) -> str:
    """Return the name of a verb among the operations: that of a `SaveCheckpoint` is `save_checkpoint`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(verb).__name__).lower()


class ObservedStore:
    """
    A `Store` that does what `store` does and tells of each call; see `partitions.stores.base` for the methods.

    `clock` shows seconds; only differences of it are told.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float], on_event: OnEvent) -> None:
        self.inner = store
        """The store that does the work, for what its kind alone can do."""
        self._store = store
        self._clock = clock
        self._on_event = on_event

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return self._store.url

    async def open(self) -> None:
        """See `Store.open`."""
        await self._timed("open", self._store.open())

    async def close(self) -> None:
        """See `Store.close`. Not told of: it asks nothing of the store."""
        await self._store.close()

    async def exists(self) -> bool:
        """See `Store.exists`."""
        return await self._timed("exists", self._store.exists())

    async def create(self) -> None:
        """See `Store.create`."""
        await self._timed("create_store", self._store.create())

    async def delete(self) -> None:
        """See `Store.delete`."""
        await self._timed("delete_store", self._store.delete())

    async def submit(self, group: str, verb: Verb[T]) -> Result[T]:
        """See `Store.submit`."""
        return await self._timed(operation_of(verb), self._store.submit(group, verb))

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        """See `Store.read_leases`."""
        return await self._timed("read_leases", self._store.read_leases(group))

    async def read_some_leases(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """See `Store.read_some_leases`."""
        return await self._timed("read_some_leases", self._store.read_some_leases(group, partitions))

    async def read_lease(self, group: str, partition: str) -> LeaseItem | None:
        """See `Store.read_lease`."""
        return await self._timed("read_lease", self._store.read_lease(group, partition))

    async def read_sessions(self, group: str, *, consistent: bool) -> tuple[SessionItem, ...]:
        """See `Store.read_sessions`."""
        return await self._timed("read_sessions", self._store.read_sessions(group, consistent=consistent))

    async def read_session(self, group: str, session_id: str) -> SessionItem | None:
        """See `Store.read_session`."""
        return await self._timed("read_session", self._store.read_session(group, session_id))

    async def read_lock(self, group: str, name: str) -> LockItem | None:
        """See `Store.read_lock`."""
        return await self._timed("read_lock", self._store.read_lock(group, name))

    async def read_some_locks(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """See `Store.read_some_locks`."""
        return await self._timed("read_some_locks", self._store.read_some_locks(group, names))

    async def read_locks(self, group: str) -> tuple[LockItem, ...]:
        """See `Store.read_locks`."""
        return await self._timed("read_locks", self._store.read_locks(group))

    async def read_group(self, group: str) -> GroupItem | None:
        """See `Store.read_group`."""
        return await self._timed("read_group", self._store.read_group(group))

    @property
    def transactions(self) -> Transactions | None:
        """See `TransactionalStore.transactions`."""
        transactions = transactions_of(self._store)
        return None if transactions is None else _ObservedTransactions(transactions, self._timed)

    async def _timed(self, operation: str, call: Awaitable[R]) -> R:
        """Await `call` and tell how it ended, also where it was cancelled."""
        began_s = self._clock()
        outcome = "abandoned"
        try:
            result = await call
            outcome = _outcome_of(operation, result)
            return result
        except Exception:  # Raised again: only seen.
            outcome = "failed"
            raise
        finally:
            duration_s = self._clock() - began_s
            tell(self._on_event, StoreCalled(operation=operation, outcome=outcome, duration_s=duration_s))


class _ObservedTransactions:
    """See `partitions.stores.base.Transactions`."""

    def __init__(
        self, transactions: Transactions, timed: Callable[[str, Awaitable[Outcome]], Awaitable[Outcome]]
    ) -> None:
        self._transactions = transactions
        self._timed = timed

    def begin(self) -> Collector:
        return self._transactions.begin()

    async def commit(self, group: str, commit: Commit) -> Outcome:
        return await self._timed("commit", self._transactions.commit(group, commit))

    def condition_check(
        self, group: str, *, partition: str, owner: str, token: int, resource: bool
    ) -> Mapping[str, Any]:
        return self._transactions.condition_check(
            group, partition=partition, owner=owner, token=token, resource=resource
        )

    def lock_check(self, group: str, *, name: str, owner: str, token: int, resource: bool) -> Mapping[str, Any]:
        return self._transactions.lock_check(group, name=name, owner=owner, token=token, resource=resource)


def _outcome_of(operation: str, result: object) -> str:
    if isinstance(result, Again):
        return "failed"
    if isinstance(result, Refused | Failed):
        return "refused"
    return "applied" if isinstance(result, Applied) or operation in _UNCONDITIONAL else "read"
