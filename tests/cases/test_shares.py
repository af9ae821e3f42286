"""Shares that never settle, lopsided, slow or thrashing: C28, C29, C34, C35, and the fifth start of C37."""

from __future__ import annotations

import pytest

from partitions.events import LeaseAcquired
from partitions.verbs import Acquire, Ask, Complete, Release
from processor_host.events import StoreSlow
from processor_host.logs import line_of
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.loop import result_of
from tests.world.network import Call, Network
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0
ROUNDS = 100


def is_store_call(call: Call) -> bool:
    return not call.operation.startswith("source.")


def moves_since(world: World, since_s: float) -> list[object]:
    """Every write after a time that changed who owns what, or asked for it."""
    return [write for write in world.network.applied(Acquire, Ask, Release, Complete) if write.at_s > since_s]


async def started(world: World, hosts: int, *, within_s: float) -> World:
    """Start so many hosts, named "h0", "h1", …, evenly within a time."""
    for n in range(hosts):
        world.start(f"h{n}")
        await world.wait(within_s / hosts)
    return world


def slow_at_random(world: World, most_s: float, steps: int = 30) -> None:
    """Let each call of the store take a random time, evenly spread up to `most_s`, half of it each way."""
    for left in range(steps, -1, -1):
        # The first of n faults takes one n-th of the calls, the next one an equal part of the rest, and so on.
        way_s = most_s * left / steps / 2
        world.network.disturb(
            lambda call, n=left + 1: is_store_call(call) and world.random.random() < 1 / n,  # type: ignore[misc]
            before_s=way_s,
            after_s=way_s,
        )


@pytest.mark.parametrize(
    ("hosts", "partitions", "duration_s", "slow_s", "shares"),
    [(3, 7, D, 0.0, [3, 2, 2]), (8, 32, 12.0, 1.5, [4] * 8)],
)
@virtual
async def test_c28_stable_group_moves_nothing_once_it_has_converged(
    hosts: int, partitions: int, duration_s: float, slow_s: float, shares: list[int]
) -> None:
    """A rounded share, a stale view or a slow store must make no host think that it is one short."""
    world = World(partitions=partitions, duration_s=duration_s, settings={"balance_interval_s": B})
    if slow_s:
        slow_at_random(world, slow_s)
    await started(world, hosts, within_s=1.0)
    took_s = await world.until(lambda: world.shares() == shares, within_s=10 * B - 1.0)
    # What was on its way when the last lease found its owner.
    await world.wait(10 * B - 1.0 - took_s)
    since_s = world.now_s
    await world.wait((ROUNDS - 10) * B)

    print(f"{shares} after {took_s:.2f} s")
    assert moves_since(world, since_s) == []
    assert world.shares() == shares
    check_safety(world)


@pytest.mark.parametrize(("hosts", "partitions"), [(6, 32), (20, 160)])
@virtual
async def test_c29_every_partition_has_an_owner_and_shares_differ_by_one_at_most(hosts: int, partitions: int) -> None:
    """A share that is rounded down everywhere leaves the remainder to nobody."""
    world = World(partitions=partitions)
    await started(world, hosts, within_s=1.0)
    took_s = await world.until(lambda: world.is_balanced(hosts), within_s=15 * B - 1.0)
    await world.wait(15 * B - 1.0 - took_s)

    print(f"{hosts} hosts, {partitions} partitions: balanced after {took_s:.2f} s")
    assert len(world.leases()) == partitions
    assert None not in world.owners().values()
    shares = world.shares()
    assert len(shares) == hosts
    assert shares[0] - shares[-1] <= 1
    check_safety(world)


@virtual
async def test_c34_lone_host_runs_all_free_partitions_within_three_rounds() -> None:
    """The bound on steals is none on free leases: nobody loses anything by their being taken at once."""
    world = World(partitions=64)
    world.start("a")
    took_s = await world.until(lambda: len(world.running()) == 64, within_s=3 * B)

    print(f"64 partitions run after {took_s:.2f} s")
    assert set(world.owners().values()) == {"a"}
    check_safety(world)


