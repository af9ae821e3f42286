"""
Whose death a host suspects, with whole hosts in virtual time: never its own, always that of one that was killed.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.world.loop import run_virtual
from tests.world.world import World

__all__: list[str] = []


def suspects(world: World) -> dict[str, tuple[int, int]]:
    """The token and the suspects of each lease."""
    return {partition: (lease.token, lease.suspects) for partition, lease in world.leases().items()}


def all_held(world: World, *, token: int) -> Callable[[], bool]:
    return lambda: all(lease.owner is not None and lease.token == token for lease in world.leases().values())


def test_host_that_loses_its_sessions_suspects_nobody() -> None:
    """A store that is away for a while ends every session of a fleet; as deaths they would slow all of it down."""

    async def scenario() -> dict[str, tuple[int, int]]:
        world = World(partitions=3)
        world.start("a")
        await world.until(lambda: len(world.leases()) == 3 and all_held(world, token=1)(), within_s=20)
        for token in (2, 3):
            world.network.cut_off.add("a")
            await world.wait(3 * world.duration_s)
            world.network.cut_off.clear()
            await world.until(all_held(world, token=token), within_s=20)
        return suspects(world)

    assert run_virtual(scenario) == {f"p{number}": (3, 0) for number in range(3)}


def test_host_that_is_started_again_suspects_the_death_of_the_one_before_it() -> None:
    """Under one name: what was killed may have been killed by a record, and its successor reads on from there."""

    async def scenario() -> dict[str, tuple[int, int]]:
        world = World(partitions=3)
        world.start("a.1", host_id="a")
        await world.until(lambda: len(world.leases()) == 3 and all_held(world, token=1)(), within_s=20)
        world.kill("a.1")
        world.start("a.2", host_id="a")
        await world.until(all_held(world, token=2), within_s=40)
        return suspects(world)

    assert run_virtual(scenario) == {f"p{number}": (2, 1) for number in range(3)}


def test_host_that_takes_over_after_an_orderly_stop_suspects_nobody() -> None:
    """Every deploy stops hosts."""

    async def scenario() -> dict[str, tuple[int, int]]:
        world = World(partitions=3)
        world.start("a")
        await world.until(lambda: len(world.leases()) == 3 and all_held(world, token=1)(), within_s=20)
        world.stop("a")
        await world.until_ended("a", within_s=30)
        world.start("b")
        await world.until(all_held(world, token=2), within_s=20)
        return suspects(world)

    assert run_virtual(scenario) == {f"p{number}": (2, 0) for number in range(3)}
