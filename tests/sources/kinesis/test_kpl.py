"""Aggregates of the Kinesis Producer Library: what was packed comes out, and what is no aggregate is left alone."""

from __future__ import annotations

import subprocess
import sys
from hashlib import md5
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.kinesis import _kpl
from partitions.sources.kinesis._kpl import (
    NOT_INSTALLED,
    Unpack,
    UserRecord,
    is_aggregate,
    load_unpack,
    unpack_or_tell,
)

__all__: list[str] = []

# Loaded before the library, whose modules find one another only after this.
loaded = load_unpack()
assert loaded is not None, "the extra [kpl] is part of the development environment"
unpack: Unpack = loaded

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PACKED = st.lists(st.builds(UserRecord, key=KEYS, data=st.binary(max_size=40)), min_size=1, max_size=20)


def aggregate_of(records: list[UserRecord], hash_keys: list[str] | None = None) -> bytes:
    """The bytes that awslabs' own aggregator makes of the records."""
    aggregator = import_module("aws_kinesis_agg.aggregator").RecordAggregator()
    for number, each in enumerate(records):
        full = aggregator.add_user_record(each.key, each.data, hash_keys[number] if hash_keys else None)
        assert full is None
    data = aggregator.clear_and_get().get_contents()[2]
    assert isinstance(data, bytes)
    return data


def framed(message: bytes) -> bytes:
    """A message in the frame of an aggregate, with the right digest."""
    return _kpl.MAGIC + message + md5(message).digest()


def message_of(keys: list[str | bytes], indexes: list[int], hash_index: int | None = None) -> Any:
    message = import_module("aws_kinesis_agg.messages_pb2").AggregatedRecord()
    message.partition_key_table.extend(keys)
    for index in indexes:
        record = message.records.add(partition_key_index=index, data=b"data")
        if hash_index is not None:
            record.explicit_hash_key_index = hash_index
    return message


@given(PACKED)
def test_unpack_gives_back_what_the_aggregator_packed(records: list[UserRecord]) -> None:
    """Keys, data and order are what the producer gave, also where keys repeat."""
    assert unpack(aggregate_of(records)) == tuple(records)


@given(PACKED, st.data())
def test_unpack_gives_back_every_record_whatever_its_hash_key(records: list[UserRecord], data: st.DataObject) -> None:
    """After a split some of them belong to another shard; dropping them would lose what is not sent again."""
    hash_keys = data.draw(st.lists(st.integers(0, 2**128 - 1).map(str), min_size=len(records), max_size=len(records)))

    assert unpack(aggregate_of(records, hash_keys)) == tuple(records)


@given(st.binary(max_size=200))
def test_unpack_leaves_other_records_alone(data: bytes) -> None:
    """A record that only looks odd is its user's own."""
    assert (unpack(data), is_aggregate(data)) == (None, False)


@given(st.binary(max_size=200))
def test_unpack_leaves_random_bytes_in_a_right_frame_alone_or_reads_all_of_them(message: bytes) -> None:
    """Bytes that happen to parse have records with keys; anything else is handed on as it is, and nothing raises."""
    found = unpack(framed(message))

    assert found is None or all(isinstance(each, UserRecord) for each in found)
    assert found != ()


@given(PACKED, st.data())
def test_unpack_leaves_an_aggregate_alone_when_one_byte_is_another(
    records: list[UserRecord], data: st.DataObject
) -> None:
    """The digest covers the message; the magic bytes and the digest itself are compared."""
    whole = aggregate_of(records)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]

    assert (unpack(changed), is_aggregate(changed)) == (None, False)


