"""The virtual world itself, and the first promises of hosts in it."""

from __future__ import annotations

from tests.world.checks import check_safety, lost, repeats
from tests.world.diary import passes
from tests.world.loop import run_virtual
from tests.world.world import World


def test_three_hosts_share_twelve_partitions_and_handle_everything() -> None:
    """The first thing that anybody asks of this product."""

    async def scenario() -> None:
        world = World(partitions=12)
        world.put(100)
        for name in "abc":
            world.start(name)
        took_s = await world.until(lambda: world.is_balanced(3), within_s=10)
        print("balanced after", took_s)
        await world.until(lambda: len({(e.partition, e.position) for e in world.journal}) == 1200, within_s=10)
        for name in "abc":
            world.stop(name)
        await passes(10)
        assert [world.hosts[name].task.result() for name in "abc"] == [0, 0, 0]
        check_safety(world)
        assert lost(world) == []
        assert set(world.owners().values()) == {None}
        assert world.sessions() == {}
        print("repeats", repeats(world), "calls", len(world.network.calls))

    run_virtual(scenario)


def test_killed_host_is_replaced_within_a_duration_and_a_half_beat() -> None:
    """Fail-over is what users of comparable hosts complain about first."""

    async def scenario() -> None:
        world = World(partitions=12)
        for name in "abc":
            world.start(name)
        await world.until(lambda: world.is_balanced(3), within_s=10)
        await passes(20)
        world.kill("a")
        took_s = await world.until(lambda: world.is_balanced(2), within_s=6 + 3)
        print("failed over after", took_s)

    run_virtual(scenario)
