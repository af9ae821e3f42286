"""
What failure policies do in a pump: what is tried again, set apart, given up or stopped, and what is stored meanwhile.

The decisions themselves are in test_failures.py; here is that the pump does what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from partitions.events import EndReason
from partitions.sources.base import Record
from partitions.verbs import SaveCheckpoint
from processor_host.decoding import DecodedRecord, decoding, json_of
from processor_host.events import BatchSplit, LetterFailed, PartitionStopped, ProcessorFailed, RecordsGivenUp
from processor_host.failures import DeadLetter, Failure, Policy, Retry, Skip, Stop
from processor_host.middleware import Middleware, Process
from processor_host.processor import Batch, CloseReason, PartitionProcessor
from tests.processor_host.pumping import Kept, Log, RecordScripted, failures, pumping, put
from tests.stage import VIRTUAL_TIME, Stage
from tests.world.diary import passes

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def bad_at(*positions: int) -> Log:
    """A log whose records at these positions always fail."""

    async def on_record(record: Record, _: Batch) -> None:
        if int(record.position) in positions:
            raise ValueError(f"bad record {record.position}")

    return Log(on_record=on_record)


def records_of(log: Log) -> Callable[[], Any]:
    return lambda: RecordScripted(log)


# --- Single records --------------------------------------------------------------------------------------------------


async def test_record_that_fails_is_tried_again_alone_and_its_processor_stays_open() -> None:
    """Its neighbours are not handled again for it, and nothing behind it begins before it is done."""
    stage = Stage()
    put(stage, 6)
    left = [2]

    async def on_record(record: Record, _: Batch) -> None:
        if record.position == "3" and left[0]:
            left[0] -= 1
            raise ValueError("not yet")

    log = Log(on_record=on_record)
    async with pumping(stage, log, factory=records_of(log)) as it:
        await it.handled(6)

        assert log.started == [1, 2, 3, 3, 3, 4, 5, 6]
        assert (failures(stage), len(log.opened), log.closed) == ([("process", 1), ("process", 2)], 1, [])


async def test_record_that_fails_for_ever_holds_its_partition_and_what_was_done_is_stored() -> None:
    """The default passes over nothing; this host may die in one of the pauses."""
    stage = Stage()
    put(stage, 6)
    log = bad_at(3)
    async with pumping(stage, log, factory=records_of(log), checkpoint_interval_s=1000.0) as it:
        await passes(100)

        assert (max(log.started), log.finished, stage.lease().position) == (3, [1, 2], "2")
        it.drain()
        assert await it.over() == "drained"
        assert stage.lease().position == "2"


async def test_skip_passes_over_the_record_that_fails_and_over_no_other() -> None:
    """It is counted and told of, and the checkpoint goes on."""
    stage = Stage()
    put(stage, 6)
    log = bad_at(3)
    async with pumping(stage, log, factory=records_of(log), given={"policy": Skip(attempts=2)}) as it:
        await it.handled(5)
        await passes(2)

        assert log.started == [1, 2, 3, 3, 4, 5, 6]
        assert stage.lease().position == "6"
        assert stage.events_of(RecordsGivenUp) == [
            RecordsGivenUp(
                partition="p0",
                token=1,
                policy="skip",
                first="3",
                last="3",
                records=1,
                attempts=2,
                error="ValueError: bad record 3",
            )
        ]


async def test_dead_letter_says_what_is_needed_to_handle_the_record_later() -> None:
    """The record itself, its failure, and where a reader finds it again."""
    stage = Stage()
    put(stage, 4, size=3)
    log = bad_at(3)
    sink = Kept()
    given = {"policy": DeadLetter(sink, attempts=2)}
    async with pumping(stage, log, factory=records_of(log), given=given) as it:
        await it.handled(3)

        (letter,) = sink.letters
        assert (letter.partition, letter.position, letter.after, letter.data, letter.attempts) == (
            "p0",
            "3",
            "2",
            b"xxx",
            2,
        )
        assert (letter.stage, letter.error, letter.token, letter.host_id) == (
            "process",
            "ValueError: bad record 3",
            1,
            "a",
        )
        assert "bad record 3" in letter.traceback


async def test_first_record_of_a_term_has_the_checkpoint_before_it_in_its_letter() -> None:
    """Nothing of this term was read before it."""
    stage = Stage()
    put(stage, 2)
    log = bad_at(1, 2)
    sink = Kept()
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, log, factory=records_of(log), given=given):
        await passes(1)

        assert [letter.after for letter in sink.letters] == ["@earliest", "1"]


async def test_what_was_given_up_is_stored_at_once() -> None:
    """A host that dies before would write the letter again, so the window is one request, not an interval."""
    stage = Stage()
    put(stage, 3)
    log = bad_at(3)
    sink = Kept()
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, log, factory=records_of(log), given=given, checkpoint_interval_s=1000.0):
        await passes(0.5)

        assert (sink.positions, stage.lease().position) == ([3], "3")


async def test_record_waits_until_its_letter_is_written() -> None:
    """Without the letter it would be lost; the sink is tried again with growing pauses."""
    stage = Stage()
    put(stage, 3)
    log = bad_at(2)
    sink = Kept(fails=3)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, log, factory=records_of(log), given=given) as it:
        await passes(1)
        assert (log.started, stage.lease().position) in (([1, 2], "@earliest"), ([1, 2], "1"))
        await it.handled(2)

        assert (log.started, sink.positions) == ([1, 2, 3], [2])
        told = stage.events_of(LetterFailed)
        assert [(event.attempt, event.position) for event in told] == [(1, "2"), (2, "2"), (3, "2")]
        assert [full / 2 <= event.pause_s <= full for event, full in zip(told, (1, 2, 4), strict=True)] == [True] * 3


async def test_drain_does_not_wait_for_a_sink_that_is_away() -> None:
    """The next owner gives the record up itself."""
    stage = Stage()
    put(stage, 3)
    log = bad_at(2)
    sink = Kept(fails=10**9)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, log, factory=records_of(log), given=given) as it:
        await passes(20)
        it.drain()
        assert await it.over() == "drained"

    assert (stage.lease().owner, stage.lease().position, sink.letters) == (None, "1", [])


async def test_stop_pauses_the_partition_with_its_reason_and_releases_it() -> None:
    """An operator finds it as if another operator had paused it, at the record that failed."""
    stage = Stage()
    put(stage, 5)
    log = bad_at(3)
    async with pumping(stage, log, factory=records_of(log), given={"policy": Stop(attempts=2)}) as it:
        assert await it.over() == "stopped"

    item = stage.lease()
    assert (item.owner, item.paused, item.position) == (None, True, "2")
    reason = "process failed 2 times at position 3: ValueError: bad record 3"
    assert stage.events_of(PartitionStopped) == [PartitionStopped(partition="p0", token=1, reason=reason)]
    assert (log.started, log.closed) == ([1, 2, 3, 3], [CloseReason.HANDED_OFF])


@pytest.mark.parametrize("stage_of", ["open", "process"])
async def test_stop_acts_on_failures_of_open_too(stage_of: str) -> None:
    """No record is to blame there, but a partition that cannot be opened is as stuck."""
    stage = Stage()
    put(stage, 5)

    async def fail(*_: object) -> None:
        raise ValueError("broken")

    log = Log(on_open=fail) if stage_of == "open" else Log(on_record=fail)
    async with pumping(stage, log, given={"policy": Stop(attempts=3)}) as it:
        assert await it.over() == "stopped"

    assert (failures(stage), stage.lease().paused) == ([(stage_of, 1), (stage_of, 2), (stage_of, 3)], True)


@pytest.mark.parametrize("policy", [Skip(attempts=1), DeadLetter(Kept(), attempts=1)])
async def test_failure_of_open_gives_no_record_up(policy: Policy) -> None:
    """A database that is away as the processor opens is no record's fault."""
    stage = Stage()
    put(stage, 5)
    left = [4]

    async def fail(*_: object) -> None:
        if left[0]:
            left[0] -= 1
            raise ValueError("broken")

    log = Log(on_open=fail)
    async with pumping(stage, log, given={"policy": policy}) as it:
        await it.handled(5)

        assert (log.finished, stage.events_of(RecordsGivenUp)) == ([1, 2, 3, 4, 5], [])


