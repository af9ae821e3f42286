"""
Shards as partitions: names, parents, order.

Pure. The one place that turns what ListShards says into `PartitionInfo`. A partition is named as its shard; where one
host reads several streams, which all number their shards alike, as `<stream>/<shard>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partitions.errors import SourceMisconfigured
from partitions.sources.base import PartitionInfo

__all__ = ["ShardRef", "infos_of", "partition_named", "ref_of", "stream_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRef:
    """One shard of one stream."""

    stream: str
    """The stream as the user named it: its name or its ARN."""
    shard: str


def stream_name(stream: str) -> str:
    """Return the name in a stream's ARN, `arn:aws:kinesis:<region>:<account>:stream/<name>`, or the name itself."""
    return stream.rpartition("/")[2]


def partition_named(ref: ShardRef, streams: Sequence[str]) -> str:
    """Return the partition of a shard, in a source of these streams."""
    return ref.shard if len(streams) == 1 else f"{stream_name(ref.stream)}/{ref.shard}"


def ref_of(partition: str, streams: Sequence[str]) -> ShardRef:
    """
    Return the shard of a partition, in a source of these streams.

    Raises:
        SourceMisconfigured: it is none of theirs.
    """
    prefix, _, shard = partition.rpartition("/")
    for stream in streams:
        if shard.startswith("shardId-") and prefix == (stream_name(stream) if len(streams) > 1 else ""):
            return ShardRef(stream=stream, shard=shard)
    expected = "a shard id such as 'shardId-000000000000'"
    if len(streams) > 1:
        expected = f"one of the streams {', '.join(map(stream_name, streams))}, a slash and {expected}"
    raise SourceMisconfigured(
        f"partition {partition!r} is none of this source; expected {expected}; "
        "a group that began with one stream cannot go on with several, nor the other way round"
    )


def infos_of(stream: str, shards: Iterable[Mapping[str, Any]], streams: Sequence[str]) -> tuple[PartitionInfo, ...]:
    """
    Return the partitions of one stream in the order of their births, which is that of their ids.

    Args:
        stream: The stream, one of `streams`.
        shards: What ListShards says, from all its pages; a shard that came twice counts once.
        streams: All streams of the source.
    """
    by_id = {shard["ShardId"]: shard for shard in shards}

    def named(shard: str) -> str:
        return partition_named(ShardRef(stream=stream, shard=shard), streams)

    return tuple(
        PartitionInfo(
            partition=named(shard_id),
            parents=tuple(
                named(parent)
                for name in ("ParentShardId", "AdjacentParentShardId")
                if (parent := by_id[shard_id].get(name))
            ),
            closed=by_id[shard_id].get("SequenceNumberRange", {}).get("EndingSequenceNumber") is not None,
        )
        for shard_id in sorted(by_id)
    )
