"""
A store in one DynamoDB table, for hosts anywhere in one region.

Every verb is one conditional request (`partitions.codecs`), so the table decides between writers; only `Complete` with
children is a transaction. A refusal carries the stored item; where the server sends none, a consistent read follows.

- **Three clients**, each with connections of its own: beats, other writes, reads. A host's own beat waits for nothing.
- **No hidden retries.** What was certainly not applied is sent again inside the call (`_calls`); what is in doubt is
  the caller's to decide.
- **One region.** A global table decides a condition in the region that got it, and tells the others later: two hosts
  could both win. Such a table is refused unless told otherwise, for the case that all hosts are in one region.

One store belongs to one event loop, as the clients do. Beats on another loop have a second store (`for_beats`), which
makes the client for beats alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, TypeVar

import aioboto3  # type: ignore[import-untyped]  # It has no types.

from partitions.aws.clients import AwsClients
from partitions.aws.faults import item_of
from partitions.aws.places import AwsPlace, query_of
from partitions.codecs.encoding import codec_of, writes_of
from partitions.codecs.items import GROUP, LEASE, LOCK, SESSION, Attributes, Codec
from partitions.codecs.keys import (
    Key,
    group_key,
    lease_key,
    leases_pks,
    lock_key,
    locks_pk,
    session_key,
    sessions_pk,
)
from partitions.codecs.writes import Operation, Write
from partitions.errors import StoreMisconfigured
from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.stores.base import check_some
from partitions.stores.dynamodb._calls import BEATS, WRITES, Calls, ConditionFailed
from partitions.stores.dynamodb._making import check_table, create_table, delete_table, describe_table
from partitions.stores.dynamodb._reads import get, get_some, query_all
from partitions.stores.dynamodb.tables import create_request
from partitions.stores.dynamodb.transactions import DynamoDBTransactions
from partitions.unreadable import lease_in_place, lock_in_place, session_in_place
from partitions.verbs import Applied, Beat, Leave, Refused, Register, Result, Verb

__all__ = ["DynamoDBStore"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

CALL_TIMEOUT_S: Final = 1.6
"""A sixth of the default lease duration: the longest that a beat may take."""

OF_THE_HOST_ITSELF: Final = {Register, Beat, Leave}
"""The verbs that a host's own life hangs on; those about other sessions go with the writes."""

METHODS: Final = {Operation.PUT: "put_item", Operation.UPDATE: "update_item", Operation.DELETE: "delete_item"}