# --- Batches ---------------------------------------------------------------------------------------------------------


async def test_batch_that_fails_is_given_up_as_a_whole_unless_it_is_cut_up() -> None:
    """Which of its records it was, nobody knows; each gets its letter."""
    stage = Stage()
    put(stage, 20)
    log = bad_at(3)
    sink = Kept()
    async with pumping(stage, log, given={"policy": DeadLetter(sink, attempts=2)}) as it:
        await it.handled(2 + 2 + 10)
        await passes(2)

        assert (log.started, sink.positions) == ([1, 2, 3, 1, 2, 3, *range(11, 21)], list(range(1, 11)))
        assert [letter.after for letter in sink.letters] == ["@earliest", *map(str, range(1, 10))]
        assert stage.lease().position == "20"
        # Closed and opened after each failure, for its state may be broken.
        assert log.closed == [CloseReason.FAILED] * 2
        assert len(log.opened) == 3


@pytest.mark.parametrize("bad", [1, 4, 5, 10])
async def test_bisection_gives_up_the_bad_record_and_handles_every_other(bad: int) -> None:
    """Those before it are done first and those after it are not blamed; order is kept throughout."""
    stage = Stage()
    put(stage, 12)
    log = bad_at(bad)
    sink = Kept()
    async with pumping(stage, log, given={"policy": DeadLetter(sink, attempts=2, bisect=True)}) as it:
        with anyio.fail_after(200):
            while stage.lease().position != "12":
                await passes(0.5)

        good = [n for n in range(1, 13) if n != bad]
        assert (sink.positions, sorted(set(log.finished))) == ([bad], good)
        firsts = [log.finished.index(n) for n in good]
        assert firsts == sorted(firsts)
        assert stage.events_of(BatchSplit)
        assert it.lease.is_held()


