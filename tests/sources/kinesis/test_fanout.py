"""The reader to which records are pushed: every way in which a subscription ends, and what is handed on meanwhile."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.places import AwsPlace
from partitions.clocks import BootClock
from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.positions import EARLIEST, at_time
from partitions.retries import Waits
from partitions.sources.base import Fetched, Record
from partitions.sources.kinesis import KinesisSource, parse_url
from partitions.sources.kinesis._calls import Calls
from partitions.sources.kinesis._fanout import REFUSALS_MAX, FanoutReader, FanoutTimes, page_of, start_at
from partitions.sources.kinesis._fanout_calls import Fanout
from partitions.sources.kinesis._kpl import load_unpack
from partitions.sources.kinesis._listing import list_shards
from partitions.sources.kinesis._places import AtHorizon, AtRecord, AtTime, Place, iterator_at
from partitions.sources.kinesis._reader import ReaderParts
from partitions.sources.kinesis._shards import ShardRef
from partitions.sources.kinesis._shelf import Page
from tests.servers import DUMMY_CREDENTIALS
from tests.sources.kinesis.fanout_server import (
    BREAK,
    HALF_SILENT,
    HOLD,
    RECORDED,
    SHARD,
    SILENT,
    STREAM,
    Cut,
    FanoutServer,
    Refuse,
    Spoil,
)

__all__: list[str] = []

TIMES = FanoutTimes(second_s=0.02, refused=Waits(first_s=0.01, most_s=0.02))
FIRST, MORE, PACKED = RECORDED["records"], RECORDED["more"], RECORDED["aggregate"]
AT_FIRST = {"Type": "TRIM_HORIZON"}
IN_USE = Refuse("ResourceInUseException", "another one is there")

NewReader = Callable[[str], FanoutReader]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in DUMMY_CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@asynccontextmanager
async def reading(
    server: FanoutServer, *, active_s: float = 5.0, times: FanoutTimes = TIMES
) -> AsyncIterator[NewReader]:
    """The server, and what makes a reader that begins at a position; all of them are closed at the end."""
    readers: list[FanoutReader] = []
    told: set[tuple[str, str]] = set()
    async with server.running():
        clients = AwsClients(AwsPlace(region="us-east-1", endpoint_url=server.url))
        client = await clients.client("reads", "kinesis", ClientSettings(timeout_s=5.0, connections_max=8))
        calls = Calls(client, region="us-east-1")

        async def is_listed(ref: ShardRef) -> bool:
            return any(each["ShardId"] == ref.shard for each in await list_shards(calls, ref.stream))

        def is_news(partition: str, position: str) -> bool:
            news = (partition, position) not in told
            told.add((partition, position))
            return news

        parts = ReaderParts(
            calls=calls,
            clock=BootClock(),
            random=Random(1),
            idle_read_s=1.0,
            unpack=load_unpack(),
            is_listed=is_listed,
            is_news=is_news,
        )
        fanout = Fanout(clients, "first", clock=BootClock(), random=Random(1), active_s=active_s, polls=TIMES.refused)

        def new_reader(position: str) -> FanoutReader:
            reader = FanoutReader(parts, fanout, SHARD, ShardRef(stream=STREAM, shard=SHARD), position, times=times)
            readers.append(reader)
            return reader

        try:
            yield new_reader
        finally:
            for reader in readers:
                await reader.close()
            await clients.close()


async def read(reader: FanoutReader, *, records_max: int = 100, wait_s: float = 5.0) -> Fetched:
    with anyio.fail_after(30):
        return await reader.read(records_max=records_max, bytes_max=1_000_000, wait_s=wait_s)


async def read_all(reader: FanoutReader, count: int) -> tuple[list[str], bool]:
    """The positions of so many records, and whether a gap was told."""
    positions: list[str] = []
    gaps = 0
    while len(positions) < count:
        fetched = await read(reader)
        assert fetched.records or fetched.trimmed, positions
        positions += positions_of(fetched.records)
        gaps += fetched.trimmed
    assert len(positions) == count
    return positions, gaps > 0


def positions_of(records: Sequence[Record]) -> list[str]:
    return [record.position for record in records]


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.sleep(0.005)


async def test_fanout_hands_on_what_was_put() -> None:
    """Keys, data, times and sequence numbers are those of the producer and of Kinesis."""
    async with reading(FanoutServer(plays=[["records", "more", HOLD]])) as new_reader:
        fetched = await read(new_reader(EARLIEST))

    assert [(each.position, each.key, each.data) for each in fetched.records] == [
        (sequence, f"key-{number}", b"record %d" % number) for number, sequence in enumerate(FIRST)
    ]
    assert {(each.partition, type(each.time_s)) for each in fetched.records} == {(SHARD, float)}
    assert (fetched.lag_s, fetched.ended, fetched.trimmed) == (0.0, False, False)


async def test_fanout_reads_no_further_ahead_than_it_is_asked() -> None:
    """A slow processor must not fill the memory of its host; one event is all that is kept."""
    async with reading(FanoutServer(plays=[["records", "more", HOLD]])) as new_reader:
        reader = new_reader(EARLIEST)
        fetched = [await read(reader, records_max=2) for _ in range(3)]

    assert [positions_of(each.records) for each in fetched] == [FIRST[:2], FIRST[2:], MORE]


async def test_fanout_read_waits_no_longer_than_it_may_and_keeps_half_a_message() -> None:
    """The end of a wait must not cost the subscription: the next one would be refused for five seconds."""
    rest = anyio.Event()
    server = FanoutServer(plays=[[Cut("records", rest), HOLD]])
    async with reading(server) as new_reader:
        reader = new_reader(EARLIEST)
        waited = [await read(reader, wait_s=0.05) for _ in range(3)]
        rest.set()
        fetched = await read(reader)

    assert waited == [Fetched(records=(), lag_s=None)] * 3
    assert (positions_of(fetched.records), server.asked) == (FIRST, [AT_FIRST])


async def test_fanout_read_that_is_cancelled_ends_at_once_and_loses_nothing() -> None:
    """A pump that is stopped and one that reads on share this path."""
    rest = anyio.Event()
    server = FanoutServer(plays=[["records", Cut("more", rest), HOLD]])
    async with reading(server) as new_reader:
        reader = new_reader(EARLIEST)
        # The subscription stands from here on, however slow the machine is.
        first = await read(reader)
        for _ in range(3):
            with anyio.move_on_after(0.05) as scope:
                await reader.read(records_max=100, bytes_max=1000, wait_s=60.0)
            assert scope.cancelled_caught
        rest.set()
        second = await read(reader)

    assert [positions_of(fetched.records) for fetched in (first, second)] == [FIRST, MORE]
    assert server.asked == [AT_FIRST]


async def test_fanout_goes_on_after_the_subscription_ended_by_itself() -> None:
    """It does every five minutes; a record that comes twice would be handled twice every five minutes."""
    server = FanoutServer(plays=[["records"], ["records"], ["records", "more", HOLD]])
    async with reading(server) as new_reader:
        found = await read_all(new_reader(EARLIEST), 5)

    assert found == (FIRST + MORE, False)
    at_last = {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": FIRST[-1]}
    assert server.asked == [AT_FIRST, at_last, at_last]


async def test_fanout_goes_on_after_the_number_that_an_event_without_records_gave() -> None:
    """An idle shard's numbers move on; going back to its last record would read a gap into a quiet week."""
    server = FanoutServer(plays=[["empty"], ["records", HOLD]])
    async with reading(server) as new_reader:
        found = await read_all(new_reader(EARLIEST), 3)

    assert found == (FIRST, False)
    assert [each["Type"] for each in server.asked] == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"]


