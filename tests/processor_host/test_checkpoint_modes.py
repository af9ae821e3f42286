"""
What counts as done: automatically, by the user alone, or record by record. Virtual time.
"""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.base import Record
from processor_host.errors import SettingsError
from processor_host.events import CheckpointMissing, ProcessorFailed, RecordsGivenUp
from processor_host.failures import Skip
from processor_host.handling import handling_of
from processor_host.processor import Batch, CloseReason, PartitionProcessor, RecordProcessor
from processor_host.settings import HostSettings
from tests.processor_host.pumping import Log, RecordScripted, failures, pumping, put
from tests.stage import VIRTUAL_TIME, Stage
from tests.world.diary import passes
from tests.world.loop import run_virtual

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def saving_at(*positions: int) -> Log:
    """A log whose processor checkpoints these records."""

    async def on_record(record: Record, batch: Batch) -> None:
        if int(record.position) in positions:
            await batch.checkpoint(record)

    return Log(on_record=on_record)


# --- Manual ----------------------------------------------------------------------------------------------------------


async def test_manual_mode_stores_what_the_user_checkpoints_and_nothing_else() -> None:
    """A batch that returned may still be in the user's memory only."""
    stage = Stage()
    put(stage, 30)
    async with pumping(stage, saving_at(4), checkpoint="manual") as it:
        await it.handled(30)
        await passes(5)
        stored = stage.lease().position
        it.drain()
        await it.over()

        assert (it.log.started, stored, stage.lease().position) == (list(range(1, 31)), "4", "4")


async def test_manual_mode_takes_the_checkpoint_of_an_earlier_batch() -> None:
    """What is written once in a while covers several batches."""
    stage = Stage()
    put(stage, 30)
    kept: list[Batch] = []

    async def on_record(record: Record, batch: Batch) -> None:
        if batch not in kept:
            kept.append(batch)
        if record.position == "25":
            await kept[1].checkpoint()

    async with pumping(stage, Log(on_record=on_record), checkpoint="manual") as it:
        await it.handled(30)
        await passes(2)

        assert stage.lease().position == "20"


async def test_manual_mode_hands_on_everything_behind_the_last_checkpoint_after_a_failure() -> None:
    """The processor begins afresh, and with it whatever it had in memory."""
    stage = Stage()
    put(stage, 30)
    left = [2]

    async def on_record(record: Record, batch: Batch) -> None:
        if record.position == "4":
            await batch.checkpoint(record)
        if record.position == "25" and left[0]:
            left[0] -= 1
            raise ValueError("not yet")

    async with pumping(stage, Log(on_record=on_record), checkpoint="manual") as it:
        await it.handled(24 + 20 + 26)

        again = [*range(5, 26)]
        assert it.log.started == [*range(1, 26), *again, *range(5, 31)]
        # The batch that fails is another one each time, and yet its failures are counted.
        assert [context.position for context in it.log.opened] == ["@earliest", "4", "4"]


async def test_manual_mode_counts_failures_of_what_begins_at_the_same_record() -> None:
    """Read again, the batch may have other bounds; the limit must be reached all the same."""
    stage = Stage()
    put(stage, 30)

    async def on_record(record: Record, batch: Batch) -> None:
        if record.position == "25":
            raise ValueError("bad")

    async with pumping(
        stage, Log(on_record=on_record), checkpoint="manual", given={"policy": Skip(attempts=3)}
    ):
        await passes(60)

        assert failures(stage) == [("process", 1), ("process", 2), ("process", 3)]
        assert [(event.first, event.last) for event in stage.events_of(RecordsGivenUp)] == [("21", "30")]


async def test_manual_mode_counts_failures_anew_after_what_failed_has_worked() -> None:
    """Read again for another failure, it is not stuck for having failed once long ago."""
    stage = Stage()
    put(stage, 30)
    plan = [15, 25, 15]

    async def on_record(record: Record, batch: Batch) -> None:
        if plan and int(record.position) == plan[0]:
            plan.pop(0)
            raise ValueError("once")

    async with pumping(stage, Log(on_record=on_record), checkpoint="manual", given={"policy": Skip(attempts=2)}):
        await passes(60)

        assert failures(stage) == [("process", 1)] * 3
        assert stage.events_of(RecordsGivenUp) == []


async def test_manual_mode_completes_a_partition_once_its_last_record_is_checkpointed() -> None:
    """Complete is final: what is not stored by then would never be handled again."""
    stage = Stage()
    put(stage, 15)
    stage.source.close_partition("p0")
    kept: list[Batch] = []

    async def on_record(record: Record, batch: Batch) -> None:
        kept.append(batch)

    async with pumping(stage, Log(on_record=on_record), checkpoint="manual") as it:
        await it.handled(15)
        await passes(130)
        missing = stage.events_of(CheckpointMissing)
        finished_early = stage.lease().finished
        await kept[-1].checkpoint()
        assert await it.over() == "partition ended"

        assert (finished_early, stage.lease().finished) == (False, True)
        assert [event.records for event in missing] == [15, 15, 15]
        assert it.log.closed == [CloseReason.PARTITION_ENDED]


