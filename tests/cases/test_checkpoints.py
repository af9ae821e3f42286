"""Checkpoints that go back or get lost: C03 and C07."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskGroup

from partitions.errors import LeaseLost
from partitions.events import CheckpointRefused, LeaseAcquired, LeaseEnded, SessionEnded
from partitions.verbs import Acquire, Create, Release
from processor_host import Batch, PartitionProcessor, Record
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.diary import passes
from tests.world.loop import result_of, run_in_place
from tests.world.world import GROUP, World

__all__: list[str] = []

TERMS_BEFORE = 6
"""So that the first term of a case has token 7."""


class Stopping(PartitionProcessor):
    """Handles records up to one position, has that stored, and keeps the rest of its batch in hand."""

    def __init__(self, kept: dict[str, list[Record]], batches: dict[str, Batch], upto: str, *, stubborn: bool) -> None:
        self._kept = kept
        self._batches = batches
        self._upto = upto
        self._stubborn = stubborn

    async def process(self, batch: Batch) -> None:
        """Handle the first records, then wait for ever."""
        self._batches[batch.partition] = batch
        records = self._kept[batch.partition] = list(batch)
        # After a death records come one at a time; the others of this term are before the one.
        last = next((record for record in records if record.position == self._upto), None)
        if last is None:
            return
        await batch.checkpoint(last)
        with anyio.CancelScope(shield=self._stubborn):
            await anyio.sleep_forever()


@pytest.mark.parametrize("end", ["asked", "forced", "expired"])
@virtual
async def test_c03_checkpoint_of_a_former_owner_fails_also_after_it_has_seen_the_next_token(end: str) -> None:
    """The token that counts is the one that the processor was started with, never the one that is stored now."""
    world = World(partitions=2, settings={"audit_interval_s": 10.0, "batch_records_max": 200})
    world.put(200)
    for partition in ("p0", "p1"):
        world.store.apply_now(GROUP, Create(partition=partition, position="0"))
        for token in range(TERMS_BEFORE):
            begin = Acquire(partition=partition, seen_owner=None, seen_token=token, session_id="old", host_id="old")
            world.store.apply_now(GROUP, begin)
            world.store.apply_now(GROUP, Release(partition=partition, owner="old", token=token + 1))
    kept: dict[str, list[Record]] = {}
    batches: dict[str, Batch] = {}
    world.start("a", processor=lambda: Stopping(kept, batches, "100", stubborn=end == "forced"))
    await world.until(lambda: [lease.position for lease in world.leases().values()] == ["100", "100"], within_s=5)
    assert [lease.token for lease in world.leases().values()] == [7, 7]
    if end == "forced":
        world.network.disturb(lambda call: call.place == "a" and call.operation == "Release", lose_request=True)
    if end == "expired":
        # As a virtual machine that is suspended and does not count it: only the fence of the store is left.
        world.freeze("a", clock_stops=True)
    world.start("b", processor=lambda: Stopping({}, {}, "150", stubborn=False))
    await world.until(lambda: any(lease.position == "150" for lease in world.leases().values()), within_s=25)
    stolen = world.events(LeaseAcquired, place="b")[0]

    async def checkpoint_120() -> None:
        await batches[stolen.partition].checkpoint(kept[stolen.partition][119])

    if end == "expired":
        world.thaw("a")
    with pytest.raises(LeaseLost):
        await result_of(run_in_place("a", checkpoint_120))
    since_s = world.now_s
    await world.until(lambda: world.has_answered("a", "read_leases", since_s=since_s), within_s=15)
    with pytest.raises(LeaseLost):
        await result_of(run_in_place("a", checkpoint_120))

    assert kept[stolen.partition][119].position == "120"
    assert stolen.reason == end
    lease = world.leases()[stolen.partition]
    assert (lease.position, lease.token) == ("150", 8)
    refused = [event.found_token for event in world.events(CheckpointRefused, place="a")]
    assert refused == ([8] if end == "expired" else [])
    check_safety(world)


class Hasty(PartitionProcessor):
    """Asks for a checkpoint of every record, one each 5 ms, and waits for none."""

    def __init__(self, tasks: TaskGroup, asked: list[str]) -> None:
        self._tasks = tasks
        self._asked = asked

    async def process(self, batch: Batch) -> None:
        """Ask, and go on."""
        for record in batch:
            self._asked.append(record.position)
            self._tasks.start_soon(batch.checkpoint, record)
            await passes(0.005)


@virtual
async def test_c07_checkpoints_beside_beats_are_never_taken_for_a_lost_lease() -> None:
    """Beats and checkpoints are writes on different items, and a host has one checkpoint on its way at a time."""
    world = World(partitions=1)
    world.network.disturb(lambda call: call.verb is not None, before_s=0.1, after_s=0.1)
    world.put(12_000)
    asked: list[str] = []
    async with anyio.create_task_group() as tasks:
        world.start("a", processor=lambda: Hasty(tasks, asked))
        await world.until(lambda: bool(asked), within_s=5)
        await world.wait(60.0)
        await world.until(lambda: len(asked) == 12_000, within_s=1)
        # Any that raises ends this test.
    await world.wait(1.0)

    assert world.events(LeaseEnded, SessionEnded) == []
    assert [write.result.item.token for write in world.network.applied(Acquire)] == [1]
    assert (world.leases()["p0"].token, world.leases()["p0"].position) == (1, asked[-1])
    check_safety(world)
