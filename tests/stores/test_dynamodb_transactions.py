"""
User transactions on DynamoDB's servers: what only this store has, and that nothing is applied twice or lost.

The network's faults come through the proxy, in real time with short time-outs. moto has no memory of a request's token,
so that the conditions alone stand between a repeated request and its effect; ministack has one, as DynamoDB.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from boto3.dynamodb.conditions import Attr  # type: ignore[import-untyped]  # It has no types.
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # It has no types.

from partitions.aws.places import AwsPlace
from partitions.beats import Pace
from partitions.clocks import BootClock
from partitions.codecs.keys import lease_key
from partitions.errors import LeaseLost, StoreMisconfigured
from partitions.items import LeaseItem
from partitions.leases import Lease
from partitions.locks import Session as LockSession
from partitions.sessions import Session
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.dynamodb.operations import BYTES_MAX
from partitions.transactions import Commit, ConditionFailed, Failed, TransactionInvalid
from partitions.verbs import Acquire, Create, Release, SaveCheckpoint
from tests.proxy import Effect, Fault, Proxy
from tests.stores.numbers import client_at, numbers_table, session, table_name

__all__: list[str] = []

GROUP = "g"
PACE = Pace(duration_s=60.0, handoff_s=120.0, beat_interval_s=20.0, call_timeout_s=1.0)

SERVERS = [
    pytest.param("moto_url", id="moto"),
    pytest.param("ministack_url", id="ministack", marks=pytest.mark.servers),
]


def store_at(url: str, table: str, *, call_timeout_s: float = 20.0) -> DynamoDBStore:
    place = AwsPlace(region="us-east-1", endpoint_url=url)
    return DynamoDBStore(table, place=place, session=session(), call_timeout_s=call_timeout_s, is_protected=False)


@dataclass
class User:
    """A user with a table of numbers and the leases of a group, on one server."""

    store: DynamoDBStore
    client: Any
    lease_table: str
    numbers: str
    total: Callable[[], Awaitable[int]]
    url: str

    async def hold(self, store: DynamoDBStore | None = None) -> Lease:
        """Acquire "p0" for a new session, whoever owns it."""
        store = store or self.store
        living = Session(
            store=store,
            group=GROUP,
            host_id="a",
            session_id=f"a:{uuid4()}",
            clock=BootClock(),
            random=Random(1),
            pace=PACE,
            on_event=None,
        )
        assert await living.register()
        item = await self.item()
        lease = await living.acquire(item, reason="free")
        assert lease is not None
        return lease

    async def item(self) -> LeaseItem:
        item = await self.store.read_lease(GROUP, "p0")
        assert item is not None
        return item

    async def taken(self) -> None:
        """Another host takes the lease."""
        seen = await self.item()
        await self.store.submit(
            GROUP,
            Acquire(partition="p0", seen_owner=seen.owner, seen_token=seen.token, session_id="b:1", host_id="b"),
        )

    async def number(self, name: str) -> dict[str, Any] | None:
        answer = await self.client.get_item(TableName=self.numbers, Key={"id": {"S": name}}, ConsistentRead=True)
        found: dict[str, Any] | None = answer.get("Item")
        return found

    async def add(self, lease: Lease, position: str, name: str = "n") -> None:
        tx: Any = lease.begin_transaction()
        tx.update(self.numbers, {"id": name}, "ADD n :one", values={":one": 1})
        await lease.commit(position, tx.taken())


@pytest.fixture(params=SERVERS)
async def user(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[User]:
    """A user on each server that has transactions."""
    url: str = request.getfixturevalue(request.param)
    lease_table = table_name(tmp_path, "leases")
    store = store_at(url, lease_table)
    await store.create()
    await store.open()
    await store.submit(GROUP, Create(partition="p0", position="@earliest"))
    try:
        async with client_at(url) as client, numbers_table(url, table_name(tmp_path, "numbers")) as (numbers, total):
            yield User(store=store, client=client, lease_table=lease_table, numbers=numbers, total=total, url=url)
    finally:
        await store.close()


# --- What a user calls ----------------------------------------------------------------------------------------------


async def test_puts_updates_deletes_and_checks_take_python_values_and_conditions(user: User) -> None:
    """As for the resources of boto3, names and values of the user's own beside a built condition."""
    lease = await user.hold()
    tx: Any = lease.begin_transaction()
    tx.put(user.numbers, {"id": "put", "n": 3, "tags": {"a", "b"}}, condition=Attr("id").not_exists())
    tx.put(user.numbers, {"id": "gone", "n": Decimal("1.5")})
    tx.update(
        user.numbers,
        {"id": "update"},
        "SET #n = :n",
        names={"#n": "n"},
        values={":n": 4},
        condition=Attr("n").not_exists(),
    )
    tx.check(user.numbers, {"id": "checked"}, "attribute_not_exists(#id)", names={"#id": "id"})
    await lease.commit("10", tx.taken())

    tx = lease.begin_transaction()
    tx.delete(user.numbers, {"id": "gone"}, condition="n = :n", values={":n": Decimal("1.5")})
    tx.check(user.numbers, {"id": "put"}, Attr("n").eq(3) & Attr("tags").contains("a"))
    await lease.commit("20", tx.taken())

    put = await user.number("put")
    assert put is not None
    assert (put["n"], sorted(put["tags"]["SS"])) == ({"N": "3"}, ["a", "b"])
    assert await user.number("update") == {"id": {"S": "update"}, "n": {"N": "4"}}
    assert await user.number("gone") is None
    assert ((await user.item()).position, (await user.item()).seq) == ("20", 2)