async def test_fanout_sees_no_gap_in_a_shard_that_was_idle() -> None:
    """Its last record may be older than the retention by then; nothing came after it."""
    server = FanoutServer(plays=[["records", "empty"], ["more", HOLD]])
    async with reading(server) as new_reader:
        found = await read_all(new_reader(EARLIEST), 5)

    assert found == (FIRST + MORE, False)
    assert server.asked[1]["Type"] == "AFTER_SEQUENCE_NUMBER"


async def test_fanout_tells_a_gap_once_when_its_last_record_is_gone() -> None:
    """Kinesis goes on at the oldest record without a word."""
    server = FanoutServer(plays=[["records"], ["more", HOLD]])
    async with reading(server) as new_reader:
        reader = new_reader(EARLIEST)
        fetched = [await read(reader), await read(reader), await read(reader, wait_s=0.05)]

    assert [(positions_of(each.records), each.trimmed) for each in fetched] == [
        (FIRST, False),
        (MORE, True),
        ([], False),
    ]


@pytest.mark.parametrize("done", range(5))
async def test_fanout_goes_on_inside_an_aggregate(done: int) -> None:
    """A restart repeats no record that was checkpointed, and loses none of its neighbours in the same aggregate."""
    before, packed, after = PACKED
    positions = [before, f"{packed}/0", f"{packed}/1", f"{packed}/2", after]
    server = FanoutServer(plays=[["aggregate", HOLD]])
    async with reading(server) as new_reader:
        fetched = await read(new_reader(positions[done]), wait_s=0.2)

    assert (positions_of(fetched.records), fetched.trimmed) == (positions[done + 1 :], False)
    assert server.asked == [{"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": positions[done].partition("/")[0]}]


