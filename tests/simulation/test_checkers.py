"""The checkers themselves: each finds what was forged into a clean history, and nothing in the clean one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from partitions.events import EndReason, LeaseEnded
from partitions.items import ask_key
from partitions.verbs import Acquire, Ask, Beat, Complete, Fence, Pause, Register, Release, SaveCheckpoint
from tests.simulation.checkers import CHECKERS, check
from tests.simulation.facts import Facts
from tests.simulation.locks import LOCKS
from tests.world.loop import run_virtual
from tests.world.network import Write
from tests.world.world import World

__all__: list[str] = []


async def a_life() -> World:
    """Two hosts, a hand-off, a split, a death, a fence and a stop, without any fault of the network."""
    world = World(partitions=3)
    world.put(100)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.wait(3.0)
    world.start("b", record_s=0.05, batch_records_max=5)
    await world.until(lambda: world.is_balanced(2), within_s=20)
    world.source.split("p0")
    await world.wait(15.0)
    world.kill("a")
    await world.until(lambda: world.is_balanced(1), within_s=20)
    world.put(20)
    await world.wait(10.0)
    world.stop("b")
    await world.wait(10.0)
    return world


@pytest.fixture(scope="module")
def clean() -> World:
    """A history in which nothing is wrong."""
    return run_virtual(a_life)


# --- Forgeries: each changes a copy of the history ------------------------------------------------------------------


def writes(world: World, *kinds: type, **fields: object) -> list[int]:
    """Where in the history the applied writes of these verbs with these fields are."""
    wanted = set(map(id, world.network.applied(*kinds)))
    return [
        index
        for index, write in enumerate(world.network.history)
        if id(write) in wanted and all(getattr(write.verb, name) == value for name, value in fields.items())
    ]


def change(world: World, index: int, **changes: Any) -> Write:
    changed = world.network.history[index] = replace(world.network.history[index], **changes)
    return changed


def handed_off(world: World) -> tuple[str, int]:
    """Partition and token of a term that was asked for and released."""
    [key, *_] = [key for write in world.network.applied(Ask) for key in write.verb.keys]
    partition, _, token = key.rpartition("@")
    return partition, int(token)


def move_end(world: World, term: tuple[str, int], by_s: float, **changes: Any) -> None:
    for index, (at_s, place, event) in enumerate(world.diary):
        if isinstance(event, LeaseEnded) and (event.partition, event.token) == term:
            world.diary[index] = (at_s + by_s, place, replace(event, **changes))


def two_at_a_time(world: World) -> None:
    partition, token = handed_off(world)
    after = next(entry for entry in world.journal if (entry.partition, entry.token) == (partition, token + 1))
    before = next(entry for entry in world.journal if (entry.partition, entry.token) == (partition, token))
    world.journal.append(replace(before, start_s=after.start_s - 0.01, left_s=after.start_s + 0.01))


def without_a_lease(world: World) -> None:
    world.journal[7] = replace(world.journal[7], held=False)


def never_handled(world: World) -> None:
    world.journal[7] = replace(world.journal[7], end_s=None)


def out_of_order(world: World) -> None:
    first, second = [entry for entry in world.journal if entry.partition == "p1" and entry.token == 1][:2]
    first.end_s = second.start_s + 0.01


def child_first(world: World) -> None:
    [index] = writes(world, Complete, partition="p0")
    change(world, index, at_s=world.network.history[-1].at_s + 1)


def token_skipped(world: World) -> None:
    write = world.network.history[index := writes(world, Acquire)[-1]]
    change(world, index, result=replace(write.result, item=replace(write.result.item, token=99)))


def step_back(world: World) -> None:
    write = world.network.history[index := writes(world, SaveCheckpoint, partition="p1")[-1]]
    change(world, index, result=replace(write.result, item=replace(write.result.item, position="1")))


def paused_before(world: World) -> None:
    index = writes(world, Acquire)[-1]
    acquire = world.network.history[index]
    pause = Pause(partition=acquire.verb.partition, seen_token=acquire.verb.seen_token)
    world.network.history.insert(index, replace(acquire, verb=pause))


def beats_unanswered(world: World) -> None:
    owner = next(name for name, life in Facts(world).lives.items() if life.place == "b")
    for index in writes(world, Beat, session_id=owner)[3:]:
        change(world, index, answered_s=float("inf"))


def freed_first(world: World) -> None:
    move_end(world, handed_off(world), 0.001)


def held_by_two(world: World) -> None:
    move_end(world, handed_off(world), 1.0)


def ended_for_nothing(world: World) -> None:
    move_end(world, handed_off(world), 0.0, reason=EndReason.SEEN_TAKEN)


def adopted(world: World) -> None:
    change(world, writes(world, Acquire)[0], answered_s=float("inf"))


def born_twice(world: World) -> None:
    index = writes(world, Register)[0]
    world.network.history.insert(index + 1, world.network.history[index])


def ask_forgotten(world: World) -> None:
    partition, token = handed_off(world)
    term = Facts(world).terms[partition, token]
    index = next(i for i in writes(world, Beat) if world.network.history[i].sent_s > term.began_s)
    write = world.network.history[index]
    assert write.sent_s < term.ended_s
    changed = replace(write.verb, session_id=term.life.session_id, handled=(ask_key(partition, token),))
    change(world, index, verb=changed)


def fenced_early(world: World) -> None:
    [index] = writes(world, Fence)
    change(world, index, sent_s=world.network.history[index].sent_s - world.duration_s / 2)


def forced_early(world: World) -> None:
    partition, token = handed_off(world)
    [release] = writes(world, Release, partition=partition, token=token)
    [acquire] = writes(world, Acquire, partition=partition, seen_token=token)
    owner = world.network.history[release].verb.owner
    change(world, acquire, verb=replace(world.network.history[acquire].verb, seen_owner=owner))


FORGERIES: dict[str, Callable[[World], None]] = {
    "one processor at a time": two_at_a_time,
    "no record without a lease": without_a_lease,
    "nothing stored is lost": never_handled,
    "order within a partition": out_of_order,
    "children after their parents": child_first,
    "tokens rise": token_skipped,
    "no checkpoint goes back": step_back,
    "what is paused rests": paused_before,
    "terms end in time": beats_unanswered,
    "terms end before they are freed": freed_first,
    "no two hosts hold a lease": held_by_two,
    "terms end for a reason": ended_for_nothing,
    "terms begin with an answer": adopted,
    "a session lives once": born_twice,
    "asks are removed by their term's end": ask_forgotten,
    "only the dead are fenced": fenced_early,
    "force waits for the hand-off": forced_early,
}


def copied(world: World) -> World:
    forged = copy.copy(world)
    forged.network = copy.copy(world.network)
    forged.network.history = list(world.network.history)
    forged.journal = [copy.copy(entry) for entry in world.journal]
    forged.diary = list(world.diary)
    return forged


def test_checkers_find_nothing_in_a_clean_history(clean: World) -> None:
    """A checker that cries wolf is soon switched off."""
    assert check(clean) == []


# Those of locks have forgeries of their own, in a history with locks.
@pytest.mark.parametrize("name", [name for name in CHECKERS if name not in LOCKS])
def test_checker_finds_what_was_forged(clean: World, name: str) -> None:
    """A checker that cannot fail checks nothing."""
    forged = copied(clean)
    FORGERIES[name](forged)

    assert name in {failure.checker for failure in check(forged)}