async def test_failed_condition_names_the_operations_and_what_they_found(user: User) -> None:
    """By position: the lease is the first action of the transaction, and no operation of the user's."""
    lease = await user.hold()
    tx: Any = lease.begin_transaction()
    tx.put(user.numbers, {"id": "one", "n": 1})
    await lease.commit("10", tx.taken())
    tx = lease.begin_transaction()
    tx.update(user.numbers, {"id": "other"}, "ADD n :one", values={":one": 1})
    tx.put(user.numbers, {"id": "one", "n": 9}, condition="attribute_not_exists(id)")
    tx.check(user.numbers, {"id": "none"}, "attribute_exists(id)")
    operations = tx.taken()

    with pytest.raises(ConditionFailed) as raised:
        await lease.commit("20", operations)

    assert [(failure.index, failure.operation, failure.item) for failure in raised.value.failures] == [
        (1, operations[1], {"id": "one", "n": Decimal(1)}),
        (2, operations[2], None),
    ]
    assert str(raised.value).endswith(
        f"operation 1 (Put on table '{user.numbers}') found an item with id, n; "
        f"operation 2 (ConditionCheck on table '{user.numbers}') found no item"
    )
    assert (await user.total(), (await user.item()).position, lease.is_held()) == (1, "10", True)


async def test_transaction_of_a_lost_lease_is_no_failure_of_the_users(user: User) -> None:
    """Both conditions fail: the lease's goes first."""
    lease = await user.hold()
    await user.taken()
    tx: Any = lease.begin_transaction()
    tx.check(user.numbers, {"id": "none"}, "attribute_exists(id)")
    tx.put(user.numbers, {"id": "one", "n": 1})

    with pytest.raises(LeaseLost, match="token 1 replaced by 2"):
        await lease.commit("10", tx.taken())

    assert (await user.total(), (await user.item()).position) == (0, "@earliest")


async def test_what_the_service_finds_wrong_is_the_users_error_and_not_tried_again(user: User) -> None:
    """Two puts on one item of a table whose keys nobody has shown here; nothing is in doubt after it."""
    lease = await user.hold()
    tx: Any = lease.begin_transaction()
    tx.put(user.numbers, {"id": "one", "n": 1})
    tx.put(user.numbers, {"id": "one", "n": 2})
    with pytest.raises(TransactionInvalid, match="the transaction is not valid, and nothing was written: "):
        await lease.commit("10", tx.taken())

    assert (await user.total(), (await user.item()).position) == (0, "@earliest")
    await user.add(lease, "10")
    assert ((await user.item()).position, await user.total()) == ("10", 1)


async def test_missing_table_of_the_users_is_named(user: User) -> None:
    """The message of the service names none, and the lease table is there."""
    lease = await user.hold()
    tx: Any = lease.begin_transaction()
    tx.put("no-such-table", {"id": "one"})

    with pytest.raises(StoreMisconfigured, match="this may be about the transaction's own tables: 'no-such-table'"):
        await lease.commit("10", tx.taken())

    assert lease.is_held()


# --- What is refused before anything is sent ------------------------------------------------------------------------


@pytest.fixture
def collecting() -> Any:
    """A collector of a store that is not even open."""
    return store_at("http://127.0.0.1:9", "leases").transactions.begin()


@pytest.mark.parametrize("first", ["put", "update", "delete", "check"])
@pytest.mark.parametrize("second", ["put", "update", "delete", "check"])
async def test_two_operations_on_one_item_are_refused(collecting: Any, first: str, second: str) -> None:
    """The service refuses them too, with a code and no index."""
    # It shows which attributes are the key.
    collecting.check("t", {"pk": "x", "sk": 0}, "attribute_exists(pk)")

    def call(kind: str, sk: int, n: int) -> None:
        key = {"pk": "x", "sk": sk}
        if kind == "put":
            collecting.put("t", {**key, "n": n})
        elif kind == "update":
            collecting.update("t", key, "SET n = :n", values={":n": n})
        elif kind == "delete":
            collecting.delete("t", key)
        else:
            collecting.check("t", key, "attribute_exists(pk)")

    call(first, 1, 1)
    call(first, 2, 1)
    collecting.put("another", {"pk": "x", "sk": 1})

    with pytest.raises(TransactionInvalid, match=r"on table 't' is on the item of operation 1 \(.* on table 't'\)"):
        call(second, 1, 2)
    assert len(collecting.taken()) == 4


