"""What a host says and does as it starts: names that clash, owners that may be dead, and a start at the newest."""

from __future__ import annotations

import pytest

from partitions.events import LeaseAcquired
from partitions.liveness import CLOCK_DRIFT
from processor_host.events import SameHostId, WaitingForSession
from tests.cases.virtual import virtual
from tests.world.checks import check_safety, lost, repeats
from tests.world.world import World

__all__: list[str] = []

D = 6.0


@virtual
async def test_two_sessions_of_one_host_id_are_warned_of_once_after_both_have_beaten() -> None:
    """It is allowed, since sessions are kept apart, and rarely meant: one line at each host names both."""
    world = World(partitions=4)
    world.start("a", host_id="same")
    await world.wait(10.0)
    world.start("b", host_id="same")
    registered_s = world.now_s
    await world.wait(60.0)

    a, b = (world.hosts[name].host.session for name in "ab")
    assert a is not None
    assert b is not None
    assert world.events(SameHostId, place="a") == [SameHostId(host_id="same", session_ids=(a.session_id, b.session_id))]
    assert world.events(SameHostId, place="b") == [SameHostId(host_id="same", session_ids=(b.session_id, a.session_id))]
    warned_s = [at for at, _, event in world.diary if isinstance(event, SameHostId)]
    # The newcomer's first beat is a beat period after its register.
    assert min(warned_s) >= registered_s + D / 3
    assert max(warned_s) <= registered_s + D


@pytest.mark.parametrize("end", ["killed", "stopped"])
@virtual
async def test_session_of_an_earlier_life_is_not_warned_of(end: str) -> None:
    """A host that was killed and started again has one living session; the other will never beat again."""
    world = World(partitions=4)
    world.start("a", host_id="same")
    await world.wait(20.0)
    if end == "killed":
        world.kill("a")
    else:
        world.stop("a")
        await world.until_ended("a", within_s=5.0)
    world.start("b", host_id="same")
    await world.until(lambda: world.shares() == [4], within_s=D + 3)
    await world.wait(20.0)

    assert world.events(SameHostId) == []


@virtual
async def test_wait_for_the_leases_of_a_dead_session_is_told_once_with_whom_and_how_long() -> None:
    """Who starts a host after a crash sees nothing happen for a whole duration, and must be told why."""
    world = World(partitions=4)
    world.start("a")
    # Alive, and the next to expire if it were not; it may fence the dead one earlier, having known it longer.
    world.start("c", capacity=1e-6, lease_duration_s=2.0)
    await world.wait(10.3)
    dead = world.hosts["a"].host.session
    assert dead is not None
    world.kill("a")
    world.start("b", balance_interval_s=0.5)
    started_s = world.now_s
    await world.until(lambda: set(world.owners().values()) == {"b"}, within_s=2 * D)
    took_s = world.now_s - started_s
    await world.wait(20.0)

    [(at, told)] = [(at, event) for at, by, event in world.diary if isinstance(event, WaitingForSession) and by == "b"]
    assert (told.session_id, told.host_id, told.leases) == (dead.session_id, "a", 4)
    assert at - started_s + told.left_s == pytest.approx(D * (1 + CLOCK_DRIFT), abs=0.1)
    assert took_s <= at - started_s + told.left_s + 0.1
    # In the first round in which a living session of that duration would have beaten.
    assert at - started_s <= D / 2 + D / 3
    assert {event.reason for event in world.events(LeaseAcquired, place="b")} == {"expired"}


@virtual
async def test_living_owners_are_never_waited_for() -> None:
    """The line is about dead sessions; one about every session of a healthy group would say nothing."""
    world = World(partitions=8)
    for name in "abc":
        # So often that most looks show nothing new.
        world.start(name, balance_interval_s=0.5)
        await world.wait(7.3)
    await world.wait(60.0)

    assert world.events(WaitingForSession) == []


@virtual
async def test_start_at_latest_is_resolved_once_and_survives_a_kill_before_any_checkpoint() -> None:
    """The newest moves: resolved again at the second start, it would skip what came in between."""
    world = World(partitions=1, settings={"start": "latest", "checkpoint_interval_s": 1000.0})
    world.put(50)
    world.start("a")
    await world.until(lambda: len(world.running()) == 1, within_s=5)
    await world.wait(5.0)
    world.kill("a")
    for n in range(100):
        world.source.put("p0", f"new {n}".encode())
    world.start("b")
    await world.until(lambda: len(world.handled()) == 100, within_s=2 * D)
    await world.wait(10.0)
    world.stop("b")
    await world.until_ended("b", within_s=5.0)

    assert [entry.data for entry in world.handled()] == [f"new {n}".encode() for n in range(100)]
    assert repeats(world) == 0
    assert world.leases()["p0"].position == "150"
    check_safety(world)
    assert lost(world) == [("p0", str(n)) for n in range(1, 51)]


@virtual
async def test_start_at_latest_holds_for_leases_that_are_made_after_a_kill() -> None:
    """The host that resolved the start may die before it has made a single lease."""
    world = World(partitions=1, settings={"start": "latest"})
    world.put(50)
    lost_creates = world.network.disturb(lambda call: call.operation == "Create", lose_request=True)
    world.start("a")
    await world.until(lambda: lost_creates.hits > 0, within_s=5)
    world.kill("a")
    world.network.faults.remove(lost_creates)
    assert world.leases() == {}
    for n in range(100):
        world.source.put("p0", f"new {n}".encode())
    world.start("b")
    await world.until(lambda: len(world.handled()) >= 100, within_s=2 * D)
    await world.wait(10.0)

    assert [entry.data for entry in world.handled()] == [f"new {n}".encode() for n in range(100)]
