"""
The pump: what it hands on, marks and stores, and how a term ends. Failures are in test_pump_failures.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from partitions.current import HeldLease, current_lease
from partitions.errors import SourceUnavailable
from partitions.events import EndReason, ReleaseFailed
from partitions.leases import Lease
from partitions.positions import END
from partitions.sources.base import Record
from partitions.verbs import Child, Complete, Pause, Release, SaveCheckpoint
from processor_host.buffer import ByteBudget
from processor_host.events import BatchCut, BatchHandled, PumpStarted
from processor_host.kinds import factory_of
from processor_host.processor import Batch, CloseReason, ProcessorContext
from tests.builders import a_lease
from tests.cuts import Cut, at_every_point
from tests.processor_host.pumping import BOUNDS, Log, failures, pump_of, pumping, put
from tests.stage import GROUP, HANDOFF_S, LATENCY_S, VIRTUAL_TIME, Stage, about, beside, verb_of
from tests.world.diary import passes

__all__: list[str] = []

OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")
FREE = replace(OWNED, owner=None)


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def taking(record_s: float) -> Log:
    """A processor that takes so long for each record."""

    async def work(_: Record, __: Batch) -> None:
        await anyio.sleep(record_s)

    return Log(on_record=work)


# --- Handing on -----------------------------------------------------------------------------------------------------


async def test_pump_hands_every_record_to_the_processor_once_and_in_order() -> None:
    """The first thing of all."""
    stage = Stage()
    put(stage, 35)
    async with pumping(stage) as it:
        await it.handled(35)
        put(stage, 5)
        await it.handled(40)

        assert it.log.started == it.log.finished == list(range(1, 41))
        assert (it.log.made, it.log.closed, failures(stage)) == (1, [], [])


async def test_processor_is_opened_with_what_it_needs() -> None:
    """Its fencing token, where it goes on, and what the host shares."""
    stage = Stage()
    stage.apply(SaveCheckpoint(partition="p0", owner=stage.take("p0").owner or "", token=1, position="3", seq=1))
    put(stage, 4)
    async with pumping(stage) as it:
        await it.handled(1)

        assert it.log.opened == [
            ProcessorContext(
                partition="p0", lease=it.lease, position="3", host_id="a", group=GROUP, resources={"pool": 1}
            )
        ]
        assert (it.log.started, it.lease.token) == ([4], 2)
        assert stage.events_of(PumpStarted) == [
            PumpStarted(partition="p0", token=2, position="3", since_acquired_s=about(0.0))
        ]


async def test_batches_keep_within_their_bounds() -> None:
    """What is done again after a crash, and what a hand-over waits for."""
    stage = Stage()
    put(stage, 25, size=1)
    put(stage, 4, size=400)
    put(stage, 1, size=5000)
    async with pumping(stage) as it:
        await it.handled(30)

        # By records, then by bytes; a record that is larger than all bytes comes alone.
        assert it.log.batches == [10, 10, 7, 2, 1]


async def test_handled_batch_is_told() -> None:
    """Counts, seconds and lag are what people watch."""
    stage = Stage()
    for n in range(15):
        stage.source.put("p0", b"xyz", time_s=100.0 + n)
    async with pumping(stage, taking(0.1)) as it:
        await it.handled(15)
        await passes(0.1)

        assert stage.events_of(BatchHandled) == [
            BatchHandled(partition="p0", records=10, bytes=30, duration_s=about(1.0), lag_s=5.0),
            BatchHandled(partition="p0", records=5, bytes=15, duration_s=about(0.5), lag_s=0.0),
        ]


async def test_batch_carries_its_lease_and_its_lag() -> None:
    """A processor may skip what is cheap to skip when it is far behind."""
    stage = Stage()
    for n in range(15):
        stage.source.put("p0", b"x", time_s=100.0 + n)
    seen: list[tuple[str, Lease, float | None]] = []

    async def note(_: Record, batch: Batch) -> None:
        seen.append((batch.partition, batch.lease, batch.lag_s))

    async with pumping(stage, Log(on_record=note)) as it:
        await it.handled(15)

        assert seen == [("p0", it.lease, 5.0)] * 10 + [("p0", it.lease, 0.0)] * 5


async def test_pump_reads_ahead_no_further_than_its_bounds() -> None:
    """A slow processor must not fill the memory: two batches ahead and the one in hand."""
    stage = Stage()
    put(stage, 500)
    async with pumping(stage, taking(30.0)) as it:
        await it.handled(1)
        await passes(29)

        assert stage.network.fetched["p0"] == BOUNDS.prefetch_records_max


async def test_pump_waits_for_room_in_the_budget_of_the_host() -> None:
    """Another partition's records are in memory too."""
    stage = Stage()
    put(stage, 500, size=10)
    budget = ByteBudget(1000)
    budget.take(950)
    async with pumping(stage, taking(0.1), budget=budget) as it:
        await it.handled(5)
        in_turns = budget.used
        await it.handled(100)

        # One read overshoots the budget; then each waits for the batch before it.
        assert (in_turns, stage.network.fetched["p0"] <= 110) == (1050, True)


