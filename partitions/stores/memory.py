"""
A store in this process's memory: `rules.apply` over a dict, for tests, for the virtual world and for a single process.

Knows no thread, no clock and no event loop beyond one checkpoint per call. It is there as soon as it is made, and all
hosts that share it share the object: `close` by one of them leaves it to the others.

The methods that end in `_now` are the whole store without waiting. A simulated network calls them at the moment at
which a request "arrives"; the async methods are each one of them after a scheduling point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from anyio.lowlevel import checkpoint

from partitions import rules
from partitions.errors import StoreGone, StoreMisconfigured
from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.lock_verbs import LockVerb
from partitions.stores._memory_values import MemoryTransaction, changed
from partitions.stores.base import check_some
from partitions.transactions import Commit, Failed, Outcome, TransactionsUnsupported, decide
from partitions.verbs import Applied, Complete, LeaseVerb, Result, SessionVerb, Verb

__all__ = ["MemoryStore", "MemoryTransaction"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

_OWN: Final = "group"
"""The key of the group's own item."""


class _Items:
    """The items of one group, each kind by its key."""

    __slots__ = ("group", "leases", "locks", "sessions", "values")

    def __init__(self) -> None:
        self.leases: dict[str, LeaseItem] = {}
        self.sessions: dict[str, SessionItem] = {}
        self.locks: dict[str, LockItem] = {}
        self.group: dict[str, GroupItem] = {}
        self.values: dict[str, Any] = {}


def _place_of(items: _Items, verb: Verb[Any]) -> tuple[dict[str, Any], str]:
    """Return the items among which the verb's own is kept, and its key."""
    if isinstance(verb, LeaseVerb):
        return items.leases, verb.partition
    if isinstance(verb, SessionVerb):
        return items.sessions, verb.session_id
    if isinstance(verb, LockVerb):
        return items.locks, verb.name
    return items.group, _OWN


