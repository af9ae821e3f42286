"""How a run shares: everything is drawn, and what is asked of loads, commands and resets finds what is not so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import anyio
import pytest

from partitions.items import GroupItem
from partitions.verbs import Acquire
from processor_host.operating.draining import Drained, Forgotten, drain
from processor_host.operating.pausing import Paused, Resumed, pause, resume
from processor_host.operating.resetting import Released, Reset, release, reset
from tests.builders import a_lease, a_session
from tests.simulation.backlog import backlog_of
from tests.simulation.checkers import check
from tests.simulation.commands import Given
from tests.simulation.facts import Facts
from tests.simulation.guests import Guests
from tests.simulation.levels import uneven_levels
from tests.simulation.liveness import MOVES_MAX, Calm
from tests.simulation.operators import OperatorAt
from tests.simulation.outcomes import judge_commands
from tests.simulation.parameters import Parameters
from tests.simulation.sharing import EVEN, Sharing
from tests.simulation.storm import Storm
from tests.world.loop import run_virtual
from tests.world.network import PlaceStore
from tests.world.world import GROUP, World

__all__: list[str] = []

Trouble = Callable[[World], Coroutine[Any, Any, None]]

D = 6.0
SETTLED_S = 3 * D + D
"""When the calm looks first."""


def test_every_way_of_sharing_is_drawn() -> None:
    """Whatever is not drawn is not tested."""
    drawn = [Sharing.draw(seed, D) for seed in range(400)]

    assert {of.balance for of in drawn} == {"count", "load"}
    assert {of.weigh_by for of in drawn} == {"bytes", "seconds"}
    assert {of.steal_delay_s for of in drawn} == {of.rejoin_grace_s for of in drawn} == {0.0, D, 3 * D}
    assert {of.commands_every_s for of in drawn} == {0.0, 10.0, 30.0}
    assert not any(of == EVEN for of in drawn)


# --- Loads ----------------------------------------------------------------------------------------------------------


def uneven(*loads: tuple[float, ...], **of_the_first: Any) -> int:
    """How many pairs of sessions are too far apart, each with leases of these weights."""
    sessions = [a_session(f"h{n}:1", **(of_the_first if n == 0 else {})) for n in range(len(loads))]
    leases = [
        a_lease(f"p{n}.{m}", owner=f"h{n}:1", token=1, weight=weight)
        for n, weights in enumerate(loads)
        for m, weight in enumerate(weights)
    ]
    return len(uneven_levels(leases, sessions, GroupItem(source="s", start="earliest", plan_mode="load")))


def test_levels_may_differ_by_the_lightest_lease_and_the_threshold() -> None:
    """That is what `partitions.loads` promises; less would be asked of nobody."""
    assert uneven((1.0, 1.0), (1.0, 1.0)) == 0
    assert uneven((1.0, 1.0, 1.0), (1.0, 1.0)) == 0
    assert uneven((1.0, 1.0, 1.0, 1.0), (1.0, 1.0)) == 1
    assert uneven((10.0,), ()) == 0
    assert uneven((1.0, 10.0), ()) == 1


def test_levels_ask_nothing_of_a_session_that_is_full_and_more_of_a_strong_one() -> None:
    """Room and capacity enter the promise."""
    assert uneven((), (1.0, 1.0), max_leases=0) == 0
    assert uneven((), (1.0, 1.0)) == 1
    assert uneven((1.0, 1.0), (1.0, 1.0), capacity=4.0) == 1


async def take_back_and_forth(world: World) -> None:
    """One lease changes its owner again and again while the group is watched at rest."""
    await world.wait(SETTLED_S + 10.0)
    for _ in range(MOVES_MAX + 1):
        lease = world.leases()["p0"]
        taker = next(each for each in sorted(world.sessions()) if each != lease.owner)
        verb = Acquire(
            partition="p0", seen_owner=lease.owner, seen_token=lease.token, session_id=taker, host_id="anybody"
        )
        await PlaceStore(world.network).submit(GROUP, verb)


async def ask_for_nothing(world: World) -> None:
    """One host is late, and the other has everything."""
    world.network.disturb(lambda call: call.operation == "Register" and call.place == "n1", fail_before=True, times=4)
    world.network.disturb(lambda call: call.operation == "Ask", lose_request=True)


async def nothing(_: World) -> None:
    return


@pytest.mark.parametrize(
    ("trouble", "found"),
    [(nothing, []), (ask_for_nothing, ["loads are even"]), (take_back_and_forth, ["no lease swings"])],
)
def test_calm_asks_for_even_loads_that_stay(
    trouble: Callable[[World], Coroutine[Any, Any, None]], found: list[str]
) -> None:
    """A demand that is always met asks for nothing."""

    async def scenario() -> list[str]:
        drawn = replace(
            Parameters.draw(1), duration_s=D, latency_s=0.005, discovery_interval_s=6.0, audit_interval_s=30.0
        )
        world = World(partitions=4, duration_s=D, latency_s=drawn.latency_s)
        storm = Storm(world, drawn)
        storm.end(lose_late=True)
        guests = Guests(world, storm, drawn, sharing=replace(EVEN, balance="load"))
        for _ in range(2):
            guests.start_host(max_leases=None, capacity=1.0, handoff_s=D, drain_timeout_s=20.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trouble, world)
            failures = await Calm(world, guests, drawn, world.now_s).run()
            tasks.cancel_scope.cancel()
        return [failure.checker for failure in failures]

    assert run_virtual(scenario) == found


# --- Commands -------------------------------------------------------------------------------------------------------


async def a_life() -> tuple[World, list[Given]]:
    """Two hosts, and each command once, without any fault."""
    world = World(partitions=3)
    world.put(20)
    for place in "ab":
        world.start(place, record_s=0.01)
    await world.until(lambda: [lease.position for lease in world.leases().values()] == ["20"] * 3, within_s=60)
    operator = OperatorAt(world)
    given: list[Given] = []

    async def give(name: str, command: Callable[..., Any], *args: Any, **named: Any) -> None:
        began_s = world.now_s
        outcome: Any = await operator.do(command, *args, **named)
        given.append(Given(name=name, place=operator.place, began_s=began_s, ended_s=world.now_s, outcome=outcome))

    await give("pause", pause, ["p0"])
    await give("resume", resume, ["p0"])
    await give("release", release, ["p1"])
    await give("reset", reset, operator.source, ["p2"], "5")
    await give("drain", drain, "b", wait_s=2 * D)
    await world.wait(D)
    return world, given


@pytest.fixture(scope="module")
def life() -> tuple[World, list[Given]]:
    """A history in which everything is as it was said to be."""
    return run_virtual(a_life)


def test_commands_of_a_clean_history_said_what_is_so(life: tuple[World, list[Given]]) -> None:
    """Each said that something was done; else there would be nothing to compare."""
    world, given = life

    assert judge_commands(world, given) == []
    assert [type(part) for command in given for part in command.outcome] == [Paused, Resumed, Released, Reset, Drained]


@pytest.mark.parametrize("kind", ["Pause", "Resume", "Release", "Leave"])
def test_command_that_said_what_no_write_did_is_found(life: tuple[World, list[Given]], kind: str) -> None:
    """Without the write of which it speaks each is a lie."""
    world, given = life
    history = list(world.network.history)
    try:
        world.network.history[:] = [write for write in history if type(write.verb).__name__ != kind]
        found = {failure.checker for failure in judge_commands(world, given)}
    finally:
        world.network.history[:] = history

    assert found == {"commands say what is so"}


def test_command_may_only_fail_in_ways_that_are_known(life: tuple[World, list[Given]]) -> None:
    """A KeyError in a command is a fault of the product."""
    world, given = life
    failed = replace(given[0], outcome=KeyError("p0"))
    unfenced = replace(given[0], outcome=(Forgotten(session_id="c:1", host_id="c", fenced=True, freed=()),))

    assert [failure.checker for failure in judge_commands(world, [failed, unfenced])] == [
        "commands fail as they may",
        "commands say what is so",
    ]


# --- Resets ---------------------------------------------------------------------------------------------------------


def test_records_behind_a_reset_are_to_be_handled_once_more(life: tuple[World, list[Given]]) -> None:
    """A reset whose records nobody handles again would pass for one that worked."""
    world, _ = life
    facts = Facts(world)
    [write] = facts.resets
    journal = list(world.journal)
    assert (write.verb.partition, write.verb.position, backlog_of(facts)["p2"]) == ("p2", "5", [])
    try:
        world.journal[:] = [
            entry for entry in journal if entry.partition != "p2" or entry.position != "7" or entry.start_s < write.at_s
        ]
        backlog = backlog_of(Facts(world))
    finally:
        world.journal[:] = journal

    assert backlog == {"p0": [], "p1": [], "p2": [7]}


def test_position_goes_back_by_an_operators_reset_alone(life: tuple[World, list[Given]]) -> None:
    """The same write of a host is the worst that can happen."""
    world, _ = life
    [reset_write] = Facts(world).resets
    history = list(world.network.history)
    assert check(world) == []
    term = next(
        write
        for write in world.network.applied(Acquire)
        if write.verb.partition == "p2" and write.verb.session_id == reset_write.verb.owner
    )
    host = next(write for write in world.network.applied(Acquire) if write.place == "a").verb.session_id
    as_a_hosts = {
        id(reset_write): replace(reset_write, verb=replace(reset_write.verb, owner=host)),
        id(term): replace(term, verb=replace(term.verb, session_id=host)),
    }
    try:
        world.network.history[:] = [as_a_hosts.get(id(write), write) for write in history]
        found = {failure.checker for failure in check(world)}
    finally:
        world.network.history[:] = history

    assert "no checkpoint goes back" in found
