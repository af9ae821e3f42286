"""Deployments and restarts: how many partitions move, and who waits for whom."""

from __future__ import annotations

import pytest

from partitions.verbs import Acquire, Ask
from tests.cases.virtual import virtual
from tests.world.checks import check_no_overlap, check_safety, gaps_s, lost
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0
HOSTS = "abcde"
PARTITIONS = 100


async def rolled(steal_delay_s: float) -> tuple[World, int]:
    """Replace each of five hosts, the new one started before the old one is stopped; return the moves that it took."""
    world = World(partitions=PARTITIONS, settings={"steal_delay_s": steal_delay_s})
    for place in HOSTS:
        world.start(place)
    await world.until(lambda: world.is_balanced(len(HOSTS)), within_s=steal_delay_s + 30)
    await world.wait(2 * D)
    world.put(20)
    since_s = world.now_s
    for place in HOSTS:
        world.start(f"{place}2")
        await world.wait(5.0)
        world.stop(place)
        await world.until_ended(place, within_s=30.0)
        await world.wait(5.0)
    await world.wait(steal_delay_s + 30.0)
    assert world.is_balanced(len(HOSTS))
    # A partition whose owner released it and left in one moment was handed over all the same.
    assert max(gaps_s(world, since_s).values()) < 1.0
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []
    return world, len([write for write in world.network.applied(Acquire) if write.at_s > since_s])


@virtual
async def test_roll_with_a_surge_of_one_moves_each_partition_once_when_balance_may_wait() -> None:
    """The replacement is empty, so it is the fair heir of all that the leaving host has."""
    world, moves = await rolled(60.0)

    print(f"{moves} moves with a delay of 60 s")
    assert moves == PARTITIONS
    assert {write.place for write in world.network.applied(Ask) if write.place in HOSTS} == set()


@virtual
async def test_roll_without_a_delay_moves_partitions_for_the_sake_of_balance_too() -> None:
    """What the delay is for: the newcomer takes its share of six at once, and the next stop shifts it again."""
    _, moves = await rolled(0.0)

    print(f"{moves} moves without a delay")
    assert moves > 1.5 * PARTITIONS


@virtual
async def test_hosts_that_wait_to_even_out_read_no_leases_for_it() -> None:
    """A step held back triggers no read; when the wait is over, it is made."""
    world = World(partitions=12, settings={"steal_delay_s": 50.0})
    world.start("a")
    await world.until(lambda: world.is_balanced(1), within_s=10)
    world.start("b")
    await world.wait(15.0)
    since_s = world.now_s
    await world.wait(30.0)
    reads = [call for at, call in world.network.calls if at > since_s and call.operation == "read_leases"]
    still = world.shares()
    await world.until(lambda: world.is_balanced(2), within_s=10)

    assert still == [12, 0]
    # The discovery of one host reads them every 30 s, that of the other half as often; no round does.
    assert len(reads) <= 2
    assert world.shares() == [6, 6]


async def restarted(rejoin_grace_s: float, *, after_s: float) -> tuple[World, dict[str, str | None]]:
    """Kill one of three hosts and start it again under its name; return the owners as they were before."""
    world = World(partitions=12, settings={"rejoin_grace_s": rejoin_grace_s})
    for place in "abc":
        world.start(place)
    await world.until(lambda: world.is_balanced(3), within_s=30)
    await world.wait(2 * D)
    before = world.owners()
    world.kill("a")
    await world.until(lambda: len(world.sessions()) == 2, within_s=D + 2 * B)
    await world.wait(after_s)
    return world, before


@virtual
async def test_restarted_host_gets_its_own_partitions_back_when_the_others_wait_for_it() -> None:
    """Its caches and files are there; nobody takes them meanwhile, and nobody reads for them."""
    world, before = await restarted(60.0, after_s=20.0)
    mine = {name for name, owner in before.items() if owner == "a"}
    meanwhile = {name for name, owner in world.owners().items() if owner is None}
    reads = [call for at, call in world.network.calls if at > world.now_s - 15.0 and call.operation == "read_leases"]
    since_s = world.now_s
    world.start("a2", host_id="a")
    await world.until(lambda: world.is_balanced(3), within_s=10)
    await world.wait(60.0)

    assert meanwhile == mine
    assert len(reads) <= 2
    assert world.owners() == before
    taken = [write for write in world.network.applied(Acquire) if write.at_s > since_s]
    assert [write.place for write in taken] == ["a2"] * len(mine)
    check_safety(world)


@virtual
async def test_partitions_of_a_host_that_does_not_come_back_are_taken_when_the_grace_is_over() -> None:
    """It bounds how long they rest."""
    world, _ = await restarted(20.0, after_s=0.0)
    took_s = await world.until(lambda: world.is_balanced(2), within_s=30)

    print(f"taken {took_s:.1f} s after the fence")
    assert 20.0 - B <= took_s <= 20.0 + 2 * B


@virtual
async def test_partitions_of_a_host_that_is_gone_are_taken_at_once_by_default() -> None:
    """Nobody waits for a host that may never come back unless told so."""
    world, _ = await restarted(0.0, after_s=2 * B)

    assert world.is_balanced(2)


@virtual
async def test_partitions_of_a_host_that_drains_wait_for_nobody() -> None:
    """It has given them away on purpose; a deployment under new names must not rest for the grace."""
    world = World(partitions=12, settings={"rejoin_grace_s": 600.0})
    for place in "abc":
        world.start(place)
    await world.until(lambda: world.is_balanced(3), within_s=30)
    world.stop("a")
    await world.until_ended("a", within_s=10.0)
    took_s = await world.until(lambda: world.is_balanced(2), within_s=2 * B)

    print(f"taken {took_s:.1f} s after the end")


# --- Load mode ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weigh_by", ["bytes", "seconds"])
@virtual
async def test_hosts_in_load_mode_share_the_work_and_not_the_number_of_partitions(weigh_by: str) -> None:
    """One partition of eight brings as much as the other seven together; then nothing moves any more."""
    world = World(partitions=8, settings={"balance": "load", "weigh_by": weigh_by})
    names = sorted(info.partition for info in world.source.list_now())
    world.start("a", record_s=0.01)
    world.start("b", record_s=0.01)

    async def flow(for_s: float) -> None:
        until_s = world.now_s + for_s
        while world.now_s < until_s:
            world.put(14, partitions=names[:1])
            world.put(2, partitions=names[1:])
            await world.wait(1.0)

    await flow(150.0)
    settled_s = world.now_s
    await flow(120.0)

    weights = {name: lease.weight for name, lease in world.leases().items()}
    print({name: round(weight, 4) for name, weight in weights.items()}, world.owners())
    heavy = world.owners()[names[0]]
    beside = [name for name, owner in world.owners().items() if owner == heavy and name != names[0]]
    assert weights[names[0]] == pytest.approx(7 * weights[names[1]], rel=0.15)
    assert len(beside) <= 1
    assert [write for write in world.network.applied(Acquire) if write.at_s > settled_s] == []
    loads = {session.host_id: session.load for session in world.sessions().values()}
    assert max(loads.values()) < 1.5 * min(loads.values())
    check_safety(world)
    assert lost(world) == []