@virtual
async def test_c34_sixth_host_has_its_share_within_ten_rounds() -> None:
    """It takes from all who have too much at once, not from one after the other."""
    world = World(partitions=40)
    await started(world, 5, within_s=1.0)
    await world.until(lambda: world.shares() == [8] * 5, within_s=10 * B)
    await world.wait(3 * B)
    world.start("late")
    took_s = await world.until(lambda: len(world.hosts["late"].held) >= 6, within_s=10 * B)
    await world.wait(10 * B)

    print(f"the sixth host has 6 after {took_s:.2f} s")
    assert world.shares() == [7, 7, 7, 7, 6, 6]
    check_safety(world)


@virtual
async def test_c35_idle_hosts_are_ready_steal_nothing_take_over_and_stop_at_once() -> None:
    """To own something is no sign of health: more hosts than partitions is how one keeps a spare."""
    world = World(partitions=2)
    await started(world, 5, within_s=1.0)
    await world.until(lambda: world.is_balanced(5), within_s=10 * B)
    settled_s = world.now_s
    await world.wait(50 * B)
    owning = {place for place, running in world.hosts.items() if running.held}
    idle = [place for place in world.hosts if place not in owning]
    health = {place: running.host.health() for place, running in world.hosts.items()}

    assert len(idle) == 3
    assert [place for place in idle if not (health[place].ready and health[place].healthy)] == []
    assert moves_since(world, settled_s) == []
    assert [call for _, call in world.network.calls if call.operation == "Ask" and call.place in idle] == []

    dead = min(owning)
    [lost] = world.hosts[dead].held
    world.kill(dead)
    took_s = await world.until(lambda: len(world.running()) == 2, within_s=D + 2 * B)
    [taken] = [event for event in world.events(LeaseAcquired) if event.reason == "expired"]
    assert taken.partition == lost
    assert world.owners()[lost] in idle

    spare = next(place for place in idle if not world.hosts[place].held)
    world.stop(spare)
    began_s = world.now_s
    assert await result_of(world.hosts[spare].task) == 0
    print(f"taken over after {took_s:.2f} s, an idle host stopped in {world.now_s - began_s:.3f} s")
    assert world.now_s - began_s < 1.0
    check_safety(world)


def slow_by(network: Network, latency_s: float) -> None:
    network.disturb(is_store_call, before_s=latency_s / 2, after_s=latency_s / 2)


@virtual
async def test_c37_store_too_slow_for_the_lease_duration_is_named_once_and_no_lease_is_taken() -> None:
    """A cluster that thrashes shows as lease losses under load; the cause can be seen at the first read."""
    world = World(partitions=4, duration_s=3.0)
    slow_by(world.network, 1.2)
    world.start("a")
    await world.wait(60.0)

    assert [write for write in world.network.history if isinstance(write.verb, Acquire)] == []
    assert world.events(LeaseAcquired) == []
    [told] = world.events(StoreSlow)
    assert told == StoreSlow(
        lease_duration_s=3.0,
        call_timeout_s=0.5,
        latency_s=told.latency_s,
        smallest_duration_s=11,
    )
    assert told.latency_s == pytest.approx(1.2, abs=1e-6)
    line = line_of(told)
    assert (line.level, line.values["lease_duration_s"], line.values["call_timeout_s"]) == ("warning", 3.0, 0.5)
    assert line.values["duration_s"] == 1.2
    assert "lease_duration_s=11 " in line.values["hint"]
    world.stop("a")
    began_s = world.now_s
    assert await result_of(world.hosts["a"].task) == 0
    assert world.now_s - began_s <= 5.0


@virtual
async def test_c37_smallest_duration_that_the_warning_names_does() -> None:
    """A remedy that does not help is worse than none."""
    world = World(partitions=4, duration_s=11.0)
    slow_by(world.network, 1.2)
    world.start("a")
    await world.until(lambda: len(world.running()) == 4, within_s=3 * world.duration_s)
    taken_s = world.now_s
    await world.wait(10 * world.duration_s)

    assert world.events(StoreSlow) == []
    assert moves_since(world, taken_s) == []
    check_safety(world)
