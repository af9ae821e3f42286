"""
A partition that hosts died with: one record at a time, each counted, until the killer reaches its limit; and what an
application prepares for the case that its host dies. Virtual time; the rule itself is in test_caution.py.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from partitions.items import Prepared
from partitions.sources.base import Record
from partitions.verbs import Attempt, Prepare, Release, SaveCheckpoint
from processor_host.events import OneAtATime, PartitionStopped, RecordsGivenUp
from processor_host.failures import DeadLetter, Retry, Skip, Stop
from processor_host.processor import Batch, ProcessorContext
from tests.processor_host.pumping import Kept, Log, RecordScripted, failures, pumping, put
from tests.stage import VIRTUAL_TIME, Stage
from tests.world.diary import passes

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def died(stage: Stage, *, attempts: int = 0, position: str | None = None, by: str = "b:1") -> None:
    """Let another host take "p0", get as far as `position`, begin the record after it so often, and die."""
    taken = stage.take("p0", by=by)
    assert taken.owner is not None
    seq = 0
    if position is not None:
        seq += 1
        stage.apply(SaveCheckpoint(partition="p0", owner=taken.owner, token=taken.token, position=position, seq=seq))
    for _ in range(attempts):
        seq += 1
        stage.apply(Attempt(partition="p0", owner=taken.owner, token=taken.token, seq=seq))


@pytest.mark.parametrize("kind", ["batch", "record", "side by side"])
async def test_term_after_a_death_hands_on_one_record_at_a_time_each_counted_before(kind: str) -> None:
    """If one of them kills this host too, the store says which."""
    stage = Stage()
    put(stage, 25)
    died(stage, position="3")
    seen: list[tuple[int, int, str]] = []

    async def on_record(record: Record, _: Batch) -> None:
        item = stage.lease()
        seen.append((int(record.position), item.attempts, item.position))

    log = Log(on_record=on_record)
    factory = log.factory if kind == "batch" else lambda: RecordScripted(log)
    at_once = 3 if kind == "side by side" else 1
    async with pumping(stage, log, factory=factory, concurrency=at_once, window_max=20) as it:
        await it.handled(22)
        await passes(30)

        # A batch's worth of records; what comes behind is in batches again.
        assert seen[:10] == [(n, 1, str(n - 1)) for n in range(4, 14)]
        assert log.started == list(range(4, 26))
        assert len(stage.sent(Attempt)) == 10
        assert (stage.lease().position, stage.lease().suspects, stage.lease().attempts) == ("25", 0, 0)
        assert stage.events_of(OneAtATime) == [OneAtATime(partition="p0", token=2, suspects=1, attempts=0)]


async def test_batches_after_the_single_records_are_stored_before_each_for_a_while() -> None:
    """The killer may come later; the next death then leaves the position right before it."""
    stage = Stage()
    put(stage, 45)
    died(stage)
    seen: list[tuple[int, str]] = []

    async def on_record(record: Record, _: Batch) -> None:
        seen.append((int(record.position), stage.lease().position))

    async with pumping(stage, Log(on_record=on_record), checkpoint_interval_s=100.0) as it:
        await it.handled(45)

        firsts = {number: stored for number, stored in seen if number in (11, 21, 31, 41)}
        assert firsts == {11: "10", 21: "20", 31: "30", 41: "40"}


@pytest.mark.parametrize("kind", ["letter", "skip", "stop", "retry"])
async def test_record_that_killed_its_hosts_is_dealt_with_at_its_limit_before_it_begins(kind: str) -> None:
    """Handed on once more it would kill this host as well."""
    stage = Stage()
    put(stage, 6)
    died(stage, position="2", attempts=3)
    sink = Kept()
    log = Log()
    policies = {"letter": DeadLetter(sink, attempts=3), "skip": Skip(attempts=3), "stop": Stop(attempts=3)}
    given = {"policy": policies.get(kind, Retry())}
    async with pumping(stage, log, given=given) as it:
        await passes(5)

        if kind == "retry":
            assert log.started == [3, 4, 5, 6]
        elif kind == "stop":
            assert await it.over() == "stopped"
            assert (log.started, stage.lease().paused, stage.lease().position) == ([], True, "2")
            assert "HostDied" in stage.events_of(PartitionStopped)[0].reason
        else:
            assert log.started == [4, 5, 6]
            assert [(event.first, event.attempts) for event in stage.events_of(RecordsGivenUp)] == [("3", 3)]
            assert [letter.after for letter in sink.letters] == (["2"] if kind == "letter" else [])


async def test_deaths_below_the_limit_give_nothing_up_and_only_the_first_record_has_them() -> None:
    """Three healthy hosts that are killed leave at most two attempts at one record."""
    stage = Stage()
    put(stage, 6)
    died(stage, attempts=1)
    died(stage, attempts=1, by="c:1")
    sink = Kept()
    async with pumping(stage, given={"policy": DeadLetter(sink, attempts=3)}) as it:
        await it.handled(6)

        assert (it.log.started, sink.letters) == ([1, 2, 3, 4, 5, 6], [])


async def test_failures_and_deaths_of_a_record_count_together() -> None:
    """Two deaths and an exception are three attempts at it."""
    stage = Stage()
    put(stage, 4)
    died(stage, attempts=2)
    sink = Kept()

    async def on_record(record: Record, _: Batch) -> None:
        if record.position == "1":
            raise ValueError("this time it raises")

    log = Log(on_record=on_record)
    given = {"policy": DeadLetter(sink, attempts=3)}
    async with pumping(stage, log, factory=lambda: RecordScripted(log), given=given) as it:
        await it.handled(3)

        assert (failures(stage), sink.positions, log.started) == ([("process", 3)], [1], [1, 2, 3, 4])


async def test_hand_over_passes_the_failures_of_a_record_on() -> None:
    """Else a partition that moves often would never reach its limit."""
    stage = Stage()
    put(stage, 4)

    async def fail(record: Record, _: Batch) -> None:
        if record.position == "2":
            raise ValueError("bad")

    log = Log(on_record=fail)
    async with pumping(stage, log, factory=lambda: RecordScripted(log), given={"policy": Skip(attempts=5)}) as it:
        await passes(2)
        it.drain()
        await it.over()
    assert (stage.sent(Release)[-1].attempts, stage.lease().attempts) == (2, 2)

    second = Log(on_record=fail)
    session = stage.session("a:2")
    given = {"policy": Skip(attempts=3)}
    async with pumping(stage, second, session=session, factory=lambda: RecordScripted(second), given=given) as it:
        await it.handled(2)

        assert second.started == [2, 3, 4]
        # Nobody died, so nothing is handed on with care.
        assert stage.sent(Attempt) == []


# --- Two phases -------------------------------------------------------------------------------------------------------


def prepared_then_died(stage: Stage, *, position: str, state: str) -> None:
    taken = stage.take("p0")
    verb: Any = Prepare(
        partition="p0",
        owner=taken.owner or "",
        token=taken.token,
        seq=1,
        prepared=Prepared(state=state, position=position),
    )
    stage.apply(verb)


@pytest.mark.parametrize("was_done", [True, False])
async def test_what_was_prepared_is_given_back_in_open_after_a_fail_over(was_done: bool) -> None:
    """Whoever opens next finds out whether the other write was done; if so, its records do not come again."""
    stage = Stage()
    put(stage, 8)
    prepared_then_died(stage, position="5", state="upload 7")
    found: list[Prepared | None] = []

    async def on_open(context: ProcessorContext) -> None:
        found.append(context.prepared)
        if was_done:
            await context.confirm_prepared()

    async with pumping(stage, Log(on_open=on_open)) as it:
        await it.handled(3 if was_done else 8)
        await passes(3)

        assert found == [Prepared(state="upload 7", position="5")]
        assert it.log.started == list(range(6 if was_done else 1, 9))
        assert (stage.lease().position, stage.lease().prepared) == ("8", None)


async def test_prepared_state_stays_until_the_checkpoint_has_passed_it() -> None:
    """A checkpoint on the way there is not the one that it waits for."""
    stage = Stage()
    put(stage, 10)

    async def on_record(record: Record, batch: Batch) -> None:
        if record.position == "2":
            await batch.prepare("upload 1", next(each for each in batch if each.position == "6"))
        if record.position == "4":
            await batch.checkpoint(record)
            stored.append(stage.lease().prepared)
        if record.position == "6":
            await batch.checkpoint(record)
            stored.append(stage.lease().prepared)

    stored: list[Prepared | None] = []
    async with pumping(stage, Log(on_record=on_record)) as it:
        await it.handled(10)

        assert stored == [Prepared(state="upload 1", position="6"), None]


async def test_release_on_the_way_keeps_what_is_prepared() -> None:
    """A hand-over in the middle is a fail-over to the application."""
    stage = Stage()
    put(stage, 10)

    async def on_record(record: Record, batch: Batch) -> None:
        if record.position == "2":
            await batch.prepare("upload 1")
        if record.position == "4":
            await batch.checkpoint(record)
        if record.position == "5":
            raise ValueError("stuck")

    async with pumping(stage, Log(on_record=on_record)) as it:
        await passes(3)
        it.drain()
        await it.over()

    assert (stage.lease().position, stage.lease().prepared) == ("4", Prepared(state="upload 1", position="10"))


async def test_release_with_a_checkpoint_before_what_is_prepared_leaves_it_to_the_next_owner() -> None:
    """A hand-over stores the newest mark, which may lie before the records that the state speaks of."""
    stage = Stage()
    put(stage, 10)
    found: list[Prepared | None] = []

    async def hang(_: Record, batch: Batch) -> None:
        if len(log.started) > 5:
            await batch.prepare("upload 1")
            await anyio.sleep_forever()

    async def look(context: ProcessorContext) -> None:
        found.append(context.prepared)

    log = Log(on_record=hang)
    async with pumping(stage, log, batch_records_max=5, checkpoint_interval_s=1000.0) as it:
        await it.handled(5)
        await passes(0.2)
        stage.ask("a:1", "p0", 1)
        await it.over()
    # The checkpoint came with the release alone.
    assert (stage.sent(SaveCheckpoint), stage.sent(Release)[-1].position) == ([], "5")

    async with pumping(stage, Log(on_open=look), session=stage.session("a:2")) as it:
        await it.handled(5)

        assert found == [Prepared(state="upload 1", position="10")]
        assert it.log.started == [6, 7, 8, 9, 10]


async def test_confirmation_of_nothing_is_the_users_failure() -> None:
    """It would store a position that nobody knows."""
    stage = Stage()
    put(stage, 3)
    errors: list[str] = []

    async def on_open(context: ProcessorContext) -> None:
        try:
            await context.confirm_prepared()
        except ValueError as error:
            errors.append(str(error))

    async with pumping(stage, Log(on_open=on_open)) as it:
        await it.handled(3)

    assert errors == ["nothing is prepared that an earlier term left; look at context.prepared first"]
