"""The writer's side of a stream: what it says of each refusal, and what it does on a real server."""

from __future__ import annotations

import gzip
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from partitions.errors import PartitionsError, SourceMisconfigured
from partitions.sources.kinesis import Imported, KinesisStream, parse_url
from partitions.sources.local import Entry
from processor_host.cli.stream import stream
from tests.conftest import FLIGHTS

__all__: list[str] = []

pytestmark = pytest.mark.usefixtures("aws_dummies")


def refusal(code: str, message: str = "no") -> web.Response:
    status = 500 if code == "InternalFailure" else 400
    return web.json_response({"__type": code, "message": message}, status=status)


@dataclass(slots=True)
class PutServer:
    """Answers PutRecords as it is told; `answers` are the ones before it takes everything."""

    answers: list[Any] = field(default_factory=list)
    """A response; or the error code of each record, empty for one that is taken."""
    record_kib: int | None = None
    requests: list[list[str]] = field(default_factory=list)
    """The partition keys of each request."""
    url: str = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_post("/", self._answer)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"kinesis://s?region=us-east-1&endpoint_url=http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        asked = json.loads(await request.read())
        if operation == "DescribeStreamSummary":
            summary: dict[str, Any] = {"StreamName": "s", "StreamStatus": "ACTIVE"}
            if self.record_kib is not None:
                summary["MaxRecordSizeInKiB"] = self.record_kib
            return web.json_response({"StreamDescriptionSummary": summary})
        keys = [each["PartitionKey"] for each in asked["Records"]]
        self.requests.append(keys)
        answer = self.answers.pop(0) if self.answers else [""] * len(keys)
        if isinstance(answer, web.Response):
            return answer
        records = [
            {"ErrorCode": code, "ErrorMessage": "no"} if code else {"ShardId": "shardId-0", "SequenceNumber": str(n)}
            for n, code in enumerate(answer)
        ]
        return web.json_response({"FailedRecordCount": sum(map(bool, answer)), "Records": records})


async def imported(server: PutServer, entries: list[Entry]) -> Imported:
    async with server.running() as url, KinesisStream(parse_url(url)) as target:
        return await target.import_entries(lambda: entries, name="f.jsonl")


ABC = [Entry(data=b"d", key=key) for key in "abc"]
THROTTLED = "ProvisionedThroughputExceededException"


async def test_records_that_a_request_did_not_take_are_put_again() -> None:
    """PutRecords answers 200 and refuses single records: a producer that does not look loses them."""
    server = PutServer(answers=[["", THROTTLED, "InternalFailure"], ["", THROTTLED]])

    assert await imported(server, ABC) == Imported(records=3, by_partition={"shardId-0": 3}, resent=3, unsure=0)
    assert server.requests == [["a", "b", "c"], ["b", "c"], ["c"]]


async def test_import_tells_its_progress_after_each_request() -> None:
    """A long import without a word looks like a hung one."""
    server = PutServer()
    done: list[int] = []
    async with server.running() as url, KinesisStream(parse_url(url)) as target:
        await target.import_entries(lambda: [Entry(data=b"")] * 1001, name="f", progress=done.append)

    assert done == [500, 1000, 1001]


@pytest.mark.parametrize(("code", "unsure"), [(THROTTLED, 0), ("InternalFailure", 3)])
async def test_request_that_is_refused_as_a_whole_is_sent_again(code: str, unsure: int) -> None:
    """A throttled request has put nothing; one that failed inside may have."""
    server = PutServer(answers=[refusal(code)])

    assert await imported(server, ABC) == Imported(records=3, by_partition={"shardId-0": 3}, resent=3, unsure=unsure)


async def test_import_that_is_denied_says_what_is_missing() -> None:
    """Trying again would only hide it."""
    server = PutServer(answers=[refusal("AccessDeniedException")])

    with pytest.raises(SourceMisconfigured, match="kinesis:PutRecords on stream 's' in us-east-1"):
        await imported(server, ABC)
    assert len(server.requests) == 1


async def test_import_with_a_record_that_is_too_large_puts_nothing() -> None:
    """A file that is half in the stream cannot be imported again."""
    server = PutServer()

    with pytest.raises(ValueError, match=r"f\.jsonl, record 2: 1048577 bytes with its key, .*nothing was imported"):
        await imported(server, [Entry(data=b"", key="a"), Entry(data=bytes(1024 * 1024), key="b")])
    assert server.requests == []


# The SDK gives aiohttp the body as bytes; that this takes its time is no fault of a producer of test data.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_import_puts_larger_records_where_the_stream_was_made_for_them() -> None:
    """The limit is the stream's own by now."""
    server = PutServer(record_kib=2048)

    assert (await imported(server, [Entry(data=bytes(1024 * 1024), key="b")])).records == 1


async def test_stream_of_several_names_is_no_target() -> None:
    """A record goes to one."""
    with pytest.raises(ValueError, match="names 2 streams"):
        KinesisStream(parse_url("kinesis://a,b?region=us-east-1"))


async def test_stream_that_nobody_serves_is_told() -> None:
    """An address with a slip in it is the likeliest fault of all."""
    async with KinesisStream(parse_url("kinesis://s?region=us-east-1&endpoint_url=http://127.0.0.1:9")) as target:
        with pytest.raises(PartitionsError, match="kinesis:DescribeStreamSummary on stream 's'"):
            await target.import_entries(lambda: ABC, name="f")


# On real servers, by the command line.


