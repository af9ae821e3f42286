"""Scenarios of reads, and of what items may hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partitions.stores.base import Store
from partitions.verbs import Create, SaveCheckpoint
from tests.builders import a_beat, a_lease, an_acquire
from tests.stores.scenarios.saying import applied, created, is_applied, owned, registered, scenario

__all__: list[str] = []

MANY = 230
"""More than a page of any store: DynamoDB reads 100 items by their keys."""


@scenario(None)
async def reads_of_an_unknown_group_find_nothing(store: Store, group: str) -> None:
    """The first host of a group reads before anybody has written."""
    assert await store.read_leases(group) == ()
    assert await store.read_some_leases(group, ["p"]) == ()
    assert await store.read_lease(group, "p") is None
    assert await store.read_sessions(group, consistent=True) == ()
    assert await store.read_sessions(group, consistent=False) == ()
    assert await store.read_session(group, "a:1") is None
    assert await store.read_group(group) is None


@scenario(None)
async def read_leases_returns_every_lease(store: Store, group: str) -> None:
    """A lease that is left out looks like a partition that has none."""
    leases = [await created(store, group, f"p-{number}") for number in range(MANY)]
    leases[7] = await applied(store, group, an_acquire(leases[7]))

    found = await store.read_leases(group)

    assert sorted(found, key=lambda lease: lease.partition) == sorted(leases, key=lambda lease: lease.partition)


@scenario(None)
async def read_some_leases_returns_those_that_are_there(store: Store, group: str) -> None:
    """An asker reads only what it asked for. A partition that is named twice is answered once."""
    leases = [await created(store, group, f"p-{number}") for number in range(4)]

    found = await store.read_some_leases(group, ["p-3", "gone", "p-1", "p-3"])

    assert sorted(found, key=lambda lease: lease.partition) == [leases[1], leases[3]]
    assert await store.read_some_leases(group, []) == ()


@scenario(None)
async def read_some_leases_takes_100_and_no_more(store: Store, group: str) -> None:
    """The bound of DynamoDB; a caller that breaks it shall fail with every store."""
    names = [f"p-{number}" for number in range(101)]
    for name in names[:100]:
        await created(store, group, name)

    assert len(await store.read_some_leases(group, names[:100])) == 100
    with pytest.raises(ValueError, match="101 partitions"):
        await store.read_some_leases(group, names)


@scenario(None)
async def read_sessions_returns_every_session(store: Store, group: str) -> None:
    """A session that is left out looks dead, and its leases free."""
    sessions = [await registered(store, group, f"host-{number:03}:1") for number in range(MANY)]
    sessions[7] = await applied(store, group, a_beat("host-007:1", owned=3))

    found = await store.read_sessions(group, consistent=True)

    assert sorted(found, key=lambda session: session.session_id) == sessions


@scenario(None)
async def items_keep_any_text_and_number(store: Store, group: str) -> None:
    """Partition ids and positions are the source's: long, empty, with any letter; a weight comes back to the bit."""
    partition = "shardId-000000000007 '\"#@:%?/\\ \x01ü中🙂 " + "x" * 200
    position = "49579292999999999999999999999999999999999999999999888898"
    await created(store, group, partition)
    held = await applied(store, group, an_acquire(a_lease(partition), "höst 'a':1"))

    saved = replace(held, position=position, seq=2**53 - 1, weight=0.1 + 0.2)
    verb = SaveCheckpoint(
        partition=partition, owner="höst 'a':1", token=1, position=position, seq=2**53 - 1, weight=0.1 + 0.2
    )
    await is_applied(store, group, verb, saved)
    assert await store.read_leases(group) == (saved,)
    assert await store.read_some_leases(group, [partition]) == (saved,)


@scenario(None)
async def items_keep_empty_texts_apart_from_none(store: Store, group: str) -> None:
    """Nobody owns a free lease; a session named by an empty text would."""
    await created(store, group)
    verb = Create(partition="q", position="", parents=("",))

    await is_applied(store, group, verb, a_lease("q", position="", parents=("",)))
    free = await store.read_lease(group, "p")
    assert free is not None
    assert (free.owner, free.last_host) == (None, None)


@scenario(None)
async def fields_for_people_keep_their_types(store: Store, group: str) -> None:
    """True is not 1 for who reads them, though they compare equal."""
    extra = {"text": "1", "whole": 1, "real": 1.5, "yes": True, "no": False, "nothing": None}
    await registered(store, group, extra=extra)
    beaten = await applied(store, group, a_beat())

    found = await store.read_session(group, "a:1")

    assert found == beaten
    assert found is not None
    assert {name: (type(value), value) for name, value in found.extra.items()} == {
        name: (type(value), value) for name, value in extra.items()
    }


@scenario(None)
async def known_fields_keep_their_types(store: Store, group: str) -> None:
    """A truth that comes back as 1 is written to a log, and compared by `is`, as something else."""
    await owned(store, group, seq=1)
    await registered(store, group, max_leases=3, draining=True)

    lease = await store.read_lease(group, "p")
    session = await store.read_session(group, "a:1")

    assert lease is not None
    assert session is not None
    assert [type(value) for value in (lease.finished, lease.paused, lease.token, lease.seq)] == [bool, bool, int, int]
    assert [type(value) for value in (session.draining, session.drain_asked, session.beat)] == [bool, bool, int]
    assert [type(value) for value in (lease.weight, session.load, session.duration_s)] == [float, float, float]
