"""Progress of a pump at work: what its events say of records that wait, also after failures and in long batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from partitions.events import LeaseAcquired
from partitions.sources.base import Fetched, Reader, Record, Source
from partitions.verbs import Pause
from processor_host.events import PartitionStopped, RecordsMarked
from processor_host.failures import Skip
from processor_host.kinds import FunctionProcessor, RecordFunctionProcessor
from processor_host.processor import Batch
from processor_host.progress import Progress, next_progress
from processor_host.pumps import Pumps
from tests.processor_host.pumping import Log, Pumping, pump_of, pumping, put
from tests.stage import VIRTUAL_TIME, Stage, beside
from tests.world.diary import passes
from tests.world.network import PlaceSource

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def progress_of(it: Pumping) -> Progress:
    """What is known of "p0" after all that was told; its acquire was told before the pump was there."""
    progress = next_progress(
        None,
        LeaseAcquired(
            partition="p0", token=it.lease.token, reason="free", previous_owner=None, position="0", duration_s=0.1
        ),
        it.began_s,
    )
    for at_s, event in it.stage.told:
        if getattr(event, "partition", None) == "p0" and not isinstance(event, LeaseAcquired):
            progress = next_progress(progress, event, at_s)
    assert progress is not None
    return progress


def in_hand(it: Pumping) -> int:
    """How many records wait, as the events say."""
    progress = progress_of(it)
    return progress.read - progress.done


async def test_records_that_a_failed_run_has_left_are_counted_beside_those_that_are_read_behind_them() -> None:
    """Else what is read behind them would look as done once they are, and a processor that hangs there as idle."""
    stage = Stage()
    put(stage, 10)
    tries = 0

    async def handle(batch: Batch) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            put(stage, 5)
            raise ValueError("once")
        if tries > 2:
            await anyio.sleep_forever()

    async with pumping(stage, factory=lambda: FunctionProcessor(handle)) as it:
        await passes(10.0)
        assert (tries, in_hand(it)) == (3, 5)


async def test_records_that_a_failed_batch_has_stored_itself_are_no_longer_waited_for() -> None:
    """They are not handed on again, so nothing else tells that they are done, and an idle partition would be named."""
    stage = Stage()
    put(stage, 10)

    async def handle(batch: Batch) -> None:
        if len(batch) == 10:
            await batch.checkpoint(upto=list(batch)[3])
            raise ValueError("behind the fourth")

    # The processor stays open while the rest is cut up, so nothing is counted anew.
    more: Mapping[str, Any] = {"given": {"policy": Skip(attempts=1, bisect=True)}}
    async with pumping(stage, factory=lambda: FunctionProcessor(handle), **more) as it:
        await passes(10.0)
        assert in_hand(it) == 0
        assert [event.found_done for event in stage.events_of(RecordsMarked) if event.found_done] == [4]


@pytest.mark.parametrize("how", ["checkpoint", "transaction"])
async def test_checkpoint_in_the_middle_of_a_batch_is_a_move(how: str) -> None:
    """A batch may take an hour and be no stall: what it stores shows that it goes on."""
    stage = Stage()
    put(stage, 4)

    async def handle(batch: Batch) -> None:
        await passes(30.0)
        first = next(iter(batch))
        if how == "checkpoint":
            await batch.checkpoint(upto=first)
        else:
            async with batch.transaction(upto=first) as tx:
                tx.add("n", 1)
        await anyio.sleep_forever()

    async with pumping(stage, factory=lambda: FunctionProcessor(handle)) as it:
        await passes(100.0)
        waits_since_s = progress_of(it).waits_since_s
        assert waits_since_s is not None
        assert 30.0 <= waits_since_s - it.began_s <= 31.0


@pytest.mark.parametrize("how", ["checkpoint", "transaction"])
async def test_checkpoint_beside_other_records_is_a_move(how: str) -> None:
    """Records at work side by side may each take long, too."""
    stage = Stage()
    put(stage, 2)

    async def handle(record: Record, batch: Batch) -> None:
        await passes(30.0)
        if record.position == "1" and how == "checkpoint":
            await batch.checkpoint()
        elif record.position == "1":
            async with batch.transaction() as tx:
                tx.add("n", 1)
        await anyio.sleep_forever()

    async def around(batch: Batch, call_next: Any) -> None:
        await handle(next(iter(batch)), batch)

    async def nothing(record: Record) -> None:
        raise AssertionError("the middleware never goes on")

    more: Mapping[str, Any] = {"concurrency": 2, "window_max": 4, "given": {"middleware": (around,)}}
    async with pumping(stage, factory=lambda: RecordFunctionProcessor(nothing), **more) as it:
        await passes(100.0)
        waits_since_s = progress_of(it).waits_since_s
        assert waits_since_s is not None
        assert 30.0 <= waits_since_s - it.began_s <= 31.0


class Silent(PlaceSource):
    """A source that cannot say how far behind it is."""

    def reader(self, partition: str, position: str) -> Reader:
        return _SilentReader(super().reader(partition, position))


class _SilentReader:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        fetched = await self._reader.read(records_max=records_max, bytes_max=bytes_max, wait_s=wait_s)
        return Fetched(records=fetched.records, lag_s=None, ended=fetched.ended)

    async def close(self) -> None:
        await self._reader.close()


async def test_records_of_a_source_that_knows_no_lag_wait_too() -> None:
    """What was read is known, whatever the source says beside it."""
    stage = Stage()
    put(stage, 3)
    source: Source = Silent(stage.network)

    async def handle(batch: Batch) -> None:
        await anyio.sleep_forever()

    async with pumping(stage, factory=lambda: FunctionProcessor(handle), source=source) as it:
        await passes(10.0)
        assert in_hand(it) == 3


async def test_pause_of_a_stuck_partition_is_of_its_own_term_alone() -> None:
    """What was seen of an earlier term says nothing about the present one."""
    stage = Stage()
    put(stage, 1)
    log = Log()

    async def hang(*_: object) -> None:
        await anyio.sleep_forever()

    log.on_record = hang
    async with stage.living() as session, anyio.create_task_group() as tasks:
        lease = await stage.acquired(session)
        pumps = Pumps(
            tasks,
            lambda lease: pump_of(stage, session, lease, log, close_timeout_s=3.0).pump,
            clock=stage.clock,
            on_event=stage.tell,
        )
        pumps.start(lease)
        await passes(5.0)
        await pumps.pause("p0", lease.token - 1, "of another term")
        await pumps.pause("p9", lease.token, "of nobody")
        untouched = stage.sent(Pause)
        asked_s = stage.now_s
        async with beside(lambda: pumps.pause("p0", lease.token, "it hangs")):
            with anyio.fail_after(60.0):
                while pumps.running:
                    await passes(0.1)

    assert (untouched, stage.lease().paused, stage.lease().owner) == ([], True, None)
    assert [event.reason for event in stage.events_of(PartitionStopped)] == ["it hangs"]
    # Its running batch had the drain time-out to end.
    assert 3.0 <= stage.now_s - asked_s <= 6.0
