"""Stuck partitions in a group: which are named and which are not, and what becomes of those that are paused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from partitions.rules import PAUSE_REASON
from partitions.verbs import Release, Resume, SaveCheckpoint
from processor_host import Batch, ProcessorContext
from processor_host.events import HostStopped, PartitionMoved, PartitionStopped, PartitionStuck
from tests.cases.virtual import virtual
from tests.world.checks import check_no_overlap, lost
from tests.world.network import Call
from tests.world.processors import Handled, WorldProcessor
from tests.world.world import GROUP, World

__all__: list[str] = []

LIMIT_S = 30.0
LATE_S = 3.0
"""Between two looks, and what comes before the first record is handed on."""

STUCK = "p1"


async def hangs(handled: Handled) -> None:
    """One partition waits for an answer that never comes."""
    if handled.partition == STUCK:
        await anyio.sleep_forever()


async def fails(handled: Handled) -> None:
    """One partition meets a record that it cannot handle."""
    if handled.partition == STUCK:
        raise ValueError("poison")


async def nothing(_: Handled) -> None:
    """Every record is handled."""


def named(world: World) -> list[tuple[str, str, bool]]:
    """Partition, stage and whether it fails, of all that were named."""
    return [(event.partition, event.stage, event.is_failing) for event in world.events(PartitionStuck)]


def is_checkpoint(call: Call) -> bool:
    """Whether a call stores the checkpoint of that partition."""
    return isinstance(call.verb, SaveCheckpoint) and call.verb.partition == STUCK


def is_read(call: Call) -> bool:
    """Whether a call reads that partition."""
    return call.operation == "source.read" and call.partition == STUCK


class Opening(WorldProcessor):
    """Its `open` waits for what never comes, on one partition."""

    async def open(self, context: ProcessorContext) -> None:
        """See `PartitionProcessor`."""
        if context.partition == STUCK:
            await anyio.sleep_forever()
        await super().open(context)


class Pausing(WorldProcessor):
    """Asks for a long pause after its first batch."""

    async def process(self, batch: Batch) -> None:
        """See `PartitionProcessor`."""
        batch.pause_s(10 * LIMIT_S)
        await super().process(batch)


class Checkpointing(WorldProcessor):
    """Takes very long for one batch and checkpoints each record in it."""

    async def process(self, batch: Batch) -> None:
        """See `PartitionProcessor`."""
        for record in batch:
            await anyio.sleep(LIMIT_S / 2)
            await batch.checkpoint(upto=record)


@pytest.mark.parametrize(
    ("on_record", "processor", "settings", "fault", "expected"),
    [
        pytest.param(hangs, WorldProcessor, {}, None, [(STUCK, "process", False)], id="process hangs"),
        pytest.param(nothing, Opening, {}, None, [(STUCK, "open", False)], id="open hangs"),
        pytest.param(fails, WorldProcessor, {}, None, [(STUCK, "process", True)], id="process fails for ever"),
        pytest.param(
            nothing,
            WorldProcessor,
            {"checkpoint": "every-record"},
            (is_checkpoint, {"lose_request": True}),
            [(STUCK, "process", False)],
            id="a checkpoint is not answered",
        ),
        pytest.param(
            nothing, WorldProcessor, {}, (is_read, {"fail_before": True}), [(STUCK, "read", True)], id="source fails"
        ),
        pytest.param(nothing, Pausing, {}, None, [], id="user code asked for a pause"),
        pytest.param(nothing, Checkpointing, {}, None, [], id="a long batch stores its checkpoints"),
        pytest.param(nothing, WorldProcessor, {}, None, [], id="nothing waits"),
    ],
)
@virtual
async def test_partition_that_makes_no_progress_while_records_wait_is_named_once(
    on_record: Callable[[Handled], Awaitable[None]],
    processor: type[WorldProcessor],
    settings: dict[str, Any],
    fault: tuple[Callable[[Call], bool], dict[str, Any]] | None,
    expected: list[tuple[str, str, bool]],
) -> None:
    """Lag tells that a partition is late; this tells which does not move at all, and an idle one is not named."""
    world = World(partitions=3, on_record=on_record)
    if fault is not None:
        world.network.disturb(fault[0], **fault[1])
    began_s = world.now_s
    world.start("a", processor=lambda: processor(world, "a", 0.0), stall_limit_s=LIMIT_S, **settings)
    world.put(4)
    await world.wait(LIMIT_S - 0.1)
    early = named(world)
    await world.wait(LATE_S + 0.1)
    found = named(world)
    await world.wait(8 * LIMIT_S)

    assert (early, found, named(world)) == ([], expected, expected)
    told = [event for event in world.events(PartitionStuck) if event.partition == STUCK]
    assert all(LIMIT_S <= event.stuck_s <= LIMIT_S + LATE_S for event in told)
    assert world.now_s - began_s == pytest.approx(9 * LIMIT_S + LATE_S)
    assert world.events(PartitionStopped) == []


@virtual
async def test_partition_that_goes_on_is_told_once() -> None:
    """Whoever was called out by the first line sees by the second that it is over, and for how long it was."""
    back = anyio.Event()

    async def until_back(handled: Handled) -> None:
        if handled.partition == STUCK:
            await back.wait()

    world = World(partitions=3, on_record=until_back)
    world.start("a", stall_limit_s=LIMIT_S)
    world.put(4)
    await world.wait(100.0)
    back.set()
    await world.wait(100.0)

    (moved,) = world.events(PartitionMoved)
    assert (moved.partition, moved.stuck_s) == (STUCK, pytest.approx(100.0, abs=1.0))
    assert lost(world) == []


# --- Paused by choice -----------------------------------------------------------------------------------------------


async def paused(world: World, within_s: float) -> None:
    await world.until(lambda: STUCK in (found := world.leases()) and found[STUCK].paused, within_s=within_s)


@pytest.mark.parametrize("on_record", [hangs, fails])
@virtual
async def test_stuck_partition_is_paused_for_all_hosts_until_it_is_resumed(
    on_record: Callable[[Handled], Awaitable[None]],
) -> None:
    """It is written where every host reads it, so the next one does not hang on the same record."""
    world = World(partitions=4, on_record=on_record)
    settings: dict[str, Any] = {"stall_limit_s": LIMIT_S, "pause_stuck": True, "drain_timeout_s": 5.0}
    world.start("a", **settings)
    world.start("b", **settings)
    await world.until(lambda: world.is_balanced(2), within_s=30)
    world.put(4)
    await paused(world, LIMIT_S + 2 * LATE_S)
    # A processor that hangs is cancelled once the drain time-out is over.
    await world.until(lambda: world.owners()[STUCK] is None, within_s=5.0 + LATE_S)
    token = world.leases()[STUCK].token
    await world.wait(100.0)

    reason = world.leases()[STUCK].extra[PAUSE_REASON]
    (stopped,) = world.events(PartitionStopped)
    assert (stopped.partition, stopped.token, stopped.reason) == (STUCK, token, reason)
    assert str(reason).startswith("stuck: nothing was done for ")
    assert (world.owners()[STUCK], world.leases()[STUCK].token) == (None, token)
    assert {partition for partition, owner in world.owners().items() if owner is None} == {STUCK}

    world.on_record = nothing
    world.store.apply_now(GROUP, Resume(partition=STUCK, seen_token=token))
    await world.until(lambda: not lost(world), within_s=60)
    check_no_overlap(world)


@virtual
async def test_processor_that_cannot_be_cancelled_keeps_its_lease_though_it_is_paused() -> None:
    """It may still write; freed, the lease could be resumed and processed elsewhere beside it."""
    world = World(partitions=3)
    world.start("a", record_s=1e9, stubborn=True, stall_limit_s=LIMIT_S, pause_stuck=True, drain_timeout_s=5.0)
    world.put(1, partitions=[STUCK])
    await paused(world, LIMIT_S + 2 * LATE_S)
    token = world.leases()[STUCK].token
    await world.wait(100.0)

    assert (world.owners()[STUCK], world.leases()[STUCK].token) == ("a", token)
    assert world.owners() == dict.fromkeys(["p0", "p1", "p2"], "a")


@virtual
async def test_partitions_are_not_paused_while_what_all_of_them_need_is_away() -> None:
    """A database that hangs for minutes must not leave a whole group paused, to be resumed by hand."""
    back = anyio.Event()

    async def away(_: Handled) -> None:
        await back.wait()

    world = World(partitions=4, on_record=away)
    world.start("a", stall_limit_s=LIMIT_S, pause_stuck=True)
    for n in range(4):
        world.put(1, partitions=[f"p{n}"])
        await world.wait(LIMIT_S / 3)
    await world.wait(10 * LIMIT_S)
    back.set()
    await world.wait(LIMIT_S)

    assert {event.partition for event in world.events(PartitionStuck)} == {"p0", "p1", "p2", "p3"}
    assert world.events(PartitionStopped) == []
    assert lost(world) == []


@virtual
async def test_partitions_are_not_paused_while_the_source_is_away() -> None:
    """Reading fails on every host, and goes on by itself."""
    world = World(partitions=4)
    fault = world.network.disturb(is_read, fail_before=True)
    world.start("a", stall_limit_s=LIMIT_S, pause_stuck=True)
    await world.wait(5 * LIMIT_S)
    fault.times = 0
    world.put(1)
    await world.until(lambda: not lost(world), within_s=30)

    assert (named(world), world.events(PartitionStopped)) == ([(STUCK, "read", True)], [])


# --- At a stop ------------------------------------------------------------------------------------------------------


@virtual
async def test_stop_names_a_processor_that_ignores_cancellation_and_releases_all_leases_but_its() -> None:
    """Its records may still be on their way somewhere: only the end of the session may free that lease."""
    world = World(partitions=3)
    running = world.start("a", record_s=100.0, stubborn=True, drain_timeout_s=5.0)
    world.put(1, partitions=[STUCK])
    await world.until(lambda: len(world.journal) == 1, within_s=20)
    world.stop("a")
    await world.until(lambda: bool(world.events(HostStopped)), within_s=20)
    told = world.events(HostStopped)
    sessions = world.sessions()
    owners = world.owners()
    status, _ = await world.until_ended("a", within_s=120)
    freed = [write.verb.partition for write in world.network.applied(Release)]

    assert told == [HostStopped(still_running=(STUCK,))]
    # Nobody keeps the session alive any more, and another host fences it once it has run out.
    assert (len(sessions), owners) == (1, {"p0": None, "p1": "a", "p2": None})
    assert (sorted(freed), status) == (["p0", "p2"], 4)
    assert running.host.still_running == ()
