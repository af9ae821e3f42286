"""
The writer's side of one stream of Kinesis: make it, fill it, look at its shards, split and merge them.

Knows no host and no reader. For producers in tests and demos and for operators; hosts need none of these rights.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, FaultKind, fault_of
from partitions.clocks import BootClock, Clock, sleep_until
from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.sources.kinesis._calls import CallRefused, Calls, stream_argument
from partitions.sources.kinesis._fanout_calls import Fanout
from partitions.sources.kinesis._importing import (
    RECORD_BYTES_MAX,
    Answer,
    Entry,
    Imported,
    Importer,
    Outcome,
    Put,
    batches,
    put_of,
)
from partitions.sources.kinesis._listing import list_shards
from partitions.sources.kinesis._url import KinesisPlace

__all__ = ["KinesisStream", "ShardDescription"]

CLIENT: Final = ClientSettings(timeout_s=20.0, connections_max=4)
"""A request of 5 MiB over a slow line takes its time."""
ACTIVE_S: Final = 120.0
"""How long a stream may be in the making, or a reshard may take; seconds, in AWS mostly below 60."""
LOOK_S: Final = 0.2
"""Between two looks at it; an account may look ten to twenty times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDescription:
    """One shard as ListShards tells it."""

    shard: str
    parents: tuple[str, ...]
    closed: bool
    hash_low: int
    hash_high: int
    """The last hash that it takes, or took."""


