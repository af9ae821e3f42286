"""
Calls of AWS's JSON protocols without an SDK: what is sent and answered is all there is, and nothing is retried.

Tests of the servers and of the proxy use it; tests of the product use the product's clients.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

__all__ = ["Answer", "Caller", "caller"]

TIMEOUT_S = 30.0

# The part of `X-Amz-Target` before the operation, the version of JSON, and the name in the signature.
SERVICES = {
    "dynamodb": ("DynamoDB_20120810", "1.0"),
    "kinesis": ("Kinesis_20131202", "1.1"),
    "sqs": ("AmazonSQS", "1.0"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered."""

    status: int
    body: Mapping[str, Any]

    @property
    def error(self) -> str:
        """The name of the error without its name space; empty for a success."""
        return str(self.body.get("__type", "")).rpartition("#")[2]


class Caller:
    """One server through one client with connections of its own."""

    def __init__(self, client: aiohttp.ClientSession, url: str, made: Sized) -> None:
        self.client = client
        self.url = url
        self.made = made

    @property
    def connections(self) -> int:
        """How many connections were made so far."""
        return len(self.made)

    async def __call__(self, service: str, operation: str, **body: object) -> Answer:
        """Send one request, whatever is answered; raises only where there is no answer."""
        name, version = SERVICES[service]
        headers = {
            "X-Amz-Target": f"{name}.{operation}",
            "X-Amz-Date": "20260101T000000Z",
            "Content-Type": f"application/x-amz-json-{version}",
            "Authorization": (
                f"AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request, "
                "SignedHeaders=host;x-amz-date;x-amz-target, Signature=0"
            ),
        }
        async with self.client.post(self.url, data=json.dumps(body), headers=headers) as response:
            text = await response.read()
            return Answer(status=response.status, body=json.loads(text) if text else {})

    async def make_table(self, table: str) -> None:
        """A table of items with the keys `pk` and `sk`, ready."""
        keys = [("pk", "HASH"), ("sk", "RANGE")]
        answer = await self(
            "dynamodb",
            "CreateTable",
            TableName=table,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        assert answer.status == 200, answer
        while (await self("dynamodb", "DescribeTable", TableName=table)).body["Table"]["TableStatus"] != "ACTIVE":
            pass


@asynccontextmanager
async def caller(url: str, *, connections_max: int = 0) -> AsyncIterator[Caller]:
    """A caller of the server at that address; 0 is no bound on its connections."""
    made: list[None] = []

    async def note(*_: object) -> None:
        made.append(None)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(note)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=connections_max)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trace_configs=[trace]) as client:
        yield Caller(client, url, made)
