"""What a host reads, and when: rules 6 and 13, and full reads that nothing calls for."""

from __future__ import annotations

from collections.abc import Callable

from partitions.items import known_of
from partitions.verbs import Acquire, Register
from tests.simulation.directed.checks import demand, demand_in_time, demand_reads
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.network import Call
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
B = 2.0


def sent(world: World, place: str, *operations: str) -> set[str]:
    """Of these operations, those that a place has sent."""
    return {call.operation for _, call in world.network.calls if call.place == place and call.operation in operations}


@schedule(partitions=4)
async def test_host_starts_between_the_two_reads_of_another(stage: Stage) -> None:
    """Leases are read first: an owner in them has registered before, and is in the later read of the sessions."""
    world = stage.world
    stage.make_leases()
    world.put(100)
    # Each of b's reads takes long enough for a to begin between any two.
    stage.disturb(of("b", "read_leases", "read_sessions"), before_s=0.4)
    stage.host("b")
    await world.until(lambda: len(sent(world, "b", "read_leases", "read_sessions")) == 1, within_s=D, every_s=0.01)
    # The first of the two has arrived, the second has not.
    await world.wait(0.41)
    stage.host("a")
    await world.wait(D)
    reads_s = {
        operation: next(at_s for at_s, call in world.network.calls if of("b", operation)(call))
        for operation in ("read_leases", "read_sessions")
    }
    first, second = sorted(reads_s.values())
    began_s = [write.at_s for write in world.network.applied(Register, Acquire) if write.place == "a"]
    # Each read sees the store so long after it was sent.
    assert len(began_s) > 1
    assert first + 0.4 < began_s[0] < second + 0.4


@schedule(partitions=4)
async def test_look_that_may_be_stale_lacks_an_owner_who_has_just_registered(stage: Stage) -> None:
    """After a read of the leases only a consistent read of the sessions shows every owner."""
    world = stage.world
    world.put(100)
    stage.host("b")
    await world.until(lambda: world.shares() == [4], within_s=D)
    await world.wait(3.0)
    stale = tuple(world.store.sessions_now(GROUP))
    looks = stage.disturb(of("b", "look_at_sessions"), changes=lambda _: stale)
    stage.host("a", audit_interval_s=1000.0)
    # Until b's audit: it is shown a in no other way.
    since_s = world.now_s
    await world.wait(70.0)
    assert looks.hits > 20
    assert any(of("b", "read_leases")(call) and at_s > since_s + 30.0 for at_s, call in world.network.calls)


@schedule(partitions=2)
async def test_page_is_older_than_ones_own_acquire(stage: Stage) -> None:
    """It shows the term before, which ends nothing: the term that has begun since is not in it yet."""
    world = stage.world
    world.put(100)
    stage.host("b")
    await world.until(lambda: world.shares() == [2], within_s=D)
    slow = stage.disturb(of("a", "read_leases"), after_s=1.9)
    # Nearly all the time one of its reads is on its way.
    stage.host("a", balance_interval_s=0.25, audit_interval_s=0.25)
    await world.until(lambda: world.shares() == [1, 1], within_s=3 * D)
    await world.wait(D)
    [taken] = [write for write in world.network.applied(Acquire) if write.place == "a"][:1]
    asked_s = [at_s for at_s, call in world.network.calls if call.place == "a" and call.operation == "read_leases"]
    older = [at_s for at_s in asked_s if at_s < taken.at_s and taken.answered_s < at_s + 1.9]
    assert slow.hits
    assert older
    stage.seen["page older than one's own acquire"] += len(older)


@schedule(partitions=3, settings={"audit_interval_s": 1000.0})
async def test_main_loop_of_a_host_is_stalled_while_another_splits(stage: Stage) -> None:
    """Its session beats on and publishes what it knew: nothing that the others read makes it know more."""
    world = stage.world
    stage.make_leases()
    stalled = await stage.puppet("stalled")
    await stalled.take("p0")
    stale = known_of(world.leases().values())
    stalled.session.publish(known=stale)
    stage.host("a")
    stage.host("b")
    await world.until(lambda: world.shares() == [1, 1, 1], within_s=3 * D)
    await world.wait(2 * D)
    [name] = [name for name, owner in world.owners().items() if owner == "a"]
    world.source.split(name)
    split_s = world.now_s
    await demand_in_time(world, "children begin", lambda: sum(world.shares()) == 4, within_s=60.0, since_s=split_s)
    stalled.session.publish(known=stale)
    world.put(5)
    settled_s = world.now_s
    await world.wait(60 * B)
    # Each of the two reads after 2, 4, 8, … s, at most the audit interval.
    demand_reads(world, "no read storm", since_s=settled_s, most=2 * 7 + 4)


@schedule(partitions=12)
async def test_group_is_at_rest(stage: Stage) -> None:
    """Full reads are the audit's and the discovery's alone; no lease moves and nobody asks."""
    world = stage.world
    for name in "abc":
        stage.host(name)
    await world.until(lambda: world.is_balanced(3), within_s=3 * D)
    await world.wait(2 * D)
    since_s = world.now_s
    await world.wait(100 * B)
    demand_reads(
        world, "a group at rest reads no leases", since_s=since_s, most=int((100 * B / 60 + 1) * 3 + 100 * B / 30 + 1)
    )


@schedule(partitions=6, cases={"leaves": {"end": "stop"}, "dies": {"end": "kill"}})
async def test_host_goes_while_a_read_of_another_is_on_its_way(stage: Stage, end: str) -> None:
    """Its leases are in the older page and it is not in the later read: they are free, and taken once."""
    world = stage.world
    world.put(100)
    for name in "abc":
        stage.host(name)
    await world.until(lambda: world.is_balanced(3), within_s=3 * D)
    await world.wait(2 * D)
    slow = stage.disturb(reads_of("bc"), before_s=0.6, after_s=0.6, times=6)
    stage.host("d")
    await world.until(lambda: slow.hits > 0, within_s=D, every_s=0.01)
    await world.wait(0.7)
    if end == "stop":
        stage.stop("a")
    else:
        stage.kill("a")
    await world.wait(3 * D)
    demand("even shares", world.is_balanced(3), world.owners())


def reads_of(places: str) -> Callable[[Call], bool]:
    return lambda call: call.place in places and call.operation in ("read_leases", "read_sessions")
