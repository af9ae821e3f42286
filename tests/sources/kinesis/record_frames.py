"""
Records what ministack sends on SubscribeToShard: `python tests/sources/kinesis/record_frames.py http://127.0.0.1:PORT`.

Writes `tests/data/subscribe-to-shard/`: one file for each message of the event streams, as it came over the network,
and `recording.json` with what was put, as the answers to PutRecords tell it. `fanout_server` plays them back. Nothing
here makes a message; the first four bytes of each, its length, are all that is looked at.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any

import aioboto3  # type: ignore[import-untyped]
import aiohttp

__all__ = ["RECORDING", "main"]

RECORDING = Path(__file__).parents[2] / "data" / "subscribe-to-shard"
STREAM = "recorded"
POLL_S = 0.1
TAKEOVER_S = 5.5
"""After so long a second subscription takes over the first one; before, it is refused."""


async def frames(url: str, consumer_arn: str, shard: str) -> AsyncGenerator[bytes, None]:
    """The messages of one subscription from the shard's beginning, each as its bytes; the first is its answer."""
    headers = {
        "X-Amz-Target": "Kinesis_20131202.SubscribeToShard",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/kinesis/aws4_request, Signature=0",
    }
    asked = {"ConsumerARN": consumer_arn, "ShardId": shard, "StartingPosition": {"Type": "TRIM_HORIZON"}}
    data = b""
    async with aiohttp.ClientSession() as session, session.post(url, json=asked, headers=headers) as answer:
        answer.raise_for_status()
        while chunk := await answer.content.readany():
            data += chunk
            while len(data) >= 4 and len(data) >= (length := int.from_bytes(data[:4], "big")):
                yield data[:length]
                data = data[length:]


async def put(client: Any, entries: list[tuple[str, bytes]]) -> list[str]:
    answer = await client.put_records(
        StreamName=STREAM, Records=[{"PartitionKey": key, "Data": data} for key, data in entries]
    )
    return [each["SequenceNumber"] for each in answer["Records"]]


def aggregate() -> tuple[str, bytes]:
    import_module("aws_kinesis_agg.deaggregator")
    aggregator = import_module("aws_kinesis_agg.aggregator").RecordAggregator()
    for number in range(3):
        aggregator.add_user_record(f"user-{number}", b"packed %d" % number)
    key, _, data = aggregator.clear_and_get().get_contents()
    return key, data


async def consumer(client: Any, stream_arn: str, name: str) -> str:
    arn: str = (await client.register_stream_consumer(StreamARN=stream_arn, ConsumerName=name))["Consumer"][
        "ConsumerARN"
    ]
    while (await client.describe_stream_consumer(ConsumerARN=arn))["ConsumerDescription"]["ConsumerStatus"] != "ACTIVE":
        await asyncio.sleep(POLL_S)
    return arn


async def record(client: Any, url: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The messages by name, and what was put."""
    await client.create_stream(StreamName=STREAM, ShardCount=1)
    while True:
        stream = (await client.describe_stream(StreamName=STREAM))["StreamDescription"]
        if stream["StreamStatus"] == "ACTIVE":
            break
        await asyncio.sleep(POLL_S)
    shard = stream["Shards"][0]["ShardId"]
    arn = await consumer(client, stream["StreamARN"], "first")
    told: dict[str, Any] = {"shard": shard, "stream_arn": stream["StreamARN"], "consumer_arn": arn}
    found: dict[str, bytes] = {}
    plain = [(f"key-{number}", b"record %d" % number) for number in range(5)]

    async with aclosing(frames(url, arn, shard)) as first:
        found["answer"] = await anext(first)
        found["empty"] = await anext(first)
        told["records"] = await put(client, plain[:3])
        found["records"] = await anext(first)
        told["more"] = await put(client, plain[3:])
        found["more"] = await anext(first)
        told["aggregate"] = await put(client, [("before", b"plain"), aggregate(), ("after", b"plain")])
        found["aggregate"] = await anext(first)
        await asyncio.sleep(TAKEOVER_S)
        async with aclosing(frames(url, arn, shard)) as second:
            await anext(second)
            await anext(second)
            found["taken-over"] = [frame async for frame in first][-1]

    gone = await consumer(client, stream["StreamARN"], "second")
    async with aclosing(frames(url, gone, shard)) as third:
        await anext(third)
        await anext(third)
        await client.deregister_stream_consumer(ConsumerARN=gone)
        found["consumer-gone"] = [frame async for frame in third][-1]

    last = await consumer(client, stream["StreamARN"], "third")
    async with aclosing(frames(url, last, shard)) as fourth:
        await anext(fourth)
        await anext(fourth)
        await client.split_shard(StreamName=STREAM, ShardToSplit=shard, NewStartingHashKey=str(2**127))
        found["ended"] = [frame async for frame in fourth][-1]
    return found, told


async def main(url: str) -> None:
    """Record at that server and write the files."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    async with aioboto3.Session().client("kinesis", endpoint_url=url, region_name="us-east-1") as client:
        found, told = await record(client, url)
        await client.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
    RECORDING.mkdir(parents=True, exist_ok=True)
    for name, frame in found.items():
        (RECORDING / f"{name}.bin").write_bytes(frame)
    (RECORDING / "recording.json").write_text(json.dumps(told, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