async def test_bisection_goes_on_after_two_bad_records() -> None:
    """One that is found does not end the search for the other."""
    stage = Stage()
    put(stage, 10)
    log = bad_at(3, 8)
    sink = Kept()
    async with pumping(stage, log, given={"policy": DeadLetter(sink, attempts=2, bisect=True)}):
        await passes(100)

        assert (sink.positions, stage.lease().position) == ([3, 8], "10")
        assert sorted(set(log.finished)) == [1, 2, 4, 5, 6, 7, 9, 10]


async def test_processor_that_a_bad_record_has_broken_costs_no_good_one() -> None:
    """Like a connection in an aborted transaction: until it is opened again, everything fails."""
    stage = Stage()
    put(stage, 10)
    sink = Kept()
    handled: list[int] = []

    class Breaks(PartitionProcessor):
        broken = False

        async def open(self, context: object) -> None:
            self.broken = False

        async def process(self, batch: Batch) -> None:
            for record in batch:
                self.broken = self.broken or record.position == "4"
                if self.broken:
                    raise ValueError("aborted")
            handled.extend(int(record.position) for record in batch)

    policy = DeadLetter(sink, attempts=1, bisect=True)
    async with pumping(stage, factory=Breaks, given={"policy": policy}):
        await passes(60)

        assert (sink.positions, handled) == ([4], [1, 2, 3, 5, 6, 7, 8, 9, 10])


async def test_records_of_a_failed_batch_are_the_same_ones_when_they_come_again() -> None:
    """More that arrived meanwhile would be blamed with them, and bisection would never end."""
    stage = Stage()
    put(stage, 3)
    log = bad_at(3)
    async with pumping(stage, log, given={"policy": Skip(attempts=3)}) as it:
        await passes(0.5)
        put(stage, 5)
        await it.handled(2 * 3 + 5)

        assert log.batches == [3, 3, 3, 5]


async def test_attempts_begin_anew_after_a_checkpoint_inside_of_the_batch() -> None:
    """A processor that gets on is not stuck."""
    stage = Stage()
    put(stage, 10)
    tries: list[int] = []

    async def on_record(record: Record, batch: Batch) -> None:
        if record.position == "5":
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("not yet")
            await batch.checkpoint(record)
        if record.position == "7":
            tries.append(2)
            if tries.count(2) < 3:
                raise ValueError("not yet")

    async with pumping(stage, Log(on_record=on_record), given={"policy": Skip(attempts=3)}):
        await passes(60)

        assert failures(stage) == [("process", attempt) for attempt in (1, 2, 1, 2)]
        assert (stage.events_of(RecordsGivenUp), stage.lease().position) == ([], "10")


async def test_memory_of_a_failed_batch_is_counted_and_given_back() -> None:
    """Many partitions that fail together must not hold more than the host may."""
    from processor_host.buffer import ByteBudget

    stage = Stage()
    put(stage, 10, size=50)
    budget = ByteBudget(10**6)
    log = bad_at(3)
    async with pumping(stage, log, budget=budget, given={"policy": Skip(attempts=4)}) as it:
        await passes(1.8)
        in_the_pause = budget.used
        await passes(60)
        at_rest = budget.used
        it.drain()
        await it.over()

        assert (in_the_pause, at_rest, budget.used) == (500, 0, 0)


# --- The processor's own choice, and decoding ------------------------------------------------------------------------


