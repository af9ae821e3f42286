"""
What the Kinesis Producer Library (KPL) packs into one record, unpacked: one aggregate becomes its user records.

Knows no stream, no position and no network: bytes in, user records or None out. The message is decoded by awslabs'
aws-kinesis-agg, which the extra `[kpl]` installs; without it an aggregate can still be told from another record.

Theory of operation: an aggregate is four magic bytes, a protobuf message and the MD5 digest of the message. What is not
exactly that is no aggregate, also where only one byte of it is wrong, and None says so: the caller hands the record on
as it is, so that nothing a producer wrote is lost. One user record that cannot be read makes the whole aggregate
unreadable, for its neighbours' numbers would no longer tell which of them are done.

The Kinesis Client Library (KCL) drops an aggregate as a whole if the hash key of one of its user records is outside of
the shard's range, as happens when a shard is split while the aggregate is on its way; it counts on the KPL to send them
again. Other producers do not. Here every user record is handed on: what the KPL sends again comes twice, and nothing
is lost.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, Protocol, cast

__all__ = ["NOT_INSTALLED", "Unpack", "UserRecord", "is_aggregate", "load_unpack", "unpack_or_tell"]

NOT_INSTALLED: Final = (
    "aggregated records of the Kinesis Producer Library are handed on as they are, packed; "
    "pip install 'processor-host[kpl]' to get the records in them"
)
"""What is told about the first aggregate that comes where the extra is not installed."""

MAGIC: Final = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """One record that a producer put into an aggregate; its number there is its place in the answer of `Unpack`."""

    key: str
    data: bytes


Unpack = Callable[[bytes], tuple[UserRecord, ...] | None]
"""
Returns the user records of an aggregate, at least one, in their order; None for data that are no aggregate, or a
malformed one. Never raises.
"""


def is_aggregate(data: bytes) -> bool:
    """Say whether `data` have the frame of an aggregate: its magic bytes, and the digest of what stands between."""
    return (
        len(data) > len(MAGIC) + DIGEST_BYTES
        and data.startswith(MAGIC)
        # The format's checksum, not a secret.
        and md5(data[len(MAGIC) : -DIGEST_BYTES], usedforsecurity=False).digest() == data[-DIGEST_BYTES:]
    )


def load_unpack() -> Unpack | None:
    """Return what unpacks an aggregate; None where the extra `[kpl]` is not installed."""
    path = list(sys.path)
    try:
        # Its generated modules import one another by their bare names. This module of the library makes that work by
        # putting its folder at the head of the path; left there, it would hide a user's own module `aggregator`.
        importlib.import_module("aws_kinesis_agg.deaggregator")
        messages = importlib.import_module("aws_kinesis_agg.messages_pb2")
        failure = importlib.import_module("google.protobuf.message").DecodeError
    except ImportError:
        return None
    finally:
        sys.path[:] = path
    message_type = cast("Callable[[], _Message]", messages.AggregatedRecord)
    decode_error = cast("type[Exception]", failure)

    # The library's own `deaggregate_records` prints, and returns a part of a malformed aggregate.
    def unpack(data: bytes) -> tuple[UserRecord, ...] | None:
        if not is_aggregate(data):
            return None
        message = message_type()
        try:
            message.ParseFromString(data[len(MAGIC) : -DIGEST_BYTES])
        except decode_error:
            return None
        return _user_records(message)

    return unpack


def unpack_or_tell(tell: Callable[[str], None]) -> Unpack:
    """Return what unpacks aggregates; without the extra, what leaves them packed and tells it of the first one."""
    if (unpack := load_unpack()) is not None:
        return unpack
    told = False

    def leave(data: bytes) -> None:
        nonlocal told
        if not told and is_aggregate(data):
            told = True
            tell(NOT_INSTALLED)

    return leave


class _Packed(Protocol):
    partition_key_index: int
    explicit_hash_key_index: int
    data: bytes

    def IsInitialized(self) -> bool: ...
    def HasField(self, field_name: str) -> bool: ...


class _Message(Protocol):
    """What is used of the generated `AggregatedRecord`; keys that are no UTF-8 come as bytes."""

    partition_key_table: Sequence[str | bytes]
    explicit_hash_key_table: Sequence[str | bytes]
    records: Sequence[_Packed]

    def ParseFromString(self, serialized: bytes) -> int: ...


def _user_records(message: _Message) -> tuple[UserRecord, ...] | None:
    keys = message.partition_key_table
    hash_keys = len(message.explicit_hash_key_table)
    found: list[UserRecord] = []
    for packed in message.records:
        # A message that was cut parses, with fields missing that must be there.
        if not packed.IsInitialized() or packed.partition_key_index >= len(keys):
            return None
        if packed.HasField("explicit_hash_key_index") and packed.explicit_hash_key_index >= hash_keys:
            return None
        key = keys[packed.partition_key_index]
        if isinstance(key, bytes):
            return None
        found.append(UserRecord(key=key, data=packed.data))
    return tuple(found) or None
