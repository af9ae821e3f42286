"""The asker: rule 14, and what becomes of an ask whose asker changes its mind, dies, or is not alone."""

from __future__ import annotations

from dataclasses import replace

from partitions.events import LeaseAcquired
from partitions.items import ASKS_MAX, ask_key
from partitions.verbs import Acquire, Ask, Refused, Release
from tests.simulation.directed.checks import demand, demand_in_time, demand_reads
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.loop import result_of
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0
HANDOFF_S = 3 * D


async def asked(world: World) -> None:
    await world.until(lambda: bool(world.network.applied(Ask)), within_s=2 * D, every_s=0.01)


@schedule(partitions=2)
async def test_asker_dies_after_asking(stage: Stage) -> None:
    """The ask is honoured all the same; what it was for comes back once the asker is fenced."""
    world = stage.world
    world.put(200)
    stage.host("a", batch_records_max=20)
    await world.wait(4.0)
    stage.host("b")
    await asked(world)
    assert world.network.applied(Release) == []
    stage.kill("b")
    killed_s = world.now_s
    await demand_in_time(
        world, "asks are honoured", lambda: bool(world.network.applied(Release)), within_s=D, since_s=killed_s
    )
    await demand_in_time(
        world, "a dead asker is replaced", lambda: world.shares() == [2], within_s=D + 2 * B, since_s=killed_s
    )


@schedule(partitions=2, cases={"at once": {"waits_s": 0.0}, "after a moment": {"waits_s": 0.3}})
async def test_asker_is_told_to_stop_between_ask_and_release(stage: Stage, waits_s: float) -> None:
    """A draining asker counts for nobody: the released lease is free for the others, without a wait for its fence."""
    world = stage.world
    world.put(400)
    stage.host("a", batch_records_max=40)
    await world.wait(4.0)
    stage.host("b")
    await asked(world)
    await world.wait(waits_s)
    assert world.network.applied(Release) == []
    stage.stop("b")
    await world.until(lambda: bool(world.network.applied(Release)), within_s=D)
    released_s = world.now_s
    await demand_in_time(
        world, "a draining asker is not waited for", lambda: world.shares() == [2], within_s=2 * B, since_s=released_s
    )


@schedule(partitions=2)
async def test_asker_drains_for_long_after_asking(stage: Stage) -> None:
    """It takes nothing any more, so the lease must not rest until it has left."""
    world = stage.world
    world.put(100)
    stage.host("a")
    await world.until(lambda: world.shares() == [2], within_s=D)
    b = await stage.puppet("b")
    assert await b.ask("p0") == 1
    assert world.network.applied(Release) == []
    b.session.drain()
    await world.until(lambda: bool(world.network.applied(Release)), within_s=D)
    await demand_in_time(world, "a draining asker is not waited for", lambda: world.shares() == [2, 0], within_s=2 * B)


@schedule(partitions=2, settings={"audit_interval_s": 1000.0})
async def test_asker_is_full_when_what_it_asked_for_is_released(stage: Stage) -> None:
    """Its ask binds no more, so the owner takes the lease again; the old ask must not rob the new term."""
    world = stage.world
    stage.make_leases()
    world.put(200)
    b = await stage.puppet("b", max_leases=1)
    stage.host("a", max_leases=1, balance_interval_s=0.25)
    await world.until(lambda: world.shares() == [1, 0], within_s=D)
    [wanted] = [name for name, owner in world.owners().items() if owner == "a"]
    [other] = [name for name, owner in world.owners().items() if owner is None]
    # It does not see the moment in which the lease is free.
    blind = stage.disturb(of("b", "read_some_leases"), fail_before=True)
    assert await b.ask(wanted) == 1
    await b.take(other)
    await world.until(lambda: bool(world.network.applied(Release)), within_s=D)
    # Before the owner's next beat, which would remove the ask.
    await demand_in_time(
        world, "a full asker is not waited for", lambda: world.leases()[wanted].token == 2, within_s=1.0
    )
    assert world.owners() == {wanted: "a", other: "b"}
    blind.times = 0
    await world.wait(HANDOFF_S + D)
    demand("an ask is for one term", world.leases()[wanted].token == 2, world.leases()[wanted])