async def test_function_is_run_as_a_processor() -> None:
    """The smallest thing that works."""
    stage = Stage()
    put(stage, 15)
    positions: list[int] = []

    async def handle(batch: Batch) -> None:
        positions.extend(int(record.position) for record in batch)

    async with pumping(stage, factory=factory_of(handle)) as it:
        await passes(0.5)
        it.drain()
        assert await it.over() == "drained"

    assert (positions, stage.lease()) == (list(range(1, 16)), replace(FREE, position="15", seq=1))


async def test_current_lease_is_known_in_every_part_of_a_processor_and_nowhere_else() -> None:
    """A library deep below it finds the fencing token."""
    stage = Stage()
    put(stage, 1)
    seen: list[HeldLease | None] = []

    async def look(*_: object) -> None:
        seen.append(current_lease())

    async def look_in_a_task(*_: object) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)

    async with pumping(stage, Log(on_open=look, on_record=look_in_a_task, on_close=look)) as it:
        await it.handled(1)
        await look()
        it.drain()
        await it.over()

        assert seen == [it.lease, it.lease, None, it.lease]
        assert current_lease() is None


# --- Checkpoints ----------------------------------------------------------------------------------------------------


async def test_batch_is_stored_within_an_interval_after_process_returned_and_not_before() -> None:
    """Once `process` returned, all of its records count as done; none of them does earlier."""
    stage = Stage()
    put(stage, 20)
    async with pumping(stage, taking(0.25)) as it:
        await it.handled(9)
        before = stage.sent(SaveCheckpoint)
        await it.handled(10)
        await passes(BOUNDS.checkpoint_interval_s + 0.1)

        assert (before, stage.lease()) == ([], replace(OWNED, position="10", seq=1))


async def test_checkpoints_are_as_rare_as_their_interval() -> None:
    """A write per batch would cost more than the work."""
    stage = Stage()
    put(stage, 400)
    async with pumping(stage, taking(0.01), checkpoint_interval_s=1.0) as it:
        await it.handled(400)
        took_s = stage.now_s - it.began_s

        assert 3 <= len(stage.sent(SaveCheckpoint)) <= took_s / 1.0


async def test_batch_checkpoint_stores_up_to_a_record_at_once() -> None:
    """A user who has just committed a half of a batch need not do it again."""
    stage = Stage()
    put(stage, 10)
    seen: list[tuple[int, str]] = []

    async def save(record: Record, batch: Batch) -> None:
        if record.position in ("4", "10"):
            await batch.checkpoint(record if record.position == "4" else None)
            seen.append((int(record.position), stage.lease().position))

    async with pumping(stage, Log(on_record=save), checkpoint_interval_s=100.0) as it:
        await it.handled(10)

    assert seen == [(4, "4"), (10, "10")]


