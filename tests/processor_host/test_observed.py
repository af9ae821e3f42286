"""
The observed store: it tells of every call, by name, outcome and time, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import anyio
import pytest

from partitions import verbs
from partitions.errors import StoreMisconfigured
from partitions.events import Event
from partitions.stores.base import Store, transactions_of
from partitions.stores.memory import MemoryStore
from partitions.transactions import Commit, Failed, TransactionsUnsupported
from partitions.verbs import Applied, Create, Refused, SaveCheckpoint, SetUp, Verb
from processor_host.events import StoreCalled
from processor_host.observed import OPERATIONS, OUTCOMES, ObservedStore, operation_of
from tests.builders import a_group, a_lease, a_register, a_session, an_acquire

__all__: list[str] = []

CALL_S = 0.25


class Observed:
    """An observed memory store, and what it told."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.store: Store = ObservedStore(MemoryStore(), clock=ticking_clock(), on_event=self.told.append)


def ticking_clock() -> Callable[[], float]:
    """Each look at it takes a quarter of a second."""
    return partial(next, count(0.0, CALL_S))


def called(operation: str, outcome: str) -> StoreCalled:
    return StoreCalled(operation=operation, outcome=outcome, duration_s=CALL_S)


async def test_observed_store_answers_as_the_store_does() -> None:
    """A decorator that changed an answer would change who owns what."""
    store = Observed().store
    create = Create(partition="p-0", position=a_lease().position)

    answers: list[Any] = [
        await store.submit("g", create),
        await store.submit("g", create),
        await store.submit("g", a_register()),
        await store.submit("g", SetUp(item=a_group())),
        await store.read_leases("g"),
        await store.read_some_leases("g", ["p-0", "p-1"]),
        await store.read_lease("g", "p-0"),
        await store.read_lease("g", "p-1"),
        await store.read_sessions("g", consistent=True),
        await store.read_session("g", "a:1"),
        await store.read_group("g"),
        await store.exists(),
        store.url,
    ]

    assert answers == [
        Applied(item=a_lease()),
        Refused(current=a_lease()),
        Applied(item=a_session()),
        Applied(item=a_group()),
        (a_lease(),),
        (a_lease(),),
        a_lease(),
        None,
        (a_session(),),
        a_session(),
        a_group(),
        True,
        "memory:",
    ]


async def test_observed_store_tells_of_each_call() -> None:
    """What is slow or refused must be seen under the name of the verb that it was."""
    observed = Observed()
    store = observed.store
    create = Create(partition="p-0", position=a_lease().position)

    await store.create()
    await store.open()
    await store.exists()
    await store.submit("g", create)
    await store.submit("g", create)
    await store.read_leases("g")
    await store.read_some_leases("g", ["p-0"])
    await store.read_lease("g", "p-1")
    await store.read_sessions("g", consistent=False)
    await store.read_session("g", "a:1")
    await store.read_group("g")
    await store.close()
    await store.delete()

    assert observed.told == [
        called("create_store", "applied"),
        called("open", "applied"),
        called("exists", "read"),
        called("create", "applied"),
        called("create", "refused"),
        called("read_leases", "read"),
        called("read_some_leases", "read"),
        called("read_lease", "read"),
        called("read_sessions", "read"),
        called("read_session", "read"),
        called("read_group", "read"),
        called("delete_store", "applied"),
    ]


async def test_observed_store_tells_of_user_transactions() -> None:
    """What they were refused for, by the lease or by the user's own condition, is neither a success nor a failure."""
    observed = Observed()
    transactions = transactions_of(observed.store)
    assert transactions is not None
    await observed.store.submit("g", Create(partition="p-0", position="@earliest"))
    await observed.store.submit("g", an_acquire(a_lease()))
    tx: Any = transactions.begin()
    tx.check("missing", 1)
    save = SaveCheckpoint(partition="p-0", owner="a:1", token=1, position="10", seq=1)
    failing = Commit(save=save, previous="@earliest", operations=tx.taken())
    observed.told.clear()

    outcomes = [
        await transactions.commit("g", failing),
        await transactions.commit("g", replace(failing, operations=())),
        await transactions.commit("g", replace(failing, operations=())),
    ]

    assert [type(outcome) for outcome in outcomes] == [Failed, Applied, Refused]
    assert observed.told == [called("commit", outcome) for outcome in ("refused", "applied", "refused")]
    with pytest.raises(TransactionsUnsupported):
        transactions.condition_check("g", partition="p-0", owner="a:1", token=1, resource=False)


async def test_observed_store_has_no_transactions_where_the_store_has_none() -> None:
    """A wrapper that claimed them would fail in the middle of a batch."""

    class Plain(MemoryStore):
        transactions = None  # type: ignore[assignment]

    assert transactions_of(ObservedStore(Plain(), clock=ticking_clock(), on_event=lambda _: None)) is None


async def test_observed_store_tells_of_a_call_that_failed_and_raises_it() -> None:
    """A store that is gone shows in the figures and not only in the log."""
    observed = Observed()
    await observed.store.delete()

    with pytest.raises(StoreMisconfigured):
        await observed.store.read_leases("g")

    assert observed.told[1:] == [called("read_leases", "failed")]


async def test_observed_store_tells_of_a_call_that_was_abandoned() -> None:
    """A call that was given up is the slowest of all; left out, the figures look best when the store is worst."""
    observed = Observed()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await observed.store.submit("g", a_register())

    assert scope.cancelled_caught
    assert observed.told == [called("register", "abandoned")]


async def test_observed_store_answers_although_its_observer_raises() -> None:
    """Observing must not change what is observed."""

    def broken(event: Event) -> None:
        raise RuntimeError("broken observer")

    store = ObservedStore(MemoryStore(), clock=ticking_clock(), on_event=broken)

    assert await store.submit("g", a_register()) == Applied(item=a_session())


def test_operations_name_every_verb() -> None:
    """Metrics are made for this list; a verb that it lacks would appear only once it is used."""
    kinds = [getattr(verbs, name) for name in verbs.__all__]
    concrete = [
        kind
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, Verb)
        and kind not in (Verb, verbs.LeaseVerb, verbs.SessionVerb, verbs.GroupVerb)
    ]

    assert {operation_of(kind.__new__(kind)) for kind in concrete} - set(OPERATIONS) == set()
    assert len(concrete) > 15
    assert len(set(OPERATIONS)) == len(OPERATIONS)
    assert len(set(OUTCOMES)) == len(OUTCOMES)
