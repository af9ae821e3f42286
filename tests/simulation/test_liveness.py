"""The demands of the calm: each fails, under its name, in a group in which the one thing that it asks for is not so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from partitions.errors import StoreUnavailable
from partitions.verbs import Acquire, Ask, Pause, Register
from tests.simulation.checkers import Failure
from tests.simulation.guests import Exit, Guests
from tests.simulation.liveness import Calm, fair_shares, judge_exits
from tests.simulation.parameters import Parameters
from tests.simulation.storm import Storm
from tests.world.loop import run_in_place, run_virtual
from tests.world.world import GROUP, World

__all__: list[str] = []

Trouble = Callable[[World], object]


def calm_after(trouble: Trouble, after_s: float) -> list[str]:
    """Run two hosts without faults, make one trouble that does not end, and return the names of what was not so."""

    async def scenario() -> list[Failure]:
        drawn = replace(Parameters.draw(1), duration_s=6.0, latency_s=0.005, discovery_interval_s=6.0)
        world = World(partitions=4, duration_s=drawn.duration_s, latency_s=drawn.latency_s)
        storm = Storm(world, drawn)
        storm.end(lose_late=True)
        guests = Guests(world, storm, drawn)
        world.put(20)
        for _ in range(2):
            guests.start_host(max_leases=None, capacity=1.0, handoff_s=6.0, drain_timeout_s=20.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(befall, world, trouble, after_s)
            failures = await Calm(world, guests, drawn, world.now_s).run()
            tasks.cancel_scope.cancel()
        guests.look_after()
        return failures + judge_exits(world, guests.exits)

    return [failure.checker for failure in run_virtual(scenario)]


async def befall(world: World, trouble: Trouble, after_s: float) -> None:
    await world.wait(after_s)
    trouble(world)


def nothing(_: World) -> None:
    return


def no_acquire(world: World) -> None:
    world.network.disturb(lambda call: call.operation == "Acquire", lose_request=True)


def no_session(world: World) -> None:
    world.network.disturb(lambda call: call.operation == "Register", lose_request=True)


def no_records(world: World) -> None:
    world.network.disturb(lambda call: call.operation == "source.read", lose_answer=True)


def no_release(world: World) -> None:
    """A host that stops is asked for nothing by anybody, and can free nothing."""
    world.network.disturb(lambda call: call.operation == "Release", raises=StoreUnavailable("no"))


def pause(world: World) -> None:
    world.store.apply_now(GROUP, Pause(partition="p0", seen_token=world.leases()["p0"].token))


def stranger(world: World) -> None:
    verb = Register(session_id="stranger:1", host_id="stranger", duration_s=600.0, handoff_s=600.0, capacity=0.0)
    world.store.apply_now(GROUP, verb)


def no_ask(world: World) -> None:
    """One host is late, and the other has everything."""
    world.network.disturb(lambda call: call.operation == "Register" and call.place == "n1", fail_before=True, times=4)
    world.network.disturb(lambda call: call.operation == "Ask", lose_request=True)


def hoarder(world: World) -> None:
    """A session has a new term in the store, under which nothing runs."""
    lease = world.leases()["p0"]
    verb = Acquire(
        partition="p0",
        seen_owner=lease.owner,
        seen_token=lease.token,
        session_id=lease.owner or "",
        host_id="n0",
    )
    world.store.apply_now(GROUP, verb)


def late_ask(world: World) -> None:
    lease = world.leases()["p0"]
    world.store.apply_now(GROUP, Ask(session_id=lease.owner or "", keys=(f"p0@{lease.token}",), asker=""))


def stop_one(world: World) -> None:
    world.stop("n0")


def split(world: World) -> None:
    """Nothing is left to be handled as the calm looks, and the children's first acquires get lost."""
    world.network.disturb(lambda call: call.operation == "Acquire", lose_request=True, times=2)
    world.source.split("p0")


def draining_stranger(world: World) -> None:
    verb = Register(
        session_id="stranger:1", host_id="stranger", duration_s=600.0, handoff_s=600.0, capacity=0.0, draining=True
    )
    world.store.apply_now(GROUP, verb)


def forgotten_task(_: World) -> None:
    run_in_place("n0", anyio.sleep_forever)


SETTLED_S = 3 * 6.0 + 6.0
"""When the calm looks first; it rests from then on."""


@pytest.mark.parametrize(
    ("trouble", "after_s", "found"),
    [
        (nothing, 0.0, []),
        (no_session, 0.0, ["every start ends"]),
        (no_acquire, 0.0, ["one running processor each"]),
        (no_records, 0.0, ["everything is handled"]),
        (no_ask, 0.0, ["even shares"]),
        (hoarder, SETTLED_S + 0.4, ["one running processor each"]),
        (split, SETTLED_S, []),
        (draining_stranger, 0.0, ["who is told to leave is gone"]),
        (stranger, SETTLED_S - 0.1, ["one session for each host"]),
        (late_ask, SETTLED_S + 20.0, ["no step in a balanced group"]),
        (pause, SETTLED_S + 59.0, ["nobody is needed"]),
        (no_release, SETTLED_S + 61.0, ["all stop"]),
        (forgotten_task, SETTLED_S + 10.0, ["no task is left"]),
        (stop_one, SETTLED_S + 10.0, ["no step in a balanced group", "no host ends untold"]),
    ],
)
def test_calm_finds_what_is_not_so(trouble: Trouble, after_s: float, found: list[str]) -> None:
    """A demand that is always met asks for nothing."""
    assert calm_after(trouble, after_s) == found


def test_exits_are_judged_by_what_the_host_was_told() -> None:
    """Only a store that is away at the start, an order, and processors that nobody can cancel are excuses."""

    async def scenario() -> list[str]:
        world = World()
        world.stubborn.add("stubborn")
        exits = [
            Exit(at_s=0.0, place="a", told=None, status=None, error=StoreUnavailable("away at the start")),
            Exit(at_s=0.0, place="b", told="stop", status=0, error=None),
            Exit(at_s=0.0, place="stubborn", told="stop", status=4, error=None),
            Exit(at_s=0.0, place="c", told="stop", status=4, error=None),
            Exit(at_s=0.0, place="d", told=None, status=0, error=None),
            Exit(at_s=0.0, place="e", told="stop", status=None, error=RuntimeError("bug")),
        ]
        return [failure.checker for failure in judge_exits(world, exits)]

    assert run_virtual(scenario) == ["exit status 0", "no host ends untold", "no host fails"]


def test_fair_shares_follow_capacity_up_to_each_maximum() -> None:
    """Computed another way than by the product's planner, or both could be wrong alike."""
    assert fair_shares(9, {"a": (1.0, None), "b": (2.0, None)}) == {"a": 3.0, "b": 6.0}
    assert fair_shares(9, {"a": (1.0, None), "b": (1.0, None), "c": (1.0, 1)}) == {"a": 4.0, "b": 4.0, "c": 1.0}
    assert fair_shares(9, {"a": (1.0, 2), "b": (1.0, 2)}) == {"a": 2.0, "b": 2.0}
