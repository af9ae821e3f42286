"""What the proxy reads from a request: service, operation, places and keys."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.proxy.calls import Call, read_call, units

__all__: list[str] = []

KEY = {"pk": {"S": "g"}, "sk": {"S": "p5"}}
PLAIN = {"pk": "g", "sk": "p5"}


def read(operation: str, body: object, *, target: str = "DynamoDB_20120810") -> Call:
    headers = {"X-Amz-Target": f"{target}.{operation}", "Content-Type": "application/x-amz-json-1.0"}
    return read_call(path="/", headers=headers, body=json.dumps(body).encode(), client_port=1, at_s=0.0)


@pytest.mark.parametrize(
    ("operation", "body", "keys"),
    [
        ("UpdateItem", {"TableName": "t", "Key": KEY}, [PLAIN]),
        ("PutItem", {"TableName": "t", "Item": {**KEY, "n": {"N": "7"}, "b": {"BOOL": True}}}, [{**PLAIN, "n": "7"}]),
        ("TransactWriteItems", {"TransactItems": [{"Update": {"TableName": "t", "Key": KEY}}]}, [PLAIN]),
        ("BatchGetItem", {"RequestItems": {"t": {"Keys": [KEY, KEY]}}}, [PLAIN, PLAIN]),
        ("BatchWriteItem", {"RequestItems": {"t": [{"DeleteRequest": {"Key": KEY}}]}}, [PLAIN]),
        ("Query", {"TableName": "t", "ExpressionAttributeValues": {":pk": {"S": "g"}}}, []),
    ],
)
def test_call_tells_table_and_keys(operation: str, body: object, keys: list[Mapping[str, str]]) -> None:
    """A fault on one partition is chosen by them, whichever verb carries the write."""
    call = read(operation, body)

    assert (call.service, call.operation, call.places, list(call.keys)) == (
        "dynamodb",
        operation,
        frozenset({"t"}),
        keys,
    )
    assert (call.mentions("p5"), call.mentions("p")) == (bool(keys), False)


def test_call_tells_stream_of_kinesis() -> None:
    """Faults of one stream of several are chosen by its name."""
    call = read("PutRecord", {"StreamName": "s", "Data": ""}, target="Kinesis_20131202")

    assert (call.service, call.operation, call.places) == ("kinesis", "PutRecord", frozenset({"s"}))


def test_call_tells_who_signed_for_which_region() -> None:
    """New credentials, and a wrong region, are told from the signature alone."""
    signed = "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-west-1/sts/aws4_request, SignedHeaders=host, Signature=0"
    headers = {"Authorization": signed, "Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    call = read_call(path="/", headers=headers, body=b"Action=GetCallerIdentity&V=1", client_port=1, at_s=0.0)

    assert (call.access_key, call.region, call.service, call.operation) == (
        "AKID",
        "eu-west-1",
        "sts",
        "GetCallerIdentity",
    )


def test_call_in_cbor_tells_its_operation_alone() -> None:
    """Newer clients of Kinesis send it; their calls still count."""
    path = "/service/Kinesis_20131202/operation/GetRecords"
    call = read_call(path=path, headers={"Content-Type": "application/cbor"}, body=b"\xa0", client_port=1, at_s=0.0)

    assert (call.service, call.operation, call.body) == ("kinesis", "GetRecords", {})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_call_that_cannot_be_read_is_still_a_call(body: bytes) -> None:
    """What a client gets wrong is the server's to refuse."""
    headers = {"X-Amz-Target": "DynamoDB_20120810.GetItem", "Content-Type": "application/x-amz-json-1.0"}
    call = read_call(path="/", headers=headers, body=body, client_port=1, at_s=0.0)

    assert (call.operation, call.body, call.keys) == ("GetItem", {}, ())


@pytest.mark.parametrize(
    ("operation", "answer", "expected"),
    [
        ("Query", {"ConsumedCapacity": {"CapacityUnits": 1.5}}, (1.5, 0.0)),
        ("UpdateItem", {"ConsumedCapacity": {"CapacityUnits": 2}}, (0.0, 2.0)),
        ("TransactWriteItems", {"ConsumedCapacity": [{"CapacityUnits": 2}, {"CapacityUnits": 4}]}, (0.0, 6.0)),
        ("UpdateItem", {}, (0.0, 0.0)),
    ],
)
def test_units_are_what_the_server_reported(
    operation: str, answer: Mapping[str, object], expected: tuple[float, float]
) -> None:
    """The figures of the steady state are sums of these."""
    assert units(operation, answer) == expected
