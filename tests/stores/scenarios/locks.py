"""Scenarios of the verbs about locks, and of the reads of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from partitions.items import LockItem, Scalar
from partitions.lock_verbs import AcquireLock, RaiseLock, ReleaseLock
from partitions.stores.base import Store
from partitions.verbs import Applied, Refused
from tests.builders import a_lease, a_lock, an_acquire_of_lock
from tests.stores.scenarios.saying import applied, created, held, is_applied, is_refused, scenario

__all__: list[str] = []

HELD = a_lock(owner="a:1", holder="a")
EXTRA: dict[str, Scalar] = {"host_name": "ü-1", "pid": 7, "at": None, "odd name!": 0.5}


@scenario(AcquireLock)
async def acquire_lock_makes_the_item_with_token_1(store: Store, group: str) -> None:
    """Nobody has to list the locks of an application anywhere before they are used."""
    await is_applied(store, group, an_acquire_of_lock(None), HELD)


@scenario(AcquireLock)
async def acquire_lock_raises_the_token_of_a_free_lock(store: Store, group: str) -> None:
    """The token stays after a release, so that no two terms ever share one."""
    await held(store, group, by="b:1")
    free = await applied(store, group, ReleaseLock(name="nightly", owner="b:1", token=1))

    await is_applied(store, group, an_acquire_of_lock(free), replace(HELD, token=2))


@scenario(AcquireLock)
async def acquire_lock_takes_over_from_the_owner_it_saw(store: Store, group: str) -> None:
    """Its session is gone, as the sender knows; the store only checks that nobody was faster."""
    old = await held(store, group, by="b:1")

    await is_applied(store, group, an_acquire_of_lock(old), replace(HELD, token=2))


@scenario(AcquireLock)
async def acquire_lock_keeps_fields_for_people_and_adds_its_own(store: Store, group: str) -> None:
    """Whoever looks sees which process has it; what a later version wrote beside it stays."""
    first = await held(store, group, extra=EXTRA)
    assert dict(first.extra) == EXTRA

    after = replace(HELD, token=2, extra={**EXTRA, "pid": 8})
    await is_applied(store, group, an_acquire_of_lock(first, extra={"pid": 8}), after)


@scenario(AcquireLock)
async def acquire_lock_is_refused_when_it_was_made_meanwhile(store: Store, group: str) -> None:
    """Of two that saw no item, the second loses."""
    item = await held(store, group, by="b:1")

    await is_refused(store, group, an_acquire_of_lock(None), item)


@scenario(AcquireLock)
async def acquire_lock_is_refused_when_the_item_was_deleted(store: Store, group: str) -> None:
    """It begins anew with token 1, under an acquire that saw that."""
    await is_refused(store, group, an_acquire_of_lock(HELD), None)
    await is_refused(store, group, an_acquire_of_lock(a_lock()), None)


@scenario(AcquireLock)
async def acquire_lock_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """A release leaves the token, so the token alone does not say who owns it, nor whether anybody does."""
    item = await held(store, group, by="b:1")
    await is_refused(store, group, an_acquire_of_lock(replace(item, owner=None)), item)
    free = await applied(store, group, ReleaseLock(name="nightly", owner="b:1", token=1))

    await is_refused(store, group, an_acquire_of_lock(item), free)
    await is_refused(store, group, an_acquire_of_lock(replace(item, owner="c:1")), free)


@scenario(AcquireLock)
async def acquire_lock_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """The same owner may have begun a new term since; the sender meant the old one."""
    old = await held(store, group, by="b:1")
    new = await applied(store, group, an_acquire_of_lock(old, "b:1"))

    await is_refused(store, group, an_acquire_of_lock(old), new)
    await is_refused(store, group, an_acquire_of_lock(replace(new, token=3)), new)


@scenario(AcquireLock)
async def acquire_lock_that_does_not_expire_is_refused_to_everybody_else(store: Store, group: str) -> None:
    """Its holder's process may be gone and its migration half done; also the same host under a new session waits."""
    item = await held(store, group, by="b:1", expires=False)
    assert item == a_lock(owner="b:1", holder="b", expires=False)

    await is_refused(store, group, an_acquire_of_lock(item), item)
    await is_refused(store, group, an_acquire_of_lock(item, "b:2"), item)


@scenario(AcquireLock)
async def acquire_lock_that_does_not_expire_may_be_repeated_by_its_owner(store: Store, group: str) -> None:
    """Where the answer to the first was lost (rule 8); and once it is free, the next one says whether it expires."""
    item = await held(store, group, expires=False)

    again = await applied(store, group, an_acquire_of_lock(item, expires=False))
    assert again == replace(item, token=2)
    free = await applied(store, group, ReleaseLock(name="nightly", owner="a:1", token=2))
    await is_applied(store, group, an_acquire_of_lock(free, "b:1"), a_lock(owner="b:1", holder="b", token=3))


@scenario(ReleaseLock)
async def release_lock_frees_it_and_leaves_the_token(store: Store, group: str) -> None:
    """Whoever acquires next has a higher one."""
    await held(store, group, extra={"pid": 7})

    await is_applied(store, group, ReleaseLock(name="nightly", owner="a:1", token=1), a_lock(extra={"pid": 7}))