class KinesisStream:
    """One stream, for its writers. An asynchronous context manager."""

    def __init__(self, place: KinesisPlace, *, clock: Clock | None = None, random: Random | None = None) -> None:
        """
        Name the stream; nothing is asked yet.

        Raises:
            ValueError: the place names several streams.
        """
        if len(place.streams) != 1:
            raise ValueError(f"{place.url!r} names {len(place.streams)} streams; name the one that is meant")
        self._place = place
        self._stream = place.streams[0]
        self._clients = AwsClients(place.aws)
        self._clock = clock or BootClock()
        self._random = random or Random()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clients.close()

    async def create(self, shards: int) -> None:
        """
        Make the stream, and wait until it can be used.

        Raises:
            FileExistsError: it is there.
        """
        if self._stream.startswith("arn:"):
            raise ValueError(f"{self._stream!r}: a stream is created by its name, not by an ARN")
        client = await self._client()
        try:
            await client.create_stream(StreamName=self._stream, ShardCount=shards)
        except AWS_ERRORS as error:
            fault = self._fault(error, "CreateStream")
            if fault.code == "ResourceInUseException":
                raise FileExistsError(
                    f"{self._place.url}: there is such a stream; delete it or use another name"
                ) from error
            raise _error(fault.kind, fault.text) from error
        await self._active()

    async def import_entries(
        self,
        entries: Callable[[], Iterable[Entry]],
        *,
        name: str,
        progress: Callable[[int], None] | None = None,
    ) -> Imported:
        """
        Put all entries; `_importing` says what of their order is kept.

        Nothing is put where one of them cannot be: they are looked through first.

        Args:
            entries: Gives them, the same ones each time it is called; it is called twice.
            name: What they come from, for messages.
            progress: Called with the number of records that are in the stream, after each batch.

        Raises:
            ValueError: Kinesis does not take one of them; nothing was put.
            SourceUnavailable: it does not answer, or refuses for too long; some may have been put.
            SourceMisconfigured: the stream or the right to use it is missing.
        """
        largest = await self._record_bytes_max()
        for number, entry in enumerate(entries(), 1):
            try:
                put_of(entry, self._random, largest)
            except ValueError as error:
                raise ValueError(f"{name}, record {number}: {error}; nothing was imported") from error
        importer = self._importer(await self._client())
        for batch in batches(put_of(entry, self._random, largest) for entry in entries()):
            await importer.put(batch)
            if progress is not None:
                progress(importer.records)
        return importer.imported()

    async def put(self, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
        """Put a few records, and return shard and sequence number of each."""
        largest = await self._record_bytes_max()
        importer = self._importer(await self._client())
        placed = [
            outcome
            for batch in batches([put_of(entry, self._random, largest) for entry in entries])
            for outcome in await importer.put(batch)
        ]
        return tuple((outcome.shard, outcome.sequence) for outcome in placed)

    async def describe(self) -> tuple[ShardDescription, ...]:
        """Return the shards that have records or may get some, in the order of their births."""
        try:
            listed = await list_shards(await self._calls(), self._stream)
        except CallRefused as refused:
            raise refused.as_error() from refused
        return tuple(_described(shard) for shard in sorted(listed, key=lambda shard: str(shard["ShardId"])))

    async def split(self, shard: str) -> tuple[str, ...]:
        """
        Split a shard in the middle of its hashes, and return its children.

        Raises:
            ValueError: there is no such open shard, or it has only one hash.
        """
        whole = await self._open_shard(shard)
        if whole.hash_low == whole.hash_high:
            raise ValueError(f"shard {shard!r} takes a single hash; it cannot be split")
        middle = (whole.hash_low + whole.hash_high) // 2 + 1
        client = await self._client()
        await self._reshard(
            "SplitShard",
            lambda: client.split_shard(
                **stream_argument(self._stream), ShardToSplit=shard, NewStartingHashKey=str(middle)
            ),
        )
        return await self._children(shard)

    async def merge(self, first: str, second: str) -> tuple[str, ...]:
        """
        Merge two shards of neighbouring hashes, and return their child.

        Raises:
            ValueError: one of them is no open shard, or they are no neighbours.
        """
        low, high = sorted(
            [await self._open_shard(first), await self._open_shard(second)], key=lambda one: one.hash_low
        )
        if low.hash_high + 1 != high.hash_low:
            raise ValueError(f"shards {first!r} and {second!r} are not neighbours")
        client = await self._client()
        await self._reshard(
            "MergeShards",
            lambda: client.merge_shards(
                **stream_argument(self._stream), ShardToMerge=low.shard, AdjacentShardToMerge=high.shard
            ),
        )
        return await self._children(first)

    async def deregister(self, consumer: str) -> bool:
        """Remove a consumer of enhanced fan-out; false where there is none. Readers that still use it make it anew."""
        fanout = Fanout(self._clients, consumer, clock=self._clock, random=self._random)
        return await fanout.deregister(await self._calls(), self._stream)

    def _importer(self, client: Any) -> Importer:
        async def send(puts: Sequence[Put]) -> Answer:
            return await self._send(client, puts)

        return Importer(send=send, clock=self._clock, random=self._random)

    async def _send(self, client: Any, puts: Sequence[Put]) -> Answer:
        records = [{"PartitionKey": put.key, "Data": put.data} for put in puts]
        try:
            answer = await client.put_records(**stream_argument(self._stream), Records=records)
        except AWS_ERRORS as error:
            fault = self._fault(error, "PutRecords")
            if fault.kind not in (FaultKind.THROTTLED, FaultKind.PASSING):
                raise _error(fault.kind, fault.text) from error
            outcomes = [Outcome(error=fault.text)] * len(puts)
            return Answer(outcomes=outcomes, is_lost=fault.kind is FaultKind.PASSING)
        return Answer(outcomes=[_outcome(each) for each in answer["Records"]])

    async def _open_shard(self, shard: str) -> ShardDescription:
        for each in await self.describe():
            if each.shard == shard and not each.closed:
                return each
        raise ValueError(f"the stream has no open shard {shard!r}")

    async def _children(self, shard: str) -> tuple[str, ...]:
        return tuple(each.shard for each in await self.describe() if shard in each.parents)

    async def _reshard(self, operation: str, send: Callable[[], Awaitable[object]]) -> None:
        try:
            await send()
        except AWS_ERRORS as error:
            fault = self._fault(error, operation)
            raise _error(fault.kind, fault.text) from error
        await self._active()

    async def _active(self) -> None:
        until_s = self._clock.now_s() + ACTIVE_S
        while (status := (await self._summary())["StreamStatus"]) != "ACTIVE":
            if self._clock.now_s() >= until_s:
                raise SourceUnavailable(f"{self._place.url} is {status} after {ACTIVE_S:g} s; look again later")
            await sleep_until(self._clock, self._clock.now_s() + LOOK_S)

    async def _record_bytes_max(self) -> int:
        kib = (await self._summary()).get("MaxRecordSizeInKiB")
        return RECORD_BYTES_MAX if kib is None else int(kib) * 1024

    async def _summary(self) -> Mapping[str, Any]:
        try:
            return await (await self._calls()).describe(self._stream)
        except CallRefused as refused:
            raise refused.as_error() from refused

    async def _calls(self) -> Calls:
        return Calls(await self._client(), region=self._clients.region)

    async def _client(self) -> Any:
        try:
            return await self._clients.client("writes", "kinesis", CLIENT)
        except AWS_ERRORS as error:
            raise SourceMisconfigured(self._fault(error, "*").text) from error

    def _fault(self, error: BaseException, operation: str) -> Any:
        resource = f"stream {self._stream!r}"
        return fault_of(error, action=f"kinesis:{operation}", resource=resource, region=self._clients.region)


def _error(kind: FaultKind, text: str) -> SourceUnavailable | SourceMisconfigured:
    passing = kind in (FaultKind.THROTTLED, FaultKind.PASSING, FaultKind.CONFLICT)
    return SourceUnavailable(text) if passing else SourceMisconfigured(text)


def _outcome(answered: Mapping[str, Any]) -> Outcome:
    if error := answered.get("ErrorCode"):
        return Outcome(error=f"{error}: {answered.get('ErrorMessage', '')}")
    return Outcome(shard=answered["ShardId"], sequence=answered["SequenceNumber"])


def _described(shard: Mapping[str, Any]) -> ShardDescription:
    return ShardDescription(
        shard=shard["ShardId"],
        parents=tuple(
            parent for name in ("ParentShardId", "AdjacentParentShardId") if (parent := shard.get(name)) is not None
        ),
        closed=shard.get("SequenceNumberRange", {}).get("EndingSequenceNumber") is not None,
        hash_low=int(shard["HashKeyRange"]["StartingHashKey"]),
        hash_high=int(shard["HashKeyRange"]["EndingHashKey"]),
    )
