"""
A Kinesis that does what a test tells it: pages, tokens and iterators that expire, throttles, trims, awkward ends.

`Scripted` is the service, on whatever clock it is given; `ScriptedClient` stands in for aiobotocore's client, also on
virtual time; `served` speaks the JSON protocol over HTTP. It answers as the API reference of Kinesis says, and where
that is silent as Kinesis was seen to: an iterator at a trimmed record silently begins at the oldest one left, and a
time in the future is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import anyio
from aiohttp import web
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

__all__ = ["EPOCH_S", "Ask", "Refused", "Scripted", "ScriptedClient", "Shard", "served"]

EPOCH_S = 1_700_000_000.0
"""Seconds since 1970 at zero of a virtual clock."""
SEQUENCE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
"""Sequence numbers begin here: wider than any machine integer and than a number of DynamoDB."""
READS_PER_S = 5
PAGE_BYTES = 10 * 1024 * 1024
BYTES_PER_S = 2 * 1024 * 1024


class Refused(Exception):
    """An error answer."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


THROTTLE = Refused("ProvisionedThroughputExceededException", "Rate exceeded for shard")


@dataclass(frozen=True, slots=True)
class Entry:
    """One record."""

    sequence: int
    key: str
    data: bytes
    time_s: float


@dataclass(slots=True)
class Shard:
    """One shard; `entries` are those that were not trimmed."""

    name: str
    parents: tuple[str, ...] = ()
    closed: bool = False
    entries: list[Entry] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    """When each GetRecords came, also those that were refused."""
    answered: list[float] = field(default_factory=list)
    """When each one that was answered did."""
    paid_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One call as it came."""

    operation: str
    arguments: Mapping[str, Any]
    shard: str | None = None


@dataclass(slots=True)
class Scripted:
    """The service with one stream. `now_s` is its clock, seconds since 1970."""

    now_s: Callable[[], float]
    name: str = "orders"
    region: str = "eu-west-1"
    created_s: float = EPOCH_S - 86_400
    shards: dict[str, Shard] = field(default_factory=dict)
    iterator_life_s: float = 300.0
    list_page: int = 1000
    end: str = "null"
    """How the end of a shard is written: "null", "absent", or "no iterator" for GetShardIterator."""
    limits: bool = False
    """Whether reads are throttled as Kinesis does."""
    others_per_s: float = 0.0
    """Reads of each shard by other applications."""
    script: list[Callable[[Ask], Refused | Mapping[str, Any] | None]] = field(default_factory=list)
    """Each sees every call; the first that answers something decides."""
    asked: list[tuple[float, Ask]] = field(default_factory=list)
    is_there: bool = True
    _sequence: int = SEQUENCE
    _shards_made: int = 0

    # The writer's side.

    def make(self, count: int = 1, parents: tuple[str, ...] = ()) -> list[str]:
        """Make open shards."""
        names = []
        for _ in range(count):
            names.append(f"shardId-{self._shards_made:012}")
            self.shards[names[-1]] = Shard(names[-1], parents)
            self._shards_made += 1
        return names

    def put(self, shard: str, data: bytes, key: str = "k") -> str:
        """Write one record; return its sequence number."""
        self._sequence += 17
        home = self.shards[shard]
        assert not home.closed
        home.entries.append(Entry(self._sequence, key, data, self.now_s()))
        return str(self._sequence)

    def split(self, shard: str) -> list[str]:
        """Close a shard and open two."""
        self.shards[shard].closed = True
        return self.make(2, (shard,))

    def merge(self, a: str, b: str) -> str:
        """Close two shards and open one."""
        self.shards[a].closed = self.shards[b].closed = True
        return self.make(1, (a, b))[0]

    def trim(self, shard: str, count: int) -> None:
        """Drop the oldest records."""
        del self.shards[shard].entries[:count]

    def refuse(self, operation: str, refused: Refused, times: int | None = 1) -> None:
        """Refuse the next calls of an operation, so many times or until the script is cleared."""
        left = times

        def once(ask: Ask) -> Refused | None:
            nonlocal left
            if ask.operation != operation or left == 0:
                return None
            left = None if left is None else left - 1
            return refused

        self.script.append(once)

    def calls(self, operation: str) -> list[Ask]:
        """Return the calls of an operation so far."""
        return [ask for _, ask in self.asked if ask.operation == operation]

    # The reader's side.

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """
        Answer one call.

        Raises:
            Refused: with an error.
        """
        shard = arguments.get("ShardId") or arguments.get("ShardIterator", "").partition("|")[0] or None
        ask = Ask(operation, dict(arguments), shard)
        self.asked.append((self.now_s(), ask))
        if operation == "GetRecords" and shard in self.shards:
            self.shards[shard].reads.append(self.now_s())
        for decide in self.script:
            decided = decide(ask)
            if isinstance(decided, Refused):
                raise decided
            if decided is not None:
                return dict(decided)
        named = arguments.get("StreamName") or arguments.get("StreamARN", "").rpartition("/")[2]
        if not self.is_there or named not in ("", self.name):
            raise Refused("ResourceNotFoundException", f"Stream {named} under account 000000000000 not found.")
        answers = {
            "DescribeStreamSummary": self._describe,
            "ListShards": self._list,
            "GetShardIterator": self._iterator,
            "GetRecords": self._records,
        }
        return answers[operation](arguments)

    def _describe(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "StreamDescriptionSummary": {
                "StreamName": self.name,
                "StreamARN": f"arn:aws:kinesis:{self.region}:000000000000:stream/{self.name}",
                "StreamStatus": "ACTIVE",
                "StreamCreationTimestamp": self.created_s,
            }
        }

    def _list(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        token = arguments.get("NextToken")
        if token is not None and "StreamName" in arguments:
            raise Refused("InvalidArgumentException", "NextToken and StreamName cannot be provided together.")
        begin = 0 if token is None else int(token)
        names = list(self.shards)[begin : begin + self.list_page]
        answer: dict[str, Any] = {"Shards": [self._listed(self.shards[name]) for name in names]}
        if begin + self.list_page < len(self.shards):
            answer["NextToken"] = str(begin + self.list_page)
        return answer

    def _listed(self, shard: Shard) -> dict[str, Any]:
        numbers = {"StartingSequenceNumber": str(SEQUENCE)}
        if shard.closed:
            numbers["EndingSequenceNumber"] = str(self._sequence)
        parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False))
        return {"ShardId": shard.name, "SequenceNumberRange": numbers, **parents}

    def _iterator(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        shard = self._known(arguments["ShardId"])
        if self.end == "no iterator" and shard.closed and not shard.entries:
            return {}
        kind = arguments["ShardIteratorType"]
        sequence = int(arguments.get("StartingSequenceNumber", 0))
        if kind == "AT_TIMESTAMP":
            at = arguments["Timestamp"]
            at_s = at.timestamp() if isinstance(at, datetime) else float(at)
            if at_s > self.now_s():
                message = "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis."
                raise Refused("InvalidArgumentException", message)
            sequence = next((entry.sequence for entry in shard.entries if entry.time_s >= at_s), self._sequence + 1)
        elif kind == "AFTER_SEQUENCE_NUMBER":
            sequence += 1
        elif kind == "LATEST":
            sequence = self._sequence + 1
        return {"ShardIterator": self._iterator_at(shard, sequence)}

    def _iterator_at(self, shard: Shard, sequence: int) -> str:
        return f"{shard.name}|{sequence}|{self.now_s()!r}"

    def _records(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        name, sequence, made_s = arguments["ShardIterator"].split("|")
        shard = self._known(name)
        now_s = self.now_s()
        if now_s - float(made_s) > self.iterator_life_s:
            raise Refused("ExpiredIteratorException", "Iterator expired.")
        self._throttle(shard)
        entries: list[Entry] = []
        size = 0
        for entry in shard.entries:
            if entry.sequence < int(sequence):
                continue
            size += len(entry.data)
            if len(entries) == arguments.get("Limit", 10_000) or (entries and size > PAGE_BYTES):
                break
            entries.append(entry)
        shard.answered.append(now_s)
        shard.paid_until_s = now_s + sum(len(entry.data) for entry in entries) / BYTES_PER_S
        after = entries[-1].sequence + 1 if entries else int(sequence)
        newest = shard.entries[-1] if shard.entries else None
        is_left = newest is not None and newest.sequence >= after
        behind_s = newest.time_s - entries[-1].time_s if is_left and entries and newest else 0.0
        answer: dict[str, Any] = {
            "Records": [self._record(entry) for entry in entries],
            "NextShardIterator": self._iterator_at(shard, after),
            "MillisBehindLatest": max(1, int(behind_s * 1000)) if is_left else 0,
        }
        if shard.closed and not is_left:
            answer["NextShardIterator"] = None
            if self.end == "absent":
                del answer["NextShardIterator"]
        return answer

    def _record(self, entry: Entry) -> dict[str, Any]:
        return {
            "SequenceNumber": str(entry.sequence),
            "PartitionKey": entry.key,
            "Data": entry.data,
            "ApproximateArrivalTimestamp": entry.time_s,
        }

    def _throttle(self, shard: Shard) -> None:
        if not self.limits:
            return
        now_s = self.now_s()
        mine = sum(now_s - at_s < 1 for at_s in shard.answered)
        if mine + self.others_per_s >= READS_PER_S or now_s < shard.paid_until_s - 1:
            raise THROTTLE

    def _known(self, name: str) -> Shard:
        if name not in self.shards:
            raise Refused("ResourceNotFoundException", f"Shard {name} in stream {self.name} does not exist")
        return self.shards[name]


class ScriptedClient:
    """What aiobotocore's client does, without a network: parsed answers, errors as `ClientError`."""

    def __init__(self, kinesis: Scripted, *, latency_s: float = 0.01) -> None:
        self.kinesis = kinesis
        self.latency_s = latency_s
        self.meta = SimpleNamespace(region_name=kinesis.region)
        self.is_cut = False
        """No call is answered."""

    async def describe_stream_summary(self, **arguments: Any) -> Mapping[str, Any]:
        return await self._call("DescribeStreamSummary", arguments)

    async def list_shards(self, **arguments: Any) -> Mapping[str, Any]:
        return await self._call("ListShards", arguments)

    async def get_shard_iterator(self, **arguments: Any) -> Mapping[str, Any]:
        return await self._call("GetShardIterator", arguments)

    async def get_records(self, **arguments: Any) -> Mapping[str, Any]:
        answer = await self._call("GetRecords", arguments)
        for record in answer["Records"]:
            record["ApproximateArrivalTimestamp"] = datetime.fromtimestamp(record["ApproximateArrivalTimestamp"], UTC)
        return answer

    async def _call(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        await anyio.sleep(self.latency_s / 2)
        if self.is_cut:
            raise ConnectionResetError("the network is cut")
        try:
            answer = self.kinesis.answer(operation, arguments)
        except Refused as refused:
            await anyio.sleep(self.latency_s / 2)
            told = {
                "Error": {"Code": refused.code, "Message": refused.message},
                "ResponseMetadata": {"HTTPStatusCode": refused.status},
            }
            raise ClientError(told, operation) from None
        date = format_datetime(datetime.fromtimestamp(int(self.kinesis.now_s()), UTC), usegmt=True)
        await anyio.sleep(self.latency_s / 2)
        return {**answer, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


@asynccontextmanager
async def served(kinesis: Scripted, check_key: Callable[[str], None] = lambda _: None) -> AsyncIterator[str]:
    """
    Serve it over HTTP on a free port of this machine; yields the address.

    `check_key` gets the id of the access key that signed a call, and may raise `Refused`.
    """

    async def handle(request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        try:
            check_key(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
            answer, status = kinesis.answer(operation, json.loads(await request.text())), 200
        except Refused as refused:
            answer, status = {"__type": refused.code, "message": refused.message}, refused.status
        text = json.dumps(answer, default=lambda data: base64.b64encode(data).decode())
        return web.Response(text=text, status=status, content_type="application/x-amz-json-1.1")

    app = web.Application()
    app.router.add_post("/", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
