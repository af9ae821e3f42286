"""
The streams of Kinesis that one host reads, as one source.

Knows no host. It lists, names and starts; reading a shard is `_reader`'s.

Theory of operation of a start. "latest" becomes a time of Kinesis' own clock, which its answers carry in whole seconds:
the source asks until the second changes, so that the time is exact to a tenth of a second, and never later than the
moment at which it is returned. Reading from that time on means the same in every shard, whenever its lease is made: one
that was born later has no record before it, and so starts at its horizon.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any, Final

import aioboto3  # type: ignore[import-untyped]  # It has no types; a session is only handed on.
import anyio
import anyio.lowlevel

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, fault_of
from partitions.clocks import BootClock, Clock
from partitions.errors import SourceMisconfigured, SourceUnavailable, StartsDiffer
from partitions.positions import EARLIEST, Start, at_time, time_of
from partitions.sources.base import PartitionInfo, Reader
from partitions.sources.kinesis._calls import CallRefused, Calls, KinesisClient
from partitions.sources.kinesis._fanout import FanoutReader
from partitions.sources.kinesis._fanout_calls import Fanout
from partitions.sources.kinesis._kpl import unpack_or_tell
from partitions.sources.kinesis._listing import list_shards
from partitions.sources.kinesis._reader import KinesisReader, ReaderParts
from partitions.sources.kinesis._shards import ShardRef, infos_of, ref_of
from partitions.sources.kinesis._url import KinesisPlace

__all__ = ["KinesisSource"]

CLIENT: Final = ClientSettings(timeout_s=5.0, connections_max=256)
"""A read of 10 MB takes seconds; so many reads at once are those of some hundred busy shards."""
TICK_LOOK_S: Final = 0.1
TICK_LOOKS: Final = 15
"""A second has passed by then, unless answers come from a cache."""
NEWS_MAX: Final = 10_000
"""Gaps that are remembered as told, about as many as one host has partitions."""


class KinesisSource:
    """A `partitions.sources.base.Source` of one or several streams. Used from one event loop."""

    def __init__(
        self,
        place: KinesisPlace,
        *,
        client: KinesisClient | None = None,
        session: aioboto3.Session | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """
        Name the streams; `open` connects.

        Args:
            place: Which streams, and where.
            client: Used instead of making one; it is the caller's, who closes it.
            session: The session to make the client from, whose credentials may refresh; None makes one.
            clock: Paces the reads; the machine's by default.
            random: Spreads them; seeded by the system by default.
        """
        self._place = place
        self._clients = AwsClients(place.aws, session=session, given={} if client is None else {"reads": client})
        self._clock = clock or BootClock()
        self._random = random or Random()
        self._fanout: Fanout | None = None
        if place.consumer is not None:
            self._fanout = Fanout(self._clients, place.consumer, clock=self._clock, random=self._random)
        self._parts: ReaderParts | None = None
        self._identity = ""
        self._gaps_told: dict[str, str] = {}

    @property
    def url(self) -> str:
        """See `Source.url`."""
        return self._place.url

    async def open(self) -> None:
        """See `Source.open`."""
        streams = self._place.streams
        try:
            client: KinesisClient = await self._clients.client("reads", "kinesis", CLIENT)
        except AWS_ERRORS as error:
            resource = f"stream {streams[0]!r}"
            fault = fault_of(error, action="kinesis:*", resource=resource, region=self._clients.region)
            raise SourceMisconfigured(fault.text) from error
        calls = Calls(client, region=self._clients.region)
        self._identity = " ".join(sorted([_identity_of(await _described(calls, stream)) for stream in streams]))
        await _try_reading(calls, streams[0])
        self._parts = ReaderParts(
            calls=calls,
            clock=self._clock,
            random=self._random,
            idle_read_s=self._place.idle_read_s,
            unpack=unpack_or_tell(_warn),
            is_listed=self._is_listed,
            is_news=self._is_news,
        )

    async def close(self) -> None:
        """See `Source.close`."""
        self._parts = None
        await self._clients.close()

    async def identity(self) -> str:
        """Return the ARN of each stream with its time of creation."""
        await anyio.lowlevel.checkpoint()
        self._opened()
        return self._identity

    async def list_partitions(self) -> tuple[PartitionInfo, ...]:
        """See `Source.list_partitions`."""
        calls = self._opened().calls
        streams = self._place.streams
        listed = [infos_of(stream, await list_shards(calls, stream), streams) for stream in streams]
        return tuple(info for infos in listed for info in infos)

    async def resolve_start(self, start: Start) -> str:
        """
        See `Source.resolve_start`. A start in the URL counts where the settings have none.

        Raises:
            StartsDiffer: URL and settings name different starts.
        """
        calls = self._opened().calls
        if self._place.start is not None and start != self._place.start:
            # "earliest" is what settings say that say nothing.
            if start != "earliest":
                raise StartsDiffer(
                    f"{self.url}: start={self._place.start} in the URL, but start={start} in the settings; "
                    "leave one of them out"
                )
            start = self._place.start
        if start == "latest":
            return at_time(await self._present_s(calls))
        await anyio.lowlevel.checkpoint()
        if start == "earliest":
            return EARLIEST
        if time_of(start) is not None:
            return start
        raise ValueError(f"start {start!r} is not a start; use earliest, latest or a position made by at_time")

    async def first_position(self, partition: str, point: str) -> str:
        """See `Source.first_position`. Asks nobody: a time means the same in every shard."""
        await anyio.lowlevel.checkpoint()
        ref_of(partition, self._place.streams)
        if point != EARLIEST and time_of(point) is None:
            raise SourceMisconfigured(f"start point {point!r} is not one of Kinesis; was the group started elsewhere?")
        return point

    def reader(self, partition: str, position: str) -> Reader:
        """See `Source.reader`. Where the URL names a consumer, records are pushed to it."""
        ref = ref_of(partition, self._place.streams)
        if self._fanout is not None:
            return FanoutReader(self._opened(), self._fanout, partition, ref, position)
        return KinesisReader(self._opened, partition, ref, position)

    def _opened(self) -> ReaderParts:
        if self._parts is None:
            raise SourceUnavailable(f"{self.url} is not open; call open() first")
        return self._parts

    async def _is_listed(self, ref: ShardRef) -> bool:
        listed = [shard["ShardId"] for shard in await list_shards(self._opened().calls, ref.stream)]
        # Ids grow. A listing without any younger shard may just not know a new one yet, and to take that for an end
        # would leave it unread for good; one that has gone was closed, and so has descendants.
        return ref.shard in listed or max(listed, default="") < ref.shard

    def _is_news(self, partition: str, position: str) -> bool:
        if self._gaps_told.get(partition) == position:
            return False
        if len(self._gaps_told) >= NEWS_MAX:
            del self._gaps_told[next(iter(self._gaps_told))]
        self._gaps_told[partition] = position
        return True

    async def _present_s(self, calls: Calls) -> float:
        """Return a time that Kinesis' clock has just passed, seconds since 1970."""
        stream = self._place.streams[0]
        await _described(calls, stream)
        began_s = calls.present_s
        for _ in range(TICK_LOOKS):
            if calls.present_s > began_s:
                break
            await anyio.sleep(TICK_LOOK_S)
            await _described(calls, stream)
        # Only servers that stand in for Kinesis leave the date out; they run on this machine's clock.
        return calls.present_s or time.time()