async def test_two_equal_puts_are_refused_although_nobody_has_shown_the_key(collecting: Any) -> None:
    """Whatever the key is, it is the same."""
    collecting.put("t", {"id": "x", "n": 1})
    collecting.put("t", {"id": "x", "n": 2})

    with pytest.raises(TransactionInvalid, match="is on the item of operation 0"):
        collecting.put("t", {"n": 1, "id": "x"})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"n": 1.5}, "'n' cannot be written to DynamoDB: Float types are not supported"),
        ({"n": object()}, "'n' cannot be written to DynamoDB: Unsupported type"),
        ({"text": "x" * BYTES_MAX}, "bytes in one transaction, expected at most 4,194,304; use several"),
        ({"nested": [{"deep": b"x" * BYTES_MAX}]}, "bytes in one transaction, expected at most 4,194,304"),
    ],
    ids=["float", "object", "text", "nested"],
)
async def test_values_that_cannot_be_written_are_refused(collecting: Any, values: dict[str, Any], text: str) -> None:
    """At the call, where the stack shows whose value it is."""
    with pytest.raises(TransactionInvalid, match=text):
        collecting.put("t", {"id": "x", **values})


async def test_bytes_are_counted_over_all_operations(collecting: Any) -> None:
    """4 MB are the limit of all items together."""
    for n in range(10):
        collecting.put("t", {"id": n, "text": "x" * 400_000})

    with pytest.raises(TransactionInvalid, match="bytes in one transaction"):
        collecting.put("t", {"id": 10, "text": "x" * 200_000})


async def test_placeholder_that_a_built_condition_takes_is_refused(collecting: Any) -> None:
    """Merged silently, one of the two meanings would be lost."""
    with pytest.raises(TransactionInvalid, match="the placeholder ':v0' is taken by the condition"):
        collecting.update("t", {"id": "x"}, "SET n = :v0", values={":v0": 1}, condition=Attr("n").eq(2))


async def test_operation_on_the_lease_itself_is_refused(user: User) -> None:
    """One action for each item, and that one is the checkpoint."""
    lease = await user.hold()
    key = lease_key(GROUP, "p0")
    tx: Any = lease.begin_transaction()
    tx.update(user.lease_table, {"pk": key.pk, "sk": key.sk}, "SET paused = :no", values={":no": False})

    with pytest.raises(TransactionInvalid, match="is on the lease itself, which the checkpoint writes; leave it out"):
        await lease.commit("10", tx.taken())


# --- The memory of the service --------------------------------------------------------------------------------------


async def test_replay_after_a_reset_is_applied_and_not_answered_from_memory(user: User) -> None:
    """
    The same records, position, number and operations within ten minutes, under a new fencing token.

    A token of content alone would be answered with success, and nothing would be written.
    """
    lease = await user.hold()
    await user.add(lease, "10")
    # As `leases reset` does: an operator's session takes the lease and releases it at the old position.
    seen = await user.item()
    operator = Acquire(
        partition="p0", seen_owner=seen.owner, seen_token=seen.token, session_id="operator:1", host_id="operator"
    )
    await user.store.submit(GROUP, operator)
    reset = Release(partition="p0", owner="operator:1", token=2, position="@earliest", seq=1)
    await user.store.submit(GROUP, reset)
    before = await user.item()

    again = await user.hold()
    await user.add(again, "10")

    assert (before.position, before.owner) == ("@earliest", None)
    assert (await user.total(), (await user.item()).position) == (2, "10")


async def test_commit_that_was_refused_is_not_remembered_as_done(user: User) -> None:
    """The user's condition fails, is mended, and the very same commit is sent once more."""
    await user.store.submit(
        GROUP, Acquire(partition="p0", seen_owner=None, seen_token=0, session_id="a:1", host_id="a")
    )
    tx = user.store.transactions.begin()
    tx.check(user.numbers, {"id": "open"}, "attribute_exists(id)")
    tx.put(user.numbers, {"id": "one", "n": 1})
    commit = Commit(
        save=SaveCheckpoint(partition="p0", owner="a:1", token=1, position="10", seq=1),
        previous="@earliest",
        operations=tx.taken(),
    )
    first = await user.store.transactions.commit(GROUP, commit)
    await user.client.put_item(TableName=user.numbers, Item={"id": {"S": "open"}, "n": {"N": "0"}})
    await user.store.transactions.commit(GROUP, commit)

    assert isinstance(first, Failed)
    assert (await user.total(), (await user.item()).position) == (1, "10")