async def test_batch_checkpoint_of_an_earlier_record_does_not_move_back() -> None:
    """The second of two calls may name the first of two records."""
    stage = Stage()
    put(stage, 10)

    async def save(record: Record, batch: Batch) -> None:
        records = list(batch)
        if record.position == "6":
            await batch.checkpoint(record)
            await batch.checkpoint(records[2])

    async with pumping(stage, Log(on_record=save), checkpoint_interval_s=100.0) as it:
        await it.handled(10)

        assert stage.lease() == replace(OWNED, position="6", seq=1)


# --- Drain ----------------------------------------------------------------------------------------------------------


async def test_drain_lets_the_running_batch_end_and_releases_with_it() -> None:
    """It starts no new batch, discards what was read ahead, and ends no iteration early."""
    stage = Stage()
    put(stage, 100)
    budget = ByteBudget(10**6)
    async with pumping(stage, taking(0.5), budget=budget, checkpoint_interval_s=100.0) as it:
        await it.handled(13)
        it.drain()
        assert await it.over() == "drained"

        assert it.log.started == it.log.finished == list(range(1, 21))
        assert it.log.closed == [CloseReason.HANDED_OFF]
        assert stage.lease() == replace(FREE, position="20", seq=1)
        assert (it.freed, budget.used, it.lease.end_reason) == ([it.lease], 0, EndReason.RELEASED)
        assert stage.sent(SaveCheckpoint) == []


@pytest.mark.parametrize("later", range(12))
async def test_drain_starts_no_new_batch_at_whatever_instant_it_comes(later: int) -> None:
    """A batch that is just being handed on is handed on by the next owner."""
    stage = Stage()
    async with pumping(stage) as it:
        await passes(1)
        put(stage, 1)
        for _ in range(later):
            await anyio.lowlevel.checkpoint()
        it.drain()
        started = list(it.log.started)
        assert await it.over() == "drained"

        assert (it.log.started, stage.lease().position) == (started, "1" if started else "@earliest")


async def test_drain_of_an_idle_partition_is_over_at_once() -> None:
    """A read that waits for records is not waited for."""
    stage = Stage()
    async with pumping(stage) as it:
        await passes(5)
        it.drain()
        began_s = stage.now_s
        assert await it.over() == "drained"

        assert (stage.now_s - began_s, stage.lease()) == (about(LATENCY_S), FREE)


async def test_lease_is_still_held_while_a_drained_processor_closes() -> None:
    """What it commits there is under the fence."""
    stage = Stage()
    seen: list[tuple[bool, bool]] = []

    async def look(_: CloseReason) -> None:
        seen.append((it.lease.is_held(), it.lease.asked.is_set()))
        await passes(1)
        seen.append((it.lease.is_held(), stage.lease().owner == "a:1"))

    async with pumping(stage, Log(on_close=look)) as it:
        await passes(1)
        it.drain()
        await it.over()

    assert seen == [(True, True), (True, True)]


async def test_drain_reads_nothing_more() -> None:
    """What would be discarded need not be read; sources are limited, and the next owner is reading too."""
    stage = Stage()
    put(stage, 2000)
    async with pumping(stage, taking(1.0)) as it:
        await it.handled(3)
        fetched = stage.network.fetched["p0"]
        it.drain()
        await it.over()

        # One read may have been on its way.
        assert stage.network.fetched["p0"] <= fetched + BOUNDS.batch_records_max


async def test_drain_cancels_a_process_that_takes_too_long_near_the_deadline_of_the_ask() -> None:
    """So early that `close` and the release fit in; what it had not stored is done again elsewhere."""
    stage = Stage()
    put(stage, 20)
    async with pumping(stage, taking(3.0), checkpoint_interval_s=100.0) as it:
        asked_s = stage.now_s - 2 * LATENCY_S
        stage.ask("a:1", "p0", 1)
        assert await it.over() == "drained"

        deadline_s = asked_s + HANDOFF_S
        assert stage.now_s == about(deadline_s - BOUNDS.release_margin_s + LATENCY_S)
        assert (it.log.closed, it.lease.end_reason) == ([CloseReason.HANDED_OFF], EndReason.RELEASED)
        # Nothing of the batch counts as done, and that is told.
        assert (it.log.finished, stage.lease()) == ([1, 2, 3, 4, 5], FREE)
        assert stage.events_of(BatchCut) == [BatchCut(partition="p0", token=1, records=10)]


