"""The checkers of locks: each finds what was forged into a clean history, and nothing in the clean one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from partitions.lock_verbs import AcquireLock
from partitions.locks import LockAcquired, LockEnd, LockEnded
from partitions.verbs import Beat, Leave
from tests.simulation.checkers import check
from tests.simulation.directed.contender import contender
from tests.simulation.directed.schedules import Schedule
from tests.simulation.directed.stage import Stage, of
from tests.simulation.facts import Facts
from tests.simulation.locks import LOCKS, RARE_LOCKS, STEP
from tests.world.world import World

__all__: list[str] = []

D = 6.0


async def turns(stage: Stage) -> None:
    """Two contenders: a turn each, one that is taken over from a dead one, and a lock that is held to the end."""
    world = stage.world
    a, b = await contender(stage, "a"), await contender(stage, "b")
    await a.take("other")
    first = await a.take()
    a.work(first)
    await world.wait(4 * D)
    await a.do(first.release)
    second = await b.do(b.locks.acquire, "nightly")
    b.work(second)
    await world.wait(D)
    lost = stage.disturb(of("b"), lose_request=True)
    third = await a.do(a.locks.acquire, "nightly")
    world.network.faults.remove(lost)
    a.work(third)
    await world.wait(2 * D)
    await a.leave()
    await b.leave()


@pytest.fixture(scope="module")
def clean() -> World:
    """A history in which nothing is wrong."""
    verdict = Schedule(name="turns", body=turns, case={}, world={"partitions": 0}, ends_calm=False).play()
    assert verdict.crash is None
    return verdict.world


def acquire_of(world: World, token: int) -> int:
    """Where in the history the acquire of a term of "nightly" is."""
    [index] = [
        index
        for index, write in enumerate(world.network.history)
        if isinstance(write.verb, AcquireLock) and (write.verb.name, write.verb.seen_token) == ("nightly", token - 1)
    ]
    return index


def change(world: World, index: int, **changes: Any) -> None:
    world.network.history[index] = replace(world.network.history[index], **changes)


def move_end(world: World, token: int, by_s: float, **changes: Any) -> None:
    for index, (at_s, place, event) in enumerate(world.diary):
        if isinstance(event, LockEnded) and (event.lock, event.token) == ("nightly", token):
            world.diary[index] = (at_s + by_s, place, replace(event, **changes))


def token_skipped(world: World) -> None:
    write = world.network.history[index := acquire_of(world, 2)]
    change(world, index, result=replace(write.result, item=replace(write.result.item, token=99)))


def held_by_two(world: World) -> None:
    move_end(world, 1, 1.0)


def worked_on(world: World) -> None:
    world.notes.append((world.network.calls[-1][0], "a", (STEP, "nightly", 1)))


def beats_unanswered(world: World) -> None:
    for index, write in enumerate(world.network.history):
        if isinstance(write.verb, Beat) and write.place == "a":
            change(world, index, answered_s=float("inf"))


def freed_first(world: World) -> None:
    move_end(world, 1, 0.001)


def adopted(world: World) -> None:
    change(world, acquire_of(world, 2), answered_s=float("inf"))


def robbed(world: World) -> None:
    write = world.network.history[index := acquire_of(world, 2)]
    [owner] = {w.verb.session_id for w in world.network.applied(AcquireLock) if w.place == "a"}
    change(world, index, verb=replace(write.verb, seen_owner=owner))


def ended_for_nothing(world: World) -> None:
    move_end(world, 1, -1.0, reason=LockEnd.SEEN_TAKEN)


def left_behind(world: World) -> None:
    world.diary = [
        entry
        for entry in world.diary
        if not (isinstance(entry[2], LockAcquired | LockEnded) and entry[2].lock == "other")
    ]
    world.network.history = [
        write for write in world.network.history if not (isinstance(write.verb, Leave) and write.place == "a")
    ]


FORGERIES: dict[str, Callable[[World], None]] = {
    "tokens of locks rise": token_skipped,
    "no two hosts hold a lock": held_by_two,
    "nothing is done under another's lock": worked_on,
    "leases of locks end in time": beats_unanswered,
    "leases of locks end before they are freed": freed_first,
    "leases of locks begin with an answer": adopted,
    "locks are taken from the gone": robbed,
    "leases of locks are lost for a reason": ended_for_nothing,
    "what nobody holds is freed": left_behind,
}


def copied(world: World) -> World:
    forged = copy.copy(world)
    forged.network = copy.copy(world.network)
    forged.network.history = list(world.network.history)
    forged.diary = list(world.diary)
    forged.notes = list(world.notes)
    return forged


def test_checkers_of_locks_find_nothing_in_a_clean_history(clean: World) -> None:
    """A checker that cries wolf is soon switched off."""
    assert check(clean) == []


@pytest.mark.parametrize("name", LOCKS)
def test_checker_of_locks_finds_what_was_forged(clean: World, name: str) -> None:
    """A checker that cannot fail checks nothing."""
    forged = copied(clean)
    FORGERIES[name](forged)

    assert name in {failure.checker for failure in check(forged)}


def test_rare_moments_of_locks_are_none_of_a_life_without_faults(clean: World) -> None:
    """Each is counted where it is, and only there."""
    facts = Facts(clean)

    assert {name: sum(1 for _ in rare(facts)) for name, rare in RARE_LOCKS.items()} == {
        **dict.fromkeys(RARE_LOCKS, 0),
        "a lock taken over from a session that is gone": 1,
        "a lease of a lock that ends with its session": 3,
    }