@pytest.fixture(params=["moto", pytest.param("ministack", marks=pytest.mark.servers)])
def url(request: pytest.FixtureRequest) -> str:
    """A stream that is not there yet."""
    endpoint = request.getfixturevalue(f"{request.param}_url")
    return f"kinesis://import-{uuid.uuid4().hex[:8]}?region=us-east-1&endpoint_url={endpoint}"


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(stream, arguments, prog_name="processor-host stream", input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@contextmanager
def refused(*parts: str, status: int = 2) -> Iterator[list[Result]]:
    """One line on stderr that has all the parts."""
    results: list[Result] = []
    yield results
    (result,) = results
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (status, "", 1), result.output
    assert [part for part in parts if part not in result.stderr] == [], result.stderr


def records(url: str, limit: int) -> list[dict[str, Any]]:
    """All records, as the reader's side sees them."""
    result = run("tail", url, "--from", "earliest", "--limit", str(limit), "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_import_puts_a_real_file_in_order_of_each_key(
    url: str, flights_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What a processor gets is the line; of one plane the flights come in the file's order."""
    flights, file = FLIGHTS, flights_file
    if request.node.callspec.params["url"] == "moto":
        # It takes a hundredth of what ministack takes in a second.
        flights, file = 2_000, tmp_path / "f.jsonl"
        with gzip.open(flights_file) as whole:
            file.write_bytes(b"".join(islice(whole, flights)))
    assert run("create", url, "--partitions", "4").stdout == f"created {url} with 4 partitions\n"

    result = run("import", url, str(file), "--key", "tailnum", "--json")

    done = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (done["records"], sum(done["by_partition"].values()), len(done["by_partition"])) == (flights, flights, 4)
    assert (done["resent"], done["unsure"], done["skipped"]) == (0, 0, 0)
    found = records(url, flights)
    assert Counter(each["partition"] for each in found) == done["by_partition"]
    ids: dict[str, list[int]] = {}
    for each in found:
        flight = json.loads(each["data"])
        assert each["key"] == flight["tailnum"]
        ids.setdefault(each["key"], []).append(flight["id"])
    assert sorted(number for of_key in ids.values() for number in of_key) == list(range(flights))
    assert [key for key, of_key in ids.items() if of_key != sorted(of_key)] == []


def test_stream_is_split_and_merged_and_shows_it(url: str) -> None:
    """What the demo does during its run."""
    run("create", url, "--partitions", "2")
    first, second, third = (f"shardId-00000000000{number}" for number in range(3))

    split = run("split", url, first)
    merged = run("merge", url, second, "shardId-000000000003")

    assert split.stdout == f"{first} is closed; {third} and shardId-000000000003 go on from it\n"
    assert merged.stdout == (f"{second} and shardId-000000000003 are closed; shardId-000000000004 goes on from both\n")
    shards = {each["shard"]: each for each in json.loads(run("describe", url, "--json").stdout)}
    open_ones = {name: each for name, each in shards.items() if not each["closed"]}
    assert {name: each["parents"] for name, each in open_ones.items()} == {
        third: [first],
        "shardId-000000000004": ["shardId-000000000003", second],
    }
    assert (open_ones[third]["hash_low"], open_ones["shardId-000000000004"]["hash_high"]) == (0, 2**128 - 1)
    assert open_ones[third]["hash_high"] + 1 == open_ones["shardId-000000000004"]["hash_low"] == 2**126
    assert len(run("describe", url).stdout.splitlines()) == len(shards) + 1


def test_put_prints_where_each_text_went(url: str) -> None:
    """The way to try a stream by hand."""
    run("create", url, "--partitions", "1")

    result = run("put", url, "a", "b", "--key", "k")

    placed = [line.split() for line in result.stdout.splitlines()]
    assert [(each["partition"], each["position"], each["data"]) for each in records(url, 2)] == [
        (partition, position, data) for (partition, position), data in zip(placed, "ab", strict=True)
    ]


def test_wrong_commands_get_one_line_with_the_remedy(url: str) -> None:
    """Each is a slip that somebody makes; none of them shows a traceback."""
    with refused("kinesis:DescribeStreamSummary on stream 'import-", "or create it", status=3) as told:
        told.append(run("import", url, "-", stdin=b'{"a":"b"}\n'))
    run("create", url, "--partitions", "3")
    with refused("there is such a stream; delete it or use another name") as told:
        told.append(run("create", url, "--partitions", "3"))
    with refused("the stream has no open shard 'p0'", "'stream describe' lists") as told:
        told.append(run("split", url, "p0"))
    with refused("are not neighbours", "'stream describe' lists") as told:
        told.append(run("merge", url, "shardId-000000000000", "shardId-000000000002"))
    with refused("standard input, line 2: the key field 'a' is absent", "nothing was imported") as told:
        told.append(run("import", url, "-", "--key", "a", stdin=b'{"a":"b"}\n{"c":"d"}\n'))
    with refused("standard input, record 2: the key has 0 characters", "nothing was imported") as told:
        told.append(run("import", url, "-", "--key", "a", stdin=b'{"a":"b"}\n{"a":""}\n'))
    with refused("names no consumer; add mode=fanout&consumer=NAME") as told:
        told.append(run("deregister", url))


def test_import_that_skips_bad_lines_counts_them_once(url: str) -> None:
    """The file is read twice: once to see that all of it can be put."""
    run("create", url, "--partitions", "1")

    result = run("import", url, "-", "--skip-bad", stdin=b'bad\n{"a":"b"}\n')

    assert result.stdout.endswith(", skipped 1 bad line: shardId-000000000000 1\n")
    assert result.stderr == (
        "processor-host: skipped 1 bad line, the first: standard input, line 1: not JSON "
        "(Expecting value at column 1); expected one JSON object a line\n"
    )