async def test_drain_that_cancels_a_batch_keeps_what_its_user_has_checkpointed() -> None:
    """The mark of the user is exact."""
    stage = Stage()
    put(stage, 20)

    async def work(record: Record, batch: Batch) -> None:
        await passes(3.0)
        if record.position == "3":
            stage.disturb(verb_of(SaveCheckpoint), lose_request=True)
            with anyio.move_on_after(1.5):
                await batch.checkpoint(record)

    async with pumping(stage, Log(on_record=work), checkpoint_interval_s=100.0) as it:
        stage.ask("a:1", "p0", 1)
        await it.over()

        # The write itself never arrived; the release carries the mark.
        assert (it.log.finished, stage.lease().position, stage.lease().owner) == ([1, 2, 3, 4], "3", None)


async def test_drain_of_a_paused_partition_waits_for_its_batch_however_long_it_takes() -> None:
    """Nobody waits for the lease, so nothing need be done twice."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, taking(100.0)) as it:
        await it.handled(1)
        stage.apply(Pause(partition="p0", seen_token=1))
        it.session.compare([stage.lease()])
        assert await it.over() == "drained"

        assert (it.log.finished, stage.lease()) == (
            [1, 2, 3],
            replace(FREE, paused=True, position="3", seq=1),
        )


async def test_drain_notices_a_deadline_that_comes_nearer() -> None:
    """A paused partition may be asked for, and a host may be told to stop, while the batch is at work."""
    stage = Stage()
    put(stage, 3)
    stop_by_s = [math.inf]
    async with pumping(stage, taking(100.0), stop_by_s=lambda: stop_by_s[0]) as it:
        await passes(10)
        it.drain()
        await passes(10)
        stop_by_s[0] = stage.clock.now_s() + 5
        began_s = stage.now_s
        await it.over()

        assert 5 <= stage.now_s - began_s <= 5 + 0.5 + LATENCY_S


async def test_drain_of_a_stopping_host_tells_the_processor_why() -> None:
    """A user may keep a connection for the next partition, but not for none."""
    stage = Stage()
    async with pumping(stage) as it:
        await passes(1)
        it.stopping.set()
        it.drain()
        await it.over()

        assert it.log.closed == [CloseReason.HOST_STOPPING]


async def test_lease_that_was_asked_for_before_its_pump_began_is_released_unopened() -> None:
    """An ask may overtake the answer of the acquire."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, before=lambda lease: lease.asked.set()) as it:
        assert await it.over() == "drained"

        assert (it.log.made, it.freed, stage.lease()) == (0, [it.lease], FREE)


async def test_drain_cancels_an_open_that_takes_too_long() -> None:
    """Else the lease would be taken by force, and a host could not stop in order."""
    stage = Stage()

    async def hang(_: ProcessorContext) -> None:
        await anyio.sleep_forever()

    async with pumping(stage, Log(on_open=hang)) as it:
        stage.ask("a:1", "p0", 1)
        assert await it.over() == "drained"

        # What was not opened is not closed.
        assert (it.log.closed, it.lease.end_reason, stage.lease()) == ([], EndReason.RELEASED, FREE)


async def test_drain_leaves_a_close_half_of_the_margin() -> None:
    """The other half is for the release, which somebody waits for."""
    stage = Stage()

    async def hang(_: CloseReason) -> None:
        await anyio.sleep_forever()

    async with pumping(stage, Log(on_close=hang), close_timeout_s=100.0) as it:
        asked_s = stage.now_s - 2 * LATENCY_S
        stage.ask("a:1", "p0", 1)
        assert await it.over() == "drained"

        assert stage.now_s == about(asked_s + HANDOFF_S - BOUNDS.release_margin_s / 2 + LATENCY_S)
        assert (it.lease.end_reason, stage.lease()) == (EndReason.RELEASED, FREE)


