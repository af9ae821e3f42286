"""
A group whose stream is in Kinesis, and the writer's side of that stream, which notes what is where.

Written on the SDK alone, so that no code of the product says what has to be handled. Knows a server's address and the
command line's URLs; what must hold is the tests' business.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # It has no types.
from anyio.from_thread import BlockingPortal

from tests.processes.dynamodb.tables import REGION, LeaseTable
from tests.processes.harness import GROUP, Group, Host
from tests.servers import DUMMY_CREDENTIALS

__all__ = ["StreamGroup", "TableStreamGroup", "Written"]

BATCH = 500
ACTIVE_S = 20.0
POLL_S = 0.02
READY_S = 45.0
"""Several hosts load the client of AWS at once, beside the servers; that is not what is tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A record that the stream has."""

    shard: str
    position: str
    key: str


class StreamGroup(Group):
    """
    The hosts of one group on a stream of their own, with their leases in a file.

    Attributes:
        query: What the URL of the source has beside region and address.
        written: Every record, in the order in which it was written.
        parents: Shard → the shards of which it is born, of those that `split` and `merge` made.
    """

    ready_s = READY_S

    def __init__(self, folder: Path, portal: BlockingPortal, kinesis_url: str) -> None:
        super().__init__(folder, portal)
        self.stream = f"s-{uuid4().hex[:12]}"
        self.query = "&idle_read_s=0.2"
        self.written: list[Written] = []
        self.parents: dict[str, tuple[str, ...]] = {}
        self._kinesis_url = kinesis_url
        session = boto3.Session(
            aws_access_key_id=DUMMY_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=DUMMY_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        self._client = session.client("kinesis", region_name=REGION, endpoint_url=kinesis_url)

    def close(self) -> None:
        """See `Group.close`."""
        super().close()
        self._client.close()

    @property
    def stream_url(self) -> str:
        """The stream, as its writers name it."""
        return f"kinesis://{self.stream}?region={REGION}&endpoint_url={self._kinesis_url}"

    # --- The stream -------------------------------------------------------------------------------------------------

    def create(self, partitions: int) -> list[str]:
        """Create the stream and return its shards."""
        self._client.create_stream(StreamName=self.stream, ShardCount=partitions)
        self._wait_active()
        return self._note_open()

    def write(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Write records, each a key and its data, in their order, and note where each is."""
        for begin in range(0, len(entries), BATCH):
            batch = entries[begin : begin + BATCH]
            records = [{"PartitionKey": key, "Data": data} for key, data in batch]
            answer = self._client.put_records(StreamName=self.stream, Records=records)
            # In order only if nothing failed; none of these servers refuses a part.
            assert answer["FailedRecordCount"] == 0
            self.written += (
                Written(shard=each["ShardId"], position=each["SequenceNumber"], key=key)
                for each, (key, _) in zip(answer["Records"], batch, strict=True)
            )

    def open_shards(self) -> list[str]:
        """Return the open shards in the order of their hash keys."""
        return [each["ShardId"] for each in self._open_ones()]

    def hash_keys(self, shard: str) -> tuple[int, int]:
        """Return the first and the last hash that an open shard takes."""
        (found,) = [each["HashKeyRange"] for each in self._open_ones() if each["ShardId"] == shard]
        return int(found["StartingHashKey"]), int(found["EndingHashKey"])

    def split(self, shard: str) -> tuple[str, ...]:
        """Split a shard in two halves, and return them."""
        low, high = self.hash_keys(shard)
        middle = str((low + high) // 2 + 1)
        self._client.split_shard(StreamName=self.stream, ShardToSplit=shard, NewStartingHashKey=middle)
        return self._note_children(shard)

    def merge(self, first: str, second: str) -> tuple[str, ...]:
        """Merge two neighbours, and return what is born of them."""
        self._client.merge_shards(StreamName=self.stream, ShardToMerge=first, AdjacentShardToMerge=second)
        return self._note_children(first, second)

    # --- Hosts ------------------------------------------------------------------------------------------------------

    @property
    def flags(self) -> tuple[str, ...]:
        """See `Group.flags`."""
        return "--source", self.stream_url + self.query

    @property
    def env(self) -> Mapping[str, str]:
        """See `Group.env`."""
        return DUMMY_CREDENTIALS

    def wait_shared(self, hosts: Sequence[Host], within_s: float = 20.0) -> dict[str, int]:
        """Wait until exactly these hosts share the leases of all open shards evenly, and no other goes on."""
        for host in hosts:
            self.wait_ready(host)
        names = {host.name for host in hosts}
        shards = set(self.records)

        def shares() -> dict[str, int] | None:
            going_on = {name for name, item in self.leases.leases().items() if not item.finished}
            found = self.leases.shares()
            is_even = bool(found) and max(found.values()) - min(found.values()) <= 1
            is_all = found.keys() == names and sum(found.values()) == len(shards) and going_on == shards
            return found if is_even and is_all else None

        return self.wait_until(f"{sorted(names)} share {len(shards)} open shards evenly", shares, within_s) or {}

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _note_open(self) -> list[str]:
        shards = self.open_shards()
        self.records = dict.fromkeys(shards, 0)
        return shards

    def _note_children(self, *parents: str) -> tuple[str, ...]:
        self._wait_active()
        before = set(self.records)
        children = tuple(each for each in self._note_open() if each not in before)
        self.parents |= dict.fromkeys(children, parents)
        return children

    def _open_ones(self) -> list[Any]:
        listed = self._client.list_shards(StreamName=self.stream)["Shards"]
        shards = [each for each in listed if "EndingSequenceNumber" not in each["SequenceNumberRange"]]
        return sorted(shards, key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))

    def _wait_active(self) -> None:
        until_s = time.monotonic() + ACTIVE_S
        while self._status() != "ACTIVE":
            assert time.monotonic() < until_s, f"{self.stream} is {self._status()} after {ACTIVE_S} s"
            time.sleep(POLL_S)

    def _status(self) -> str:
        return str(
            self._client.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"]["StreamStatus"]
        )


class TableStreamGroup(StreamGroup):
    """The same with the leases in a table of DynamoDB."""

    leases: LeaseTable

    def __init__(self, folder: Path, portal: BlockingPortal, kinesis_url: str, dynamodb_url: str) -> None:
        super().__init__(folder, portal, kinesis_url)
        self._dynamodb_url = dynamodb_url
        self.leases = LeaseTable(self.stream, dynamodb_url, GROUP, portal)
        self.leases.create()

    @property
    def store_url(self) -> str:
        """See `Group.store_url`."""
        return f"dynamodb://{self.stream}?region={REGION}&endpoint_url={self._dynamodb_url}"

    @property
    def flags(self) -> tuple[str, ...]:
        """See `Group.flags`."""
        return *super().flags, "--store", self.store_url
