"""
One record as Kinesis stores it, and the records of the contract that it becomes.

Knows no call and no reader. A producer may pack several user records into one (`_kpl`): then each of them has its
number inside the packed one, from 0, which becomes part of its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from partitions.sources.base import Record
from partitions.sources.kinesis._kpl import Unpack
from partitions.sources.kinesis._places import position_at

__all__ = ["RawRecord", "raw_of", "records_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One record of a shard as GetRecords and SubscribeToShard give it."""

    sequence: str
    """Its sequence number: decimal, growing within a shard, with gaps."""
    key: str
    data: bytes
    time_s: float | None
    """When Kinesis took it in, seconds since 1970 on the clock of Kinesis; nearly, but not always, growing."""


def raw_of(answered: Mapping[str, Any]) -> RawRecord:
    """Read one record of an answer, as botocore parses it."""
    when = answered.get("ApproximateArrivalTimestamp")
    return RawRecord(
        sequence=answered["SequenceNumber"],
        key=answered["PartitionKey"],
        data=answered["Data"],
        time_s=when.timestamp() if isinstance(when, datetime) else when,
    )


def records_of(partition: str, raw: RawRecord, unpack: Unpack | None, *, after: int = -1) -> list[Record]:
    """
    Return the user records of a raw one.

    Args:
        partition: The partition that it is of.
        raw: The record.
        unpack: Takes packed records apart; None leaves them as they are.
        after: The number of the last one that is done already, if it is a packed one.
    """
    inner = None if unpack is None else unpack(raw.data)
    if inner is None:
        return [
            Record(
                partition=partition,
                position=position_at(raw.sequence, None),
                key=raw.key,
                data=raw.data,
                time_s=raw.time_s,
            )
        ]
    return [
        Record(
            partition=partition,
            position=position_at(raw.sequence, sub),
            key=record.key,
            data=record.data,
            time_s=raw.time_s,
        )
        for sub, record in enumerate(inner)
        if sub > after
    ]