async def test_close_has_its_time_out_where_no_deadline_is_nearer() -> None:
    """A user's `close` that hangs must not keep a partition from everybody."""
    stage = Stage()

    async def hang(_: CloseReason) -> None:
        await anyio.sleep_forever()

    async with pumping(stage, Log(on_close=hang)) as it:
        await passes(1)
        it.drain()
        began_s = stage.now_s
        assert await it.over() == "drained"

        assert stage.now_s - began_s == about(BOUNDS.close_timeout_s + LATENCY_S)


async def test_release_that_fails_ends_the_pump_all_the_same() -> None:
    """A later read of the store shows what became of it; nobody may believe that it is free."""
    stage = Stage()
    stage.disturb(verb_of(Release), fail_before=True)
    async with pumping(stage) as it:
        await passes(1)
        it.drain()
        assert await it.over() == "drained"

        assert (it.freed, stage.lease(), len(stage.events_of(ReleaseFailed))) == ([], OWNED, 1)


async def test_processor_has_ended_before_the_lease_is_freed() -> None:
    """Whoever sees it free may rely on it; and a host that stops is not waiting for user code any more."""
    stage = Stage()
    stage.disturb(verb_of(Release), before_s=0.5)
    async with pumping(stage) as it:
        await passes(1)
        before = it.pump.has_ended
        it.drain()
        await passes(0.1)

        assert (before, it.pump.has_ended, it.pump.finished.is_set()) == (False, True, False)
        assert (it.log.closed, stage.lease()) == ([CloseReason.HANDED_OFF], OWNED)
        await it.over()


# --- The end of the lease -------------------------------------------------------------------------------------------


async def test_lost_lease_stops_everything_at_once_and_sends_nothing() -> None:
    """Another host is at work on the partition."""
    stage = Stage()
    put(stage, 100)
    budget = ByteBudget(10**6)
    async with pumping(stage, taking(0.5), budget=budget) as it:
        await it.handled(3)
        it.lease.end(EndReason.SEEN_TAKEN)
        lost_s = stage.now_s
        sent = len(stage.sent(SaveCheckpoint, Release, Complete))
        assert await it.over() == "lease lost"
        await passes(30)

        assert (it.log.started, it.log.finished) == ([1, 2, 3, 4], [1, 2, 3])
        assert (it.log.closed, it.freed, budget.used) == ([CloseReason.LEASE_LOST], [], 0)
        assert len(stage.sent(SaveCheckpoint, Release, Complete)) == sent
        assert stage.network.calls[-1][0] <= lost_s + 30


async def test_lease_that_is_lost_while_nothing_runs_is_noticed_at_once() -> None:
    """An idle partition may be lost too."""
    stage = Stage()
    async with pumping(stage) as it:
        await passes(5)
        it.lease.end(EndReason.SEEN_TAKEN)
        began_s = stage.now_s
        assert await it.over() == "lease lost"

        assert (stage.now_s - began_s, it.log.closed) == (0, [CloseReason.LEASE_LOST])


async def test_lease_that_is_lost_during_open_leaves_nothing_to_close() -> None:
    """`close` is called once for each `open` that returned."""
    stage = Stage()

    async def hang(_: ProcessorContext) -> None:
        await anyio.sleep_forever()

    async with pumping(stage, Log(on_open=hang)) as it:
        await passes(5)
        it.lease.end(EndReason.SEEN_TAKEN)
        assert await it.over() == "lease lost"

        assert (it.log.made, it.log.closed) == (1, [])


async def test_lease_that_had_ended_before_its_pump_began_opens_nothing() -> None:
    """The answer of its acquire came too late."""
    stage = Stage()
    async with pumping(stage, before=lambda lease: lease.end(EndReason.SESSION_ENDED)) as it:
        assert await it.over() == "lease lost"

        assert (it.log.made, stage.sent(Release)) == (0, [])


