"""
User transactions, the same on every store: the lease's conditions, and nothing by halves.

Each adds to a number, which a second application would show. DynamoDB takes one operation for each item, so each amount
has an item of its own there, and the number is their sum.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from partitions.items import LeaseItem, Prepared
from partitions.stores.base import TransactionalStore, Transactions, transactions_of
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.memory import MemoryStore
from partitions.stores.sqlite import SqliteStore
from partitions.transactions import Commit, Failed, TransactionInvalid, TransactionsUnsupported
from partitions.verbs import Acquire, Applied, Attempt, Create, Prepare, Refused, SaveCheckpoint
from tests.builders import a_lease
from tests.stores.kinds import dynamodb_at
from tests.stores.numbers import numbers_table, table_name

__all__: list[str] = []

GROUP = "g"
OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")
SAVE = SaveCheckpoint(partition="p0", owner="a:1", token=1, position="10", seq=1)

OWN: dict[type, tuple[str, ...]] = {
    MemoryStore: ("put", "add", "check"),
    SqliteStore: ("execute",),
    DynamoDBStore: ("put", "put_typed", "update", "delete", "check"),
}
"""The calls of each store's transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A store, how a transaction adds to a number of it, makes it fail, and what the number is."""

    store: TransactionalStore
    add: Callable[[Any, int], None]
    fail: Callable[[Any], None]
    number: Callable[[], Awaitable[int]]
    answers_with_item: bool = True
    """Whether a commit that is applied answers with the lease as it is then."""
    remembers: bool = False
    """Whether the server answers a request that it has applied before with success."""

    @property
    def transactions(self) -> Transactions:
        found = transactions_of(self.store)
        assert found is not None
        return found

    def commit(self, *amounts: int, previous: str = "@earliest", fails: bool = False, **changes: Any) -> Commit:
        tx: Any = self.transactions.begin()
        for amount in amounts:
            self.add(tx, amount)
        if fails:
            self.fail(tx)
        return Commit(save=replace(SAVE, **changes), previous=previous, operations=tx.taken())

    async def lease(self) -> LeaseItem | None:
        return await self.store.read_lease(GROUP, "p0")


@asynccontextmanager
async def memory(_: Path, __: pytest.FixtureRequest) -> AsyncIterator[Kind]:
    store = MemoryStore()

    async def number() -> int:
        return int(store.values_now(GROUP).get("n", 0))

    yield Kind(
        store=store,
        add=lambda tx, amount: tx.add("n", amount),
        fail=lambda tx: tx.check("n", "another"),
        number=number,
    )


@asynccontextmanager
async def sqlite(folder: Path, _: pytest.FixtureRequest) -> AsyncIterator[Kind]:
    path = folder / "leases.db"
    store = SqliteStore(path)
    await store.create()
    with sqlite3.connect(path) as beside:
        beside.execute("CREATE TABLE numbers (name TEXT PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0))")
        beside.execute("INSERT INTO numbers VALUES ('n', 0)")
    beside.close()
    await store.open()

    async def number() -> int:
        beside = sqlite3.connect(path)
        try:
            found: int = beside.execute("SELECT n FROM numbers").fetchone()[0]
            return found
        finally:
            beside.close()

    try:
        yield Kind(
            store=store,
            add=lambda tx, amount: tx.execute("UPDATE numbers SET n = n + ?", (amount,)),
            fail=lambda tx: tx.execute("UPDATE numbers SET n = -1"),
            number=number,
        )
    finally:
        await store.close()


def dynamodb(server: str, *, remembers: bool) -> Callable[[Path, pytest.FixtureRequest], Any]:
    @asynccontextmanager
    async def at_server(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Kind]:
        url: str = request.getfixturevalue(server)
        store = dynamodb_at(url, table_name(folder, "leases"))
        await store.create()
        await store.open()
        try:
            async with numbers_table(url, table_name(folder, "numbers")) as (table, total):
                yield Kind(
                    store=store,
                    add=lambda tx, amount: tx.update(table, {"id": str(amount)}, "ADD n :by", values={":by": amount}),
                    fail=lambda tx: tx.check(table, {"id": "absent"}, "attribute_exists(id)"),
                    number=total,
                    answers_with_item=False,
                    remembers=remembers,
                )
        finally:
            await store.close()

    return at_server


