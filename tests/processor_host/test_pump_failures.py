"""
Failures of user code and of the source: they stay in their partition, and no record is ever skipped for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.errors import LeaseLost, SourceUnavailable
from partitions.events import EndReason
from partitions.sources.base import Record
from partitions.verbs import Release, SaveCheckpoint
from processor_host.events import ProcessorFailed, PumpStarted, ReadFailed
from processor_host.kinds import factory_of
from processor_host.processor import Batch, CloseReason, ProcessorContext
from tests.builders import a_lease
from tests.processor_host.pumping import Log, failures, pumping, put
from tests.stage import HANDOFF_S, LATENCY_S, VIRTUAL_TIME, Stage, about, verb_of
from tests.world.diary import passes
from tests.world.loop import run_virtual

__all__: list[str] = []

OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")
FREE = replace(OWNED, owner=None)


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Times:
    """Raises the first few times that it is called."""

    def __init__(self, count: int, error: Callable[[], BaseException] = lambda: ValueError("the user's")) -> None:
        self.left = count
        self._error = error

    async def __call__(self, *_: object) -> None:
        if self.left:
            self.left -= 1
            raise self._error()


def failing_at(position: int, times: Times) -> Callable[[Record, Batch], Awaitable[None]]:
    """Fail at one record, as often as `times` says."""

    async def on_record(record: Record, _: Batch) -> None:
        if int(record.position) == position:
            await times()

    return on_record


async def cancelled_inside(*_: object) -> None:
    """Await something of one's own that was cancelled, as a client does whose connection is being closed."""
    inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    inner.cancel()
    await inner


# --- Run again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage_of", ["open", "process"])
async def test_processor_that_fails_is_opened_again_with_growing_pauses(stage_of: str) -> None:
    """Whatever is broken has time to be mended, and does not fill the log."""
    stage = Stage()
    put(stage, 10)
    fails = Times(4)
    log = Log(on_open=fails) if stage_of == "open" else Log(on_record=failing_at(1, fails))
    began: list[float] = []
    async with pumping(stage, log) as it:
        with anyio.fail_after(60):
            while len(began) < 5:
                began += [stage.now_s] * (len(failures(stage)) + bool(it.log.finished) - len(began))
                await passes(0.05)

        assert failures(stage) == [(stage_of, attempt) for attempt in (1, 2, 3, 4)]
        pauses = [event.pause_s for event in stage.events_of(ProcessorFailed)]
        assert [full / 2 <= pause_s <= full for pause_s, full in zip(pauses, (1, 2, 4, 8), strict=True)] == [True] * 4
        waited = [later - earlier for earlier, later in pairwise(began)]
        assert [abs(wait_s - pause_s) < 0.2 for wait_s, pause_s in zip(waited, pauses, strict=True)] == [True] * 4
        # One instance for the term; only an `open` that returned is closed.
        assert (log.made, log.closed) == (1, [] if stage_of == "open" else [CloseReason.FAILED] * 4)
        assert (log.finished[0], it.lease.is_held()) == (1, True)


async def test_failure_is_told_with_its_stage_its_error_and_its_traceback() -> None:
    """A person must find the line."""
    stage = Stage()
    put(stage, 1)
    async with pumping(stage, Log(on_record=failing_at(1, Times(1)))):
        await passes(0.5)

        (failed,) = stage.events_of(ProcessorFailed)
        assert replace(failed, traceback="", pause_s=0.0) == ProcessorFailed(
            partition="p0",
            token=1,
            stage="process",
            error="ValueError: the user's",
            traceback="",
            attempt=1,
            pause_s=0.0,
        )
        assert 'raise self._error()\nValueError: the user\'s' in failed.traceback


async def test_processor_goes_on_from_what_was_done_when_it_failed() -> None:
    """The batch that failed comes again as a whole, the ones before do not."""
    stage = Stage()
    put(stage, 25)
    async with pumping(stage, Log(on_record=failing_at(13, Times(1))), checkpoint_interval_s=100.0) as it:
        await it.handled(27)

        assert it.log.started == [*range(1, 14), *range(11, 26)]
        assert [context.position for context in it.log.opened] == ["@earliest", "10"]
        assert [event.position for event in stage.events_of(PumpStarted)] == ["@earliest", "10"]
        # What was done is stored before the pause: this host may die in it.
        assert stage.lease() == replace(OWNED, position="10", seq=1)