async def test_process_that_blocked_through_the_end_of_its_lease_starts_no_further_record() -> None:
    """The iteration finds out before anything else on the loop could tell it, and nothing is marked."""
    stage = Stage()
    put(stage, 10)

    async def block(record: Record, _: Batch) -> None:
        if record.position == "3":
            # As `time.sleep` does: the clock goes on, the loop does not.
            stage.clock.jump(100)

    async with pumping(stage, Log(on_record=block)) as it:
        assert await it.over() == "lease lost"

        assert (it.log.started, it.log.closed) == ([1, 2, 3], [CloseReason.LEASE_LOST])
        assert (stage.sent(SaveCheckpoint, Release), failures(stage)) == ([], [])


async def test_lease_that_ran_out_while_a_batch_was_awaited_starts_none() -> None:
    """A machine that was suspended finds a record waiting; its processor is not even called."""
    stage = Stage()
    async with pumping(stage) as it:
        await passes(1)
        stage.clock.jump(100)
        put(stage, 1)
        assert await it.over() == "lease lost"

        assert (it.log.batches, it.log.closed) == ([], [CloseReason.LEASE_LOST])


async def test_lease_that_is_lost_while_a_drained_processor_closes_is_not_released() -> None:
    """The end of the term counts, not how the drain had begun."""
    stage = Stage()

    async def lose(_: CloseReason) -> None:
        it.lease.end(EndReason.SEEN_TAKEN)

    async with pumping(stage, Log(on_close=lose)) as it:
        await passes(1)
        it.drain()
        assert await it.over() == "lease lost"

        assert (stage.sent(Release), it.freed) == ([], [])


async def test_checkpoint_that_the_fence_refuses_ends_the_term() -> None:
    """The store knows better than this host's clock."""
    stage = Stage()
    put(stage, 10)

    async def save(record: Record, batch: Batch) -> None:
        if record.position == "3":
            stage.take("p0")
            await batch.checkpoint(record)

    async with pumping(stage, Log(on_record=save)) as it:
        assert await it.over() == "lease lost"

        assert (it.log.closed, it.lease.end_reason) == ([CloseReason.LEASE_LOST], EndReason.REFUSED)
        assert (stage.lease(), failures(stage)) == (a_lease("p0", owner="b:1", token=2, last_host="b"), [])


async def test_regular_checkpoint_that_the_fence_refuses_ends_the_term() -> None:
    """Also where the user never asks for one."""
    stage = Stage()
    put(stage, 500)
    async with pumping(stage, taking(0.01)) as it:
        await it.handled(10)
        stage.take("p0")
        assert await it.over() == "lease lost"

        assert (it.log.closed, it.lease.end_reason) == ([CloseReason.LEASE_LOST], EndReason.REFUSED)


# --- The end of the partition ---------------------------------------------------------------------------------------


async def test_partition_that_ends_is_completed_with_its_children() -> None:
    """Every record first; then the children may begin."""
    stage = Stage()
    put(stage, 13)
    asked_for: list[str] = []
    child = Child(partition="p0.0", parents=("p0",), position="@earliest")

    async def children(partition: str) -> Sequence[Child]:
        asked_for.append(f"{partition} held {it.lease.is_held()} closed {len(it.log.closed)}")
        return [child]

    async with pumping(stage, children=children, checkpoint_interval_s=100.0) as it:
        await it.handled(13)
        stage.source.close_partition("p0")
        assert await it.over() == "partition ended"

        assert (it.log.finished, it.log.closed) == (list(range(1, 14)), [CloseReason.PARTITION_ENDED])
        assert stage.lease() == replace(FREE, position=END, finished=True)
        assert stage.lease("p0.0") == a_lease("p0.0", parents=("p0",))
        assert (asked_for, it.freed) == (["p0 held True closed 1"], [it.lease])