class DynamoDBStore:
    """See `partitions.stores.base.Store`."""

    def __init__(
        self,
        table: str,
        *,
        place: AwsPlace = AwsPlace(),  # noqa: B008  # It is frozen.
        call_timeout_s: float = CALL_TIMEOUT_S,
        session: aioboto3.Session | Callable[[], aioboto3.Session] | None = None,
        clients: Mapping[str, Any] | None = None,
        allow_replicas: bool = False,
        is_protected: bool = True,
        random: Random | None = None,
    ) -> None:
        """
        Name the table; nothing is connected.

        Args:
            table: The table's name.
            place: Region and address; what it leaves open, the SDK finds in the environment.
            call_timeout_s: When callers give up a call, seconds; the time-out of each connection.
            session: The session to make clients from, whose credentials may refresh; None makes one. Stores of one
                event loop may share it, those of two may not: a refresh belongs to a loop. A callable makes one for
                each loop, so that a host can beat from a thread of its own; with a session, or `clients`, it cannot.
            clients: Clients to use instead, by the names "beats", "writes" and "reads"; they are not closed here.
            allow_replicas: Take a table with replicas in other regions; then all hosts of a group must use this one.
            is_protected: Whether a table that `create` makes is protected from `delete`.
            random: Spreads the waits; None makes one.
        """
        self._table = table
        self._place = place
        self._call_timeout_s = call_timeout_s
        self._session = session
        self._given = clients
        self._allow_replicas = allow_replicas
        self._is_protected = is_protected
        self._random = random or Random()
        self._calls: Calls | None = None
        self._transactions = DynamoDBTransactions(table, self._opened, place)
        self._is_for_beats = False

    @property
    def transactions(self) -> DynamoDBTransactions:
        """See `TransactionalStore.transactions`."""
        return self._transactions

    @property
    def url(self) -> str:
        """See `Store.url`."""
        query = query_of(self._place)
        return f"dynamodb://{self._table}" + (f"?{query}" if query else "")

    def for_beats(self) -> DynamoDBStore | None:
        """See `LoopStore.for_beats`: a store with the client for beats alone."""
        if self._given is not None or (self._session is not None and not callable(self._session)):
            return None
        store = DynamoDBStore(
            self._table, place=self._place, call_timeout_s=self._call_timeout_s, session=self._session
        )
        store._is_for_beats = True
        return store

    async def open(self) -> None:
        """See `Store.open`. Needs DescribeTable, and never CreateTable."""
        if self._calls is not None:
            return
        calls = self._new_calls()
        try:
            if self._is_for_beats:
                # The table has been checked by the store that this one was made by.
                await calls.open((BEATS,))
                self._calls = calls
                return
            await calls.open()
            await check_table(calls, allow_replicas=self._allow_replicas)
        except BaseException:  # Also where the caller was cancelled: the clients must not stay open.
            await calls.close()
            raise
        self._calls = calls

    async def close(self) -> None:
        """See `Store.close`."""
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.close()

    async def exists(self) -> bool:
        """See `Store.exists`."""
        async with self._briefly() as calls:
            return await describe_table(calls) is not None

    async def create(self) -> None:
        """See `Store.create`. Any number of hosts may do so at once. Needs CreateTable only where there is none."""
        async with self._briefly() as calls:
            await create_table(calls, create_request(self._table, is_protected=self._is_protected))

    async def delete(self) -> None:
        """See `Store.delete`. Closes this store first; a protected table raises `StoreMisconfigured`."""
        await self.close()
        async with self._briefly() as calls:
            await delete_table(calls)

    async def submit(self, group: str, verb: Verb[T]) -> Result[T]:
        """
        See `Store.submit`.

        Raises:
            ValueError: a number that DynamoDB cannot hold, such as infinity.
        """
        calls = self._opened()
        codec = codec_of(verb)
        writes = writes_of(group, verb)
        use = BEATS if type(verb) in OF_THE_HOST_ITSELF else WRITES
        try:
            item = await self._write(calls, use, writes)
        except ConditionFailed as refused:
            current = item_of(refused.error) or await get(calls, writes[0].key, use=use)
            return Refused(current=None if current is None else _item_or_stand_in(codec, current))
        return Applied(item=None if item is None else codec.to_item(item))

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        """See `Store.read_leases`. Eight keys at once, each page after page."""
        found = await query_all(self._opened(), leases_pks(group), consistent=True)
        return tuple(_item_or_stand_in(LEASE, each) for each in found)

    async def read_some_leases(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """
        See `Store.read_some_leases`.

        Raises:
            ValueError: more than 100 partitions.
        """
        check_some(partitions)
        found = await get_some(self._opened(), [lease_key(group, partition) for partition in partitions])
        return tuple(_item_or_stand_in(LEASE, each) for each in found)

    async def read_lease(self, group: str, partition: str) -> LeaseItem | None:
        """See `Store.read_lease`."""
        found = await get(self._opened(), lease_key(group, partition))
        return None if found is None else LEASE.to_item(found)

    async def read_sessions(self, group: str, *, consistent: bool) -> tuple[SessionItem, ...]:
        """See `Store.read_sessions`. An inconsistent read costs half."""
        found = await query_all(self._opened(), (sessions_pk(group),), consistent=consistent)
        return tuple(_item_or_stand_in(SESSION, each) for each in found)

    async def read_session(self, group: str, session_id: str) -> SessionItem | None:
        """See `Store.read_session`."""
        found = await get(self._opened(), session_key(group, session_id))
        return None if found is None else SESSION.to_item(found)

    async def read_lock(self, group: str, name: str) -> LockItem | None:
        """See `Store.read_lock`."""
        found = await get(self._opened(), lock_key(group, name))
        return None if found is None else _item_or_stand_in(LOCK, found)

    async def read_some_locks(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """
        See `Store.read_some_locks`.

        Raises:
            ValueError: more than 100 names.
        """
        check_some(names, what="locks")
        found = await get_some(self._opened(), [lock_key(group, name) for name in names])
        return tuple(_item_or_stand_in(LOCK, each) for each in found)

    async def read_locks(self, group: str) -> tuple[LockItem, ...]:
        """See `Store.read_locks`."""
        found = await query_all(self._opened(), (locks_pk(group),), consistent=True)
        return tuple(_item_or_stand_in(LOCK, each) for each in found)

    async def read_group(self, group: str) -> GroupItem | None:
        """See `Store.read_group`."""
        found = await get(self._opened(), group_key(group))
        return None if found is None else GROUP.to_item(found)

    async def _write(self, calls: Calls, use: str, writes: Sequence[Write]) -> Attributes | None:
        """Do the writes; return the item of the first one as it has been since, None where it was deleted."""
        own = writes[0]
        if len(writes) > 1:
            actions = [write.transact_item(self._table) for write in writes]
            await calls.send(use, "transact_write_items", {"TransactItems": actions})
            # A transaction answers with no item.
            return await get(calls, own.key, use=use)
        needs = "Attributes" if own.operation is Operation.UPDATE else None
        answer = await calls.send(use, METHODS[own.operation], own.request(self._table), needs=needs)
        if own.operation is Operation.UPDATE:
            updated: Attributes = answer["Attributes"]
            return updated
        return own.item

    def _new_calls(self) -> Calls:
        session = self._session() if callable(self._session) else self._session
        clients = AwsClients(self._place, session=session, given=self._given)
        return Calls(clients, self._table, timeout_s=self._call_timeout_s, random=self._random)

    @asynccontextmanager
    async def _briefly(self) -> AsyncIterator[Calls]:
        """Clients for one of the rare calls that need no open store."""
        calls = self._new_calls()
        try:
            yield calls
        finally:
            await calls.close()

    def _opened(self) -> Calls:
        if self._calls is None:
            raise StoreMisconfigured(f"table {self._table!r} is not open; call open() first")
        return self._calls


def _item_or_stand_in(codec: Codec[Any], attributes: Attributes) -> Any:
    """Return the item, or what stands for one that something else has spoilt: the others of a read go on."""
    try:
        return codec.to_item(attributes)
    except StoreMisconfigured as error:
        key = Key.of(attributes).sk
        if codec is LEASE:
            return lease_in_place(key, str(error))
        if codec is SESSION:
            return session_in_place(key, str(error))
        if codec is LOCK:
            return lock_in_place(key, str(error))
        raise
