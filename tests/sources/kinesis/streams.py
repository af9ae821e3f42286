"""
The writer's side of a stream on a real server: make it, put records, split and merge its shards.

Knows neither the source nor a host. Written on the SDK alone, so that no code of the product judges itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aioboto3  # type: ignore[import-untyped]
import anyio

__all__ = ["Stream", "made_stream"]

BATCH = 500
POLL_S = 0.02
ACTIVE_S = 20.0


class Stream:
    """One stream of one server."""

    def __init__(self, client: Any, name: str, endpoint_url: str) -> None:
        self.name = name
        self.url = f"kinesis://{name}?region=us-east-1&endpoint_url={endpoint_url}"
        self._client = client

    async def create(self, shards: int) -> None:
        await self._client.create_stream(StreamName=self.name, ShardCount=shards)
        await self.until_active()

    async def until_active(self) -> None:
        """Wait until the last change is done."""
        with anyio.fail_after(ACTIVE_S):
            while True:
                answer = await self._client.describe_stream_summary(StreamName=self.name)
                if answer["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE":
                    return
                await anyio.sleep(POLL_S)

    async def put(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Write records, each a key and its data, in their order."""
        for begin in range(0, len(entries), BATCH):
            batch = [{"PartitionKey": key, "Data": data} for key, data in entries[begin : begin + BATCH]]
            answer = await self._client.put_records(StreamName=self.name, Records=batch)
            # In order only if nothing failed; none of these servers refuses a part.
            assert answer["FailedRecordCount"] == 0

    async def open_shards(self) -> list[Any]:
        """Return the open shards in the order of their hash keys."""
        answer = await self._client.list_shards(StreamName=self.name)
        shards = [each for each in answer["Shards"] if "EndingSequenceNumber" not in each["SequenceNumberRange"]]
        return sorted(shards, key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))

    async def split(self, shard: Any) -> None:
        """Split a shard in two halves."""
        low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        await self._client.split_shard(
            StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2)
        )
        await self.until_active()

    async def merge(self, first: Any, second: Any) -> None:
        """Merge two neighbours."""
        await self._client.merge_shards(
            StreamName=self.name, ShardToMerge=first["ShardId"], AdjacentShardToMerge=second["ShardId"]
        )
        await self.until_active()


@asynccontextmanager
async def made_stream(endpoint_url: str, name: str, *, shards: int) -> AsyncIterator[Stream]:
    """Make a stream and connect to its server."""
    making = aioboto3.Session().client("kinesis", region_name="us-east-1", endpoint_url=endpoint_url)
    async with making as client:
        stream = Stream(client, name, endpoint_url)
        await stream.create(shards)
        yield stream