# --- A transaction of the user's own --------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [False, True], ids=["client", "resource"])
async def test_condition_check_fences_a_transaction_of_the_users_own(user: User, resource: bool) -> None:
    """With the low-level client, or with that of a resource, which takes plain values."""
    lease = await user.hold()

    async def write(name: str, check: Any) -> None:
        key: Any = {"id": name} if resource else {"id": {"S": name}}
        put = {"Put": {"TableName": user.numbers, "Item": {**key, "n": 1 if resource else {"N": "1"}}}}
        if not resource:
            await user.client.transact_write_items(TransactItems=[check, put])
            return
        async with session().resource("dynamodb", endpoint_url=user.url) as made:
            await made.meta.client.transact_write_items(TransactItems=[check, put])

    check = lease.condition_check(resource=resource)
    await write("first", check)
    await user.taken()
    with pytest.raises(ClientError) as refused:
        await write("second", check)

    codes = [reason["Code"] for reason in refused.value.response["CancellationReasons"]]
    assert codes == ["ConditionalCheckFailed", "None"]
    assert (await user.total(), (await user.item()).position) == (1, "@earliest")


@pytest.mark.parametrize("change", [{"owner": "b:1"}, {"token": 2}], ids=str)
async def test_condition_check_needs_owner_and_token(user: User, change: dict[str, Any]) -> None:
    """Each alone: a lease that was taken back by the same session has another token, one that was released no owner."""
    lease = await user.hold()
    item = await user.item()
    held: dict[str, Any] = {"owner": item.owner, "token": lease.token}

    async def is_held(**about: Any) -> bool:
        check = user.store.transactions.condition_check(GROUP, partition="p0", resource=False, **about)
        try:
            await user.client.transact_write_items(TransactItems=[check])
        except user.client.exceptions.TransactionCanceledException:
            return False
        return True

    assert (await is_held(**held), await is_held(**(held | change))) == (True, False)


async def test_condition_check_of_a_lock_fences_a_transaction_of_the_users_own(user: User) -> None:
    """Until its successor has it; a release alone, under the same token, is enough."""
    async with LockSession(user.store, group=GROUP) as a, LockSession(user.store, group=GROUP) as b:
        lease = await a.acquire("p0")
        check = lease.condition_check()

        async def write(name: str) -> None:
            put = {"Put": {"TableName": user.numbers, "Item": {"id": {"S": name}, "n": {"N": "1"}}}}
            await user.client.transact_write_items(TransactItems=[check, put])

        await write("held")
        await lease.release()
        with pytest.raises(user.client.exceptions.TransactionCanceledException):
            await write("released")
        assert (await b.acquire("p0")).token == 2
        with pytest.raises(user.client.exceptions.TransactionCanceledException):
            await write("taken")

    assert await user.total() == 1


# --- The network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault(effect=Effect.FAIL_BEFORE, operation="TransactWriteItems", times=2),
        Fault(effect=Effect.FAIL_AFTER, operation="TransactWriteItems", times=2),
        Fault(effect=Effect.DROP_BEFORE, operation="TransactWriteItems", times=2),
        Fault(effect=Effect.DROP_AFTER, operation="TransactWriteItems", times=2),
        Fault(effect=Effect.REPEAT, operation="TransactWriteItems", times=2, delay_s=0.3),
        Fault(effect=Effect.DELAY, operation="TransactWriteItems", times=1, delay_s=1.4),
        Fault(effect=Effect.ANSWER_LATE, operation="TransactWriteItems", times=1, delay_s=1.4),
        Fault(effect=Effect.THROTTLE, operation="TransactWriteItems", times=2),
        Fault(effect=Effect.REFUSE, operation="TransactWriteItems", times=2, code="TransactionInProgressException"),
        Fault(effect=Effect.FAIL_AFTER, operation=("TransactWriteItems", "GetItem"), times=3),
    ],
    ids=lambda fault: fault.effect.value + ("" if isinstance(fault.operation, str) else " and its read"),
)
async def test_transactions_are_applied_once_whatever_the_network_does(user: User, fault: Fault) -> None:
    """C07, C08, C40 for users' writes: applied then 500, dropped, late, twice, throttled; never twice, never lost."""
    with Proxy(user.url) as proxy:
        store = store_at(proxy.url, user.lease_table, call_timeout_s=PACE.call_timeout_s)
        await store.open()
        try:
            lease = await user.hold(store)
            with proxy.rules.applied(fault):
                for position in ("10", "20", "30"):
                    await user.add(lease, position)
                hits = proxy.rules.hits(fault)
            # What is late arrives.
            proxy.wait_until(lambda: False, within_s=0.5)
            assert hits == fault.times
            assert (await user.total(), (await user.item()).position) == (3, "30")
            assert lease.is_held()
        finally:
            await store.close()