@pytest.fixture(
    params=[
        pytest.param(memory, id="memory"),
        pytest.param(sqlite, id="sqlite"),
        pytest.param(dynamodb("moto_url", remembers=False), id="moto"),
        pytest.param(dynamodb("ministack_url", remembers=True), id="ministack", marks=pytest.mark.servers),
    ]
)
async def kind(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kind]:
    """A store with one lease that the session "a:1" holds."""
    async with request.param(tmp_path, request) as kind:
        await kind.store.submit(GROUP, Create(partition="p0", position="@earliest"))
        acquire = Acquire(partition="p0", seen_owner=None, seen_token=0, session_id="a:1", host_id="a")
        assert await kind.store.submit(GROUP, acquire) == Applied(item=OWNED)
        yield kind


async def test_commit_stores_the_checkpoint_and_all_operations(kind: Kind) -> None:
    """Nothing of it can be seen without the rest."""
    outcome = await kind.transactions.commit(GROUP, kind.commit(1, 20, 300))

    saved = replace(OWNED, position="10", seq=1)
    applied: Applied[LeaseItem] = Applied(item=saved if kind.answers_with_item else None)
    assert (outcome, await kind.lease(), await kind.number()) == (applied, saved, 321)


async def test_commit_without_operations_is_a_checkpoint_on_condition_of_the_position(kind: Kind) -> None:
    """With it a term settles what was in doubt."""
    saved = replace(OWNED, position="10", seq=1)

    assert isinstance(await kind.transactions.commit(GROUP, kind.commit()), Applied)
    assert await kind.lease() == saved
    assert await kind.transactions.commit(GROUP, kind.commit(seq=2)) == Refused(current=saved)


@pytest.mark.parametrize(
    "changes", [{"owner": "b:1"}, {"token": 2}, {"token": 0}, {"seq": 0}, {"previous": "5"}], ids=str
)
async def test_commit_is_refused_with_the_item_where_the_lease_is_not_as_it_says(
    kind: Kind, changes: dict[str, Any]
) -> None:
    """Owner, token, number and the position before: each alone keeps the user's writes out."""
    outcome = await kind.transactions.commit(GROUP, kind.commit(1, **changes))

    assert (outcome, await kind.lease(), await kind.number()) == (Refused(current=OWNED), OWNED, 0)


async def test_commit_of_a_lease_that_is_not_there_is_refused(kind: Kind) -> None:
    """It was deleted; no transaction makes it again."""
    outcome = await kind.transactions.commit(GROUP, kind.commit(1, partition="p9"))

    assert (outcome, await kind.number()) == (Refused(current=None), 0)
    assert await kind.store.read_lease(GROUP, "p9") is None


async def test_commit_that_is_repeated_is_applied_once(kind: Kind) -> None:
    """A duplicate of the network, or a try after a lost answer: the refusal shows one's own success."""
    commit = kind.commit(1)
    await kind.transactions.commit(GROUP, commit)

    again = await kind.transactions.commit(GROUP, commit)

    refused = Refused(current=replace(OWNED, position="10", seq=1))
    assert (again, await kind.number()) == (Applied(item=None) if kind.remembers else refused, 1)


async def test_operation_that_fails_undoes_everything(kind: Kind) -> None:
    """The ones before it and the checkpoint too; what comes later is not touched by it."""
    outcome = await kind.transactions.commit(GROUP, kind.commit(1, fails=True))

    assert isinstance(outcome, Failed)
    assert (await kind.lease(), await kind.number()) == (OWNED, 0)
    await kind.transactions.commit(GROUP, kind.commit(2, seq=2))
    assert await kind.number() == 2


async def test_lease_that_refuses_goes_before_an_operation_that_fails(kind: Kind) -> None:
    """After a lost answer one's own writes are there, and conditions on them fail: that is no failure of the user's."""
    outcome = await kind.transactions.commit(GROUP, kind.commit(1, fails=True, previous="5"))

    assert outcome == Refused(current=OWNED)


async def test_transactions_of_a_group_do_not_touch_the_lease_of_another(kind: Kind) -> None:
    """Many groups share one store, with partitions of the same names."""
    await kind.store.submit("h", Create(partition="p0", position="@earliest"))

    assert await kind.transactions.commit("h", kind.commit(1)) == Refused(current=a_lease("p0"))
    assert (await kind.lease(), await kind.number()) == (OWNED, 0)


