"""The source itself: URLs, listing, lineage, starts, and what does not fit at the start."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from partitions.aws.places import AwsPlace
from partitions.errors import SourceError, SourceMisconfigured, SourceUnavailable, StartsDiffer
from partitions.positions import EARLIEST, at_time
from partitions.sources.base import PartitionInfo
from partitions.sources.kinesis import KinesisClient, KinesisPlace, KinesisSource, parse_url
from tests.sources.kinesis.scripted import EPOCH_S, Ask, Refused, Scripted, ScriptedClient
from tests.sources.kinesis.stages import SHARD, LoopClock, Stage
from tests.stage import VIRTUAL_TIME
from tests.world.loop import running_loop

__all__: list[str] = []

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
async def stage() -> Stage:
    made = Stage()
    await made.open()
    return made


# --- URLs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("kinesis://orders", KinesisPlace(streams=("orders",))),
        (
            "kinesis://orders?region=eu-west-1&endpoint_url=http://127.0.0.1:4567&start=latest&idle_read_s=0.25",
            KinesisPlace(
                streams=("orders",),
                aws=AwsPlace(region="eu-west-1", endpoint_url="http://127.0.0.1:4567"),
                start="latest",
                idle_read_s=0.25,
            ),
        ),
        (f"kinesis://{ARN}", KinesisPlace(streams=(ARN,), aws=AwsPlace(region="eu-west-1"))),
        ("kinesis://one,two", KinesisPlace(streams=("one", "two"))),
        (
            "kinesis://orders?start=2026-01-31T06:00:00+01:00",
            KinesisPlace(streams=("orders",), start=at_time(1769835600.0)),
        ),
    ],
)
def test_url_says_which_streams_where_and_how(url: str, place: KinesisPlace) -> None:
    """One line on a command line is all that a host needs to know."""
    assert parse_url(url) == place
    assert parse_url(place.url) == place


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("kinesis:orders", "expected one such as"),
        ("kinesis://", "no stream is named"),
        ("kinesis://a b", "'a b' is no stream"),
        ("kinesis://one,one", "name each once"),
        (f"kinesis://one,{ARN.replace('orders', 'one')}", "name each once"),
        (f"kinesis://{ARN}?region=us-east-1", "several regions"),
        (f"kinesis://{ARN},{ARN.replace('eu-west-1', 'eu-west-2').replace('orders', 'two')}", "several regions"),
        ("kinesis://orders?start=now", "'now' is not a start"),
        ("kinesis://orders?start=latest&start=earliest", "given twice"),
        ("kinesis://orders?idle_read_s=0.1", "between 0.2 and 60"),
        ("kinesis://orders?idle_read_s=nan", "between 0.2 and 60"),
        ("kinesis://orders?idle_read_s=x", "no number of seconds"),
        ("kinesis://orders?regoin=eu-west-1", "unknown key 'regoin'"),
    ],
)
def test_url_that_cannot_be_is_refused(url: str, problem: str) -> None:
    """A slip that is told at once costs a second; one that is guessed at costs a day."""
    with pytest.raises(ValueError, match=problem):
        parse_url(url)


# --- Listing and lineage ----------------------------------------------------------------------------------------------


async def test_partitions_are_the_shards_with_their_parents_in_the_order_of_their_births(stage: Stage) -> None:
    """A child waits for each of its parents, also for the adjacent one of a merge."""
    stage.kinesis.make(2)
    stage.kinesis.split(SHARD)
    stage.kinesis.merge("shardId-000000000001", "shardId-000000000002")

    assert await stage.source.list_partitions() == (
        PartitionInfo(partition="shardId-000000000000", closed=True),
        PartitionInfo(partition="shardId-000000000001", closed=True),
        PartitionInfo(partition="shardId-000000000002", closed=True),
        PartitionInfo(partition="shardId-000000000003", parents=("shardId-000000000000",)),
        PartitionInfo(partition="shardId-000000000004", parents=("shardId-000000000000",)),
        PartitionInfo(partition="shardId-000000000005", parents=("shardId-000000000001", "shardId-000000000002")),
    )


async def test_c46_every_page_of_1266_shards_is_listed_and_an_expired_token_begins_anew() -> None:
    """Name and token together are refused; the half about DynamoDB streams is for a source that reads those."""
    stage = Stage()
    stage.kinesis.make(1265)
    for n in range(500):
        stage.kinesis.shards[f"shardId-{n:012}"].closed = True
    await stage.open()
    expired: list[Ask] = []

    def expire_once(ask: Ask) -> Refused | None:
        if ask.operation != "ListShards" or "NextToken" not in ask.arguments or expired:
            return None
        expired.append(ask)
        return Refused("ExpiredNextTokenException", "the token expired")

    stage.kinesis.script.append(expire_once)
    infos = await stage.source.list_partitions()

    assert (len(infos), sum(info.closed for info in infos)) == (1266, 500)
    assert len({info.partition for info in infos}) == 1266
    assert [sorted(ask.arguments) for ask in stage.kinesis.calls("ListShards")] == [
        ["MaxResults", "StreamName"],
        ["MaxResults", "NextToken"],
        ["MaxResults", "StreamName"],
        ["MaxResults", "NextToken"],
    ]


async def test_tokens_that_expire_again_and_again_are_a_passing_fault() -> None:
    """A listing that never ends would hold up discovery without a word."""
    stage = Stage(list_page=1)
    stage.kinesis.make(3)
    await stage.open()
    expired = Refused("ExpiredNextTokenException", "the token expired")
    stage.kinesis.script.append(lambda ask: expired if "NextToken" in ask.arguments else None)

    with pytest.raises(SourceUnavailable, match="ExpiredNextTokenException"):
        await stage.source.list_partitions()
    assert len(stage.kinesis.calls("ListShards")) == 6


async def test_pages_that_go_round_in_circles_are_a_passing_fault(stage: Stage) -> None:
    """Every loop over answers has an end."""
    page = {"Shards": [], "NextToken": "0"}
    stage.kinesis.script.append(lambda ask: page if ask.operation == "ListShards" else None)

    with pytest.raises(SourceUnavailable, match="did not end after 1000 pages"):
        await stage.source.list_partitions()


class TwoStreams:
    """A client of two scripted streams."""

    def __init__(self) -> None:
        self.one, self.two = (
            ScriptedClient(Scripted(lambda: EPOCH_S + running_loop().time(), name=name)) for name in ("one", "two")
        )
        self.meta = self.one.meta

    def __getattr__(self, operation: str) -> object:
        async def call(**arguments: object) -> object:
            named = arguments.get("StreamName")
            if named is None:
                # By the client that made it: an iterator of "two" is known only there.
                named = "two" if str(arguments.get("ShardIterator", "")).endswith("#two") else "one"
            client = self.one if named == "one" else self.two
            if named == "two" and "ShardIterator" in arguments:
                arguments["ShardIterator"] = str(arguments["ShardIterator"]).removesuffix("#two")
            answer = dict(await getattr(client, operation)(**arguments))
            for name in ("ShardIterator", "NextShardIterator"):
                if named == "two" and answer.get(name):
                    answer[name] += "#two"
            return answer

        return call


async def test_partitions_of_several_streams_carry_the_streams_name_and_are_read_apart() -> None:
    """All streams number their shards alike, and checkpoints of the one must not be those of the other."""
    client = TwoStreams()
    [shard] = client.one.kinesis.make()
    client.two.kinesis.make()
    client.two.kinesis.split(shard)
    client.one.kinesis.put(shard, b"of one")
    client.two.kinesis.put("shardId-000000000001", b"of two")
    source = KinesisSource(
        KinesisPlace(streams=("one", "two")),
        client=cast("KinesisClient", client),
        clock=LoopClock(),
        random=Random(1),
    )
    await source.open()

    infos = await source.list_partitions()
    data = {
        info.partition: [
            record.data
            for record in (
                await source.reader(info.partition, EARLIEST).read(records_max=9, bytes_max=99, wait_s=0)
            ).records
        ]
        for info in infos
    }

    assert infos == (
        PartitionInfo(partition="one/shardId-000000000000"),
        PartitionInfo(partition="two/shardId-000000000000", closed=True),
        PartitionInfo(partition="two/shardId-000000000001", parents=("two/shardId-000000000000",)),
        PartitionInfo(partition="two/shardId-000000000002", parents=("two/shardId-000000000000",)),
    )
    assert data == {
        "one/shardId-000000000000": [b"of one"],
        "two/shardId-000000000000": [],
        "two/shardId-000000000001": [b"of two"],
        "two/shardId-000000000002": [],
    }
    assert await source.identity() == " ".join(
        f"arn:aws:kinesis:eu-west-1:000000000000:stream/{name}@{EPOCH_S - 86_400:.3f}" for name in ("one", "two")
    )


@pytest.mark.parametrize("partition", ["one/shardId-000000000000", "p0", "", "shardId"])
async def test_partition_of_another_source_is_refused(stage: Stage, partition: str) -> None:
    """It looks like an idle one otherwise."""
    with pytest.raises(SourceMisconfigured, match=f"partition '{partition}'"):
        stage.source.reader(partition, EARLIEST)
    with pytest.raises(SourceMisconfigured, match=f"partition '{partition}'"):
        await stage.source.first_position(partition, EARLIEST)


# --- Identity and starts ----------------------------------------------------------------------------------------------


async def test_stream_that_was_made_anew_under_the_same_name_is_another_one() -> None:
    """Positions of the old one mean nothing in it."""
    old, new = Stage(), Stage(created_s=EPOCH_S)
    await old.open()
    await new.open()

    assert await old.source.identity() != await new.source.identity()


async def test_latest_is_a_second_of_the_streams_own_clock_that_has_just_passed(stage: Stage) -> None:
    """The host's clock may be wrong by an hour; one that is ahead would lose what arrives next."""
    point = await stage.source.resolve_start("latest")

    now_s = stage.kinesis.now_s()
    time_s = float(point.removeprefix("@time:"))
    assert time_s == int(time_s)
    assert 0 <= now_s - time_s <= 0.15