@pytest.mark.parametrize(
    "end",
    ["taken-over", BREAK, Spoil("more"), b"\xff" * 64, bytes(64)],
    ids=["taken over", "broken", "spoilt", "endless message", "message without a length"],
)
async def test_fanout_subscribes_again_after_an_error(end: object) -> None:
    """A hand-over, a network and a bit may each end a subscription; the reader goes on after its last record."""
    server = FanoutServer(plays=[["records", end], ["records", "more", HOLD]])
    async with reading(server) as new_reader:
        found = await read_all(new_reader(EARLIEST), 5)

    assert found == (FIRST + MORE, False)
    assert server.asked[1:] == [{"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": FIRST[-1]}]


@pytest.mark.parametrize("code", ["ResourceInUseException", "LimitExceededException", "KMSThrottlingException"])
async def test_fanout_subscribes_again_when_it_is_refused_for_now(code: str) -> None:
    """The host before it had the subscription less than five seconds ago."""
    server = FanoutServer(plays=[[Refuse(code)], [Refuse(code)], ["records", HOLD]])
    async with reading(server) as new_reader:
        found = await read_all(new_reader(EARLIEST), 3)

    assert (found, server.asked) == ((FIRST, False), [AT_FIRST] * 3)


async def test_fanout_waits_longer_after_each_refusal_and_no_longer_than_it_may() -> None:
    """A read that waited for its turn could not be stopped; readers that come back at once are refused for ever."""
    server = FanoutServer(plays=[[IN_USE]] * 3)
    times = FanoutTimes(second_s=0.02, refused=Waits(first_s=60.0, most_s=60.0))
    async with reading(server, times=times) as new_reader:
        reader = new_reader(EARLIEST)
        fetched = [await read(reader, wait_s=0.05) for _ in range(3)]

    assert (fetched, len(server.asked)) == ([Fetched(records=(), lag_s=None)] * 3, 1)


async def test_fanout_does_not_subscribe_again_within_five_seconds() -> None:
    """Kinesis would refuse it; a subscription may end as soon as it began."""
    server = FanoutServer(plays=[["records"], [HOLD]])
    async with reading(server, times=FanoutTimes(second_s=60.0)) as new_reader:
        reader = new_reader(EARLIEST)
        fetched = [await read(reader, wait_s=0.05) for _ in range(3)]

    assert ([positions_of(each.records) for each in fetched], len(server.asked)) == ([FIRST, [], []], 1)