def _warn(text: str) -> None:
    """Tell whoever runs this process, once; a library has no log."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


async def _try_reading(calls: Calls, stream: str) -> None:
    """Make each call once that a host cannot do without: one that is denied is told now, not in the middle of a run."""
    shards = await list_shards(calls, stream)
    if not shards:
        return
    try:
        begin = {"ShardIteratorType": "LATEST"}
        answer = await calls.get_shard_iterator(stream, shards[-1]["ShardId"], begin)
        if (iterator := answer.get("ShardIterator")) is not None:
            await calls.get_records(stream, iterator, 1)
    except CallRefused:
        # Throttled, or a shard that has just gone: it is allowed.
        return


async def _described(calls: Calls, stream: str) -> Mapping[str, Any]:
    """Return what a stream says of itself; it must be there for good."""
    try:
        summary = await calls.describe(stream)
    except CallRefused as refused:
        raise refused.as_error() from refused
    status = summary.get("StreamStatus")
    if status == "CREATING":
        raise SourceUnavailable(f"stream {stream!r} is being created; try again in a moment")
    if status == "DELETING":
        raise SourceMisconfigured(f"stream {stream!r} is being deleted; name another one")
    return summary


def _identity_of(summary: Mapping[str, Any]) -> str:
    """Return what tells this stream from an earlier one of the same name: ARN and time of creation."""
    made = summary.get("StreamCreationTimestamp")
    made_s = made.timestamp() if isinstance(made, datetime) else made
    return summary["StreamARN"] if made_s is None else f"{summary['StreamARN']}@{made_s:.3f}"
