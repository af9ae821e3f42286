"""Every store keeps the contract: the scenarios, and coming and going of the store itself."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from partitions import lock_verbs, verbs
from partitions.errors import StoreMisconfigured
from partitions.stores.base import Store
from partitions.verbs import Applied, Create, Refused, Verb
from tests.builders import a_lease, a_register
from tests.stores.kinds import KINDS, Kind, marks_of
from tests.stores.scenarios import ABOUT

__all__: list[str] = []


CASES = [
    pytest.param(kind, name, id=f"{kind.name}-{name}", marks=marks_of(kind))
    for kind in KINDS
    for name, about in ABOUT.items()
    if kind.has_transactions or not about.needs_transactions
]


@pytest.mark.parametrize(("kind", "name"), CASES, indirect=["kind"])
async def test_store_keeps_the_contract(store: Store, name: str) -> None:
    """The reason is in each scenario's own docstring."""
    await ABOUT[name].scenario(store, "group")


def test_only_dynalite_leaves_out_what_needs_transactions() -> None:
    """A kind that leaves out more would be proven less than its name says."""
    needing = [name for name, about in ABOUT.items() if about.needs_transactions]

    assert [kind.name for kind in KINDS if not kind.has_transactions] == ["dynalite"]
    assert needing == [
        "complete_ends_the_partition_and_makes_its_children",
        "complete_leaves_a_child_that_is_there",
        "complete_that_is_refused_makes_no_child",
        "complete_of_both_halves_of_a_merge_makes_one_child",
    ]
    assert len(CASES) == len(KINDS) * len(ABOUT) - len(needing)


def test_scenarios_have_a_reason_and_cover_every_verb() -> None:
    """A verb that is added without a scenario would be proven nowhere."""
    concrete = {
        value
        for value in (*vars(verbs).values(), *vars(lock_verbs).values())
        if isinstance(value, type) and issubclass(value, Verb) and not value.__subclasses__()
    }

    assert [name for name, about in ABOUT.items() if not about.scenario.__doc__] == []
    assert {about.verb for about in ABOUT.values()} - {None} == concrete


async def test_store_is_not_there_until_it_is_created(kind: Kind, tmp_path: Path) -> None:
    """`open` creates nothing: a mistyped name must not begin an empty group."""
    store = await kind.absent(tmp_path)

    assert await store.exists() is False
    with pytest.raises(StoreMisconfigured):
        await store.open()
    assert await store.exists() is False

    await store.create()
    assert await store.exists() is True


async def test_create_leaves_a_store_that_is_there(store: Store) -> None:
    """Every host creates at its start; the others' leases must stay."""
    await store.submit("group", Create(partition="p", position="@earliest"))

    await store.create()

    assert await store.exists() is True
    assert await store.read_leases("group") == (a_lease("p"),)


async def test_delete_removes_every_group_and_a_new_store_is_empty(kind: Kind, tmp_path: Path) -> None:
    """What is made afterwards is another store: nothing of the old one shows."""
    store = await kind.absent(tmp_path)
    await store.create()
    await store.open()
    for group in ("one", "two"):
        await store.submit(group, Create(partition="p", position="@earliest"))
        await store.submit(group, a_register())

    await store.delete()

    assert await store.exists() is False
    await store.create()
    await store.open()
    for group in ("one", "two"):
        assert await store.read_leases(group) == ()
        assert await store.read_sessions(group, consistent=True) == ()
    await store.close()


async def test_delete_of_a_store_that_is_not_there_does_nothing(kind: Kind, tmp_path: Path) -> None:
    """The one who lost a race to delete it wanted the same."""
    store = await kind.absent(tmp_path)

    await store.delete()

    assert await store.exists() is False


async def test_open_twice_holds_no_more_than_once(kind: Kind, tmp_path: Path) -> None:
    """Who opens a store that another part has opened must not leave its connections and threads to nobody."""
    store = await kind.absent(tmp_path)
    await store.create()
    await store.open()
    threads = threading.active_count()
    held = [each for each in gc.get_objects() if isinstance(each, aiohttp.ClientSession) and not each.closed]

    await store.open()

    now = [each for each in gc.get_objects() if isinstance(each, aiohttp.ClientSession) and not each.closed]
    assert (threading.active_count(), len(now)) == (threads, len(held))
    await store.close()


async def test_close_twice_does_nothing(kind: Kind, tmp_path: Path) -> None:
    """A host that fails while it closes closes again."""
    store = await kind.absent(tmp_path)
    await store.create()
    await store.open()

    await store.close()
    await store.close()


async def test_store_that_was_deleted_refuses_calls(kind: Kind, tmp_path: Path) -> None:
    """Writing to a store that is not there would look like success."""
    store = await kind.absent(tmp_path)
    await store.create()
    await store.open()
    await store.delete()

    with pytest.raises(StoreMisconfigured):
        await store.submit("group", Create(partition="p", position="@earliest"))
    with pytest.raises(StoreMisconfigured):
        await store.read_leases("group")


async def test_two_stores_of_one_place_see_each_other(kind: Kind, tmp_path: Path) -> None:
    """Several hosts in one process have a store each; what one was answered the other reads."""
    first = await kind.absent(tmp_path)
    await first.create()
    # The memory store is the place itself, so there the two are one.
    second = first if kind.name == "memory" else await kind.absent(tmp_path)
    await first.open()
    await second.open()
    verb = Create(partition="p", position="@earliest")

    answers: list[Any] = [await each.submit("group", verb) for each in (first, second)]

    assert answers == [Applied(item=a_lease("p")), Refused(current=a_lease("p"))]
    assert await second.read_leases("group") == (a_lease("p"),)
    await first.close()
    assert await second.read_lease("group", "p") == a_lease("p")
    await second.close()