@pytest.mark.parametrize(
    ("of_url", "of_settings", "point"),
    [
        (None, "earliest", EARLIEST),
        (None, at_time(5.0), at_time(5.0)),
        (at_time(7.0), "earliest", at_time(7.0)),
        (at_time(7.0), at_time(7.0), at_time(7.0)),
    ],
)
async def test_start_of_the_url_counts_where_the_settings_say_nothing(
    of_url: str | None, of_settings: str, point: str
) -> None:
    """Both are places where a user looks for it."""
    stage = Stage()
    place = KinesisPlace(streams=("orders",), start=of_url)
    source = KinesisSource(place, client=stage.client, clock=LoopClock(), random=Random(1))
    await source.open()

    assert await source.resolve_start(of_settings) == point


async def test_start_of_the_url_that_differs_from_the_settings_is_refused() -> None:
    """Whichever won, somebody would have meant the other."""
    stage = Stage()
    place = KinesisPlace(streams=("orders",), start=at_time(7.0))
    source = KinesisSource(place, client=stage.client, clock=LoopClock(), random=Random(1))
    await source.open()

    with pytest.raises(StartsDiffer, match="leave one of them out"):
        await source.resolve_start("latest")


async def test_start_that_is_none_is_refused(stage: Stage) -> None:
    """It would be stored and be wrong for ever."""
    with pytest.raises(ValueError, match="'now' is not a start"):
        await stage.source.resolve_start("now")


