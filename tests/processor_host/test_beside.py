"""
Records of one partition side by side: order by key, the checkpoint, drains and failures. Virtual time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.events import EndReason
from partitions.sources.base import Record
from partitions.verbs import Release, SaveCheckpoint
from processor_host.events import BatchCut, BatchHandled, PartitionStopped, ProcessorFailed
from processor_host.failures import DeadLetter, Skip, Stop
from processor_host.middleware import Process
from processor_host.processor import Batch, CloseReason
from tests.processor_host.pumping import Kept, Log, RecordScripted, failures, pumping
from tests.stage import HANDOFF_S, LATENCY_S, VIRTUAL_TIME, Stage
from tests.world.diary import passes
from tests.world.loop import run_virtual

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def put_keys(stage: Stage, keys: str) -> None:
    """Write one record for each letter; "-" is a record without a key."""
    for key in keys:
        stage.source.put("p0", b"x", key=None if key == "-" else key)


class Working:
    """What is at work: records take as long as they are told, and some fail."""

    def __init__(self, seconds: Callable[[Record], float] = lambda _: 1.0, **more: Any) -> None:
        self.at_work: dict[int, str | None] = {}
        self.most = 0
        self.log = Log(on_record=self._work, **more)
        self.fails: dict[int, int] = {}
        self._seconds = seconds

    async def _work(self, record: Record, _: Batch) -> None:
        number = int(record.position)
        assert record.key is None or record.key not in self.at_work.values()
        self.at_work[number] = record.key
        self.most = max(self.most, len(self.at_work))
        try:
            await anyio.sleep(self._seconds(record))
            if self.fails.get(number, 0):
                self.fails[number] -= 1
                raise ValueError(f"bad record {number}")
        finally:
            del self.at_work[number]

    def factory(self) -> Any:
        """Make the processor."""
        return RecordScripted(self.log)


async def test_records_of_different_keys_are_at_work_together_up_to_the_bound() -> None:
    """That is what it is for: six seconds of work in two."""
    stage = Stage()
    put_keys(stage, "abcdef")
    working = Working()
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=100) as it:
        await it.handled(6)

        assert working.most == 3
        assert stage.now_s - it.began_s < 2.3
        assert stage.events_of(BatchHandled)[0].records == 1


async def test_records_of_one_key_stay_in_their_order_and_those_without_one_need_none() -> None:
    """A key is whatever must not be overtaken by itself."""
    stage = Stage()
    put_keys(stage, "aaa---")
    working = Working(lambda record: 3.0 if record.position == "1" else 1.0)
    async with pumping(stage, working.log, factory=working.factory, concurrency=4, window_max=100) as it:
        await it.handled(6)

        assert working.log.started == [1, 4, 5, 6, 2, 3]
        assert working.log.finished == [4, 5, 6, 1, 2, 3]


async def test_checkpoint_waits_for_the_first_record_that_is_not_done() -> None:
    """Whatever is done behind it would be lost with a higher one."""
    stage = Stage()
    put_keys(stage, "abcdef")
    working = Working(lambda record: 30.0 if record.position == "2" else 0.1)
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=100) as it:
        await it.handled(5)
        await passes(5)
        waiting = stage.lease().position
        await it.handled(6)
        await passes(2)

        assert (waiting, stage.lease().position) == ("1", "6")


async def test_nothing_is_taken_in_beyond_the_window() -> None:
    """What is done behind a slow record is done again after a crash, so it is bounded."""
    stage = Stage()
    put_keys(stage, "a" + "bcdefghij" * 3)
    working = Working(lambda record: 50.0 if record.position == "1" else 0.1)
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=8):
        await passes(40)

        assert sorted(working.log.started) == list(range(1, 9))


async def test_record_that_fails_holds_its_key_and_the_checkpoint_and_nobody_else() -> None:
    """Others have nothing to do with it; the pause is its own."""
    stage = Stage()
    put_keys(stage, "abacad")
    working = Working(lambda _: 0.1)
    working.fails = {1: 3}
    async with pumping(stage, working.log, factory=working.factory, concurrency=2, window_max=100) as it:
        await passes(1)
        early, stored = set(working.log.finished), stage.lease().position
        await it.handled(6)
        await passes(2)

        assert (early, stored) == ({2, 4, 6}, "@earliest")
        assert working.log.finished[3:] == [1, 3, 5]
        assert (failures(stage), stage.lease().position) == ([("process", n) for n in (1, 2, 3)], "6")
        assert (len(working.log.opened), working.log.closed) == (1, [])


@pytest.mark.parametrize("letters", [False, True])
async def test_record_that_is_given_up_lets_its_key_go_on(letters: bool) -> None:
    """The others of its key are not blamed."""
    stage = Stage()
    put_keys(stage, "aabab")
    working = Working(lambda _: 0.1)
    working.fails = {2: 99}
    sink = Kept(fails=1)
    policy = DeadLetter(sink, attempts=2) if letters else Skip(attempts=2)
    async with pumping(
        stage, working.log, factory=working.factory, concurrency=2, window_max=100, given={"policy": policy}
    ) as it:
        await it.handled(4)
        await passes(2)

        assert (working.log.started.count(2), sorted(working.log.finished)) == (2, [1, 3, 4, 5])
        assert (sink.positions, [letter.after for letter in sink.letters]) == (([2], ["1"]) if letters else ([], []))
        assert stage.lease().position == "5"


async def test_stop_lets_what_is_at_work_end_and_stores_what_is_done() -> None:
    """Its neighbours need not be handled again once it is resumed."""
    stage = Stage()
    put_keys(stage, "abcdefgh")
    working = Working(lambda record: 0.1 if record.position == "3" else 1.0)
    working.fails = {3: 99}
    async with pumping(
        stage, working.log, factory=working.factory, concurrency=3, window_max=100, given={"policy": Stop(attempts=1)}
    ) as it:
        assert await it.over() == "stopped"

    item = stage.lease()
    assert (item.owner, item.paused, item.position) == (None, True, "2")
    assert (sorted(working.log.finished), working.log.started) == ([1, 2], [1, 2, 3])
    assert [event.reason for event in stage.events_of(PartitionStopped)] == [
        "process failed once at position 3: ValueError: bad record 3"
    ]


async def test_drain_begins_nothing_more_and_releases_with_what_is_done() -> None:
    """The running records may end; what failed waits for the next owner."""
    stage = Stage()
    put_keys(stage, "abcdefgh")
    working = Working()
    working.fails = {4: 99}
    async with pumping(stage, working.log, factory=working.factory, concurrency=2, window_max=3) as it:
        await passes(2.5)
        it.drain()
        assert await it.over() == "drained"

    assert (working.at_work, stage.lease().owner, stage.lease().position) == ({}, None, "3")
    assert working.log.closed == [CloseReason.HANDED_OFF]


async def test_drain_reaches_whoever_waits_for_room() -> None:
    """With the window full and everything in it failing, nothing changes any more but the ask."""
    stage = Stage()
    put_keys(stage, "aaaaaaaa")
    working = Working(lambda _: 0.1)
    working.fails = {1: 99}
    async with pumping(stage, working.log, factory=working.factory, concurrency=2, window_max=3) as it:
        await passes(20)
        it.drain()
        began_s = stage.now_s
        assert await it.over() == "drained"

    assert stage.now_s - began_s < 0.2


async def test_drain_that_comes_while_a_checkpoint_is_stored_is_seen_when_nothing_is_at_work() -> None:
    """What is stored holds up all beginnings, and the window is full: nobody else would ever tell of the ask."""
    stage = Stage()
    put_keys(stage, "aaaaaaaa")
    working = Working(lambda _: 0.1)
    stage.network.disturb(lambda call: call.operation == "SaveCheckpoint", before_s=0.8, times=1)
    async with pumping(
        stage, working.log, factory=working.factory, concurrency=2, window_max=3, checkpoint="every-record"
    ) as it:
        await it.handled(1)
        await passes(0.4)
        it.drain()
        began_s = stage.now_s
        assert await it.over() == "drained"

    assert stage.now_s - began_s < 0.6
    assert (stage.lease().owner, stage.lease().position) == (None, "1")


async def test_records_that_outlast_a_hand_over_are_cancelled_and_told() -> None:
    """The asker waits; they are handled again there."""
    stage = Stage()
    put_keys(stage, "abcd")
    working = Working(lambda record: 0.1 if record.position == "1" else 1000.0)
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=100) as it:
        await it.handled(1)
        asked_s = stage.now_s - 2 * LATENCY_S
        stage.ask("a:1", "p0", 1)
        assert await it.over() == "drained"

    assert stage.now_s < asked_s + HANDOFF_S
    assert [event.records for event in stage.events_of(BatchCut)] == [3]
    assert (stage.lease().owner, stage.lease().position) == (None, "1")


async def test_lost_lease_ends_everything_at_work_at_once() -> None:
    """Nothing is written under it any more."""
    stage = Stage()
    put_keys(stage, "abcd")
    working = Working(lambda _: 1000.0)
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=100) as it:
        await passes(1)
        it.lease.end(EndReason.SEEN_TAKEN)
        assert await it.over() == "lease lost"

    assert (working.at_work, stage.sent(Release, SaveCheckpoint)) == ({}, [])
    assert working.log.closed == [CloseReason.LEASE_LOST]


async def test_partition_that_ends_is_completed_once_all_is_done() -> None:
    """The last record read is not the last one done."""
    stage = Stage()
    put_keys(stage, "abcd")
    stage.source.close_partition("p0")
    working = Working(lambda record: 9.0 if record.position == "2" else 0.1)
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=100) as it:
        assert await it.over() == "partition ended"

    assert (sorted(working.log.finished), stage.lease().finished) == ([1, 2, 3, 4], True)


async def test_checkpoint_from_a_middleware_never_passes_an_unfinished_record() -> None:
    """It may store the record that is first; of any other it stores what is done before."""
    stage = Stage()
    put_keys(stage, "abc")
    stored: list[tuple[str, str]] = []

    async def saving(batch: Batch, process: Process) -> None:
        (record,) = batch
        await process(batch)
        await batch.checkpoint()
        stored.append((record.position, stage.lease().position))

    working = Working(lambda record: {"1": 1.0, "2": 0.2, "3": 2.0}[record.position])
    bounds: dict[str, Any] = {"concurrency": 3, "window_max": 9, "checkpoint_interval_s": 99.0}
    async with pumping(stage, working.log, factory=working.factory, given={"middleware": (saving,)}, **bounds):
        await passes(4)

    assert stored == [("2", "@earliest"), ("1", "1"), ("3", "3")]


async def test_every_record_mode_begins_nothing_behind_what_is_done_and_not_stored() -> None:
    """A crash repeats what was at work, and nothing that was done."""
    stage = Stage()
    put_keys(stage, "abcdef")
    seen: list[tuple[int, str]] = []
    working = Working(lambda record: int(record.position) * 0.1)

    async def note(record: Record, batch: Batch) -> None:
        seen.append((len(working.log.finished), stage.lease().position))
        await work(record, batch)

    work = working.log.on_record
    working.log.on_record = note
    async with pumping(
        stage,
        working.log,
        factory=working.factory,
        concurrency=2,
        window_max=9,
        checkpoint="every-record",
        checkpoint_interval_s=99.0,
    ) as it:
        await it.handled(6)

    assert seen[2:] == [(n, str(n)) for n in (1, 2, 3, 4)]


async def test_chunks_are_taken_in_order_while_earlier_ones_are_let_go() -> None:
    """What is done while the next chunk is waited for must not shift which one that is."""
    stage = Stage()
    working = Working(lambda _: 0.2)
    async with pumping(stage, working.log, factory=working.factory, concurrency=3, window_max=20) as it:
        for _ in range(12):
            put_keys(stage, "abc-")
            await passes(0.15)
        await it.handled(48)

        assert sorted(working.log.finished) == list(range(1, 49))


# --- Whatever fails, and however long it takes -----------------------------------------------------------------------

plans = st.lists(
    st.tuples(
        st.sampled_from("aabc-"),
        st.sampled_from([0.0, 0.01, 0.3, 2.0]),
        st.sampled_from([0, 0, 0, 1, 2, 99]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(plans, st.integers(2, 5), st.integers(5, 12), st.sampled_from([None, 0.5, 2.0]), st.booleans())
def test_keys_keep_their_order_and_the_checkpoint_is_never_above_an_unfinished_record(
    plan: list[tuple[str, float, int]], at_once: int, window: int, pause_s: float | None, is_each_stored: bool
) -> None:
    """Records take any time and fail any number of times; those that fail for ever are given up with one letter."""

    async def scenario() -> None:
        stage = Stage()
        put_keys(stage, "".join(key for key, _, _ in plan))
        stage.source.close_partition("p0")
        sink = Kept()
        working = Working(lambda record: plan[int(record.position) - 1][1])
        working.fails = {number: fails for number, (_, _, fails) in enumerate(plan, 1) if fails}
        over: set[int] = set()

        def is_over(number: int) -> bool:
            return number in working.log.finished or number in sink.positions

        def watch() -> None:
            position = stage.lease().position
            stored = {"@earliest": 0, "@end": len(plan)}.get(position) if position.startswith("@") else int(position)
            assert stored is not None
            assert all(is_over(number) for number in range(1, stored + 1))

        work = working.log.on_record

        async def watched(record: Record, batch: Batch) -> None:
            watch()
            number = int(record.position)
            before = [n for n, (key, _, _) in enumerate(plan[: number - 1], 1) if key == record.key]
            assert record.key is None or all(is_over(n) for n in before)
            assert number not in over
            await work(record, batch)
            over.add(number)

        working.log.on_record = watched
        policy = DeadLetter(sink, attempts=4, pause_s=pause_s, pause_max_s=pause_s)
        async with pumping(
            stage,
            working.log,
            factory=working.factory,
            concurrency=at_once,
            window_max=max(window, at_once),
            checkpoint="every-record" if is_each_stored else "automatic",
            given={"policy": policy},
        ) as it:
            assert await it.over(3600) == "partition ended"

        bad = [number for number, (_, _, fails) in enumerate(plan, 1) if fails == 99]
        assert sorted(sink.positions) == bad
        assert sorted(working.log.finished) == [n for n in range(1, len(plan) + 1) if n not in bad]
        by_key: dict[str, list[int]] = defaultdict(list)
        for number in working.log.finished:
            if plan[number - 1][0] != "-":
                by_key[plan[number - 1][0]].append(number)
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        assert working.most <= at_once
        tries = [event for event in stage.events_of(ProcessorFailed) if event.stage == "process"]
        assert len(tries) == sum(min(fails, 4) for _, _, fails in plan)

    run_virtual(scenario)