@pytest.mark.parametrize("play", [[IN_USE], ["taken-over"]], ids=["refused", "taken over"])
async def test_fanout_tells_when_another_reader_uses_the_same_consumer(play: list[object]) -> None:
    """Two groups with one consumer cut each other off for ever; somebody must learn why nothing is read."""
    server = FanoutServer(plays=[play] * REFUSALS_MAX)
    async with reading(server) as new_reader:
        with pytest.raises(SourceUnavailable, match="consumer 'first': give each group a consumer of its own"):
            await read(new_reader(EARLIEST))

    assert len(server.asked) == REFUSALS_MAX


async def test_fanout_counts_refusals_anew_after_a_subscription_that_settled() -> None:
    """One take-over a day is no quarrel."""
    server = FanoutServer(plays=[["records", "taken-over"]] * 2 * REFUSALS_MAX + [["records", "more", HOLD]])
    times = FanoutTimes(second_s=0.0, refused=TIMES.refused, settled_s=0.0)
    async with reading(server, times=times) as new_reader:
        assert await read_all(new_reader(EARLIEST), 5) == (FIRST + MORE, False)


async def test_fanout_hands_on_the_last_records_and_then_the_end() -> None:
    """The children begin where the parent ended; asking once more would be refused."""
    server = FanoutServer(plays=[["records", "more", "ended"]])
    async with reading(server) as new_reader:
        reader = new_reader(EARLIEST)
        fetched = [await read(reader) for _ in range(4)]

    assert [(positions_of(each.records), each.ended) for each in fetched] == [
        (FIRST, False),
        (MORE, False),
        ([], True),
        ([], True),
    ]
    assert fetched[2].lag_s == 0.0


async def test_fanout_ends_a_shard_that_the_stream_no_longer_lists() -> None:
    """A parent whose retention is over is gone with what was unread; its children must not wait for it."""
    server = FanoutServer(plays=[[Refuse("ResourceNotFoundException", "Shard not found")]], is_listed=False)
    async with reading(server) as new_reader:
        assert await read(new_reader(EARLIEST)) == Fetched(records=(), lag_s=0.0, ended=True, trimmed=True)


async def test_fanout_tells_that_the_consumer_is_gone_and_makes_it_again() -> None:
    """Somebody deregistered it while hosts were running; they go on as they are told to."""
    missing = Refuse("ResourceNotFoundException", "no consumer")
    server = FanoutServer(plays=[["consumer-gone"], ["records", HOLD]], statuses=["ACTIVE", missing, "ACTIVE"])
    async with reading(server) as new_reader:
        reader = new_reader(EARLIEST)
        with pytest.raises(SourceUnavailable, match="the consumer is made again"):
            await read(reader)
        found = await read_all(reader, 3)

    assert found == (FIRST, False)
    assert server.calls.count("RegisterStreamConsumer") == 1


async def test_fanout_goes_on_at_the_horizon_when_its_place_is_refused() -> None:
    """A number that Kinesis no longer knows is a gap to be told, not an error for ever."""
    server = FanoutServer(plays=[[Refuse("InvalidArgumentException", "StartingSequenceNumber is too old")], ["more"]])
    async with reading(server) as new_reader:
        fetched = await read(new_reader(FIRST[-1]))

    assert (positions_of(fetched.records), fetched.trimmed) == (MORE, True)
    assert server.asked[1:] == [AT_FIRST]


async def test_fanout_tells_what_is_denied() -> None:
    """The right to subscribe is another one than the right to read."""
    server = FanoutServer(plays=[[Refuse("AccessDeniedException", "not authorized")]])
    async with reading(server) as new_reader:
        with pytest.raises(SourceMisconfigured, match=f"kinesis:SubscribeToShard on shard '{SHARD}' of stream"):
            await read(new_reader(EARLIEST))