async def test_processor_goes_on_after_the_record_that_it_had_checkpointed_in_the_batch_that_failed() -> None:
    """The user's own checkpoint is exact."""
    stage = Stage()
    put(stage, 10)
    fails = Times(1)

    async def work(record: Record, batch: Batch) -> None:
        if record.position == "4":
            await batch.checkpoint(record)
        if record.position == "7":
            await fails()

    async with pumping(stage, Log(on_record=work), checkpoint_interval_s=100.0) as it:
        await it.handled(12)

        assert it.log.started == [*range(1, 8), *range(5, 11)]
        assert [context.position for context in it.log.opened] == ["@earliest", "4"]


async def test_pauses_begin_anew_after_a_batch_that_worked() -> None:
    """Ten failures in a year are not one that lasts."""
    stage = Stage()
    put(stage, 30)
    both = [failing_at(5, Times(2)), failing_at(15, Times(2))]

    async def work(record: Record, batch: Batch) -> None:
        for each in both:
            await each(record, batch)

    async with pumping(stage, Log(on_record=work)) as it:
        await it.handled(30 + 2 * 4 + 2 * 4)

    assert failures(stage) == [("process", attempt) for attempt in (1, 2, 1, 2)]


@pytest.mark.parametrize("made", [None, "a processor", Times])
async def test_factory_that_makes_no_processor_is_a_failure_to_open(made: Any) -> None:
    """Also one that raises; the next try asks it again."""
    stage = Stage()
    put(stage, 3)
    log = Log()
    asked: list[int] = []

    def factory() -> Any:
        asked.append(1)
        if len(asked) == 1:
            if made is Times:
                raise ValueError("no database")
            return made
        return log.factory()

    async with pumping(stage, log, factory=factory) as it:
        await it.handled(3)

    assert (failures(stage), len(asked), it.log.closed) == ([("open", 1)], 2, [CloseReason.HOST_STOPPING])


async def test_close_that_fails_after_a_failure_does_not_end_the_pump() -> None:
    """A broken processor is often broken in both."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, Log(on_record=failing_at(2, Times(1)), on_close=Times(1))) as it:
        await it.handled(4)

    assert failures(stage) == [("close", 0), ("process", 1)]
    assert it.log.started == [1, 2, 1, 2, 3]


async def test_close_that_fails_at_the_end_of_a_partition_is_run_again() -> None:
    """It may have had work to do, such as a last flush; then the partition is not done."""
    stage = Stage()
    put(stage, 3)
    stage.source.close_partition("p0")
    async with pumping(stage, Log(on_close=Times(2))) as it:
        assert await it.over() == "partition ended"

    assert it.log.closed == [CloseReason.PARTITION_ENDED] * 3
    assert (it.log.started, it.log.made, stage.lease().finished) == ([1, 2, 3], 1, True)
    assert [context.position for context in it.log.opened] == ["@earliest", "3", "3"]


async def test_close_that_fails_in_a_drain_does_not_keep_the_lease() -> None:
    """Somebody waits for it, and the next owner goes on from the checkpoint anyway."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, Log(on_close=Times(1))) as it:
        await it.handled(3)
        it.drain()
        assert await it.over() == "drained"

    assert (failures(stage), stage.lease()) == ([("close", 0)], replace(FREE, position="3", seq=1))


# --- What counts as a failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["open", "process", "close"])
async def test_cancellation_of_the_users_own_is_a_failure_and_no_silent_end(where: str) -> None:
    """Passing it on would end the pump without a word and keep the lease without a processor."""
    stage = Stage()
    put(stage, 3)
    stage.source.close_partition("p0")
    first = [True]

    async def once(*_: object) -> None:
        if first:
            first.clear()
            await cancelled_inside()

    log = Log()
    setattr(log, {"open": "on_open", "process": "on_record", "close": "on_close"}[where], once)
    async with pumping(stage, log) as it:
        assert await it.over() == "partition ended"

    assert it.log.finished[-3:] == [1, 2, 3]
    assert stage.events_of(ProcessorFailed)[0].error.startswith("CancelledError")
    assert failures(stage)[0][0] == where