class MemoryStore:
    """See `partitions.stores.base.Store`. Not for several threads at once."""

    __slots__ = ("_groups", "_url")

    def __init__(self, url: str = "memory:") -> None:
        self._url = url
        self._groups: dict[str, _Items] | None = {}

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return self._url

    # --- Without waiting ------------------------------------------------------------------------------------------

    def apply_now(self, group: str, verb: Verb[T]) -> Result[T]:
        """Do one conditional write; see `Store.submit`."""
        items = self._items(group)
        held, key = _place_of(items, verb)
        stored: T | None = held.get(key)
        result = rules.apply(stored, verb)
        if isinstance(result, Applied):
            if result.item is None:
                held.pop(key, None)
            else:
                held[key] = result.item
            if isinstance(verb, Complete):
                for child in verb.children:
                    if child.partition not in items.leases:
                        items.leases[child.partition] = rules.born(child)
        return result

    def commit_now(self, group: str, commit: Commit) -> Outcome:
        """Do one user transaction; see `Transactions.commit`."""
        items = self._items(group)
        result = decide(items.leases.get(commit.save.partition), commit)
        if not isinstance(result, Applied) or result.item is None:
            return result
        values = changed(items.values, commit)
        if isinstance(values, Failed):
            return values
        items.values = values
        items.leases[commit.save.partition] = result.item
        return result

    def values_now(self, group: str) -> Mapping[str, Any]:
        """Return what the transactions of a group have written."""
        return dict(self._items(group).values)

    def leases_now(self, group: str) -> tuple[LeaseItem, ...]:
        """See `Store.read_leases`."""
        return tuple(self._items(group).leases.values())

    def some_leases_now(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """
        See `Store.read_some_leases`.

        Raises:
            ValueError: more than 100 partitions.
        """
        check_some(partitions)
        leases = self._items(group).leases
        return tuple(leases[partition] for partition in dict.fromkeys(partitions) if partition in leases)

    def lease_now(self, group: str, partition: str) -> LeaseItem | None:
        """See `Store.read_lease`."""
        return self._items(group).leases.get(partition)

    def sessions_now(self, group: str) -> tuple[SessionItem, ...]:
        """See `Store.read_sessions`; always consistent."""
        return tuple(self._items(group).sessions.values())

    def session_now(self, group: str, session_id: str) -> SessionItem | None:
        """See `Store.read_session`."""
        return self._items(group).sessions.get(session_id)

    def lock_now(self, group: str, name: str) -> LockItem | None:
        """See `Store.read_lock`."""
        return self._items(group).locks.get(name)

    def some_locks_now(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """
        See `Store.read_some_locks`.

        Raises:
            ValueError: more than 100 names.
        """
        check_some(names, what="locks")
        locks = self._items(group).locks
        return tuple(locks[name] for name in dict.fromkeys(names) if name in locks)

    def locks_now(self, group: str) -> tuple[LockItem, ...]:
        """See `Store.read_locks`."""
        return tuple(self._items(group).locks.values())

    def group_now(self, group: str) -> GroupItem | None:
        """See `Store.read_group`."""
        return self._items(group).group.get(_OWN)

    def _items(self, group: str) -> _Items:
        if self._groups is None:
            raise StoreGone(f"store {self._url!r} was deleted; create it again with create()")
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = _Items()
        return found

    # --- User transactions ----------------------------------------------------------------------------------------

    @property
    def transactions(self) -> MemoryStore:
        """See `TransactionalStore.transactions`."""
        return self

    def begin(self) -> MemoryTransaction:
        """See `Transactions.begin`."""
        return MemoryTransaction(self._url)

    async def commit(self, group: str, commit: Commit) -> Outcome:
        """See `Transactions.commit`."""
        await checkpoint()
        return self.commit_now(group, commit)

    def condition_check(self, group: str, *, partition: str, owner: str, token: int, resource: bool) -> NoReturn:
        """See `Transactions.condition_check`. Nobody but this object reaches its dict."""
        raise TransactionsUnsupported(
            self._url, "condition checks, which are DynamoDB's", remedy="use `batch.transaction()`"
        )

    def lock_check(self, group: str, *, name: str, owner: str, token: int, resource: bool) -> NoReturn:
        """See `Transactions.lock_check` and `condition_check`."""
        raise TransactionsUnsupported(
            self._url, "condition checks, which are DynamoDB's", remedy="compare tokens in your own database"
        )

    # --- The contract ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """See `Store.open`."""
        await checkpoint()
        if self._groups is None:
            raise StoreMisconfigured(f"store {self._url!r} is not there; create it with create()")

    async def close(self) -> None:
        """See `Store.close`. The items stay: other hosts of this process may use them."""
        await checkpoint()

    async def exists(self) -> bool:
        """See `Store.exists`."""
        await checkpoint()
        return self._groups is not None

    async def create(self) -> None:
        """See `Store.create`. Only needed after `delete`."""
        await checkpoint()
        if self._groups is None:
            self._groups = {}

    async def delete(self) -> None:
        """See `Store.delete`."""
        await checkpoint()
        self._groups = None

    async def submit(self, group: str, verb: Verb[T]) -> Result[T]:
        """See `Store.submit`."""
        await checkpoint()
        return self.apply_now(group, verb)

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        """See `Store.read_leases`."""
        await checkpoint()
        return self.leases_now(group)

    async def read_some_leases(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """See `Store.read_some_leases` and `some_leases_now`."""
        await checkpoint()
        return self.some_leases_now(group, partitions)

    async def read_lease(self, group: str, partition: str) -> LeaseItem | None:
        """See `Store.read_lease`."""
        await checkpoint()
        return self.lease_now(group, partition)

    async def read_sessions(self, group: str, *, consistent: bool) -> tuple[SessionItem, ...]:
        """See `Store.read_sessions`."""
        await checkpoint()
        return self.sessions_now(group)

    async def read_session(self, group: str, session_id: str) -> SessionItem | None:
        """See `Store.read_session`."""
        await checkpoint()
        return self.session_now(group, session_id)

    async def read_lock(self, group: str, name: str) -> LockItem | None:
        """See `Store.read_lock`."""
        await checkpoint()
        return self.lock_now(group, name)

    async def read_some_locks(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """See `Store.read_some_locks`."""
        await checkpoint()
        return self.some_locks_now(group, names)

    async def read_locks(self, group: str) -> tuple[LockItem, ...]:
        """See `Store.read_locks`."""
        await checkpoint()
        return self.locks_now(group)

    async def read_group(self, group: str) -> GroupItem | None:
        """See `Store.read_group`."""
        await checkpoint()
        return self.group_now(group)