async def test_method_of_the_processor_chooses_for_each_failure() -> None:
    """What is worth a letter is known to whoever wrote the code."""
    stage = Stage()
    put(stage, 6)
    seen: list[Failure] = []
    log = bad_at(2, 4)

    class Choosing(RecordScripted):
        async def on_failure(self, failure: Failure) -> Policy | None:
            seen.append(failure)
            return Skip(attempts=1) if failure.records[0].position == "2" else None

    async with pumping(stage, log, factory=lambda: Choosing(log), given={"policy": Stop(attempts=1)}) as it:
        assert await it.over() == "stopped"

    assert [(failure.stage, failure.attempts, len(failure.records)) for failure in seen] == [("process", 1, 1)] * 2
    assert (log.started, stage.lease().position, stage.lease().paused) == ([1, 2, 3, 4], "3", True)


@pytest.mark.parametrize("wrong", ["raises", "returns nonsense"])
async def test_hosts_policy_applies_where_the_processors_own_method_fails(wrong: str) -> None:
    """A bug in it must neither skip a record nor end the pump."""
    stage = Stage()
    put(stage, 3)
    log = bad_at(2)

    class Wrong(RecordScripted):
        def on_failure(self, failure: Failure) -> Any:
            if wrong == "raises":
                raise KeyError("mine")
            return "skip"

    async with pumping(stage, log, factory=lambda: Wrong(log), given={"policy": Stop(attempts=1)}) as it:
        assert await it.over() == "stopped"

    assert [stage_of for stage_of, _ in failures(stage)] == ["on_failure", "process"]
    assert stage.lease().position == "1"


async def test_record_that_cannot_be_decoded_is_set_apart_and_given_up_like_any_other() -> None:
    """The ones before it are handled, the ones after it are not blamed."""
    stage = Stage()
    for data in (b"1", b"2", b"{", b"4", b"5"):
        stage.source.put("p0", data)
    values: list[Any] = []
    sink = Kept()

    class Adding(PartitionProcessor):
        async def process(self, batch: Batch) -> None:
            for record in batch:
                assert isinstance(record, DecodedRecord)
                values.append(record.value)

    given = {"policy": DeadLetter(sink, attempts=2), "middleware": (decoding(json_of()),)}
    async with pumping(stage, factory=Adding, given=given):
        await passes(20)

        assert (values, sink.positions, stage.lease().position) == ([1, 2, 4, 5], [3], "5")
        assert {event.stage for event in stage.events_of(ProcessorFailed)} == {"decode"}
        assert sink.letters[0].stage == "decode"


async def test_middleware_is_around_every_unit_and_the_first_is_outermost() -> None:
    """Tracing that comes first has decoding inside of its span."""
    stage = Stage()
    put(stage, 3)
    seen: list[str] = []

    def named(name: str) -> Middleware:
        async def middleware(batch: Batch, process: Process) -> None:
            seen.append(f"{name} in")
            await process(batch)
            seen.append(f"{name} out")

        return middleware

    log = Log()
    given = {"middleware": (named("outer"), named("inner"))}
    async with pumping(stage, log, factory=records_of(log), given=given) as it:
        await it.handled(3)
        await passes(0.1)

        assert seen == ["outer in", "inner in", "inner out", "outer out"] * 3


async def test_failure_because_the_lease_is_gone_gives_nothing_up() -> None:
    """The next owner handles the record; a letter would say that nobody could."""
    stage = Stage()
    put(stage, 3)
    sink = Kept()

    async def on_record(_: Record, __: Batch) -> None:
        it.lease.end(EndReason.SEEN_TAKEN)
        raise ValueError("my database refused my token")

    log = Log(on_record=on_record)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, log, factory=records_of(log), given=given) as it:
        assert await it.over() == "lease lost"

    assert (sink.letters, stage.sent(SaveCheckpoint), stage.events_of(RecordsGivenUp)) == ([], [], [])


async def test_pauses_of_a_policy_go_over_those_of_the_host() -> None:
    """One processor may know that its database takes a minute to come back."""
    stage = Stage()
    put(stage, 1)
    log = bad_at(1)
    given = {"policy": Retry(pause_s=8.0, pause_max_s=16.0)}
    async with pumping(stage, log, factory=records_of(log), given=given):
        await passes(100)

        pauses = [event.pause_s for event in stage.events_of(ProcessorFailed)]
        wanted = zip(pauses[:3], (8, 16, 16), strict=True)
        assert [full / 2 <= pause_s <= full for pause_s, full in wanted] == [True] * 3
