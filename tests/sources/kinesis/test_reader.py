"""The polling reader on virtual time: what it hands on, what it makes of each refusal, and how a shard ends."""

from __future__ import annotations

import anyio
import pytest

from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.positions import EARLIEST, END, at_time
from partitions.sources.base import Fetched, Record
from tests.sources.kinesis.scripted import THROTTLE, Refused
from tests.sources.kinesis.stages import LONG_S, SHARD, Stage, read, read_all
from tests.stage import VIRTUAL_TIME
from tests.world.diary import passes
from tests.world.loop import running_loop

__all__: list[str] = []

NOTHING = Fetched(records=(), lag_s=0.0)
ENDED = Fetched(records=(), lag_s=0.0, ended=True)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
async def stage() -> Stage:
    made = Stage()
    await made.open()
    return made


# --- What is handed on ------------------------------------------------------------------------------------------------


async def test_reader_hands_on_one_answer_in_batches_without_another_call(stage: Stage) -> None:
    """Two reads a second must be enough for thousands of records."""
    records = stage.put(5)
    reader = stage.source.reader(SHARD, EARLIEST)

    answers = [await read(reader, records_max=2) for _ in range(3)]

    assert answers == [
        Fetched(records=records[:2], lag_s=0.0),
        Fetched(records=records[2:4], lag_s=0.0),
        Fetched(records=records[4:], lag_s=0.0),
    ]
    assert len(stage.kinesis.calls("GetRecords")) == 1


async def test_reader_stops_before_too_many_bytes_but_hands_on_one_record_however_large(stage: Stage) -> None:
    """Memory is bounded by bytes; a record above the bound must still get through."""
    records = tuple(stage.put(1, data=data)[0] for data in (b"x" * 100, b"y" * 10, b"z" * 10, b"w"))
    reader = stage.source.reader(SHARD, EARLIEST)

    assert [(await read(reader, bytes_max=20)).records for _ in range(3)] == [records[:1], records[1:3], records[3:]]


async def test_reader_says_how_far_each_batch_is_behind(stage: Stage) -> None:
    """What Kinesis says is about the end of its answer; a processor in the middle of it is further behind."""
    records: tuple[Record, ...] = ()
    for _ in range(4):
        records += stage.put(1)
        await passes(1)
    reader = stage.source.reader(SHARD, EARLIEST)

    lags = [(await read(reader, records_max=1)).lag_s for _ in range(4)]

    assert lags == pytest.approx([3.0, 2.0, 1.0, 0.0])


@pytest.mark.parametrize("resumed", range(5))
async def test_reader_resumes_after_the_position_of_any_record(stage: Stage, resumed: int) -> None:
    """A checkpoint at a record means that it and all before it are done."""
    records = stage.put(5)

    fetched = await read(stage.source.reader(SHARD, records[resumed].position), wait_s=1.0)

    assert fetched == Fetched(records=records[resumed + 1 :], lag_s=0.0)


async def test_reader_that_waits_returns_as_soon_as_a_read_brings_a_record(stage: Stage) -> None:
    """The wait is a bound, not a period; an idle shard is read once a second."""
    reader = stage.source.reader(SHARD, EARLIEST)
    await read(reader)
    began_s = running_loop().time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, reader)

        async def write() -> None:
            await passes(5)
            stage.put(1)

        tasks.start_soon(write)
        fetched = await read(reader, wait_s=LONG_S)

    assert len(fetched.records) == 1
    assert 5.0 <= running_loop().time() - began_s <= 5.0 + 1.3


async def test_reader_that_was_cancelled_while_it_waited_loses_nothing(stage: Stage) -> None:
    """C18: stop must not wait for a poll, and the next read goes on where the last answer ended."""
    records = stage.put(1)
    reader = stage.source.reader(SHARD, EARLIEST)
    await read(reader)
    began_s = running_loop().time()

    with anyio.move_on_after(0.3) as scope:
        await read(reader, wait_s=LONG_S)
    assert scope.cancelled_caught
    assert running_loop().time() - began_s == pytest.approx(0.3)
    records += stage.put(2)

    assert await read(reader, wait_s=LONG_S) == Fetched(records=records[1:], lag_s=0.0)


async def test_reader_that_was_cancelled_during_a_call_asks_again(stage: Stage) -> None:
    """What an answer that nobody got carried must come once more."""
    records = stage.put(3)
    reader = stage.source.reader(SHARD, EARLIEST)

    with anyio.move_on_after(0.018):  # The iterator took 0.01; the records are on their way.
        await read(reader)
    assert len(stage.kinesis.calls("GetRecords")) == 1

    assert await read(reader, wait_s=LONG_S) == Fetched(records=records, lag_s=0.0)


