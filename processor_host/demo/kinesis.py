"""
The ground of the demo on Kinesis and DynamoDB: a stream and a table of its own on servers that somebody else runs.

Starts no server. The addresses are meant to be those of servers on this machine that stand in for AWS; the clients take
credentials as ever, so that any that such a server accepts have to be in the environment. Nothing is removed at the
end: it goes with the servers.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from partitions.aws.places import AwsPlace
from partitions.sources.kinesis import KinesisPlace, KinesisStream
from partitions.stores.base import Store
from partitions.stores.dynamodb import DynamoDBStore
from processor_host.demo.folder import Folder
from processor_host.demo.grounds import Resharding

__all__ = ["KinesisGround"]

REGION: Final = "us-east-1"
IDLE_READ_S: Final = 0.5
"""Sooner than a host reads by itself where there is no news, so that what happens is seen to happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisGround:
    """A stream on one server and a table on another, under a name that nobody else has."""

    folder: Folder
    kinesis_url: str
    dynamodb_url: str
    name: str = field(default_factory=lambda: f"demo-{secrets.token_hex(4)}")

    @property
    def source_url(self) -> str:
        """See `Ground.source_url`."""
        return self._place.url

    @property
    def store_url(self) -> str:
        """See `Ground.store_url`."""
        return f"dynamodb://{self.name}?region={REGION}&endpoint_url={self.dynamodb_url}"

    @property
    def resharding(self) -> Resharding | None:
        """Itself."""
        return self

    async def make(self, partitions: int) -> Store:
        """See `Ground.make`."""
        async with self._stream() as stream:
            await stream.create(partitions)
        table = AwsPlace(region=REGION, endpoint_url=self.dynamodb_url)
        store = DynamoDBStore(self.name, place=table, is_protected=False)
        await store.create()
        return store

    def producer(self, rate: float) -> list[str]:
        """See `Ground.producer`."""
        command = [sys.executable, "-m", "processor_host.demo.producer_kinesis"]
        return [*command, self.source_url, str(self.folder.produced), "--rate", str(rate)]

    async def split(self, partition: str) -> tuple[str, ...]:
        """See `Resharding.split`."""
        async with self._stream() as stream:
            return await stream.split(partition)

    async def neighbours(self) -> Sequence[tuple[str, str]]:
        """See `Resharding.neighbours`."""
        async with self._stream() as stream:
            shards = [each for each in await stream.describe() if not each.closed]
        # The open ones cover all hashes, so that each touches the next.
        shards.sort(key=lambda each: each.hash_low)
        return [(low.shard, high.shard) for low, high in pairwise(shards)]

    async def merge(self, first: str, second: str) -> tuple[str, ...]:
        """See `Resharding.merge`."""
        async with self._stream() as stream:
            return await stream.merge(first, second)

    @property
    def _place(self) -> KinesisPlace:
        server = AwsPlace(region=REGION, endpoint_url=self.kinesis_url)
        return KinesisPlace(streams=(self.name,), aws=server, idle_read_s=IDLE_READ_S)

    def _stream(self) -> KinesisStream:
        return KinesisStream(self._place)