async def test_collector_takes_99_operations_and_none_after_the_block(kind: Kind) -> None:
    """The bound of DynamoDB on every store, or a handler that was tried here fails there."""
    tx: Any = kind.transactions.begin()
    for amount in range(1, 100):
        kind.add(tx, amount)

    with pytest.raises(TransactionInvalid, match="100 operations in one transaction, expected at most 99"):
        kind.add(tx, 100)
    operations = tx.taken()
    with pytest.raises(TransactionInvalid, match="the transaction has ended"):
        kind.add(tx, 100)
    await kind.transactions.commit(GROUP, Commit(save=SAVE, previous="@earliest", operations=operations))
    assert await kind.number() == 99 * 100 // 2


@pytest.mark.parametrize("call", ["put", "put_typed", "update", "delete", "check", "add", "execute"])
async def test_call_of_another_stores_transaction_names_the_store_in_use(call: str, tmp_path: Path) -> None:
    """Code that was written for another store is found at its first batch, by what is wrong and not by a name."""
    stores: list[TransactionalStore] = [MemoryStore(), SqliteStore(tmp_path / "leases.db"), DynamoDBStore("leases")]
    for store in stores:
        transactions = transactions_of(store)
        assert transactions is not None
        collector: Any = transactions.begin()
        if call in OWN[type(store)]:
            assert callable(getattr(collector, call))
            continue
        assert not hasattr(collector, call)
        with pytest.raises(TransactionsUnsupported) as raised:
            getattr(collector, call)("orders", {})

        assert str(raised.value).startswith(f"store {store.url!r} has no `tx.{call}`; its transactions have `tx.")


async def test_attribute_that_no_transaction_has_is_a_slip_as_any_other(tmp_path: Path) -> None:
    """A slip in a name says nothing about the store."""
    for store in (MemoryStore(), SqliteStore(tmp_path / "leases.db"), DynamoDBStore("leases")):
        with pytest.raises(AttributeError, match="has no attribute 'excute'") as raised:
            store.transactions.begin().excute()  # type: ignore[attr-defined, unused-ignore]

        assert not isinstance(raised.value, TransactionsUnsupported)


async def test_condition_check_names_the_store_that_has_none(tmp_path: Path) -> None:
    """It is a piece of a request to DynamoDB."""
    stores: list[TransactionalStore] = [MemoryStore(), SqliteStore(tmp_path / "leases.db")]
    for store in stores:
        transactions = transactions_of(store)
        assert transactions is not None
        with pytest.raises(TransactionsUnsupported) as raised:
            transactions.condition_check(GROUP, partition="p0", owner="a:1", token=1, resource=False)
        with pytest.raises(TransactionsUnsupported) as of_lock:
            transactions.lock_check(GROUP, name="nightly", owner="a:1", token=1, resource=False)

        told = f"store {store.url!r} has no condition checks, which are DynamoDB's; "
        assert str(raised.value).startswith(f"{told}use ")
        assert str(of_lock.value) == f"{told}compare tokens in your own database"


async def test_commit_ends_what_stands_beside_the_checkpoint_only_where_it_advances(kind: Kind) -> None:
    """One that settles a doubt has the stored position: nothing is done by it, and a death stays unexplained."""
    term = {"partition": "p0", "owner": "a:1", "token": 1}
    prepared = Prepared(state="debit 7", position="20")
    beside = (Attempt(**term, seq=1), Prepare(**term, seq=2, prepared=prepared))  # type: ignore[arg-type]
    for verb in beside:
        assert isinstance(await kind.store.submit(GROUP, verb), Applied)

    settling = kind.commit(position="@earliest", seq=3, advances=False, keeps_prepared=True)
    assert isinstance(await kind.transactions.commit(GROUP, settling), Applied)
    settled = await kind.lease()
    assert isinstance(await kind.transactions.commit(GROUP, kind.commit(1, position="20", seq=4)), Applied)

    assert settled == replace(OWNED, seq=3, attempts=1, prepared=prepared)
    assert await kind.lease() == replace(OWNED, position="20", seq=4)