async def test_reader_at_the_end_asks_nobody(stage: Stage) -> None:
    """END is a position that every source knows."""
    assert await read(stage.source.reader(SHARD, END)) == ENDED
    assert stage.kinesis.asked == []


@pytest.mark.parametrize("position", ["x", "-1", "", "1.0", "5/", "5/x", "change:3"])
async def test_position_of_another_source_is_refused(stage: Stage, position: str) -> None:
    """Reading from somewhere else instead would pass over records, or repeat them, without a word."""
    with pytest.raises(SourceMisconfigured, match=f"position '{position}'"):
        await read(stage.source.reader(SHARD, position))


async def test_reader_refuses_to_read_no_records(stage: Stage) -> None:
    """It would return nothing for ever, and look like an idle partition."""
    with pytest.raises(ValueError, match="records_max=0"):
        await read(stage.source.reader(SHARD, EARLIEST), records_max=0)


async def test_answers_of_ten_megabytes_are_handed_on_whole_and_the_next_ask_for_less(stage: Stage) -> None:
    """The size of records is known after the first answer; the second is what goes through in a second."""
    records = stage.put(40, data=b"x" * 1_000_000)
    reader = stage.source.reader(SHARD, EARLIEST)

    assert await read_all(reader, 40) == list(records)
    limits = [ask.arguments["Limit"] for ask in stage.kinesis.calls("GetRecords")]
    assert limits[0] == 2000
    assert limits[-1] < 500


# --- Starts -----------------------------------------------------------------------------------------------------------


async def test_start_at_a_time_begins_at_the_first_record_of_it(stage: Stage) -> None:
    """The record at the very time belongs to it."""
    records: tuple[Record, ...] = ()
    for _ in range(4):
        records += stage.put(1)
        await passes(1)
    time_s = records[2].time_s
    assert time_s is not None

    fetched = await read(stage.source.reader(SHARD, at_time(time_s)))

    assert fetched.records == records[2:]


async def test_start_at_a_time_to_come_passes_over_what_comes_before(stage: Stage) -> None:
    """Kinesis refuses a time in the future; the start is a fixed point all the same."""
    reader = stage.source.reader(SHARD, at_time(stage.kinesis.now_s() + 10))
    assert await read(reader, wait_s=3.0) == NOTHING
    stage.put(3)
    assert await read(reader, wait_s=8.0) == NOTHING
    records = stage.put(2)

    assert await read(reader, wait_s=LONG_S) == Fetched(records=records, lag_s=0.0)


async def test_start_at_latest_is_a_time_that_has_passed_and_excludes_what_was_there(stage: Stage) -> None:
    """C48: what arrives after the call is read in every shard, what was written before is not."""
    stage.put(3)
    await passes(0.2)
    point = await stage.source.resolve_start("latest")
    records = stage.put(2)

    position = await stage.source.first_position(SHARD, point)

    assert (await read(stage.source.reader(SHARD, position))).records == records


# --- How a shard ends (C43) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["null", "absent"])
async def test_c43_end_with_the_last_records_or_after_them(end: str) -> None:
    """A missing field and a null mean the same, and records beside it are delivered."""
    stage = Stage(end=end)
    await stage.open()
    records = stage.put(3)
    stage.kinesis.split(SHARD)
    reader = stage.source.reader(SHARD, EARLIEST)

    assert [await read(reader, records_max=2), await read(reader), await read(reader)] == [
        Fetched(records=records[:2], lag_s=0.0),
        Fetched(records=records[2:], lag_s=0.0, ended=True),
        ENDED,
    ]


async def test_c43_end_of_a_shard_without_an_iterator() -> None:
    """A shard that has nothing left to begin at is over."""
    stage = Stage(end="no iterator")
    await stage.open()
    stage.kinesis.split(SHARD)

    assert await read(stage.source.reader(SHARD, EARLIEST), wait_s=LONG_S) == ENDED


async def test_c43_end_while_the_reader_waits(stage: Stage) -> None:
    """An idle shard that is split must not hold up its children for longer than one idle read."""
    reader = stage.source.reader(SHARD, EARLIEST)
    await read(reader)
    stage.kinesis.split(SHARD)
    began_s = running_loop().time()

    assert await read(reader, wait_s=LONG_S) == ENDED
    assert running_loop().time() - began_s < 1.3