@schedule(partitions=3)
async def test_ask_is_refused_because_anothers_stands(stage: Stage) -> None:
    """A request for several is refused as a whole, and made again with those that the answer lacks."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    a = await stage.puppet("a")
    b = await stage.puppet("b")
    c = await stage.puppet("c")
    for name in ("p0", "p1", "p2"):
        await a.take(name)
    stage.disturb(of("a", "Release"), lose_request=True)
    assert await c.ask("p0") == 1
    # Its view is from before.
    stale = world.sessions()["a:1"]
    assert stale.asks == {ask_key("p0", 1): "c:1"}
    added = await b.do(b.asker.ask, replace(stale, asks={}), tuple(world.leases().values()))
    refused = [write for write in world.network.history if isinstance(write.verb, Ask)]
    assert [isinstance(write.result, Refused) for write in refused] == [False, True, False]
    assert added == 2
    asks = dict(world.sessions()["a:1"].asks)
    demand(
        "a refused ask is made again",
        asks == {ask_key("p0", 1): "c:1", ask_key("p1", 1): "b:1", ask_key("p2", 1): "b:1"},
        asks,
    )
    await world.wait(HANDOFF_S + D)

    assert sorted(write.place for write in world.network.applied(Acquire))[:4] == ["a", "a", "a", "b"]


@schedule(partitions=2)
async def test_owner_is_set_to_a_longer_hand_off_than_the_asker(stage: Stage) -> None:
    """How long an owner may drain stands in its item; the asker's own setting says nothing about it."""
    world = stage.world
    world.put(200)
    stage.host("a", record_s=0.2, stubborn=True, batch_records_max=1000, handoff_s=30.0)
    stage.disturb(of("a", "Release"), lose_request=True)
    await world.wait(5.0)
    stage.host("b", handoff_s=D)
    await asked(world)
    await world.until(lambda: bool(world.events(LeaseAcquired, place="b")), within_s=40.0)
    assert [event.reason for event in world.events(LeaseAcquired, place="b")] == ["forced"]


@schedule(partitions=2)
async def test_asker_sleeps_beyond_its_session_and_the_moment_of_force(stage: Stage) -> None:
    """Its session is over when it wakes: it begins nothing under it."""
    world = stage.world
    world.put(200)
    stage.host("a", record_s=0.2, stubborn=True, batch_records_max=1000)
    stage.disturb(of("a", "Release"), lose_request=True)
    await world.wait(5.0)
    stage.host("b")
    await asked(world)
    await world.wait(HANDOFF_S - 1.0)
    world.freeze("b")
    slept_s = world.now_s
    await world.wait(D + 4.0)
    [sent] = world.network.applied(Ask)
    # It slept over the moment of force, and beyond its session.
    assert slept_s < sent.answered_s + HANDOFF_S < world.now_s
    assert sent.verb.asker not in world.sessions()
    assert [write for write in world.network.applied(Acquire) if write.place == "b"] == []
    world.thaw("b")
    await world.wait(HANDOFF_S)


@schedule(partitions=60, settings={"audit_interval_s": 1000.0})
async def test_fourth_host_joins_three_with_sixty_partitions_and_three_asks_are_in_flight(stage: Stage) -> None:
    """Balance comes of the asks that stand, within ten beats; the audit is a quarter of an hour away."""
    world = stage.world
    for name in "abc":
        stage.host(name)
    await world.until(lambda: world.shares() == [20, 20, 20], within_s=10 * B)
    await world.wait(2 * D)
    asks = stage.disturb(of("d", "Ask"), before_s=0.4, after_s=0.4, times=3)
    stage.host("d")
    joined_s = world.now_s
    await world.until(lambda: asks.hits == 3, within_s=D)
    sent_s = [at_s for at_s, call in world.network.calls if call.operation == "Ask"]
    assert max(sent_s) - min(sent_s) < 0.1
    took_s = await demand_in_time(
        world,
        "balance within ten beats",
        lambda: world.shares() == [15] * 4,
        within_s=10 * D / 3,
        since_s=joined_s,
    )
    print(f"balanced after {took_s:.2f} s")
    await world.wait(10 * B)
    moves = [write for write in world.network.applied(Acquire) if write.at_s > joined_s]
    demand("fewest moves", len(moves) == 15, f"{len(moves)} moves, expected 15")