@pytest.mark.parametrize("silent", [SILENT, HALF_SILENT], ids=["no answer", "half an answer"])
async def test_fanout_lets_go_of_its_connection(silent: object) -> None:
    """A host that gave a partition up must not keep the next one's subscription from beginning."""
    server = FanoutServer(plays=[["records", HOLD], [silent]])
    async with reading(server) as new_reader:
        reader = new_reader(EARLIEST)
        await read(reader)
        assert server.open == 1
        await reader.close()
        await reader.close()
        await until(lambda: server.open == 0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(new_reader(EARLIEST).read, records_max=1, bytes_max=1, wait_s=60.0))
            await until(lambda: len(server.asked) == 2)
            # For the half of an answer to arrive.
            tasks.cancel_scope.deadline = anyio.current_time() + 0.1
        await until(lambda: server.open == 0)

    assert len(server.asked) == 2


async def test_fanout_leaves_no_generator_for_the_event_loop_to_end() -> None:
    """The loop ends one in a task that nobody owns, and that a stop cannot wait for."""
    left: list[object] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=left.append)
    try:
        async with reading(FanoutServer(plays=[["records", HOLD]])) as new_reader:
            reader = new_reader(EARLIEST)
            await read(reader)
            await reader.close()
            del reader
    finally:
        sys.set_asyncgen_hooks(*hooks)
    gc.collect()

    assert left == []


async def test_consumer_that_is_there_is_used_once_for_all_readers() -> None:
    """An account may look five to twenty times a second; a host has a thousand shards."""
    server = FanoutServer(plays=[["records", HOLD]] * 3)
    async with reading(server) as new_reader, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(read, new_reader(EARLIEST))

    assert [call for call in server.calls if "Consumer" in call] == ["DescribeStreamConsumer"]


@pytest.mark.parametrize("register", [None, IN_USE, Refuse("LimitExceededException")], ids=["made", "raced", "limited"])
async def test_consumer_that_is_missing_is_made_and_waited_for(register: Refuse | None) -> None:
    """Hosts start together; and five consumers of an account may be in the making at once."""
    missing = Refuse("ResourceNotFoundException", "no consumer")
    server = FanoutServer(
        plays=[["records", HOLD]], statuses=[missing, "CREATING", "CREATING", "ACTIVE"], register=register
    )
    async with reading(server) as new_reader:
        found = await read_all(new_reader(EARLIEST), 3)

    assert found == (FIRST, False)
    assert [call for call in server.calls if "Consumer" in call] == [
        "DescribeStreamConsumer",
        "RegisterStreamConsumer",
        *["DescribeStreamConsumer"] * 3,
    ]


async def test_consumer_that_stays_in_the_making_is_told() -> None:
    """A wait without an end would look like an idle stream."""
    server = FanoutServer(statuses=["CREATING"])
    async with reading(server, active_s=0.05) as new_reader:
        with pytest.raises(SourceUnavailable, match=r"is not ACTIVE after 0\.05 s"):
            await read(new_reader(EARLIEST))


async def test_consumer_that_may_not_be_made_is_told_by_its_action() -> None:
    """Many an identity may read and not register."""
    server = FanoutServer(
        statuses=[Refuse("ResourceNotFoundException", "none")], register=Refuse("AccessDeniedException", "no")
    )
    async with reading(server) as new_reader:
        with pytest.raises(SourceMisconfigured, match="kinesis:RegisterStreamConsumer on consumer 'first' of"):
            await read(new_reader(EARLIEST))


