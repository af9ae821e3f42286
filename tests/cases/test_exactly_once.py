"""
Writes of transactions take effect once, however often the handler runs: whole hosts, killed, cut and stopped at random.

Each record adds 1 under its own name. At the end every record has exactly 1; at every moment what is written is what
the stored positions say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.transactions import Commit
from partitions.verbs import Acquire
from processor_host import Batch
from tests.cases.virtual import virtual
from tests.world.checks import check_safety, position_order
from tests.world.diary import passes
from tests.world.loop import run_virtual
from tests.world.network import Call
from tests.world.world import GROUP, World

__all__: list[str] = []

PARTITIONS = 3
RECORDS = 30
D_S = 3.0

FAULTS: list[Mapping[str, Any]] = [
    {"lose_answer": True},
    {"lose_request": True},
    {"fail_before": True},
    {"fail_after": True},
    {"before_s": 1.2},
    {"before_s": 6.0},
    {"repeat_after_s": 0.3},
    {"repeat_after_s": 4.0},
]


def is_save(call: Call) -> bool:
    return isinstance(call.verb, Commit) or call.operation in ("SaveCheckpoint", "Release", "read_lease")


def written(world: World) -> dict[str, int]:
    return dict(world.store.values_now(GROUP))


def done(world: World) -> dict[str, int]:
    """What must be written if each record up to the stored positions was counted once."""
    return {
        f"{lease.partition}/{n}": 1
        for lease in world.leases().values()
        for n in range(1, int(position_order(lease.position)) + 1)
    }


class Counting:
    """A handler that counts each record of a batch in one or two transactions, and may fail, dawdle or give up."""

    def __init__(self, tempers: list[str]) -> None:
        self._tempers = tempers
        self._runs = 0

    async def __call__(self, batch: Batch) -> None:
        temper = self._tempers[self._runs % len(self._tempers)] if self._tempers else "even"
        self._runs += 1
        records = list(batch)
        parts = [records[: len(records) // 2], records[len(records) // 2 :]] if temper == "halves" else [records]
        for part in parts:
            if not part:
                continue
            # A user's own time-out, which strikes while the transaction is on its way.
            limit_s = 0.006 if temper == "hasty" else 600.0
            with anyio.fail_after(limit_s):
                async with batch.transaction(upto=part[-1]) as tx:
                    for record in part:
                        tx.add(f"{record.partition}/{record.position}", 1)
                    if temper == "raises inside":
                        raise RuntimeError("inside the block")
                    if temper == "slow":
                        await passes(1.0)
        if temper == "raises after":
            raise RuntimeError("after the block")


async def play(world: World, steps: list[tuple[str, int]], tempers: list[str], faults: list[tuple[int, int]]) -> None:
    """Run three hosts through the steps, check at each, then let everything come to rest."""
    number = 0

    def start() -> None:
        nonlocal number
        number += 1
        handle = Counting(tempers)

        async def process(batch: Batch) -> None:
            await handle(batch)

        world.start(f"h{number}", processor=process, batch_records_max=4, restart_pause_s=0.1)

    world.put(RECORDS)
    for kind, times in faults:
        world.network.disturb(is_save, times=times, **FAULTS[kind])
    for _ in range(3):
        start()
    for step, which in steps:
        await world.wait(0.4)
        places = sorted(world.hosts)
        place = places[which % len(places)]
        if step == "kill":
            world.kill(place)
            start()
        elif step == "stop":
            world.stop(place)
            start()
        elif step == "freeze" and not any(to_s == float("inf") for _, _, to_s in world.freezes):
            world.freeze(place)
            await world.wait(D_S * 1.5)
            world.thaw(place)
        elif step == "cut":
            world.network.cut_off.add(place)
            await world.wait(D_S * 1.5)
            world.network.cut_off.discard(place)
        assert written(world) == done(world)
    # The tempers end, so that the hosts come to the end of their partitions.
    tempers.clear()
    await world.until(lambda: all(lease.position == str(RECORDS) for lease in world.leases().values()), within_s=240)
    # What is late arrives.
    await world.wait(10)
    assert written(world) == done(world)
    assert len(written(world)) == PARTITIONS * RECORDS
    check_safety(world)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["wait", "kill", "stop", "freeze", "cut"]), st.integers(0, 5)), max_size=6
    ),
    tempers=st.lists(st.sampled_from(["even", "halves", "hasty", "raises inside", "raises after", "slow"]), max_size=5),
    faults=st.lists(st.tuples(st.integers(0, len(FAULTS) - 1), st.integers(1, 3)), max_size=4),
)
@settings(max_examples=25)
def test_each_records_write_takes_effect_exactly_once(
    steps: list[tuple[str, int]], tempers: list[str], faults: list[tuple[int, int]]
) -> None:
    """Killed, cut, frozen and stopped hosts, handlers that fail or give up, answers that are lost, late or doubled."""
    run_virtual(lambda: play(World(partitions=PARTITIONS, duration_s=D_S), steps, list(tempers), faults))


@virtual
async def test_handler_runs_again_and_its_writes_do_not() -> None:
    """The property above would hold for handlers that never run twice; here one does."""
    world = World(partitions=PARTITIONS, duration_s=D_S)
    runs: list[tuple[str, str]] = []

    async def process(batch: Batch) -> None:
        async with batch.transaction() as tx:
            for record in batch:
                runs.append((record.partition, record.position))
                tx.add(f"{record.partition}/{record.position}", 1)
            await passes(0.5)

    world.put(RECORDS)
    world.start("a", processor=process, batch_records_max=4)
    await world.wait(1.3)
    world.kill("a")
    world.start("b", processor=process, batch_records_max=4)
    await world.until(lambda: all(lease.position == str(RECORDS) for lease in world.leases().values()), within_s=60)

    assert len(runs) > len(set(runs)) == PARTITIONS * RECORDS
    assert written(world) == done(world)
    assert len(world.network.applied(Acquire)) == 2 * PARTITIONS