async def test_shard_that_vanished_has_ended_with_a_gap_told_once(stage: Stage) -> None:
    """Its unread records are gone with it, and its children must not wait for ever."""
    records = stage.put(2)
    stage.kinesis.split(SHARD)
    del stage.kinesis.shards[SHARD]

    first = await read(stage.source.reader(SHARD, records[0].position), wait_s=LONG_S)
    second = await read(stage.source.reader(SHARD, records[0].position), wait_s=LONG_S)

    assert [first, second] == [Fetched(records=(), lag_s=0.0, ended=True, trimmed=True), ENDED]


async def test_shard_that_is_not_found_but_listed_has_not_ended(stage: Stage) -> None:
    """To complete it would lose the rest of it for good."""
    stage.kinesis.refuse("GetShardIterator", Refused("ResourceNotFoundException", "a fault"))

    with pytest.raises(SourceUnavailable, match="ResourceNotFoundException"):
        await read(stage.source.reader(SHARD, EARLIEST))


async def test_new_shard_that_neither_call_knows_yet_has_not_ended(stage: Stage) -> None:
    """A split may be seen by one server of Kinesis before another; a child that is completed unread is lost."""
    before = stage.kinesis.answer("ListShards", {"StreamName": "orders"})
    child, _ = stage.kinesis.split(SHARD)
    stage.kinesis.script.append(lambda ask: before if ask.operation == "ListShards" else None)
    stage.kinesis.refuse("GetShardIterator", Refused("ResourceNotFoundException", "no such shard"))

    with pytest.raises(SourceUnavailable, match="ResourceNotFoundException"):
        await read(stage.source.reader(child, EARLIEST))


async def test_stream_that_is_gone_ends_no_shard(stage: Stage) -> None:
    """The code is the same as for a shard; but a stream made anew is another one."""
    stage.kinesis.is_there = False

    with pytest.raises(SourceMisconfigured, match="ListShards"):
        await read(stage.source.reader(SHARD, EARLIEST))


# --- Iterators that expire (C51) --------------------------------------------------------------------------------------


async def test_c51_expired_iterator_goes_on_after_the_last_record_delivered() -> None:
    """0 skipped and 0 twice, wherever the reader once began."""
    stage = Stage(iterator_life_s=2.0)
    await stage.open()
    records = stage.put(10_000)
    reader = stage.source.reader(SHARD, EARLIEST)
    delivered = await read_all(reader, 10_000)
    records += stage.put(20)
    stage.kinesis.asked.clear()

    await passes(5)
    delivered += await read_all(reader, 20)

    assert [record.position for record in delivered] == [record.position for record in records]
    assert stage.iterators() == ["AT_SEQUENCE_NUMBER"]


async def test_c51_expired_iterator_before_any_record_begins_where_the_reader_did() -> None:
    """Nothing was delivered yet, so the start is right."""
    stage = Stage(iterator_life_s=2.0)
    await stage.open()
    reader = stage.source.reader(SHARD, at_time(stage.kinesis.now_s()))
    await read(reader)
    await passes(5)
    records = stage.put(3)

    assert (await read(reader, wait_s=LONG_S)).records == records


async def test_expired_iterator_of_an_idle_shard_is_no_gap_when_the_end_was_seen() -> None:
    """The last record may be older than the retention; whoever saw the end a moment ago has missed nothing."""
    stage = Stage(iterator_life_s=2.0)
    await stage.open()
    stage.put(3)
    reader = stage.source.reader(SHARD, EARLIEST)
    await read(reader)
    stage.kinesis.trim(SHARD, 3)
    await passes(5)
    records = stage.put(2)

    assert await read(reader, wait_s=LONG_S) == Fetched(records=records, lag_s=0.0)


async def test_cut_is_told_and_reading_goes_on_where_it_was(stage: Stage) -> None:
    """C51, second half: after a network cut the record after the last one delivered is next."""
    records = stage.put(3)
    reader = stage.source.reader(SHARD, EARLIEST)
    await read(reader)
    records += stage.put(2)
    stage.client.is_cut = True
    with pytest.raises(SourceUnavailable, match="the network is cut"):
        await read(reader, wait_s=LONG_S)
    stage.client.is_cut = False

    assert (await read(reader, wait_s=LONG_S)).records == records[3:]


# --- Trimmed positions (C52) ------------------------------------------------------------------------------------------


