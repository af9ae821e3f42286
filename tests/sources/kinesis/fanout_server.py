"""
A Kinesis that pushes what a test tells it, ends subscriptions as the test likes, and refuses them.

Its messages are those that `record_frames` recorded from a server; nothing here makes one. Calls that are no
subscription get answers that do for one stream of one shard and one consumer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from aiohttp import web

__all__ = [
    "BREAK",
    "HALF_SILENT",
    "HOLD",
    "RECORDED",
    "SHARD",
    "SILENT",
    "STREAM",
    "Cut",
    "FanoutServer",
    "Refuse",
    "Spoil",
    "frame",
]

RECORDING = Path(__file__).parents[2] / "data" / "subscribe-to-shard"
RECORDED: dict[str, Any] = json.loads((RECORDING / "recording.json").read_text("utf-8"))
"""What was put while the messages were recorded: sequence numbers by message."""
STREAM = "recorded"
SHARD: str = RECORDED["shard"]

HOLD = object()
"""Keep the subscription open and silent."""
BREAK = object()
"""Break the connection."""
SILENT = object()
"""Do not even answer the call; comes first."""
HALF_SILENT = object()
"""Answer the call with its headers alone; comes first."""


def frame(name: str) -> bytes:
    return (RECORDING / f"{name}.bin").read_bytes()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the call."""

    code: str
    message: str = "because the test says so"
    status: int = 400


@dataclass(frozen=True, slots=True)
class Cut:
    """A message in two halves, the second one when `rest` is set."""

    name: str
    rest: anyio.Event


@dataclass(frozen=True, slots=True)
class Spoil:
    """A message of which one byte is another one."""

    name: str


Step = object
"""
The name of a message, bytes that are none, or one of the above. After the last step the subscription ends, as it does
in five minutes.
"""


@dataclass(slots=True)
class FanoutServer:
    """The service. `plays` are the subscriptions that are to come, each a sequence of steps."""

    plays: list[Sequence[Step]] = field(default_factory=list)
    statuses: list[str | Refuse] = field(default_factory=lambda: ["ACTIVE"])
    """What DescribeStreamConsumer says, one after the other; the last one stays."""
    register: Refuse | None = None
    """How RegisterStreamConsumer is refused."""
    is_listed: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Where each subscription was to begin."""
    calls: list[str] = field(default_factory=list)
    """The operations in their order."""
    open: int = 0
    """Subscriptions that have a connection."""
    url: str = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FanoutServer]:
        """Serve on a free port of loopback for the length of the block."""
        application = web.Application()
        application.router.add_post("/", self._answer)
        # A client that goes away ends what is served to it.
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        asked = json.loads(await request.read())
        self.calls.append(operation)
        match operation:
            case "SubscribeToShard":
                return await self._push(request, asked)
            case "DescribeStreamConsumer":
                status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
                return told(status if isinstance(status, Refuse) else {"ConsumerDescription": consumer(status)})
            case "RegisterStreamConsumer":
                return told(self.register or {"Consumer": consumer("CREATING")})
            case "DeregisterStreamConsumer":
                return told({})
            case "DescribeStreamSummary":
                return told({"StreamDescriptionSummary": summary()})
            case "ListShards":
                return told({"Shards": [{"ShardId": SHARD}] if self.is_listed else []})
            case "GetShardIterator":
                return told({"ShardIterator": "iterator"})
            case "GetRecords":
                return told({"Records": [], "NextShardIterator": "iterator", "MillisBehindLatest": 0})
        return told(Refuse("UnknownOperationException", operation))

    async def _push(self, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        self.asked.append(asked["StartingPosition"])
        steps = self.plays.pop(0)
        if steps and isinstance(steps[0], Refuse):
            return told(steps[0])
        answer = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream"})
        self.open += 1
        try:
            if SILENT in steps:
                await anyio.sleep_forever()
            await answer.prepare(request)
            if HALF_SILENT in steps:
                await anyio.sleep_forever()
            await answer.write(frame("answer"))
            for step in steps:
                await self._play(step, request, answer)
            await answer.write_eof()
        finally:
            self.open -= 1
        return answer

    async def _play(self, step: Step, request: web.Request, answer: web.StreamResponse) -> None:
        if step is HOLD:
            await anyio.sleep_forever()
        elif step is BREAK:
            assert request.transport is not None
            request.transport.abort()
        elif isinstance(step, bytes):
            await answer.write(step)
        elif isinstance(step, Cut):
            whole = frame(step.name)
            await answer.write(whole[: len(whole) // 2])
            await step.rest.wait()
            await answer.write(whole[len(whole) // 2 :])
        elif isinstance(step, Spoil):
            whole = frame(step.name)
            await answer.write(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
        else:
            await answer.write(frame(str(step)))


def told(answer: dict[str, Any] | Refuse) -> web.Response:
    if isinstance(answer, Refuse):
        body = {"__type": answer.code, "message": answer.message}
        return web.json_response(body, status=answer.status, content_type="application/x-amz-json-1.1")
    return web.json_response(answer, content_type="application/x-amz-json-1.1")


def consumer(status: str) -> dict[str, Any]:
    return {
        "ConsumerName": "first",
        "ConsumerARN": RECORDED["consumer_arn"],
        "ConsumerStatus": status,
        "ConsumerCreationTimestamp": 1.0,
        "StreamARN": RECORDED["stream_arn"],
    }


def summary() -> dict[str, Any]:
    return {
        "StreamName": STREAM,
        "StreamARN": RECORDED["stream_arn"],
        "StreamStatus": "ACTIVE",
        "StreamCreationTimestamp": 1.0,
        "RetentionPeriodHours": 24,
        "EnhancedMonitoring": [],
        "OpenShardCount": 1,
    }
