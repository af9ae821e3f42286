"""Splits and merges: children begin after their parents, soon, and what was deleted is not begun again."""

from __future__ import annotations

from typing import Any

from partitions.sources.base import PartitionInfo
from partitions.sources.memory import MemorySource
from partitions.verbs import Acquire, Beat, Complete, Create, Delete
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.loop import running_loop
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0


async def at_work(stage: Stage, **hosts: dict[str, Any]) -> World:
    """Start hosts and wait until each has its share and has told it."""
    world = stage.world
    for name, settings in hosts.items():
        stage.host(name, **settings)
    await world.until(lambda: len(world.running()) == len(world.leases()) > 0, within_s=3 * D)
    await world.wait(2 * D)
    return world


@schedule(partitions=2, settings={"audit_interval_s": 1000.0, "discovery_interval_s": 1000.0})
async def test_parents_owner_takes_one_child_so_that_the_sums_match(stage: Stage) -> None:
    """As many leases are owned as before: the other child is found by what the host knows, not by the audit."""
    world = await at_work(stage, a={"capacity": 1.0}, b={"capacity": 2.0})
    assert world.shares() == [1, 1]
    [mine] = [name for name, owner in world.owners().items() if owner == "a"]
    world.put(20)
    await world.wait(D)
    children = world.source.split(mine)
    await world.until(lambda: bool(world.network.applied(Complete)), within_s=D)
    completed_s = world.now_s
    await demand_in_time(
        world,
        "children begin",
        lambda: world.running().keys() >= set(children),
        within_s=D / 3 + 2 * B,
        since_s=completed_s,
    )
    await world.wait(D / 3)
    [child] = [w for w in world.network.applied(Acquire) if w.place == "a" and w.verb.partition in children]
    beats_s = [w.at_s for w in world.network.applied(Beat) if w.place == "a" and w.at_s > completed_s]
    # As many as before, told by its next beat.
    assert completed_s - 0.1 < child.at_s < beats_s[0]
    demand("even shares", world.shares() == [2, 1], world.owners())


@schedule(partitions=2, cases={"its listing is old": {"after_s": 4.0}, "its listing is new": {"after_s": None}})
async def test_children_are_merged_before_their_parent_completes(stage: Stage, after_s: float | None) -> None:
    """Grandchildren wait for children that nobody has started; an old listing makes them in the order of the stream."""
    is_old = after_s is not None
    often = {"discovery_interval_s": 1.0 if is_old else 30.0}
    world = await at_work(stage, a=often, b=often)
    name = "p0"
    world.put(60, partitions=[name])
    left, right = world.source.split(name)
    world.put(20, partitions=[left, right])
    if is_old:
        # Read before the merge, and answered after it.
        old = stage.disturb(lambda call: call.operation == "source.list", after_s=after_s, times=2)
        await world.until(lambda: old.hits == 2, within_s=2.0)
    assert not world.network.applied(Complete)
    merged = world.source.merge(left, right)
    world.put(20, partitions=[merged])
    await demand_in_time(world, "everything is handled", lambda: len(world.handled(merged)) == 20, within_s=60.0)


class ForgetfulSource(MemorySource):
    """A source that stops listing a partition while its writer's side still knows it."""

    forgotten: frozenset[str] = frozenset()

    async def list_partitions(self) -> tuple[PartitionInfo, ...]:
        """See `Source.list_partitions`."""
        return tuple(info for info in await super().list_partitions() if info.partition not in self.forgotten)


@schedule(partitions=2, ends_calm=False)
async def test_partition_finishes_is_delisted_and_deleted_between_a_hosts_listing_and_its_create(stage: Stage) -> None:
    """Made again from the older listing, it would be replayed from its beginning."""
    world = stage.world
    source = ForgetfulSource(lambda: running_loop().time(), partitions=2)
    world.source = world.network.source = source
    world.put(20)
    stage.host("b")
    await world.until(lambda: len(world.handled()) == 40, within_s=2 * D)
    source.close_partition("p0")
    await world.until(lambda: world.leases()["p0"].finished, within_s=D)
    # Something new is listed, together with what is about to go.
    source.split("p1")
    listing = stage.disturb(of("a", "source.list"), after_s=3.0, times=1)
    stage.host("a")
    await world.until(lambda: listing.hits == 1, within_s=D, every_s=0.01)
    await world.wait(1.0)
    source.forgotten = frozenset({"p0"})
    await stage.write(Delete(partition="p0", seen_token=world.leases()["p0"].token))
    assert "p0" not in world.leases()
    await world.wait(6 * D)

    made = [write.verb.partition for write in world.network.history if isinstance(write.verb, Create)]
    demand("what was deleted stays deleted", made.count("p0") == 1 and "p0" not in world.leases(), made)


@schedule(partitions=3, cases={"owner": {"place": "owner"}, "other": {"place": "other"}})
async def test_host_dies_right_after_a_parent_has_completed(stage: Stage, place: str) -> None:
    """The children are there with the end of their parent, so nobody has to find them."""
    world = await at_work(stage, a={}, b={}, c={})
    owners = world.owners()
    world.put(20)
    await world.wait(D)
    children = world.source.split("p0")
    world.put(10, partitions=list(children))
    await world.until(lambda: bool(world.network.applied(Complete)), within_s=D, every_s=0.001)
    completed_s = world.now_s
    stage.kill(owners["p0" if place == "owner" else "p1"] or "")
    await demand_in_time(
        world,
        "children begin",
        lambda: world.running().keys() >= set(children),
        within_s=D + 3 * B,
        since_s=completed_s,
    )


@schedule(partitions=2, cases={"applied": {"what": "lose_answer"}, "not applied": {"what": "lose_request"}})
async def test_complete_is_not_answered(stage: Stage, what: str) -> None:
    """The term has ended here; whoever has the lease next completes it, or finds it finished."""
    world = await at_work(stage, a={}, b={})
    world.put(20)
    await world.wait(D)
    fault = stage.disturb(lambda call: call.operation == "Complete", times=3, **{what: True})
    children = world.source.split("p0")
    world.put(10, partitions=list(children))
    await demand_in_time(world, "everything is handled", lambda: len(world.handled()) == 60, within_s=60.0)
    assert fault.hits == 3
