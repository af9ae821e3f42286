"""The product's own commands, and moves for the sake of weights: what the swarm has too seldom to count on."""

from __future__ import annotations

from processor_host.operating.resetting import reset
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage
from tests.simulation.operators import OperatorAt
from tests.world.loop import result_of

__all__: list[str] = []

D = 6.0
AUDIT_S = 15.0


@schedule(partitions=3)
async def test_partition_is_reset_forth_and_back(stage: Stage) -> None:
    """What is skipped is not handled, and what is gone back to is handled once more, by whoever has it then."""
    world = stage.world
    world.put(300)
    for name in "ab":
        stage.host(name, record_s=0.1)
    await world.until(lambda: sum(world.shares()) == 3, within_s=3 * D)
    await world.wait(D)
    operator = OperatorAt(world)
    forth = await result_of(operator.start(reset, operator.source, ["p1"], "latest"))
    assert [(one.done, one.position) for one in forth] == [(True, "300")]
    world.put(5, partitions=["p1"])
    await demand_in_time(
        world, "what comes after a reset is handled", lambda: world.leases()["p1"].position == "305", within_s=2 * D
    )
    handled = {int(entry.position) for entry in world.handled("p1")}
    demand("what is skipped is not handled", not handled & set(range(250, 301)), sorted(handled))

    back_s = world.now_s
    back = await result_of(operator.start(reset, operator.source, ["p1"], "20"))
    assert [(one.done, one.position) for one in back] == [(True, "20")]
    await world.wait(D)
    again = [entry.position for entry in world.handled("p1") if entry.start_s > back_s]
    demand("a reset goes on from its position", again[:3] == ["21", "22", "23"], again[:3])


@schedule(partitions=4, ends_calm=False)
async def test_partition_moves_as_it_gets_heavy(stage: Stage) -> None:
    """Long after everybody has come, the records of a host's partitions become many: the other takes one of them."""
    world = stage.world
    # Each is measured: what nobody has measured counts as the average.
    world.put(5)
    for name in "ab":
        stage.host(name, balance="load", audit_interval_s=AUDIT_S, record_s=0.001, batch_records_max=100)
    await world.until(lambda: world.shares() == [2, 2], within_s=6 * D)
    await world.wait(4 * D)
    first = world.owners()
    heavy = [name for name, owner in first.items() if owner == first["p0"]]

    async def produce() -> None:
        while True:
            world.put(20, partitions=heavy)
            await world.wait(1.0)

    stage.start(produce)
    await demand_in_time(
        world,
        "weights are evened out",
        lambda: len({world.owners()[name] for name in heavy}) == 2,
        within_s=3 * AUDIT_S,
    )