@pytest.mark.parametrize("error", [SourceUnavailable("throttled"), ValueError("a bug of the source")])
async def test_partition_is_completed_without_its_children_when_the_source_does_not_list_them(error: Exception) -> None:
    """Discovery makes them later; what was read to its end need not be read again."""
    stage = Stage()
    put(stage, 3)
    stage.source.close_partition("p0")

    async def children(_: str) -> Sequence[Child]:
        raise error

    async with pumping(stage, children=children) as it:
        assert await it.over() == "partition ended"

        assert stage.lease() == replace(FREE, position=END, finished=True)


async def test_partition_that_ends_with_the_batch_that_a_drain_waits_for_is_completed() -> None:
    """Nothing is left to hand over."""
    stage = Stage()
    put(stage, 3)
    stage.source.close_partition("p0")
    async with pumping(stage, taking(1.0)) as it:
        await it.handled(1)
        it.drain()
        assert await it.over() == "partition ended"

        assert (it.log.closed, stage.lease().finished) == ([CloseReason.PARTITION_ENDED], True)


async def test_end_that_was_read_ahead_completes_nothing_before_its_records_are_handled() -> None:
    """The reader is ahead of the processor."""
    stage = Stage()
    put(stage, 20)
    stage.source.close_partition("p0")
    async with pumping(stage, taking(1.0)) as it:
        await it.handled(12)
        it.drain()
        await it.over()

        assert (it.log.finished[-1], stage.lease().finished) == (20, True)

    stage = Stage()
    put(stage, 20)
    stage.source.close_partition("p0")
    async with pumping(stage, taking(1.0)) as it:
        await it.handled(2)
        it.drain()
        assert await it.over() == "drained"

        assert (it.log.finished[-1], stage.lease()) == (10, replace(FREE, position="10", seq=1))


async def test_complete_that_fails_frees_nothing() -> None:
    """The next term reads the end again."""
    stage = Stage()
    stage.source.close_partition("p0")
    stage.disturb(verb_of(Complete), fail_before=True)
    async with pumping(stage) as it:
        assert await it.over() == "partition ended"

        assert (it.freed, stage.lease()) == ([], OWNED)


# --- The end of the host --------------------------------------------------------------------------------------------


async def test_cancelled_pump_closes_its_processor_and_frees_nothing() -> None:
    """The host is stopped at once; its session ends, and with it the lease."""
    stage = Stage()
    put(stage, 10)
    log = taking(1.0)

    async def slow(_: CloseReason) -> None:
        log.finished.append(-1)
        await anyio.sleep_forever()

    log.on_close = slow
    async with pumping(stage, log) as it:
        await it.handled(2)
        began_s = stage.now_s

    # Bounded far below the time-out of `close`: somebody is waiting for the host to be gone.
    assert (log.closed, log.finished[-1]) == ([CloseReason.HOST_STOPPING], -1)
    assert stage.now_s - began_s == about(1.0)
    assert stage.sent(Release, Complete) == []


@pytest.mark.parametrize("closed", [False, True])
def test_pump_that_is_cancelled_anywhere_closes_what_it_opened_and_frees_only_in_order(closed: bool) -> None:
    """No reader, no byte of the budget and no processor is left behind, and no record counts that was not done."""
    ends: set[str] = set()

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        put(stage, 12)
        if closed:
            stage.source.close_partition("p0")
        stage.disturb(verb_of(SaveCheckpoint), fail_before=True, times=1)
        log = taking(0.3)
        log.on_close = lambda _: passes(0.1)
        budget = ByteBudget(10**6)
        async with stage.living() as session:
            lease = await stage.acquired(session)
            it = pump_of(stage, session, lease, log, budget=budget)

            async def drain_later() -> None:
                await passes(3)
                it.drain()

            async with beside(drain_later):
                await cut.during(it.run)

            assert len(log.closed) == len(log.opened) <= log.made <= 1
            assert budget.used == 0
            stored = stage.lease()
            done = 12 if stored.finished else 0 if stored.position == "@earliest" else int(stored.position)
            assert done <= len(log.finished)
            assert (stored.owner is None) is not lease.is_held()
            ends.add("freed" if stored.owner is None else "kept")

    assert at_every_point(scenario) > 10
    assert ends == {"freed", "kept"}