async def test_c52_trimmed_position_goes_on_at_the_horizon_and_is_told_once(stage: Stage) -> None:
    """Kinesis itself says nothing: it silently begins at the oldest record that is left."""
    records = stage.put(701)
    stage.kinesis.trim(SHARD, 501)

    first = await read(stage.source.reader(SHARD, records[0].position), wait_s=LONG_S)
    again = await read(stage.source.reader(SHARD, records[0].position), wait_s=LONG_S)

    assert first == Fetched(records=records[501:601], lag_s=0.0, trimmed=True)
    assert again == Fetched(records=records[501:601], lag_s=0.0)


async def test_trimmed_position_that_is_refused_goes_on_at_the_horizon_with_one_gap(stage: Stage) -> None:
    """Should Kinesis refuse what was trimmed, the partition must not ask for it for ever."""
    records = stage.put(3)
    refused = Refused("InvalidArgumentException", "The sequence number is older than the horizon")
    stage.kinesis.refuse("GetShardIterator", refused)
    stage.kinesis.trim(SHARD, 2)
    reader = stage.source.reader(SHARD, records[0].position)

    answers = [await read(reader, wait_s=LONG_S), await read(reader)]

    assert answers == [Fetched(records=records[2:], lag_s=0.0, trimmed=True), NOTHING]
    assert stage.iterators() == ["AT_SEQUENCE_NUMBER", "TRIM_HORIZON"]


async def test_position_of_another_stream_is_not_taken_for_a_trimmed_one(stage: Stage) -> None:
    """To begin at the horizon would replay a whole stream because of a wrong setting."""
    refused = Refused("InvalidArgumentException", "StartingSequenceNumber 7 is invalid: did not come from this stream")
    stage.kinesis.refuse("GetShardIterator", refused)

    with pytest.raises(SourceMisconfigured, match="did not come from this stream"):
        await read(stage.source.reader(SHARD, "7"))


async def test_read_that_is_refused_as_invalid_does_not_begin_at_the_horizon(stage: Stage) -> None:
    """It says nothing about the position, and the whole retention would be read again."""
    records = stage.put(3)
    stage.kinesis.refuse("GetRecords", Refused("InvalidArgumentException", "Invalid ShardIterator."))

    with pytest.raises(SourceMisconfigured, match="Invalid ShardIterator"):
        await read(stage.source.reader(SHARD, records[0].position))
    assert stage.iterators() == ["AT_SEQUENCE_NUMBER"]


async def test_everything_trimmed_is_told_at_once(stage: Stage) -> None:
    """There is nothing to return, but something to tell."""
    records = stage.put(3)
    stage.kinesis.trim(SHARD, 3)
    reader = stage.source.reader(SHARD, records[0].position)

    assert [await read(reader, wait_s=LONG_S), await read(reader)] == [
        Fetched(records=(), lag_s=0.0, trimmed=True),
        NOTHING,
    ]


async def test_start_at_the_earliest_of_a_trimmed_shard_is_no_gap(stage: Stage) -> None:
    """Whoever wants the oldest record that is left gets it."""
    records = stage.put(3)
    stage.kinesis.trim(SHARD, 2)

    assert await read(stage.source.reader(SHARD, EARLIEST)) == Fetched(records=records[2:], lag_s=0.0)


# --- Throttling and errors --------------------------------------------------------------------------------------------


async def test_throttled_reads_are_no_errors_and_no_end(stage: Stage) -> None:
    """All readers of a shard share its limit; it says nothing about this one."""
    records = stage.put(2)
    stage.kinesis.refuse("GetRecords", THROTTLE, times=3)

    assert await read(stage.source.reader(SHARD, EARLIEST), wait_s=LONG_S) == Fetched(records=records, lag_s=0.0)


async def test_iterators_that_are_throttled_are_waited_for(stage: Stage) -> None:
    """GetShardIterator has a limit of its own."""
    records = stage.put(2)
    stage.kinesis.refuse("GetShardIterator", THROTTLE, times=3)

    assert (await read(stage.source.reader(SHARD, EARLIEST), wait_s=LONG_S)).records == records


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AccessDeniedException", SourceMisconfigured),
        ("ExpiredTokenException", SourceMisconfigured),
        ("KMSAccessDeniedException", SourceMisconfigured),
        ("InternalFailureException", SourceUnavailable),
        ("SomethingNew", SourceUnavailable),
    ],
)
async def test_errors_of_a_read_name_action_stream_and_region(stage: Stage, code: str, error: type[Exception]) -> None:
    """Whoever reads the log must know what to allow, and where."""
    stage.kinesis.refuse("GetRecords", Refused(code, "no"))

    with pytest.raises(error, match=r"kinesis:GetRecords on stream 'orders' in eu-west-1"):
        await read(stage.source.reader(SHARD, EARLIEST))