async def test_manual_mode_drains_while_it_waits_for_the_last_checkpoint() -> None:
    """A stop must not wait for it; the next owner hands the records on again."""
    stage = Stage()
    put(stage, 15)
    stage.source.close_partition("p0")
    async with pumping(stage, saving_at(10), checkpoint="manual") as it:
        await it.handled(15)
        await passes(5)
        it.drain()
        assert await it.over() == "drained"

        assert (stage.lease().finished, stage.lease().position) == (False, "10")


# --- Every record ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batch", "record"])
async def test_every_record_mode_stores_each_record_before_the_next_begins(kind: str) -> None:
    """A crash repeats one record."""
    stage = Stage()
    put(stage, 5)
    seen: list[tuple[int, str]] = []

    async def on_record(record: Record, _: Batch) -> None:
        seen.append((int(record.position), stage.lease().position))

    log = Log(on_record=on_record)
    factory = log.factory if kind == "batch" else lambda: RecordScripted(log)
    async with pumping(stage, log, factory=factory, checkpoint="every-record", checkpoint_interval_s=99.0) as it:
        await it.handled(5)
        await passes(0.1)

        assert seen == [(1, "@earliest"), (2, "1"), (3, "2"), (4, "3"), (5, "4")]
        assert stage.lease().position == "5"


async def test_every_record_mode_never_takes_a_list_of_the_batch_for_its_handling() -> None:
    """Who collects the records first has handled none of them; marking at iteration would lose them."""
    stage = Stage()
    put(stage, 3)

    class Collecting(PartitionProcessor):
        async def process(self, batch: Batch) -> None:
            list(batch)
            raise ValueError("and now the database is away")

    async with pumping(stage, factory=Collecting, checkpoint="every-record"):
        await passes(20)

        assert stage.lease().position == "@earliest"


# --- What fits together ----------------------------------------------------------------------------------------------


class OfBatches(PartitionProcessor):
    async def process(self, batch: Batch) -> None:
        """Does nothing."""


class OfRecords(RecordProcessor):
    async def handle(self, record: Record) -> None:
        """Does nothing."""


@pytest.mark.parametrize(
    ("processor", "values", "policy", "text"),
    [
        (OfRecords, {"checkpoint": "manual"}, None, "checkpoint='manual' needs a processor of batches"),
        (OfBatches, {"concurrency": 2}, None, "concurrency=2 needs a processor of single records"),
        (OfBatches, {"checkpoint": "manual"}, Skip(bisect=True), "on_failure=Skip(bisect=True) needs checkpoint="),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_starts(
    processor: object, values: dict[str, object], policy: Skip | None, text: str
) -> None:
    """Found at run time it would be a failure of every partition."""
    with pytest.raises(SettingsError) as caught:
        handling_of(processor, HostSettings(**values), on_failure=policy, middleware=())  # type: ignore[arg-type]

    assert str(caught.value).startswith(text)


async def test_what_only_the_factory_knew_is_a_failure_to_open() -> None:
    """It is told with the remedy, and no record is handled."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, factory=OfBatches, concurrency=2):
        await passes(0.5)

        assert [event.stage for event in stage.events_of(ProcessorFailed)] == ["open"]
        assert "concurrency=2 needs a processor of single records" in stage.events_of(ProcessorFailed)[0].error
        assert stage.lease().position == "@earliest"


# --- Whatever fails --------------------------------------------------------------------------------------------------

RECORDS = 24
troubles = st.lists(
    st.tuples(st.integers(1, RECORDS), st.sampled_from(["fail", "fail", "save", "save and fail"])), max_size=8
)


@given(troubles, st.sampled_from(["automatic", "manual", "every-record"]), st.booleans())
def test_stored_checkpoint_is_never_above_an_unfinished_record_in_any_mode(
    troubles: list[tuple[int, str]], mode: str, is_single: bool
) -> None:
    """Each trouble strikes once; all is handled, in order within each run."""
    is_single = is_single and mode != "manual"

    async def scenario() -> None:
        stage = Stage()
        put(stage, RECORDS)
        stage.source.close_partition("p0")
        left = list(troubles)
        kept: list[Batch] = []

        async def on_record(record: Record, batch: Batch | None) -> None:
            position = int(record.position)
            stored = stage.lease().position
            # A user's own checkpoint counts the record that is being handled as done.
            assert (0 if stored == "@earliest" else int(stored)) <= max(log.finished, default=0)
            if batch is not None:
                kept.append(batch)
            for trouble in [each for each in left if each[0] == position]:
                left.remove(trouble)
                if trouble[1].startswith("save") and batch is not None and log.finished[-1:] == [position - 1]:
                    before = next((each for each in batch if int(each.position) == position - 1), None)
                    if before is not None:
                        await batch.checkpoint(before)
                if trouble[1].endswith("fail"):
                    raise ValueError("the user's")

        async def finish() -> None:
            while not it.pump.finished.is_set():
                if log.finished[-1:] == [RECORDS] and kept:
                    await kept[-1].checkpoint()
                await passes(0.5)

        log = Log(on_record=on_record)
        factory = (lambda: RecordScripted(log)) if is_single else log.factory
        async with pumping(stage, log, factory=factory, checkpoint=mode) as it, anyio.create_task_group() as tasks:
            if mode == "manual":
                tasks.start_soon(finish, name="the user's last checkpoint")
            assert await it.over(3600) == "partition ended"

        assert sorted(set(log.finished)) == list(range(1, RECORDS + 1))
        assert stage.lease().finished

    run_virtual(scenario)