@given(PACKED, st.data())
def test_unpack_leaves_an_aggregate_alone_when_it_is_cut(records: list[UserRecord], data: st.DataObject) -> None:
    """Half an aggregate has no digest."""
    whole = aggregate_of(records)

    assert unpack(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(PACKED, st.data())
def test_unpack_of_a_cut_message_with_a_right_digest_gives_whole_records_or_none(
    records: list[UserRecord], data: st.DataObject
) -> None:
    """A producer that cut the message itself has left a whole one of fewer records, or none that can be read."""
    message = aggregate_of(records)[4:-16]
    found = unpack(framed(message[: data.draw(st.integers(0, len(message) - 1))]))

    assert found is None or found == tuple(records)[: len(found)]


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(framed(message_of(["a"], [0, 1, 0]).SerializeToString()), id="key index just out of range"),
        pytest.param(framed(message_of([], [0]).SerializeToString()), id="no key at all"),
        pytest.param(framed(message_of(["a"], [2**63]).SerializeToString()), id="huge key index"),
        pytest.param(framed(message_of(["a"], [0], 0).SerializeToString()), id="hash key index out of range"),
        pytest.param(framed(message_of(["a"], []).SerializeToString()), id="no record"),
        pytest.param(framed(b"\x0a\x02\xff\xfe" + message_of([], [0]).SerializeToString()), id="key not UTF-8"),
        pytest.param(framed(b"\x0a\x01a\x1a\x02\x08\x00"), id="record without data"),
        pytest.param(framed(b"\x0a\x01a\x1a\x07\x08\x00\x1a\x09data"), id="length beyond the end"),
        pytest.param(framed(b""), id="no message"),
    ],
)
def test_unpack_leaves_a_malformed_aggregate_alone(malformed: bytes) -> None:
    """One record that cannot be read leaves no number for its neighbours; none of them may be lost."""
    assert unpack(malformed) is None


def test_load_unpack_leaves_the_import_path_as_it_was() -> None:
    """The library puts its own folder first for ever, which would hide a user's module named `aggregator`."""
    code = (
        "import sys; before = list(sys.path)\n"
        "from partitions.sources.kinesis._kpl import load_unpack\n"
        "print(load_unpack() is not None, sys.path == before)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (result.returncode, result.stdout.split()) == (0, ["True", "True"]), result.stderr


@pytest.mark.parametrize("missing", ["aws_kinesis_agg", "google.protobuf"])
def test_load_unpack_says_so_when_the_extra_is_not_installed(missing: str) -> None:
    """Without the extra, reading goes on; aggregates are still told from other records, so that somebody is told."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from partitions.sources.kinesis._kpl import is_aggregate, load_unpack\n"
        f"print(load_unpack(), is_aggregate({aggregate_of([UserRecord(key='k', data=b'd')])!r}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (result.returncode, result.stdout.split()) == (0, ["None", "True"]), result.stderr


def test_unpack_or_tell_leaves_aggregates_packed_and_tells_of_the_first_when_the_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warning for each of a million records would hide the first; none would leave the user with riddles."""
    monkeypatch.setitem(sys.modules, "aws_kinesis_agg.deaggregator", None)
    told: list[str] = []
    found = unpack_or_tell(told.append)
    packed = aggregate_of([UserRecord(key="k", data=b"d")])

    before = [found(b"plain"), list(told)]

    assert [*before, found(packed), found(packed)] == [None, [], None, None]
    assert told == [NOT_INSTALLED]


def test_unpack_or_tell_unpacks_and_tells_nothing_with_the_extra() -> None:
    """Nothing is wrong then."""
    told: list[str] = []
    user = UserRecord(key="k", data=b"d")

    assert unpack_or_tell(told.append)(aggregate_of([user])) == (user,)
    assert told == []


def test_aggregator_of_the_tests_packs_more_than_one_record_into_one() -> None:
    """If each came in an aggregate of its own, order and numbers would be tested by nothing."""
    few, many = (aggregate_of([UserRecord(key="k", data=b"d")] * count) for count in (1, 3))

    assert [len(pair[1]) - len(pair[0]) for pair in pairwise([few, many])] == [2 * 7]
