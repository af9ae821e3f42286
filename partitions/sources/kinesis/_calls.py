"""
The calls of Kinesis that reading needs, and what their refusals mean.

Knows no reader. Each call is sent once: whoever sends it decides whether and when to send it again. What a reader can
act on itself is a `CallRefused` with its reason; everything else becomes the error of a source, whose text names the
action, the stream and the region.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, Final, Protocol

from partitions.aws.faults import Fault, FaultKind, fault_of
from partitions.errors import SourceMisconfigured, SourceUnavailable

__all__ = ["CallRefused", "Calls", "KinesisClient", "Refusal", "stream_argument"]

_PASSING: Final = {FaultKind.PASSING, FaultKind.CONFLICT, FaultKind.OTHER}
"""What is not known may pass; a host that stops for it would not come back."""


class KinesisClient(Protocol):
    """What is used of aiobotocore's client of Kinesis, or of what stands in for it in a test."""

    async def describe_stream_summary(self, **arguments: Any) -> Mapping[str, Any]:
        """Return the stream's name, ARN, status and time of creation."""
        ...

    async def list_shards(self, **arguments: Any) -> Mapping[str, Any]:
        """Return one page of shards."""
        ...

    async def get_shard_iterator(self, **arguments: Any) -> Mapping[str, Any]:
        """Return an iterator, which lives for five minutes."""
        ...

    async def get_records(self, **arguments: Any) -> Mapping[str, Any]:
        """Return records and the next iterator."""
        ...


class Refusal(Enum):
    """Why Kinesis refused a call, where its sender can do something about it."""

    THROTTLED = "throttled"
    """All readers of the shard together ask too often or for too much."""
    EXPIRED = "expired"
    """The iterator or the token of a page is too old."""
    NOT_FOUND = "not found"
    """There is no such stream, or no such shard any more: the code is the same."""
    INVALID = "invalid"
    """An argument is not accepted, such as a sequence number, or a time in the future."""


_EXPIRED_CODES: Final = {"ExpiredIteratorException", "ExpiredNextTokenException"}
_IN_USE: Final = "ResourceInUseException"
_REFUSALS: Final = {
    FaultKind.THROTTLED: Refusal.THROTTLED,
    FaultKind.MISSING: Refusal.NOT_FOUND,
    FaultKind.INVALID: Refusal.INVALID,
}


class CallRefused(Exception):
    """A refusal, inside this package. `as_error` is what it is for everybody else."""

    def __init__(self, refusal: Refusal, fault: Fault) -> None:
        super().__init__(fault.text)
        self.refusal = refusal
        self.fault = fault

    def as_error(self) -> SourceUnavailable | SourceMisconfigured:
        """Return the error that a caller of the source gets where nobody here can act on the refusal."""
        if self.refusal in (Refusal.THROTTLED, Refusal.EXPIRED):
            return SourceUnavailable(self.fault.text)
        return SourceMisconfigured(self.fault.text)


class Calls:
    """The calls on the streams of one source."""

    def __init__(self, client: KinesisClient, *, region: str) -> None:
        self._client = client
        self._region = region
        self.present_s = 0.0
        """
        A time that the clock of Kinesis has passed, seconds since 1970, whole: the latest that any answer was dated.
        0.0 before the first dated answer.
        """

    async def describe(self, stream: str) -> Mapping[str, Any]:
        """Return what DescribeStreamSummary says of a stream."""
        answer = await self._send("DescribeStreamSummary", stream, stream_argument(stream))
        summary: Mapping[str, Any] = answer["StreamDescriptionSummary"]
        return summary

    async def list_shards(self, stream: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return one page of shards; `arguments` name the stream or the page, never both."""
        return await self._send("ListShards", stream, arguments)

    async def get_shard_iterator(self, stream: str, shard: str, begin: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an iterator of a shard that begins at a place; see `_places.iterator_at`."""
        return await self._send("GetShardIterator", stream, {**stream_argument(stream), "ShardId": shard, **begin})

    async def get_records(self, stream: str, iterator: str, records_max: int) -> Mapping[str, Any]:
        """Return up to `records_max` records, at most 10,000, and the next iterator."""
        # The name is not accepted beside an iterator by every server; of a stream of another account, the ARN is asked.
        of_stream = stream_argument(stream) if stream.startswith("arn:") else {}
        return await self._send("GetRecords", stream, {**of_stream, "ShardIterator": iterator, "Limit": records_max})

    async def _send(self, operation: str, stream: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = await self._operation(operation)(**arguments)
        except (
            Exception
        ) as error:  # Containment: all the SDK raises, and whatever a user's own provider of credentials does.
            raise self._meant(error, operation, stream) from error
        self._note_date(answer)
        return answer

    def _operation(self, operation: str) -> Any:
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation)
        return getattr(self._client, name.removeprefix("_"))

    def _meant(self, error: Exception, operation: str, stream: str) -> Exception:
        fault = fault_of(error, action=f"kinesis:{operation}", resource=f"stream {stream!r}", region=self._region)
        if fault.code in _EXPIRED_CODES:
            return CallRefused(Refusal.EXPIRED, fault)
        if fault.code == _IN_USE or fault.kind in _PASSING:
            return SourceUnavailable(fault.text)
        if (refusal := _REFUSALS.get(fault.kind)) is not None:
            return CallRefused(refusal, fault)
        return SourceMisconfigured(fault.text)

    def _note_date(self, answer: Mapping[str, Any]) -> None:
        dated = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if dated is not None:
            self.present_s = max(self.present_s, parsedate_to_datetime(dated).timestamp())


def stream_argument(stream: str) -> Mapping[str, Any]:
    """Return how a call names a stream: by its ARN where the user gave that."""
    return {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}