async def test_exit_that_user_code_asks_for_is_a_failure_of_its_partition() -> None:
    """A `sys.exit` deep in a library must not take the host, and all of its partitions, with it."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, Log(on_record=failing_at(2, Times(1, lambda: SystemExit(3))))) as it:
        await it.handled(4)

        assert (failures(stage), it.lease.is_held()) == ([("process", 1)], True)
        assert stage.events_of(ProcessorFailed)[0].error == "SystemExit: 3"


async def test_lost_lease_of_another_partition_is_a_failure_of_this_one() -> None:
    """A user may use a second lease; this one goes on."""
    stage = Stage()
    put(stage, 3)

    def other() -> LeaseLost:
        return LeaseLost("other", held=7, reason="released")

    async with pumping(stage, Log(on_record=failing_at(2, Times(1, other)))) as it:
        await it.handled(4)

        assert (failures(stage), it.log.closed, it.lease.is_held()) == (
            [("process", 1)],
            [CloseReason.FAILED],
            True,
        )


async def test_checkpoint_of_a_foreign_record_is_the_users_failure() -> None:
    """It is told to them, and nothing is marked."""
    stage = Stage()
    put(stage, 25)
    kept: list[Record] = []

    async def save(record: Record, batch: Batch) -> None:
        kept.append(record)
        if len(kept) == 11:
            await batch.checkpoint(kept[0])

    async with pumping(stage, Log(on_record=save)) as it:
        await it.handled(25)

    (failed,) = stage.events_of(ProcessorFailed)
    assert failed.error.startswith("ValueError: checkpoint(upto=…): the record at '1' of 'p0'")
    assert [context.position for context in it.log.opened] == ["@earliest", "10"]


async def test_source_that_fails_is_no_failure_of_the_processor() -> None:
    """It is read again from the last record handed on, while the processor goes on with what there is."""
    stage = Stage()
    put(stage, 40)
    stage.disturb(lambda call: call.operation == "source.read", raises=SourceUnavailable("throttled"), times=2)
    async with pumping(stage) as it:
        await it.handled(10)
        fault = stage.disturb(lambda call: call.operation == "source.read", raises=ValueError("a bug"), times=3)
        await it.handled(40)

        assert it.log.started == list(range(1, 41))
        assert (len(it.log.opened), failures(stage), fault.hits) == (1, [], 3)
        assert len(stage.events_of(ReadFailed)) == 5


# --- Failing while the lease goes -----------------------------------------------------------------------------------


async def test_ask_ends_the_pause_of_a_failed_processor() -> None:
    """Who is broken here may not be broken there."""
    stage = Stage()
    put(stage, 20)
    async with pumping(stage, Log(on_record=failing_at(12, Times(99))), checkpoint_interval_s=100.0) as it:
        await passes(20)
        opened = len(it.log.opened)
        it.drain()
        began_s = stage.now_s
        assert await it.over() == "drained"

        assert (stage.now_s - began_s, len(it.log.opened)) == (about(LATENCY_S), opened)
        assert stage.lease().owner is None
        assert stage.lease().position == "10"


async def test_lost_lease_ends_the_pause_of_a_failed_processor() -> None:
    """Nothing is opened, stored or released under it any more."""
    stage = Stage()
    put(stage, 20)
    async with pumping(stage, Log(on_record=failing_at(12, Times(99)))) as it:
        await passes(20)
        opened = len(it.log.opened)
        it.lease.end(EndReason.SEEN_TAKEN)
        assert await it.over() == "lease lost"

        assert (len(it.log.opened), stage.sent(Release)) == (opened, [])


async def test_processor_that_fails_during_a_drain_is_released_with_what_was_done() -> None:
    """It is not run again here."""
    stage = Stage()
    put(stage, 20)

    async def work(record: Record, _: Batch) -> None:
        await passes(0.5)
        if record.position == "15":
            raise ValueError("the user's")

    async with pumping(stage, Log(on_record=work), checkpoint_interval_s=100.0) as it:
        await it.handled(12)
        it.drain()
        assert await it.over() == "drained"

        assert (it.log.closed, len(it.log.opened)) == ([CloseReason.FAILED], 1)
        assert (stage.lease().owner, stage.lease().position) == (None, "10")


async def test_processor_that_fails_because_its_lease_is_gone_is_told_so() -> None:
    """Its error comes from the end of the lease, and so does the reason to close."""
    stage = Stage()
    put(stage, 3)

    async def work(_: Record, __: Batch) -> None:
        it.lease.end(EndReason.SEEN_TAKEN)
        raise ValueError("my database refused my token")

    async with pumping(stage, Log(on_record=work)) as it:
        assert await it.over() == "lease lost"

        assert (it.log.closed, len(it.log.opened), stage.sent(SaveCheckpoint)) == ([CloseReason.LEASE_LOST], 1, [])


async def test_failed_processor_waits_for_the_store_to_have_what_was_done() -> None:
    """While the lease is held; the store's outage is not told as the user's failure a second time."""
    stage = Stage()
    put(stage, 20)
    async with pumping(stage, Log(on_record=failing_at(12, Times(1))), checkpoint_interval_s=100.0) as it:
        stage.disturb(verb_of(SaveCheckpoint), fail_before=True, times=2)
        await it.handled(21)

        assert (failures(stage), [context.position for context in it.log.opened]) == (
            [("process", 1)],
            ["@earliest", "10"],
        )


# --- Cancelled user code that does not go quietly -------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
async def test_process_that_swallows_its_cancellation_counts_as_not_done(ended: bool) -> None:
    """It returns in the middle of its batch; its records would be stored as done though nobody has seen them."""
    stage = Stage()
    put(stage, 10)
    if ended:
        stage.source.close_partition("p0")

    async def swallow(record: Record, _: Batch) -> None:
        await passes(4)

    log = Log(on_record=swallow)

    async def handle(batch: Batch) -> None:
        try:
            for record in batch:
                log.started.append(int(record.position))
                await log.on_record(record, batch)
                log.finished.append(int(record.position))
        except asyncio.CancelledError:
            return

    async with pumping(stage, log, factory=factory_of(handle), checkpoint_interval_s=100.0) as it:
        stage.ask("a:1", "p0", 1)
        assert await it.over() == "drained"

        assert len(log.finished) < 10
        assert stage.lease() == FREE


async def test_process_that_answers_its_cancellation_with_one_of_its_own_is_released() -> None:
    """What it waited for was cancelled too, by itself; the hand-over goes on in order."""
    stage = Stage()
    put(stage, 10)

    async def work(_: Record, __: Batch) -> None:
        # Left behind, so that the next one has nothing to do with it.
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        await cancelled_inside()

    async with pumping(stage, Log(on_record=work)) as it:
        asked_s = stage.now_s - 2 * LATENCY_S
        stage.ask("a:1", "p0", 1)
        assert await it.over() == "drained"

        assert stage.now_s < asked_s + HANDOFF_S
        assert (it.log.closed, it.lease.end_reason) == ([CloseReason.HANDED_OFF], EndReason.RELEASED)


# --- Nothing is skipped ---------------------------------------------------------------------------------------------

RECORDS = 30

troubles = st.lists(
    st.tuples(st.integers(1, RECORDS), st.sampled_from(["fail", "cancelled", "save", "save and fail", "no read"])),
    max_size=8,
)


@given(troubles)
def test_no_record_is_skipped_or_stored_before_it_was_done_whatever_fails(troubles: list[tuple[int, str]]) -> None:
    """Each trouble strikes once, when its record is begun; runs begin right after what was done, and all is done."""

    async def scenario() -> None:
        stage = Stage()
        put(stage, RECORDS)
        stage.source.close_partition("p0")
        left = list(troubles)
        done = [0]

        async def work(record: Record, batch: Batch) -> None:
            position = int(record.position)
            stored = stage.lease().position
            assert 0 <= (0 if stored == "@earliest" else int(stored)) <= max(log.finished, default=0)
            for trouble in [each for each in left if each[0] == position]:
                left.remove(trouble)
                what = trouble[1]
                if what.startswith("save") and position > 1 and log.finished and log.finished[-1] == position - 1:
                    before = next((each for each in batch if int(each.position) == position - 1), None)
                    if before is not None:
                        await batch.checkpoint(before)
                        done[0] = max(done[0], position - 1)
                if what.endswith("fail"):
                    raise ValueError("the user's")
                if what == "cancelled":
                    await cancelled_inside()
                if what == "no read":
                    stage.disturb(
                        lambda call: call.operation == "source.read", raises=SourceUnavailable("away"), times=1
                    )

        async def note(context: ProcessorContext) -> None:
            # Every run begins where the last one was done, and no earlier than the user's own checkpoint.
            begun = 0 if context.position == "@earliest" else int(context.position)
            assert begun >= done[0]
            runs.append(begun)

        runs: list[int] = []
        log = Log(on_record=work, on_open=note)
        async with pumping(stage, log) as it:
            assert await it.over(3600) == "partition ended"

        assert sorted(set(log.finished)) == list(range(1, RECORDS + 1))
        assert runs == sorted(runs)
        # Within a run the order is kept without a gap.
        for earlier, later in pairwise(log.started):
            assert later == earlier + 1 or later - 1 in runs
        assert stage.lease().finished

    run_virtual(scenario)

