"""
Dead letters whose sink joins the transactions of the lease store: one write with the checkpoint. Virtual time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from partitions.sources.base import Record
from partitions.stores.memory import MemoryTransaction
from partitions.transactions import Commit
from partitions.verbs import SaveCheckpoint
from processor_host.events import LetterFailed, LetterWritten, RecordsGivenUp
from processor_host.failures import DeadLetter
from processor_host.giving_up import LETTER_S
from processor_host.kinds import FunctionProcessor
from processor_host.letters.base import Letter
from processor_host.processor import Batch
from tests.processor_host.pumping import Kept, Log, RecordScripted, pumping, put
from tests.stage import GROUP, PACE, VIRTUAL_TIME, Stage
from tests.world.diary import passes
from tests.world.network import Call

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Joined(Kept):
    """Keeps its letters among the values of the memory store: how many each record has, over all terms."""

    def joins(self, collector: object) -> bool:
        """See `JoiningSink`."""
        return isinstance(collector, MemoryTransaction)

    def join(self, collector: Any, letter: Letter) -> None:
        """See `JoiningSink`."""
        collector.add(letter.position, 1)


def with_letters(call: Call) -> bool:
    return isinstance(call.verb, Commit) and bool(call.verb.operations)


def letters(stage: Stage) -> dict[str, int]:
    return dict(stage.store.values_now(GROUP))


def bad_at(*positions: int) -> Log:
    """Fails at records, whenever they come."""

    async def on_record(record: Record, _: Batch) -> None:
        if int(record.position) in positions:
            raise ValueError("bad record")

    return Log(on_record=on_record)


def records_of(log: Log, sink: Kept, **more: Any) -> dict[str, Any]:
    return {"factory": lambda: RecordScripted(log), "given": {"policy": DeadLetter(sink, attempts=2)}, **more}


async def test_letter_and_checkpoint_are_one_write() -> None:
    """So no crash can come between them; the hook tells that it is so."""
    stage, sink, log = Stage(), Joined(), bad_at(2)
    put(stage, 3)
    async with pumping(stage, log, **records_of(log, sink)) as it:
        await it.handled(2)
        await passes(3)

    assert (letters(stage), sink.letters) == ({"2": 1}, [])
    (commit,) = [commit for commit in stage.sent(Commit) if commit.operations]
    assert (commit.save.position, stage.lease().position) == ("2", "3")
    assert [save.position for save in stage.sent(SaveCheckpoint) if save.position == "2"] == []
    assert [(event.position, event.with_checkpoint) for event in stage.events_of(LetterWritten)] == [("2", True)]


async def test_letter_of_a_sink_that_joins_nothing_is_told_to_be_at_least_once() -> None:
    """It stands in the sink before the checkpoint does in the store."""
    stage, sink, log = Stage(), Kept(), bad_at(2)
    put(stage, 3)
    async with pumping(stage, log, **records_of(log, sink)) as it:
        await it.handled(2)

    assert sink.positions == [2]
    assert [(event.position, event.with_checkpoint) for event in stage.events_of(LetterWritten)] == [("2", False)]


@pytest.mark.parametrize("fault", [{}, {"lose_answer": True}, {"lose_request": True}, {"fail_after": True}])
async def test_letter_whose_write_was_not_answered_is_written_once(fault: dict[str, Any]) -> None:
    """What became of it is found out before it is tried again."""
    stage, sink, log = Stage(), Joined(), bad_at(2)
    put(stage, 3)
    stage.disturb(with_letters, times=2, **fault)
    async with pumping(stage, log, **records_of(log, sink)) as it:
        await it.handled(2)
        await passes(3)

    assert (letters(stage), stage.lease().position) == ({"2": 1}, "3")
    assert [event.first for event in stage.events_of(RecordsGivenUp)] == ["2"]


async def test_letter_whose_write_took_too_long_is_not_written_again() -> None:
    """It may have been applied; that is found out first, and then nothing is left to be done."""
    stage, sink, log = Stage(), Joined(), bad_at(2)
    put(stage, 3)
    disturbed = stage.disturb(
        lambda call: isinstance(call.verb, Commit) or call.operation == "read_lease", lose_answer=True
    )
    async with pumping(stage, log, **records_of(log, sink)) as it:
        await passes(LETTER_S + 3)
        disturbed.times = 0
        await it.handled(2)
        await passes(3)

    assert (letters(stage), stage.lease().position) == ({"2": 1}, "3")
    assert [event.attempt for event in stage.events_of(LetterFailed)] == [1]


@pytest.mark.parametrize("fault", [{"lose_answer": True}, {"lose_request": True}])
async def test_letter_that_a_host_died_with_is_written_once(fault: dict[str, Any]) -> None:
    """Whether or not the store had it: with the letter it has the checkpoint behind the record."""
    stage, sink, log = Stage(), Joined(), bad_at(2)
    put(stage, 3)
    disturbed = stage.disturb(with_letters, **fault)
    async with pumping(stage, log, **records_of(log, sink)):
        with anyio.fail_after(60):
            while not disturbed.hits:
                await passes(0.01)
        await passes(0.1)
    disturbed.times = 0
    stage.fence("a:1")
    later = bad_at(2)
    async with pumping(stage, later, session=stage.session("b:1"), **records_of(later, sink)):
        await passes(10)

    assert (letters(stage), stage.lease().position) == ({"2": 1}, "3")
    assert Counter(log.finished + later.finished).keys() == {1, 3}


async def test_letters_of_a_batch_are_stored_in_transactions_of_eight() -> None:
    """DynamoDB takes 4 MB in one, and a letter may have 400 KB."""

    async def fails(_: Batch) -> None:
        raise ValueError("bad batch")

    stage, sink = Stage(), Joined()
    put(stage, 10)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, factory=lambda: FunctionProcessor(fails), given=given):
        await passes(5)

    assert letters(stage) == {str(n): 1 for n in range(1, 11)}
    commits = [commit for commit in stage.sent(Commit) if commit.operations]
    assert [(len(commit.operations), commit.save.position) for commit in commits] == [(8, "8"), (2, "10")]
    assert [(event.first, event.last, event.records) for event in stage.events_of(RecordsGivenUp)] == [("1", "10", 10)]


async def test_drain_between_two_transactions_of_a_batch_tells_what_was_given_up() -> None:
    """The next owner goes on behind it: nobody else will tell."""

    async def fails(_: Batch) -> None:
        raise ValueError("bad batch")

    stage, sink = Stage(), Joined()
    put(stage, 10)
    stage.disturb(with_letters, times=1, after_s=0.5)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, factory=lambda: FunctionProcessor(fails), given=given) as it:
        await passes(0.3)
        it.drain()
        assert await it.over() == "drained"

    assert letters(stage) == {str(n): 1 for n in range(1, 9)}
    assert (stage.lease().owner, stage.lease().position) == (None, "8")
    assert [(event.first, event.last, event.records) for event in stage.events_of(RecordsGivenUp)] == [("1", "8", 8)]


async def test_letters_join_no_checkpoint_that_is_the_users() -> None:
    """With checkpoint="manual" nothing but the processor says how far it has come."""

    async def fails(_: Batch) -> None:
        raise ValueError("bad batch")

    stage, sink = Stage(), Joined()
    put(stage, 3)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(stage, factory=lambda: FunctionProcessor(fails), given=given, checkpoint="manual"):
        await passes(3)

    assert (sink.positions, letters(stage), stage.lease().position) == ([1, 2, 3], {}, "@earliest")


async def test_letter_beside_others_waits_for_those_before_it_and_takes_no_place_from_them() -> None:
    """Its checkpoint must not pass over them; and with both places taken the first could never begin again."""
    stage, sink = Stage(), Joined()
    failed: Counter[int] = Counter()

    async def on_record(record: Record, _: Batch) -> None:
        number = int(record.position)
        failed[number] += 1
        if number in (2, 3) or (number == 1 and failed[1] < 2):
            raise ValueError("bad record")

    for key in "abcd":
        stage.source.put("p0", b"x", key=key)
    log = Log(on_record=on_record)
    async with pumping(stage, log, **records_of(log, sink, concurrency=2, window_max=10)) as it:
        await it.handled(2)
        await passes(10)

    assert (letters(stage), stage.lease().position) == ({"2": 1, "3": 1}, "4")
    assert [commit.save.position for commit in stage.sent(Commit) if commit.operations] == ["2", "3"]


async def test_letter_that_waits_for_those_before_it_holds_up_no_drain() -> None:
    """It is not written then: the record is handled again by the next owner."""
    stage, sink = Stage(), Joined()

    async def on_record(record: Record, _: Batch) -> None:
        if record.position == "1":
            await passes(2)
        else:
            raise ValueError("bad record")

    for key in "ab":
        stage.source.put("p0", b"x", key=key)
    log = Log(on_record=on_record)
    given = {"policy": DeadLetter(sink, attempts=1)}
    async with pumping(
        stage, log, factory=lambda: RecordScripted(log), given=given, concurrency=2, window_max=10
    ) as it:
        await passes(0.5)
        it.drain()
        assert await it.over(within_s=PACE.duration_s) == "drained"

    assert (letters(stage), stage.lease().position) == ({}, "1")


async def test_sink_that_cannot_be_opened_is_tried_again_before_its_letter_joins_anything() -> None:
    """A table that is not there would fail the transaction for ever; the failure names the sink."""

    class Away(Joined):
        async def open(self) -> None:
            self.fails -= 1
            if self.fails >= 0:
                raise OSError("no such table")

    stage, sink, log = Stage(), Away(fails=2), bad_at(1)
    put(stage, 1)
    async with pumping(stage, log, **records_of(log, sink)):
        await passes(20)

    assert [(event.attempt, event.sink) for event in stage.events_of(LetterFailed)] == [
        (1, "memory:letters"),
        (2, "memory:letters"),
    ]
    assert (letters(stage), stage.lease().position) == ({"1": 1}, "1")
