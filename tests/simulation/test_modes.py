"""The modes of a run: every one is drawn, their checkers find what was forged, and nothing else is drawn anew."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

from partitions.stores.memory import MemoryStore
from tests.simulation.checkers import check
from tests.simulation.handlers import LETTER, letter_key
from tests.simulation.handling import HANDLING
from tests.simulation.modes import BATCHES, JOINED, PLAIN, POLICIES, RECORDS, RETRY, Modes
from tests.simulation.parameters import Parameters
from tests.world.loop import run_virtual
from tests.world.world import GROUP, World

__all__: list[str] = []

SOME = replace(PLAIN, kind=RECORDS, policy=JOINED)


async def a_life() -> World:
    """Two hosts one after the other, and two keys."""
    world = World(partitions=1)
    for number in range(20):
        world.source.put("p0", b"%d" % number, key="ab"[number % 2])
    world.start("a", record_s=0.5, batch_records_max=2)
    await world.wait(4.0)
    world.stop("a")
    await world.wait(4.0)
    world.start("b", record_s=0.05)
    await world.wait(15.0)
    return world


@pytest.fixture(scope="module")
def clean() -> World:
    """A history in which nothing is wrong."""
    return run_virtual(a_life)


def out_of_order(world: World) -> None:
    third = next(entry for entry in world.journal if entry.position == "3")
    first = next(entry for entry in world.journal if entry.position == "1")
    first.end_s = third.start_s + 0.01


def two_letters_in_a_term(world: World) -> None:
    world.notes += [(world.notes[-1][0], "a", (LETTER, "p0", 1, "3"))] * 2


def two_letters_in_all(world: World) -> None:
    world.store = MemoryStore()
    world.store._items(GROUP).values = {letter_key("p0", "3"): 2}


def begun_again(world: World) -> None:
    last = world.journal[-1]
    world.journal.append(replace(last, position="1"))


FORGERIES: dict[str, Callable[[World], None]] = {
    "order within a key": out_of_order,
    "one letter in a term": two_letters_in_a_term,
    "one letter with the checkpoint": two_letters_in_all,
    "nothing that is stored begins again": begun_again,
}


def test_clean_history_breaks_nothing(clean: World) -> None:
    """Else every finding would have to be doubted."""
    assert check(clean, SOME) == []


@pytest.mark.parametrize("name", HANDLING)
def test_checker_finds_what_was_forged(clean: World, name: str) -> None:
    """A checker that never fails proves nothing."""
    forged = copy.copy(clean)
    forged.journal = copy.deepcopy(clean.journal)
    forged.notes = list(clean.notes)

    FORGERIES[name](forged)

    assert name in {failure.checker for failure in check(forged, SOME)}


def test_record_beside_one_of_another_key_is_no_disorder(clean: World) -> None:
    """That is what working side by side is."""
    forged = copy.copy(clean)
    forged.journal = copy.deepcopy(clean.journal)
    second = next(entry for entry in forged.journal if entry.position == "2")
    first = next(entry for entry in forged.journal if entry.position == "1")
    first.end_s = second.start_s + 0.01

    assert check(forged, SOME) == []
    assert [failure.checker for failure in check(forged)] == ["order within a partition"]


def test_every_mode_is_drawn() -> None:
    """Whatever is not drawn is not tested."""
    drawn = [Modes.draw(seed) for seed in range(400)]

    assert {of.kind for of in drawn} == {BATCHES, RECORDS}
    assert {of.policy for of in drawn} == set(POLICIES)
    assert {(of.kind, of.concurrency) for of in drawn} == {(BATCHES, 1), (RECORDS, 1), (RECORDS, 2), (RECORDS, 4)}
    assert {of.checkpoint for of in drawn} == {"automatic", "every-record", "manual"}
    assert {of.bisect for of in drawn} == {True, False}
    assert all(of.killer_every == 0 for of in drawn if of.policy == RETRY)
    for name in ("poison_every", "killer_every", "ill_every_s"):
        values = {getattr(of, name) for of in drawn}
        assert 0 in values
        assert len(values) > 1


def test_modes_leave_everything_else_as_it_was_drawn() -> None:
    """A seed that failed before there were modes must draw the same run, or it says nothing any more."""
    drawn = Parameters.draw(20601)

    assert (drawn.hosts, drawn.partitions, drawn.storm_s) == (6, 12, 172.3)