@pytest.mark.parametrize(
    ("pushed", "page"),
    [
        ({"ContinuationSequenceNumber": "7", "MillisBehindLatest": 1500}, Page(raws=[], lag_s=1.5)),
        ({"ContinuationSequenceNumber": "7"}, Page(raws=[], lag_s=None)),
        ({"MillisBehindLatest": 0}, Page(raws=[], lag_s=0.0, ended=True)),
        ({"ContinuationSequenceNumber": None, "MillisBehindLatest": 9}, Page(raws=[], lag_s=0.0, ended=True)),
        ({"ContinuationSequenceNumber": "7", "ChildShards": [{}]}, Page(raws=[], lag_s=0.0, ended=True)),
        ({"ContinuationSequenceNumber": "7", "ChildShards": []}, Page(raws=[], lag_s=None)),
    ],
)
def test_page_of_an_event_sees_the_end_however_it_is_written(pushed: dict[str, Any], page: Page) -> None:
    """Kinesis leaves the number out; a server that stands in for it gives both number and children."""
    assert page_of({"Records": [], **pushed}) == page


def test_page_of_an_event_that_ends_has_its_last_records() -> None:
    """They are the reason why the end is not looked at first."""
    record = {"SequenceNumber": "9", "PartitionKey": "k", "Data": b"d", "ApproximateArrivalTimestamp": None}
    page = page_of({"Records": [record], "ChildShards": [{}]})

    assert ([raw.sequence for raw in page.raws], page.ended) == (["9"], True)


def test_start_at_names_every_place_as_a_subscription_does() -> None:
    """The two calls of Kinesis differ in their words alone."""
    places: list[Place] = [AtHorizon(), AtRecord(sequence="7", sub=2), AtTime(time_s=5.0)]

    assert [dict(start_at(iterator_at(place, present_s=9.0))) for place in places] == [
        {"Type": "TRIM_HORIZON"},
        {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "7"},
        {"Type": "AT_TIMESTAMP", "Timestamp": iterator_at(places[2], present_s=9.0)["Timestamp"]},
    ]


async def test_fanout_starts_at_a_time() -> None:
    """Records before it are passed over, where Kinesis begins earlier than asked."""
    server = FanoutServer(plays=[["records", HOLD], ["more", HOLD]])
    async with reading(server) as new_reader:
        (first, *_) = (await read(new_reader(EARLIEST))).records
        (earlier, later) = (await read(new_reader(EARLIEST))).records
        assert first.time_s is not None
        assert earlier.time_s is not None
        server.plays += [["records", "more", HOLD], ["records", "more", HOLD]]
        of_first = await read(new_reader(at_time(first.time_s)))
        of_later = await read(new_reader(at_time(earlier.time_s)))

    assert [positions_of(each.records) for each in (of_first, of_later)] == [FIRST, MORE]
    assert [each["Type"] for each in server.asked[2:]] == ["AT_TIMESTAMP"] * 2
    assert later.position == MORE[-1]


def source_of(server: FanoutServer) -> KinesisSource:
    place = f"kinesis://{STREAM}?region=us-east-1&endpoint_url={server.url}&mode=fanout&consumer=first"
    return KinesisSource(parse_url(place))


async def test_source_pushes_where_its_url_names_a_consumer() -> None:
    """The mode is the operator's choice; the code of a processor does not change."""
    server = FanoutServer(plays=[["records", HOLD]])
    async with server.running():
        source = source_of(server)
        await source.open()
        reader = source.reader(SHARD, EARLIEST)
        fetched = await reader.read(records_max=10, bytes_max=10_000, wait_s=5.0)
        await reader.close()
        await source.close()

    assert (positions_of(fetched.records), server.asked) == (FIRST, [AT_FIRST])


async def test_source_warns_once_of_packed_records_when_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are handed on, packed, so that nothing is lost; whoever meets them must learn what to install."""
    monkeypatch.setitem(sys.modules, "aws_kinesis_agg.deaggregator", None)
    server = FanoutServer(plays=[["aggregate", HOLD]])
    async with server.running():
        source = source_of(server)
        await source.open()
        reader = source.reader(SHARD, EARLIEST)
        with pytest.warns(RuntimeWarning, match=r"processor-host\[kpl\]") as warned:
            fetched = await reader.read(records_max=10, bytes_max=10_000, wait_s=5.0)
        await reader.close()
        await source.close()

    assert (positions_of(fetched.records), len(warned)) == (PACKED, 1)