@schedule(partitions=160)
async def test_host_joins_one_that_may_be_asked_for_less_than_it_has_to_give(stage: Stage) -> None:
    """No more than 64 asks may stand in one session's item; the others are written as room is made."""
    world = stage.world
    stage.host("a")
    await world.until(lambda: world.shares() == [160], within_s=10 * B)
    await world.wait(2 * D)
    stage.host("b")
    joined_s = world.now_s
    await demand_in_time(world, "even shares", lambda: world.shares() == [80, 80], within_s=10 * B)
    moves = [write for write in world.network.applied(Acquire) if write.at_s > joined_s]
    demand("fewest moves", len(moves) == 80, f"{len(moves)} moves, expected 80")
    assert max(len(write.result.item.asks) for write in world.network.applied(Ask)) == ASKS_MAX


@schedule(partitions=4, cases={"lost": {"what": "lose_answer"}, "a fault": {"what": "fail_after"}})
async def test_answer_of_an_ask_is_lost(stage: Stage, what: str) -> None:
    """It stands, and is found standing: the asker waits for it as if it had been answered."""
    world = stage.world
    world.put(100)
    stage.host("a")
    await world.until(lambda: world.shares() == [4], within_s=D)
    lost = stage.disturb(of("b", "Ask"), times=1, **{what: True})
    stage.host("b")
    await demand_in_time(world, "even shares", lambda: world.shares() == [2, 2], within_s=10 * B)
    assert lost.hits == 1


@schedule(partitions=9)
async def test_host_has_fewer_leases_than_its_share(stage: Stage) -> None:
    """What it may not take is the others', and nobody thinks of it as missing something."""
    world = stage.world
    stage.host("a", max_leases=1)
    stage.host("b")
    stage.host("c")
    await demand_in_time(world, "even shares", lambda: world.shares() == [4, 4, 1], within_s=10 * B)
    await world.wait(3 * B)
    since_s = world.now_s
    await world.wait(20 * B)
    demand_reads(world, "a group at rest reads no leases", since_s=since_s, most=3 + 4)


@schedule(partitions=2)
async def test_release_arrives_while_the_asker_looks_away_and_it_dies(stage: Stage) -> None:
    """A lease that is free and counts as a dead asker's rests until its fence, and no longer."""
    world = stage.world
    world.put(100)
    stage.host("a")
    await world.wait(4.0)
    looks = stage.disturb(of("b", "read_some_leases"), lose_request=True)
    stage.host("b")
    await asked(world)
    await world.until(lambda: bool(world.network.applied(Release)), within_s=D)
    assert looks.hits
    assert [write for write in world.network.applied(Acquire) if write.place == "b"] == []
    stage.kill("b")
    await demand_in_time(world, "a dead asker is replaced", lambda: world.shares() == [2], within_s=D + 2 * B)


@schedule(partitions=1)
async def test_two_askers_follow_one_ask_and_both_use_force(stage: Stage) -> None:
    """Both acquires name the same token, so the store lets one of them through."""
    world = stage.world
    stage.make_leases()
    world.put(200)
    a = await stage.puppet("a", record_s=0.2, stubborn=True, batch_records_max=1000)
    b = await stage.puppet("b")
    c = await stage.puppet("c")
    await a.take("p0")
    stage.disturb(of("a", "Release"), lose_request=True)
    asking = [b.start(b.ask, "p0"), c.start(c.ask, "p0")]
    assert sorted([await result_of(task) for task in asking]) == [0, 1]
    await world.wait(HANDOFF_S + D)
    taken = [write for write in world.network.applied(Acquire) if write.place != "a"]
    assert len(taken) == 1