@scenario(ReleaseLock)
async def release_lock_is_refused_when_there_is_no_item(store: Store, group: str) -> None:
    """It must not come back after it was deleted."""
    await is_refused(store, group, ReleaseLock(name="nightly", owner="a:1", token=1), None)


@scenario(ReleaseLock)
async def release_lock_is_refused_when_only_the_owner_differs(store: Store, group: str) -> None:
    """Nobody frees what is another's; a second release finds the lock free."""
    item = await held(store, group)
    await is_refused(store, group, ReleaseLock(name="nightly", owner="b:1", token=1), item)

    free = await applied(store, group, ReleaseLock(name="nightly", owner="a:1", token=1))
    await is_refused(store, group, ReleaseLock(name="nightly", owner="a:1", token=1), free)


@scenario(ReleaseLock)
async def release_lock_is_refused_when_only_the_token_differs(store: Store, group: str) -> None:
    """One's own late release must not free the lock that one has acquired again (rule 8)."""
    item = await applied(store, group, an_acquire_of_lock(await held(store, group)))

    await is_refused(store, group, ReleaseLock(name="nightly", owner="a:1", token=1), item)
    await is_refused(store, group, ReleaseLock(name="nightly", owner="a:1", token=3), item)


@scenario(RaiseLock)
async def raise_lock_leaves_everything_but_the_token(store: Store, group: str) -> None:
    """After the store went back in time, tokens must be above all that were given out."""
    item = await held(store, group, expires=False, extra={"pid": 7})

    verb = RaiseLock(name="nightly", seen_token=1, token=10**9)
    await is_applied(store, group, verb, replace(item, token=10**9))


@scenario(RaiseLock)
async def raise_lock_makes_a_free_lock_where_there_is_none(store: Store, group: str) -> None:
    """A lock that is carried to another store keeps its token there."""
    made = a_lock(token=7)
    await is_applied(store, group, RaiseLock(name="nightly", seen_token=None, token=7), made)

    await is_applied(store, group, an_acquire_of_lock(made), replace(HELD, token=8))


@scenario(RaiseLock)
async def raise_lock_is_refused_when_the_token_is_not_the_one_that_was_seen(store: Store, group: str) -> None:
    """Somebody has acquired meanwhile, or the item is gone, or there is one."""
    await is_refused(store, group, RaiseLock(name="nightly", seen_token=1, token=7), None)
    item = await held(store, group)

    await is_refused(store, group, RaiseLock(name="nightly", seen_token=2, token=7), item)
    await is_refused(store, group, RaiseLock(name="nightly", seen_token=None, token=7), item)


@scenario(RaiseLock)
async def raise_lock_is_refused_when_it_would_not_rise(store: Store, group: str) -> None:
    """A token never comes twice."""
    item = await held(store, group)

    await is_refused(store, group, RaiseLock(name="nightly", seen_token=1, token=1), item)
    await is_refused(store, group, RaiseLock(name="nightly", seen_token=1, token=0), item)


@scenario(AcquireLock)
async def acquire_lock_has_one_winner_in_each_round_of_a_race(store: Store, group: str) -> None:
    """All see the same item; each round the token rises by one, and the losers are shown the winner."""
    seen: LockItem | None = None
    for token in (1, 2, 3):
        racers = [an_acquire_of_lock(seen, f"host-{number}:1") for number in range(12)]

        answers = await asyncio.gather(*(store.submit(group, racer) for racer in racers))

        (won,) = [answer.item for answer in answers if isinstance(answer, Applied)]
        assert won is not None
        assert won.token == token
        assert [answer.current for answer in answers if isinstance(answer, Refused)] == [won] * 11
        assert await store.read_lock(group, "nightly") == won
        seen = won


@scenario(None)
async def reads_of_locks_in_an_unknown_group_find_nothing(store: Store, group: str) -> None:
    """Whoever is first reads before anybody has written."""
    assert await store.read_lock(group, "nightly") is None
    assert await store.read_some_locks(group, ["nightly"]) == ()
    assert await store.read_locks(group) == ()


@scenario(None)
async def reads_of_locks_return_those_that_are_there_and_no_leases(store: Store, group: str) -> None:
    """A lock and a partition may have the same name; a lock that is named twice is answered once."""
    await created(store, group, "lock-1")
    locks = [await held(store, group, name=f"lock-{number} ü/#'") for number in range(4)]

    some = await store.read_some_locks(group, [locks[3].name, "gone", locks[1].name, locks[3].name])

    assert sorted(some, key=lambda lock: lock.name) == [locks[1], locks[3]]
    assert await store.read_some_locks(group, []) == ()
    assert sorted(await store.read_locks(group), key=lambda lock: lock.name) == locks
    assert await store.read_lock(group, "lock-1") is None
    assert await store.read_leases(group) == (a_lease("lock-1", position="start"),)
    assert await store.read_locks(f"{group}-other") == ()
    assert [(type(lock.expires), type(lock.token)) for lock in await store.read_locks(group)] == [(bool, int)] * 4


@scenario(None)
async def read_some_locks_takes_100_and_no_more(store: Store, group: str) -> None:
    """The bound of DynamoDB; a caller that breaks it shall fail with every store."""
    assert await store.read_some_locks(group, [f"lock-{number}" for number in range(100)]) == ()

    with pytest.raises(ValueError, match="101 locks"):
        await store.read_some_locks(group, [f"lock-{number}" for number in range(101)])
