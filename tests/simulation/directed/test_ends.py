"""Ends: rules 4 and 5. What a host that stops or has lost its session leaves behind, and how it comes back."""

from __future__ import annotations

from typing import Any

from partitions.sessions import Session
from partitions.verbs import Acquire, Beat, Leave
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.loop import result_of

__all__: list[str] = []

D = 6.0
OFTEN: dict[str, Any] = {"balance_interval_s": 0.25}


@schedule(partitions=4)
async def test_beat_arrives_after_its_session_has_left(stage: Stage) -> None:
    """A beat that made the item would have others wait for a host that is gone."""
    world = stage.world
    stage.host("a")
    await world.until(lambda: world.shares() == [4], within_s=D)
    slow = stage.disturb(of("a", "Beat"), before_s=0.9)
    await world.until(lambda: slow.hits == 1, within_s=D, every_s=0.01)
    stage.stop("a")
    await world.wait(D)
    left_s = world.network.applied(Leave)[0].at_s
    late = [write for write in world.network.history if isinstance(write.verb, Beat)][-1]
    assert late.sent_s < left_s < late.at_s


@schedule(
    partitions=2,
    cases={
        "the answer of its acquire": {"what": {"after_s": 0.8}},
        "its acquire": {"what": {"before_s": 0.8}},
    },
)
async def test_host_is_told_to_stop_while_an_acquire_is_on_its_way(stage: Stage, what: dict[str, Any]) -> None:
    """With nothing else to give away it leaves at once; what the answer brings has ended before it was sent."""
    world = stage.world
    world.put(200)
    stage.host("b", **OFTEN)
    await world.until(lambda: world.shares() == [2], within_s=D)
    stage.disturb(of("a", "Acquire"), **what)
    # Applied at once, so that the others go on while the host itself still waits for the answer.
    stage.disturb(of("a", "Leave"), after_s=0.95)
    stage.host("a")
    await world.until(
        lambda: any(call.operation == "Acquire" and call.place == "a" for _, call in world.network.calls),
        within_s=2 * D,
        every_s=0.01,
    )
    await world.wait(0.1)
    stage.stop("a")
    stopped_s = world.now_s
    await demand_in_time(
        world, "all stop", lambda: {item.host_id for item in world.sessions().values()} == {"b"}, within_s=2.0
    )
    await demand_in_time(world, "the next owner does not wait", lambda: world.shares() == [2], within_s=D / 3 + 2.0)
    await world.wait(1.0)
    [acquire] = [w for w in world.network.history if isinstance(w.verb, Acquire) and w.place == "a"]
    assert acquire.sent_s < stopped_s < acquire.answered_s


@schedule(partitions=1)
async def test_acquire_is_answered_when_its_session_is_over(stage: Stage) -> None:
    """The lease it brings has ended before it began, and its holder is told so."""
    world = stage.world
    stage.make_leases()
    world.put(20)
    a = await stage.puppet("a")
    stage.disturb(of("a", "Acquire"), after_s=0.8)
    taking = a.taking("p0")
    await world.wait(0.1)
    assert world.leases()["p0"].owner == "a:1"
    assert not taking.done()
    await a.do(end, a.session)
    lease = await result_of(taking)
    assert lease is not None
    demand("terms end in time", lease.ended.is_set(), lease)


async def end(session: Session) -> None:
    """End a session from inside its place."""
    session.end("so it is told")


@schedule(partitions=4)
async def test_lone_host_stops(stage: Stage) -> None:
    """With nobody to hand over to there is nothing to wait for."""
    world = stage.world
    stage.host("a")
    await world.wait(10.0)
    stage.stop("a")
    await demand_in_time(world, "a lone host stops in two seconds", lambda: not world.sessions(), within_s=2.0)
    demand("all is released", set(world.owners().values()) == {None}, world.owners())


@schedule(partitions=6, cases={"killed": {"end": "killed"}, "stopped": {"end": "stopped"}})
async def test_host_is_started_again_within_a_duration(stage: Stage, end: str) -> None:
    """Its earlier life may still be in the store; it waits for that like everybody else, then has its own back."""
    world = stage.world
    world.put(200)
    for name in "abc":
        stage.host(name)
    await world.until(lambda: world.is_balanced(3), within_s=2 * D)
    await world.wait(2 * D)
    if end == "killed":
        stage.kill("a")
    else:
        stage.stop("a")
        await world.until(lambda: len(world.sessions()) == 2, within_s=D)
    await world.wait(D / 3)
    assert [item.host_id for item in world.sessions().values()].count("a") == (end == "killed")
    stage.host("a2", host_id="a")
    await demand_in_time(world, "even shares", lambda: world.is_balanced(3), within_s=2 * D)
