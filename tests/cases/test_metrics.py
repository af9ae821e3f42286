"""Metrics of what is no longer owned: C58."""

from __future__ import annotations

from collections import Counter

from partitions.events import LeaseAcquired
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.loop import result_of
from tests.world.world import World

__all__: list[str] = []

HELD = "processor_host_leases_held"
B = 2.0
GENERATIONS = 100

Series = tuple[str, tuple[tuple[str, str], ...]]


def scrape(world: World, place: str) -> dict[Series, float]:
    """Return every series that a host exports at this moment, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in world.hosts[place].host.registry.collect()
        for sample in metric.samples
    }


def of_partition(series: dict[Series, float], partition: str) -> list[Series]:
    return [key for key in series if ("partition", partition) in key[1]]


def held(series: dict[Series, float]) -> float:
    return sum(value for (name, _), value in series.items() if name == HELD)


@virtual
async def test_c58_series_of_a_partition_go_with_it_and_a_hundred_generations_leave_none() -> None:
    """Figures that stay after a move count twice in every sum, and a stream that reshards would fill the memory."""
    world = World(partitions=6)
    world.start("a", record_s=0.01)
    await world.until(lambda: len(world.running()) == 6, within_s=3 * B)
    world.put(20)
    await world.wait(10.0)
    first = scrape(world, "a")
    assert held(first) == 6.0

    # B takes one lease, by whatever name.
    world.start("b", record_s=0.01, max_leases=1)
    await world.until(lambda: bool(world.hosts["b"].held), within_s=10 * B, every_s=0.001)
    moved = {place: scrape(world, place) for place in "ab"}
    [p1] = world.hosts["b"].held

    assert len(of_partition(first, p1)) >= 8
    assert of_partition(moved["a"], p1) == []
    assert len(of_partition(moved["b"], p1)) >= 8
    assert {place: held(series) for place, series in moved.items()} == {"a": 5.0, "b": 1.0}
    world.put(20)
    await world.wait(10.0)
    later = {place: scrape(world, place) for place in "ab"}
    assert {place: held(series) for place, series in later.items()} == {"a": 5.0, "b": 1.0}
    shown = {name: [place for place in "ab" if of_partition(later[place], name)] for name in world.leases()}
    assert shown == {name: [owner] for name, owner in world.owners().items()}

    world.stop("b")
    await result_of(world.hosts["b"].task)
    await world.until(lambda: len(world.running()) == 6, within_s=2 * B)
    await roll(world, GENERATIONS)
    last = scrape(world, "a")

    through_a = Counter(event.partition for event in world.events(LeaseAcquired, place="a"))
    assert len(through_a) >= 2 * GENERATIONS
    assert held(last) == 6.0
    assert abs(len(last) - len(first)) <= 0.1 * len(first)
    named = {value for _, labels in last for name, value in labels if name == "partition"}
    assert named == world.hosts["a"].held
    print(f"{len(first)} series at the first scrape, {len(last)} after {len(through_a)} partitions")
    check_safety(world)


async def roll(world: World, generations: int) -> None:
    """Split one partition, close one of its children, go on with the other; each has records of its own."""
    name = "p0"
    for _ in range(generations):
        name, other = world.source.split(name)
        world.put(3, partitions=[name, other])
        world.source.close_partition(other)
        await world.until(lambda other=other: other in done(world), within_s=3 * B, every_s=0.1)  # type: ignore[misc]
    await world.wait(2 * B)


def done(world: World) -> set[str]:
    return {name for name, lease in world.leases().items() if lease.finished}
