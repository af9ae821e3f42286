"""
Decoders: a middleware that turns the payloads of a batch into values before `process` gets them.

Knows no format but JSON. Avro, Protobuf or a JSON schema are the user's callable: it gets the record's bytes (or, with
`from_record`, the whole record, for a schema id in its headers), and returns the value, or an awaitable of it.

A record that cannot be decoded fails like any other: `DecodeFailed` names its partition and position, so that the
failure policy deals with that record alone. All of a batch is decoded before `process` sees any of it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from partitions.sources.base import Record
from processor_host.middleware import Middleware, Process
from processor_host.processor import Batch

__all__ = ["DecodeFailed", "DecodedRecord", "decoded", "decoding", "json_of"]

WHY_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecord(Record):
    """A record with what its payload means."""

    value: Any


class DecodeFailed(Exception):
    """
    The payload of one record could not be decoded; the cause is what the decoder raised.

    Its text goes to logs, so it has no more of what the decoder says than `WHY_CHARS_MAX` of the first line.

    Attributes:
        partition: Of the record.
        position: Of the record.
    """

    def __init__(self, partition: str, position: str, error: Exception) -> None:
        self.partition = partition
        self.position = position
        why = (str(error).splitlines() or [""])[0][:WHY_CHARS_MAX]
        super().__init__(
            f"partition {partition!r}: the record at {position!r} cannot be decoded ({type(error).__name__}: {why})"
        )


def decoding(
    decode: Callable[[bytes], Any] | None = None, *, from_record: Callable[[Record], Any] | None = None
) -> Middleware:
    """
    Return a middleware after which every record is a `DecodedRecord`; read them with `decoded(batch)`.

    Args:
        decode: Gets a record's payload and returns its value, or an awaitable of it: `json_of()`, or the user's own.
        from_record: Gets the whole record instead. Give exactly one of the two.

    Raises:
        TypeError: both are given, or neither.
    """
    if (decode is None) == (from_record is None):
        raise TypeError("decoding() takes a callable for the payload or from_record=, exactly one of them")

    async def middleware(batch: Batch, process: Process) -> None:
        after: list[Record] = []
        for record in batch:
            try:
                value = decode(record.data) if decode is not None else from_record(record) if from_record else None
                if inspect.isawaitable(value):
                    value = await value
            except Exception as error:  # Containment: whatever a decoder raises, it is this record's failure.
                raise DecodeFailed(record.partition, record.position, error) from error
            after.append(_with(record, value))

        await process(batch.with_records(after))

    return middleware


def decoded(batch: Batch) -> Iterator[DecodedRecord]:
    """
    Yield the records of a batch that went through `decoding`, each with its `value`.

    Raises:
        LeaseLost: as the batch's own iteration.
        TypeError: the batch was not decoded.
    """
    for record in batch:
        if not isinstance(record, DecodedRecord):
            raise TypeError("the batch was not decoded; give the host middleware=[decoding(…)]")
        yield record


def json_of(*, check: Callable[[Any], object] | None = None) -> Callable[[bytes], Any]:
    """
    Return a decoder of JSON in UTF-8.

    Args:
        check: Called with each value; raises where that is not as it should be, as a JSON schema's `validate` does.
            What it returns is ignored.
    """

    def decode(data: bytes) -> Any:
        value = json.loads(data.decode("utf-8"))
        if check is not None:
            check(value)
        return value

    return decode


def _with(record: Record, value: Any) -> DecodedRecord:
    return DecodedRecord(
        partition=record.partition,
        position=record.position,
        key=record.key,
        data=record.data,
        time_s=record.time_s,
        headers=record.headers,
        value=value,
    )
