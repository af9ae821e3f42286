"""Hosts that the store lets register and not beat, or not any more: C36 of embedded hosts, and C38 after the leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitions.errors import StoreMisconfigured
from partitions.events import SessionEnded
from partitions.verbs import Acquire, Ask, Beat, Complete, Drain, Pause, Register, Release, SaveCheckpoint
from processor_host.events import RoundFailed
from processor_host.lives import DENIED_PATIENCE_S, DENIED_PAUSE_MAX_S
from processor_host.rights import NOBODY
from tests.cases.virtual import virtual
from tests.world.checks import check_no_overlap, check_safety, lost
from tests.world.network import Call
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0

DENIED = StoreMisconfigured("dynamodb:UpdateItem on table 'leases' in eu-west-1 failed (AccessDenied); allow it")
EXPIRED = StoreMisconfigured("dynamodb:UpdateItem on table 'leases' in eu-west-1 failed (ExpiredToken); renew them")

UPDATES = (Acquire, Ask, Beat, Complete, Drain, Pause, Release, SaveCheckpoint)
"""The verbs that are UpdateItem in DynamoDB."""


def updates_of(place: str) -> Callable[[Call], bool]:
    return lambda call: call.place == place and isinstance(call.verb, UPDATES)


def everything_of(place: str) -> Callable[[Call], bool]:
    return lambda call: call.place == place and not call.operation.startswith("source.")


FAULTS = {"updates are denied": (updates_of, DENIED), "credentials have expired": (everything_of, EXPIRED)}


async def two_at_work() -> World:
    world = World(partitions=8)
    for name in "ab":
        world.start(name, record_s=0.05, batch_records_max=10)
    await world.until(lambda: world.is_balanced(2), within_s=10)
    world.put(5000)
    await world.wait(10.0)
    return world


def registers_of(world: World, place: str, *, since_s: float) -> list[float]:
    return [
        at for at, call in world.network.calls if at >= since_s and call.place == place and type(call.verb) is Register
    ]


@virtual
async def test_c36_host_that_may_register_and_not_beat_ends_with_the_stores_own_words() -> None:
    """Registered anew for ever it never works, and what the plan keeps for it is nobody's."""
    world = World(partitions=4)
    world.network.disturb(updates_of("a"), raises=DENIED)
    task = world.start("a").task
    took_s = await world.until(task.done, within_s=15.0)

    assert (task.exception(), took_s <= D + 0.1) == (DENIED, True)
    assert world.sessions() == {}
    [end] = world.events(SessionEnded)
    assert end.reason == f"its duration ran out before a beat was answered: {DENIED}"


@pytest.mark.parametrize("kind", FAULTS)
@virtual
async def test_host_that_is_denied_while_it_runs_is_replaced_at_once_and_comes_back(kind: str) -> None:
    """A session that cannot beat stands in every plan: while it is registered, its share is free and nobody's."""
    calls_of, error = FAULTS[kind]
    world = await two_at_work()
    fault = world.network.disturb(calls_of("a"), raises=error)
    denied_s = world.now_s
    await world.until(lambda: set(world.owners().values()) == {"b"}, within_s=2 * D + 2 * B)
    taken_s = world.now_s
    await world.wait(200.0)
    assert set(world.owners().values()) == {"b"}
    assert registers_of(world, "a", since_s=denied_s) == []
    assert [event.reason for event in world.events(SessionEnded, place="a")] == [
        f"its duration ran out before a beat was answered: {error}"
    ]
    # Tries with growing pauses, each told with the cause.
    told = [at for at, place, event in world.diary if place == "a" and type(event) is RoundFailed and at > taken_s]
    assert 200 / DENIED_PAUSE_MAX_S <= len(told) <= 200 / (DENIED_PAUSE_MAX_S / 2) + 8
    health = world.hosts["a"].host.health()
    assert (health.healthy, health.ready) == (True, False)

    world.network.faults.remove(fault)
    await world.until(lambda: world.is_balanced(2), within_s=DENIED_PAUSE_MAX_S + 4 * D)
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@pytest.mark.parametrize("kind", FAULTS)
@virtual
async def test_host_that_stays_denied_ends_once_its_patience_is_over(kind: str) -> None:
    """Rights that do not come back need a person, who sees a process that has ended before a log."""
    calls_of, error = FAULTS[kind]
    world = await two_at_work()
    world.network.disturb(calls_of("a"), raises=error)
    task = world.hosts["a"].task
    took_s = await world.until(task.done, within_s=2 * DENIED_PATIENCE_S)

    assert task.exception() is error
    assert DENIED_PATIENCE_S - DENIED_PAUSE_MAX_S <= took_s <= DENIED_PATIENCE_S + D + 1.0
    check_safety(world)


@virtual
async def test_pauses_grow_although_calls_that_change_nothing_are_allowed() -> None:
    """Each life without a beat keeps partitions from the others: there must be ever fewer of them, and an end."""
    world = await two_at_work()
    world.network.disturb(
        lambda call: updates_of("a")(call) and getattr(call.verb, "session_id", "") != NOBODY, raises=DENIED
    )
    denied_s = world.now_s
    task = world.hosts["a"].task
    await world.until(task.done, within_s=2 * DENIED_PATIENCE_S)

    assert task.exception() is DENIED
    assert len(registers_of(world, "a", since_s=denied_s)) <= DENIED_PATIENCE_S / (D + DENIED_PAUSE_MAX_S / 2) + 4


@virtual
async def test_host_that_is_denied_stops_when_it_is_told_to() -> None:
    """Whoever stops a host that waits must not wait with it."""
    world = await two_at_work()
    world.network.disturb(everything_of("a"), raises=EXPIRED)
    await world.wait(60.0)
    world.stop("a")

    status, took_s = await world.until_ended("a", within_s=1.0)
    assert (status, took_s < 0.1) == (0, True)


@virtual
async def test_host_that_was_denied_for_less_than_a_session_loses_nothing() -> None:
    """C38: one refresh that fails is no reason to give a lease away."""
    world = await two_at_work()
    fault = world.network.disturb(everything_of("a"), raises=EXPIRED)
    await world.wait(D / 2)
    world.network.faults.remove(fault)
    await world.wait(20.0)

    assert world.events(SessionEnded) == []
    assert world.is_balanced(2)
    check_safety(world)
