"""An operator's session: what is done by hand to one lease, and what becomes of it where the operator dies."""

from __future__ import annotations

from typing import Any

from partitions.verbs import Acquire, Drain, Pause, Release, Resume
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.puppet import Puppet
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0
H = D / 3
HANDOFF_S = 3 * D

STEPS = ("Register", "Ask", "Acquire", "Release", "Leave")
REQUEST = "its request lost"
ANSWER = "its answer on the way"

NEW_POSITION = "0"
"""Where a partition without records is set to: a reset that loses and repeats nothing."""


async def two_at_work(stage: Stage, **settings: Any) -> World:
    """Two hosts at rest; "p0" has no records."""
    world = stage.world
    world.put(200, partitions=["p1", "p2"])
    for name in "ab":
        stage.host(name, **settings)
    await world.until(lambda: sum(world.shares()) == 3, within_s=3 * D)
    await world.wait(2 * D)
    return world


async def reset(world: World, operator: Puppet, partition: str) -> None:
    """Do in the operator's place what a reset does."""
    await operator.registered()
    session, lease = operator.session, world.leases()[partition]
    await operator.asker.ask(world.sessions()[lease.owner or ""], [lease])
    while (held := session.held.get(partition)) is None:
        await world.wait(0.05)
    await held.release(NEW_POSITION)
    await session.leave()


@schedule(
    partitions=3,
    cases={f"{step}, {moment}": {"step": step, "moment": moment} for step in STEPS for moment in (REQUEST, ANSWER)}
    | {"never": {"step": "", "moment": ""}},
)
async def test_operators_reset_is_killed_at_a_step(stage: Stage, step: str, moment: str) -> None:
    """Wherever the command dies, the lease is free again at the latest when its session is fenced."""
    world = await two_at_work(stage)
    what: dict[str, Any] = {"lose_request": True} if moment == REQUEST else {"after_s": 0.5}
    fault = stage.disturb(of("operator", step), **what) if step else None
    operator = stage.make_puppet("operator", capacity=0.0, processes=False)
    doing = operator.start(reset, world, operator, "p0")
    await world.until(lambda: doing.done() if fault is None else fault.hits > 0, within_s=30.0, every_s=0.01)
    if fault is not None:
        await world.wait(0.1)
        stage.kill("operator")
    await demand_in_time(
        world,
        "a reset that dies leaves the lease free",
        lambda: world.is_balanced(2) and len(world.running()) == 3,
        within_s=HANDOFF_S + D + 4 * B,
    )
    moved = [write for write in world.network.applied(Acquire) if write.place == "operator"]
    stored = [write.verb.position for write in world.network.applied(Release) if write.place == "operator"]
    # Where it died, the step before it was the last, and its own where only the answer was on its way.
    reached = len(STEPS) if fault is None else STEPS.index(step) + (moment == ANSWER)
    assert len(moved) == (reached > STEPS.index("Acquire"))
    assert stored == [NEW_POSITION] * (reached > STEPS.index("Release"))


@schedule(partitions=3)
async def test_operator_is_slow_to_see_that_what_it_resets_was_released(stage: Stage) -> None:
    """While its ask stands, the lease counts as the operator's, owned or free: nobody snatches it."""
    world = await two_at_work(stage)
    blind = stage.disturb(of("operator", "read_some_leases"), fail_before=True)
    operator = stage.make_puppet("operator", capacity=0.0, processes=False)
    doing = operator.start(reset, world, operator, "p0")
    await world.until(lambda: world.leases()["p0"].owner is None, within_s=D)
    released_s = world.now_s
    # Until shortly before the owner's next beat, which removes the ask: its term is over.
    await world.wait(H - 0.4)
    reads = [call.place for at_s, call in world.network.calls if call.operation == "read_leases" and at_s > released_s]
    assert sorted(reads) == ["a", "b"]
    demand("what is asked for is not snatched", world.leases()["p0"].owner is None, world.leases()["p0"])
    blind.times = 0
    await demand_in_time(world, "a reset ends", doing.done, within_s=2.0)


@schedule(partitions=3, cases={"asked": {"asks": True}, "unasked": {"asks": False}})
async def test_partition_is_paused_and_resumed(stage: Stage, asks: bool) -> None:
    """Who pauses or resumes writes first and then registers for a beat period, which makes every host read."""
    world = await two_at_work(stage, audit_interval_s=1000.0)
    await stage.write(Pause(partition="p0", seen_token=world.leases()["p0"].token))
    paused_s = world.now_s
    if asks:
        await stage.write_ask("p0", asker="")
    else:
        await seen_for_a_beat(stage, "operator1")
    await demand_in_time(
        world, "paused in two beats", lambda: world.leases()["p0"].owner is None, within_s=2 * H, since_s=paused_s
    )
    await world.wait(3 * D)
    demand("a paused partition rests", world.leases()["p0"].owner is None, world.leases()["p0"])
    await stage.write(Resume(partition="p0", seen_token=world.leases()["p0"].token))
    resumed_s = world.now_s
    operator = await stage.puppet("operator2", capacity=0.0)
    await demand_in_time(
        world, "resumed in two beats", lambda: "p0" in world.running(), within_s=2 * H, since_s=resumed_s
    )
    await operator.leave()


@schedule(partitions=3)
async def test_partition_is_paused_between_a_hosts_read_and_its_acquire(stage: Stage) -> None:
    """The plan was made of what was read; the store has the last word, and the host takes the rest."""
    world = stage.world
    slow = stage.disturb(of("a", "Acquire", partition="p0"), before_s=0.5)
    stage.host("a")
    await world.until(lambda: slow.hits == 1, within_s=D, every_s=0.01)
    await stage.write(Pause(partition="p0", seen_token=0))
    await world.wait(2 * D)
    [tried] = [w for w in world.network.history if isinstance(w.verb, Acquire) and w.verb.partition == "p0"]
    assert tried.sent_s < tried.at_s == tried.sent_s + 0.5
    demand("what is paused rests", world.shares() == [2], world.leases()["p0"])
    await stage.write(Resume(partition="p0", seen_token=0))
    await seen_for_a_beat(stage, "operator1")


async def seen_for_a_beat(stage: Stage, place: str) -> None:
    """Register a session that is never a target, stay one beat period and leave."""
    operator = await stage.puppet(place, capacity=0.0)
    await stage.world.wait(H)
    await operator.leave()


@schedule(partitions=6)
async def test_operator_asks_a_host_to_drain(stage: Stage) -> None:
    """No beat clears the wish; the host hands over what it has, leaves, and does not come back."""
    world = stage.world
    world.put(200)
    for name in "abc":
        stage.host(name)
    await world.until(lambda: world.is_balanced(3), within_s=3 * D)
    await world.wait(2 * D)
    [session_id] = [session_id for session_id, item in world.sessions().items() if item.host_id == "a"]
    stage.told("a", "drain")
    await stage.write(Drain(session_id=session_id))
    await demand_in_time(world, "a drained host leaves", lambda: world.is_balanced(2), within_s=D + 2 * B)
