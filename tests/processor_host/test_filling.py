"""
What stands between reading and handing on: fuller batches, pauses from inside, the budget, and where a replay ends.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import anyio
import pytest

from partitions.errors import SourceUnavailable
from partitions.positions import EARLIEST
from partitions.sources.base import Record
from processor_host.buffer import ByteBudget
from processor_host.discovery import Listing
from processor_host.ends import Until, UntilTime, parse_until
from processor_host.errors import SettingsError
from processor_host.events import PartitionDone, PartitionPausedFor, ReadFailed
from processor_host.processor import Batch, CloseReason
from processor_host.replay import Replay
from tests.builders import a_lease, a_session
from tests.processor_host.pumping import Log, RecordScripted, pump_of, pumping, put
from tests.stage import VIRTUAL_TIME, Stage, about
from tests.world.diary import passes

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


# --- Fuller batches --------------------------------------------------------------------------------------------------


async def trickle(stage: Stage, count: int, every_s: float) -> None:
    for _ in range(count):
        put(stage, 1)
        await passes(every_s)


async def test_batch_waits_for_more_records_up_to_its_wait() -> None:
    """One write for ten records instead of ten for one."""
    stage = Stage()
    async with pumping(stage, batch_wait_s=2.0) as it:
        began_s = stage.now_s
        await trickle(stage, 4, 0.3)
        await it.handled(4)

        assert it.log.batches == [4]
        assert 2.0 <= stage.now_s - began_s < 2.1


async def test_batch_that_is_full_waits_for_nothing() -> None:
    """Behind a backlog the wait costs no time."""
    stage = Stage()
    put(stage, 30)
    async with pumping(stage, batch_wait_s=50.0) as it:
        await it.handled(30, within_s=1.0)

        assert it.log.batches == [10, 10, 10]


async def test_waiting_batch_keeps_within_its_bounds_in_records_and_bytes() -> None:
    """What does not fit comes with the next one."""
    stage = Stage()
    async with pumping(stage, batch_wait_s=1.0, batch_bytes_max=1000) as it:
        for _ in range(5):
            put(stage, 1, size=300)
            await passes(0.1)
        await it.handled(5)

        assert it.log.batches == [3, 2]


async def test_wait_for_more_records_is_ended_by_a_drain_and_by_the_partitions_end() -> None:
    """Neither an asker nor a completed partition waits for records that do not come."""
    stage = Stage()
    put(stage, 3)
    async with pumping(stage, batch_wait_s=500.0) as it:
        await passes(1)
        it.drain()
        assert await it.over(within_s=1.0) == "drained"
    assert stage.lease().position == EARLIEST

    stage = Stage()
    put(stage, 3)
    async with pumping(stage, batch_wait_s=500.0) as it:
        await passes(1)
        stage.source.close_partition("p0")
        assert await it.over(within_s=30.0) == "partition ended"
        assert it.log.finished == [1, 2, 3]


async def test_records_that_wait_for_company_stay_counted_until_they_are_handled() -> None:
    """The budget of the host is of what is in memory."""
    stage = Stage()
    budget = ByteBudget(10**6)
    async with pumping(stage, batch_wait_s=2.0, budget=budget) as it:
        for _ in range(3):
            put(stage, 1, size=100)
            await passes(0.3)
        waiting = budget.used
        await it.handled(3)
        await passes(0.1)

        assert (waiting, budget.used) == (300, 0)


# --- Pauses from inside ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batch", "record"])
async def test_pause_from_inside_holds_up_what_comes_next_and_keeps_the_lease(kind: str) -> None:
    """A partition whose target asks for mercy need not be given to another host."""
    stage = Stage()
    put(stage, 20)
    at_s: dict[int, float] = {}

    async def middleware(batch: Batch, process: Any) -> None:
        if "5" in [record.position for record in batch]:
            batch.pause_s(100.0)
            batch.pause_s(30.0)
        await process(batch)

    async def on_record(record: Record, _: Batch) -> None:
        at_s[int(record.position)] = stage.now_s

    log = Log(on_record=on_record)
    factory = log.factory if kind == "batch" else lambda: RecordScripted(log)
    async with pumping(stage, log, factory=factory, given={"middleware": (middleware,)}) as it:
        await it.handled(20)

        # Of batches, the one that asked goes on; of records, the one.
        last = 10 if kind == "batch" else 5
        assert (at_s[last] - it.began_s < 1, at_s[last + 1] - at_s[last]) == (True, about(30.0))
        assert [event.pause_s for event in stage.events_of(PartitionPausedFor)] == [100.0, 30.0]
        assert it.lease.is_held()


async def test_pause_from_inside_is_ended_by_a_drain() -> None:
    """Whoever asks takes the partition, pause or not."""
    stage = Stage()
    put(stage, 20)

    async def on_record(record: Record, batch: Batch) -> None:
        batch.pause_s(3600.0)

    async with pumping(stage, Log(on_record=on_record)) as it:
        await it.handled(10)
        await passes(5)
        it.drain()
        assert await it.over(within_s=1.0) == "drained"

    assert (it.log.finished, stage.lease().position) == (list(range(1, 11)), "10")


@pytest.mark.parametrize("wrong", [-1.0, 3601.0, float("nan")])
async def test_pause_that_is_no_pause_is_refused(wrong: float) -> None:
    """An hour is the most: longer, and nobody remembers why nothing is handled."""
    stage = Stage()
    put(stage, 1)
    errors: list[str] = []

    async def on_record(record: Record, batch: Batch) -> None:
        try:
            batch.pause_s(wrong)
        except ValueError as error:
            errors.append(str(error))

    async with pumping(stage, Log(on_record=on_record)) as it:
        await it.handled(1)

    assert errors[0].startswith(f"pause_s({wrong!r}): expected 0 to 3600 seconds")


# --- The budget of the host ------------------------------------------------------------------------------------------


async def test_many_partitions_together_stay_within_the_budget_of_their_host() -> None:
    """A thousand partitions must not take the memory of a thousand buffers; each may overshoot by one read."""
    partitions = 40
    stage = Stage(partitions=partitions)
    for number in range(partitions):
        for _ in range(100):
            stage.source.put(f"p{number}", b"x" * 100)
    budget = ByteBudget(20_000)
    most = [0]

    async def slow(_: Record, __: Batch) -> None:
        most[0] = max(most[0], budget.used)
        await passes(0.5)

    log = Log(on_record=slow)
    async with stage.living() as session, anyio.create_task_group() as tasks:
        for number in range(partitions):
            lease = await stage.acquired(session, f"p{number}")
            tasks.start_soon(pump_of(stage, session, lease, log, budget=budget).run)
        await passes(60)
        tasks.cancel_scope.cancel()

    # Without a budget 40 partitions would read 20 records of 100 bytes ahead each, and have 10 in hand.
    assert 20_000 <= most[0] <= 20_000 + partitions * 10 * 100
    assert budget.used == 0


# --- Where a replay ends ---------------------------------------------------------------------------------------------


def replay_of(stage: Stage, until: Until, latest: str | None = None) -> Replay:
    return Replay(
        until,
        source=stage.source_of_a_host(),
        latest=latest,
        random=Random(1),
        on_event=stage.tell,
        on_change=lambda: None,
    )


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_partition_is_handled_up_to_its_end_and_then_kept(concurrency: int) -> None:
    """Given back it would be taken and opened again and again, by this host or another."""
    stage = Stage()
    put(stage, 30)
    replay = replay_of(stage, parse_until("p0=17"))
    log = Log()
    factory = log.factory if concurrency == 1 else lambda: RecordScripted(log)
    async with pumping(
        stage, log, factory=factory, concurrency=concurrency, window_max=20, given={"replay": replay}
    ) as it:
        await it.handled(17)
        await passes(50)

        assert (sorted(log.finished), log.closed) == (list(range(1, 18)), [CloseReason.UNTIL_REACHED])
        assert (it.lease.is_held(), stage.lease().position, replay.parked) == (True, "17", {"p0"})
        assert stage.events_of(PartitionDone) == [PartitionDone(partition="p0", token=1, handled=17)]
        it.drain()
        assert await it.over() == "drained"
        assert (stage.lease().owner, stage.lease().finished, replay.parked) == (None, False, set())


async def test_partition_that_is_at_its_end_already_is_over_without_a_read() -> None:
    """As after a fail-over, or where somebody else has handled it."""
    stage = Stage()
    put(stage, 30)
    replay = replay_of(stage, parse_until({"p1": "5"}))
    stage.disturb(lambda call: call.operation == "source.read", raises=SourceUnavailable("away"))
    async with pumping(stage, given={"replay": replay}) as it:
        await passes(5)

        assert (it.log.started, replay.parked, replay.handled) == ([], {"p0"}, {"p0": 0})


@pytest.mark.parametrize("draining", [False, True])
async def test_replay_leaves_partitions_to_a_host_that_lives_unless_it_drains(draining: bool) -> None:
    """A draining host gives back what it holds, and with this one gone nobody would end it."""
    replay = replay_of(Stage(), parse_until("latest-at-start"))
    leases = {name: a_lease(name, owner=owner, token=1) for name, owner in (("p0", "a:1"), ("p1", "b:1"))}
    listing = Listing(partitions=frozenset(leases), asked_s=0.0)
    replay.park("p0")

    def is_done(beat: int) -> bool:
        other = a_session("b:1", beat=beat, draining=draining)
        return replay.is_done(leases, [a_session("a:1", beat=beat), other], listing, "a:1")

    # The first look only notes the beats; the other host is seen to live once its beat has moved.
    assert [is_done(beat) for beat in (4, 4, 5)] == [False, False, not draining]


async def test_partition_is_over_where_nothing_is_left_although_its_end_was_not_met() -> None:
    """The record may have been dropped by the source; it will not come any more."""
    stage = Stage()
    put(stage, 5)
    replay = replay_of(stage, parse_until("p0=999"))
    async with pumping(stage, given={"replay": replay}) as it:
        await passes(10)

        assert (it.log.finished, replay.parked, replay.handled) == ([1, 2, 3, 4, 5], {"p0"}, {"p0": 5})


async def test_idle_partition_is_over_once_the_time_of_its_end_is_past() -> None:
    """No record will say so where none is written; 5 s later, since clocks differ."""
    stage = Stage()
    until_s = stage.now_s + 50.0
    replay = replay_of(stage, UntilTime(time_s=until_s))
    stage.source.put("p0", b"x", time_s=stage.now_s)
    async with pumping(stage, given={"replay": replay}) as it:
        await it.handled(1)
        while not replay.parked:
            await passes(0.25)

        assert until_s + 5.0 <= stage.now_s <= until_s + 7.0


async def test_end_is_asked_for_again_where_the_source_does_not_say() -> None:
    """A passing fault must neither end the replay nor let it run on."""
    stage = Stage()
    put(stage, 5)
    replay = replay_of(stage, parse_until("latest-at-start"), latest=await stage.source.resolve_start("latest"))
    stage.disturb(lambda call: call.operation == "source.first", raises=SourceUnavailable("away"), times=2)
    put(stage, 5)
    async with pumping(stage, given={"replay": replay}) as it:
        await it.handled(5)
        await passes(5)

        assert (it.log.finished, replay.parked) == ([1, 2, 3, 4, 5], {"p0"})
        assert len(stage.events_of(ReadFailed)) == 2


async def test_time_that_no_record_has_is_an_error_of_the_whole_replay() -> None:
    """Tried again, it would fail for ever, on every host."""
    stage = Stage()
    put(stage, 5)
    inner = stage.source_of_a_host()

    class Timeless:
        """A source that does not say when its records were written."""

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def reader(self, partition: str, position: str) -> Any:
            reader = inner.reader(partition, position)
            read = reader.read

            async def read_without(**how: Any) -> Any:
                fetched = await read(**how)
                return replace(fetched, records=tuple(replace(each, time_s=None) for each in fetched.records))

            reader.read = read_without  # type: ignore[method-assign]
            return reader

    replay = replay_of(stage, UntilTime(time_s=stage.now_s + 1.0))
    source: Any = Timeless()
    async with pumping(stage, source=source, given={"replay": replay}) as it:
        assert await it.over() == "drained"

    assert it.log.started == []
    with pytest.raises(SettingsError, match="has no time, so no time can end the replay"):
        replay.check()


async def test_ask_does_not_wait_for_the_end_of_a_replay_to_be_found() -> None:
    """Its source may be away for hours."""
    stage = Stage()
    put(stage, 5)
    replay = replay_of(stage, parse_until("latest-at-start"), latest="@earliest")
    stage.disturb(lambda call: call.operation == "source.first", raises=SourceUnavailable("away"))
    async with pumping(stage, given={"replay": replay}) as it:
        await passes(20)
        it.drain()
        assert await it.over(within_s=1.0) == "drained"


async def test_partition_that_ended_before_its_replay_does_is_completed() -> None:
    """Its children wait for that."""
    stage = Stage()
    put(stage, 5)
    stage.source.close_partition("p0")
    replay = replay_of(stage, parse_until("p0=5"))
    async with pumping(stage, given={"replay": replay}) as it:
        await it.handled(5)
        await passes(3)

        # Whether the source has told of the end with the last record or later is its own business.
        assert stage.lease().finished or replay.parked == {"p0"}
