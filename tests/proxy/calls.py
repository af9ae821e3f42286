"""
What the proxy knows of one call: read from the head and, where it is JSON or a form, the body of the request.

It only reads. Bodies in CBOR pass through untouched and unread; their operation is still known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from tests.proxy.faults import Effect

__all__ = ["CAPACITY_REPORTED", "Call", "read_call", "units"]

# Key id, date, region and service of a signature.
CREDENTIAL = re.compile(r"Credential=([^/,]+)/[^/,]+/([^/,]+)/([^/,]+)/aws4_request")

# The path of the protocol that newer clients choose: /service/Kinesis_20131202/operation/GetRecords.
RPC_PATH = re.compile(r"/service/([^/]+)/operation/([^/]+)")

READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems"})
CAPACITY_REPORTED = READS | {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
"""The operations of DynamoDB that take `ReturnConsumedCapacity`."""

WHERES = ("TableName", "StreamName", "StreamARN", "QueueUrl", "TableArn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call; what a predicate sees has the defaults in the second half, which are set once it is over."""

    service: str
    """`dynamodb`, `kinesis`, `sqs`, `sts`: the name in the signature."""
    operation: str
    """Such as `UpdateItem`; empty where the request does not tell."""
    region: str
    access_key: str
    """The id of the key that signed, by which new credentials are told from old ones."""
    body: Mapping[str, Any]
    """The request; empty where it is neither JSON nor a form."""
    content_type: str
    client_port: int
    """Tells the client's connections apart."""
    at_s: float
    """When it arrived, on this process's monotonic clock."""

    effects: tuple[Effect, ...] = ()
    """How it was disturbed."""
    forwarded: int = 0
    """How often the server has answered it, and so applied it unless it refused: 0 for one that never got there."""
    status: int | None = None
    """The status that the client was sent; None if it got no answer."""
    error: str = ""
    """The name of the error that the client was sent, or why the server gave no answer."""
    read_units: float = 0.0
    write_units: float = 0.0
    """The consumed capacity that the server reported."""
    took_s: float = 0.0

    @property
    def places(self) -> frozenset[str]:
        """Names of all tables, streams and queues of the request."""
        named = [part.get(where) for part in parts(self.body) for where in WHERES]
        return frozenset([*(name for name in named if isinstance(name, str)), *requested(self.body)])

    @property
    def keys(self) -> tuple[Mapping[str, str], ...]:
        """
        The key of each item of the request, its parts as text.

        A PutItem gives no key: there it is all the texts and numbers of the item. A query has none.
        """
        found = [part[name] for part in parts(self.body) for name in ("Key", "Item") if name in part]
        for request in requested(self.body).values():
            found += request.get("Keys", []) if isinstance(request, Mapping) else []
        return tuple(plain(item) for item in found)

    def mentions(self, value: str) -> bool:
        """Whether some item's key has this text: `call.mentions("p5")`."""
        return any(value in key.values() for key in self.keys)


def read_call(*, path: str, headers: Mapping[str, str], body: bytes, client_port: int, at_s: float) -> Call:
    """What the request tells; it never fails, since whatever cannot be read is passed on all the same."""
    content_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    signature = CREDENTIAL.search(headers.get("Authorization", ""))
    access_key, region, service = signature.groups() if signature else ("", "", "")
    read = read_body(content_type, body)
    target, _, operation = headers.get("X-Amz-Target", "").rpartition(".")
    if rpc := RPC_PATH.search(path):
        target, operation = rpc.groups()
    return Call(
        service=service or target.partition("_")[0].removeprefix("Amazon").lower(),
        operation=operation or str(read.get("Action", "")),
        region=region,
        access_key=access_key,
        body=read,
        content_type=content_type,
        client_port=client_port,
        at_s=at_s,
    )


def read_body(content_type: str, body: bytes) -> Mapping[str, Any]:
    try:
        if "json" in content_type:
            read = json.loads(body)
            return read if isinstance(read, dict) else {}
        if content_type == "application/x-www-form-urlencoded":
            return dict(parse_qsl(body.decode()))
    except ValueError:
        return {}
    return {}


def units(operation: str, answer: Mapping[str, Any]) -> tuple[float, float]:
    """Read and write units of an answer's ConsumedCapacity; zeros where the request did not ask for it."""
    reported = answer.get("ConsumedCapacity", [])
    total = sum(float(one["CapacityUnits"]) for one in (reported if isinstance(reported, list) else [reported]))
    return (total, 0.0) if operation in READS else (0.0, total)


def parts(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request itself and each action inside it."""
    yield body
    for action in body.get("TransactItems", []):
        yield from action.values()
    for requests in requested(body).values():
        for request in requests if isinstance(requests, list) else []:
            yield from request.values()


def requested(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a batch asks for, by table."""
    found = body.get("RequestItems", {})
    return found if isinstance(found, Mapping) else {}


def plain(item: Mapping[str, Mapping[str, Any]]) -> Mapping[str, str]:
    """The texts and numbers of an item, by attribute."""
    return {name: str(value[kind]) for name, value in item.items() for kind in ("S", "N") if kind in value}
