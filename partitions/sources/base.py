"""
The contract of a source: a partitioned stream that can be listed and read again from any position.

A source knows no lease, no host and no group. It never keeps how far anybody has read. Positions are its own strings
(`partitions.positions`): *the last record done*; reading resumes after it. Positions of one partition come in the
order of its records, but nobody outside the source compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from partitions.errors import SourceMisconfigured
from partitions.positions import Start

__all__ = ["Fetched", "PartitionInfo", "Reader", "Record", "Source"]

PARTITION_BYTES_MAX: Final = 1024
"""As UTF-8; the most that DynamoDB takes for a sort key."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def _no_headers() -> Mapping[str, str]:
    return _NO_HEADERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a partition."""

    partition: str
    position: str
    """This record's own position: a checkpoint at it means that it and all before it are done."""
    key: str | None
    data: bytes
    """The payload; for an imported line its bytes without the newline."""
    time_s: float | None = None
    """When it was written, seconds since 1970 on the source's clock; None where the source does not say."""
    headers: Mapping[str, str] = field(default_factory=_no_headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition as the source lists it."""

    partition: str
    parents: tuple[str, ...] = ()
    """The partitions it goes on from, also those that are no longer listed; empty for one without a past."""
    closed: bool = False
    """It takes no more records; it may still have unread ones."""

    def __post_init__(self) -> None:
        size = len(self.partition.encode("utf-8", "surrogatepass"))
        if not 0 < size <= PARTITION_BYTES_MAX:
            raise SourceMisconfigured(
                f"partition id {self.partition[:40]!r}… has {size} bytes, expected 1 to {PARTITION_BYTES_MAX}, because "
                "it is the key of the lease in every store; name the partitions of the stream shorter"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer of one read."""

    records: tuple[Record, ...]
    lag_s: float | None
    """
    Seconds between the newest record of the partition and the last one returned here, on the source's clock: 0.0 where
    nothing is left to read, None where the source does not say.
    """
    ended: bool = False
    """Nothing will ever follow `records`: the partition is closed and was read to its end."""
    trimmed: bool = False
    """Records after the reader's position had been dropped by the source; `records` go on at the oldest one left."""


class Reader(Protocol):
    """Reads one partition from one position on. Used by one task at a time."""

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        """
        Return the next records.

        Args:
            records_max: At most so many records, at least 1.
            bytes_max: Stop before the payloads exceed this; one record is returned however large it is.
            wait_s: How long to wait for a record where there is none, seconds. Cancelling ends the wait at once.

        Returns:
            The records after those of the last call. An empty answer without `ended` means: nothing yet.

        Raises:
            SourceUnavailable: a passing fault; a later call goes on where the last answer ended.
            SourceMisconfigured: no retry helps.
        """
        ...

    async def close(self) -> None:
        """Let go of what the reader holds. Twice does nothing."""
        ...


class Source(Protocol):
    """A partitioned stream. Every method may raise `SourceUnavailable` and `SourceMisconfigured`."""

    @property
    def url(self) -> str:
        """How a user names this source, for messages."""
        ...

    async def open(self) -> None:
        """Connect; the stream must be there. Never creates one."""
        ...

    async def close(self) -> None:
        """Let go of every connection and thread. Twice does nothing."""
        ...

    async def identity(self) -> str:
        """Return the stream's name and creation time or equivalent: another one under the same name differs."""
        ...

    async def list_partitions(self) -> tuple[PartitionInfo, ...]:
        """Return every partition that still has records or may get some, in a stable order."""
        ...

    async def resolve_start(self, start: Start) -> str:
        """
        Turn `start` into a fixed point of the whole stream, resolved once for a group and then stored.

        "latest" becomes the present end or the present time of the source's clock, so that what arrives after this call
        is after the point, however late each partition's lease is made.
        """
        ...

    async def first_position(self, partition: str, point: str) -> str:
        """
        Return the position in `partition` from which a group that started at `point` reads.

        A partition born after `point` starts at its beginning.

        Args:
            partition: A listed partition.
            point: What `resolve_start` returned, of this source, maybe long ago.
        """
        ...

    def reader(self, partition: str, position: str) -> Reader:
        """Return a reader that goes on after `position` (one of a record, or what `first_position` returned)."""
        ...