@pytest.mark.parametrize("point", ["change:9", "17", "latest"])
async def test_point_of_another_source_is_refused(stage: Stage, point: str) -> None:
    """Nobody could say where in a shard it is."""
    with pytest.raises(SourceMisconfigured, match="start point"):
        await stage.source.first_position(SHARD, point)


# --- What does not fit at the start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"])
@pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException", "UnrecognizedClientException"])
async def test_open_names_the_call_that_is_not_allowed(operation: str, code: str) -> None:
    """C36, the source's part: a host that may not read says so at its start, with action, stream and region."""
    stage = Stage()
    stage.kinesis.refuse(operation, Refused(code, "not allowed"))

    with pytest.raises(SourceMisconfigured, match=f"kinesis:{operation} on stream 'orders' in eu-west-1"):
        await stage.source.open()


async def test_open_of_a_stream_that_is_not_there_says_so() -> None:
    """A wrong region looks the same, so the text names it."""
    stage = Stage()
    stage.kinesis.is_there = False

    with pytest.raises(SourceMisconfigured, match=r"stream 'orders' in eu-west-1.*region"):
        await stage.source.open()


@pytest.mark.parametrize(("status", "error"), [("CREATING", SourceUnavailable), ("DELETING", SourceMisconfigured)])
async def test_open_of_a_stream_that_is_being_made_or_deleted_says_so(status: str, error: type[SourceError]) -> None:
    """The one is worth another try, the other is not."""
    stage = Stage()
    summary = {**stage.kinesis.answer("DescribeStreamSummary", {})["StreamDescriptionSummary"], "StreamStatus": status}
    stage.kinesis.script.append(lambda ask: {"StreamDescriptionSummary": summary})

    with pytest.raises(error, match="stream 'orders' is being"):
        await stage.source.open()


async def test_throttled_reads_do_not_fail_a_start() -> None:
    """A busy stream is no reason not to start."""
    stage = Stage()
    stage.kinesis.refuse("GetRecords", Refused("ProvisionedThroughputExceededException"))

    await stage.source.open()

    assert len(await stage.source.list_partitions()) == 1


async def test_source_that_is_not_open_says_so() -> None:
    """It would look like a fault of the stream."""
    with pytest.raises(SourceUnavailable, match="is not open"):
        await Stage().source.list_partitions()


async def test_close_may_be_called_twice(stage: Stage) -> None:
    """A stop that fails half-way closes again."""
    reader = stage.source.reader(SHARD, EARLIEST)
    await reader.close()
    await reader.close()
    await stage.source.close()
    await stage.source.close()
    with pytest.raises(SourceUnavailable, match="is not open"):
        await reader.read(records_max=1, bytes_max=1, wait_s=0)
