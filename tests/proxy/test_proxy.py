"""The proxy itself: what passes through it stays what it was, what it counts, and where it may be used."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import anyio
import anyio.to_thread
import pytest
from aiohttp import web

from tests.proxy import Capacity, Effect, Fault, Proxy
from tests.proxy.conftest import Table
from tests.servers.raw import caller

__all__: list[str] = []

WITHIN_S = 20.0
CALLERS = 16
CALLS = 10
BYTES = bytes(range(256)) * 3

# A host in a process of its own: adds to an item through the address that it was given.
HOST = """
import json, sys, urllib.request
body = {"TableName": sys.argv[2]}
headers = {"X-Amz-Target": "DynamoDB_20120810.DescribeTable", "Content-Type": "application/x-amz-json-1.0"}
headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, Signature=0"
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(urllib.request.Request(sys.argv[1], json.dumps(body).encode(), headers), timeout=30) as answer:
    print(json.load(answer)["Table"]["TableName"])
"""


@dataclass(slots=True)
class Upstream:
    """A server that notes what it is sent."""

    url: str = ""
    connections: set[int] = field(default_factory=set)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    first_seen: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername")[1])
        self.requests.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        if "SubscribeToShard" not in request.headers.get("X-Amz-Target", ""):
            headers = {"Content-Type": "application/x-amz-cbor-1.1", "X-Own": "kept", "Content-Encoding": "gzip"}
            return web.Response(status=418, body=BYTES, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream"})
        await response.prepare(request)
        await response.write(b"first")
        await self.first_seen.wait()
        await response.write(b"second")
        return response


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    server = web.Server(made.answer, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        listening.close()
        await server.shutdown(0.1)


async def test_request_and_answer_pass_through_as_they_are() -> None:
    """A signature covers the head's Host and each byte of the body; the answer may be compressed or in CBOR."""
    sent = {"Host": "kinesis.eu-west-1.amazonaws.com", "Content-Type": "application/x-amz-cbor-1.1", "X-Own": "a b"}
    path = "/a%20b/%2F?x=1%2B1&y="
    bare = aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["User-Agent", "Accept", "Accept-Encoding"])
    async with upstream() as server, bare as client:
        with Proxy(server.url) as proxy:
            async with client.post(proxy.url + path, data=BYTES, headers=sent) as answer:
                got = (answer.status, answer.headers["X-Own"], answer.headers["Content-Encoding"], await answer.read())
    method, raw_path, headers, body = server.requests[0]

    assert got == (418, "kept", "gzip", BYTES)
    assert (method, raw_path, headers, body) == ("POST", path, {**sent, "Content-Length": str(len(BYTES))}, BYTES)


async def test_event_stream_passes_on_as_it_comes() -> None:
    """A subscription lasts for minutes; held back to its end, it would deliver nothing."""
    headers = {"X-Amz-Target": "Kinesis_20131202.SubscribeToShard"}
    async with upstream() as server, aiohttp.ClientSession() as client:
        with Proxy(server.url) as proxy, anyio.fail_after(WITHIN_S):
            async with client.post(proxy.url, data=b"{}", headers=headers) as answer:
                first = await answer.content.readexactly(5)
                server.first_seen.set()
                rest = await answer.content.read()
            await anyio.to_thread.run_sync(lambda: proxy.wait_until(lambda: proxy.calls != (), within_s=WITHIN_S))
            statuses = [call.status for call in proxy.calls]

    assert (first, rest, statuses) == (b"first", b"second", [200])


async def test_connections_are_kept_on_both_sides() -> None:
    """Connections made anew for each call would be the tests' time, and would hide what a client does with its own."""
    connector = aiohttp.TCPConnector(limit=1)
    async with upstream() as server:
        with Proxy(server.url) as proxy:
            async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:
                for _ in range(CALLS):
                    async with client.post(proxy.url, data=b"{}") as answer:
                        await answer.release()
            ports = {call.client_port for call in proxy.calls}

    assert (len(server.requests), len(server.connections), len(ports)) == (CALLS, 1, 1)


async def test_many_calls_at_once_all_get_through(table: Table, proxy: Proxy) -> None:
    """A proxy that fails by itself would be taken for a fault of the product."""
    statuses: list[int] = []

    async def add() -> None:
        for _ in range(CALLS):
            statuses.append((await table.add("p1")).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(CALLERS):
            tasks.start_soon(add)

    assert (statuses, await table.applied("p1")) == ([200] * CALLERS * CALLS, CALLERS * CALLS)
    assert (proxy.count("UpdateItem"), len(proxy.calls)) == (CALLERS * CALLS, CALLERS * CALLS)


async def test_counts_are_by_operation_and_begin_anew(table: Table, proxy: Proxy) -> None:
    """A steady state is measured after it has settled."""
    await table.add("p1")
    await table.through("dynamodb", "ListTables")
    counted = (proxy.count("UpdateItem"), proxy.count("UpdateItem", "ListTables"), proxy.count(), proxy.counts)
    proxy.forget()
    await table.add("p1")

    assert counted == (1, 2, 2, {"UpdateItem": 1, "ListTables": 1})
    assert (proxy.counts, [call.operation for call in proxy.calls]) == ({"UpdateItem": 1}, ["UpdateItem"])


async def test_calls_tell_what_was_asked_and_answered(table: Table, proxy: Proxy) -> None:
    """A test of the product's behaviour reads here what it sent, in order."""
    await table.add("p1")
    refused = await table.through("dynamodb", "DescribeTable", TableName="absent")
    first, second = proxy.calls

    assert (first.places, first.keys, first.status) == (frozenset({table.name}), ({"pk": "group", "sk": "p1"},), 200)
    assert (second.operation, second.status, second.error) == ("DescribeTable", 400, "ResourceNotFoundException")
    assert (refused.error, first.at_s <= second.at_s, first.took_s > 0) == ("ResourceNotFoundException", True, True)


@pytest.mark.parametrize(
    ("asks", "sums"), [(False, Capacity(write_units=1.0)), (True, Capacity(read_units=0.5, write_units=2.5))]
)
async def test_capacity_is_summed_where_it_is_asked_for(
    asks: bool, sums: Capacity, table: Table, moto_url: str
) -> None:
    """The cost of the product is told in these units; moto reports 1 for a put, else 0.5, for an update unasked."""
    key = {"pk": {"S": "group"}, "sk": {"S": "p1"}}
    with Proxy(moto_url, asks_capacity=asks) as proxy:
        async with caller(proxy.url) as call:
            await call("dynamodb", "PutItem", TableName=table.name, Item=key)
            await call("dynamodb", "PutItem", TableName=table.name, Item=key, ReturnConsumedCapacity="TOTAL")
            await table.add("p1", by=call)
            await call("dynamodb", "GetItem", TableName=table.name, Key=key)
            await call("dynamodb", "DescribeTable", TableName=table.name)

        assert proxy.capacity == sums


def test_proxy_serves_another_process_while_the_test_waits(proxy: Proxy) -> None:
    """Hosts are real processes, and the test that started them blocks until they end."""
    made = {"TableName": "from-afar", "BillingMode": "PAY_PER_REQUEST"}
    keys = {
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    }

    async def make() -> int:
        async with caller(proxy.url) as call:
            return (await call("dynamodb", "CreateTable", **made, **keys)).status

    status = anyio.run(make)
    command = [sys.executable, "-c", HOST, proxy.url, "from-afar"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (status, result.returncode, result.stdout) == (200, 0, "from-afar\n"), result.stderr
    assert proxy.count("DescribeTable") == 1


async def test_rules_change_while_a_call_waits(table: Table, proxy: Proxy) -> None:
    """Faults come and go during a test, from its own thread."""
    delay = proxy.rules.add(Fault(effect=Effect.DELAY, delay_s=0.3))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(table.add, "p1")
        await anyio.to_thread.run_sync(
            lambda: proxy.wait_until(lambda: proxy.rules.hits(delay) == 1 or proxy.count() == 1, within_s=WITHIN_S)
        )
        with anyio.fail_after(WITHIN_S):
            while not proxy.rules.hits(delay):
                await anyio.lowlevel.checkpoint()
        proxy.rules.remove(delay)
        await table.add("p2")

    assert [(call.keys[0]["sk"], call.effects) for call in proxy.calls] == [("p2", ()), ("p1", (Effect.DELAY,))]


def test_wait_ends_without_success_after_its_time(proxy: Proxy) -> None:
    """What never comes must not hold up a run of tests."""
    assert proxy.wait_until(lambda: proxy.count() == 1, within_s=0.01) is False


async def test_client_of_a_server_that_is_gone_gets_no_answer() -> None:
    """As without a proxy: an answer of the proxy's own would be a fault that no server has."""
    async with upstream() as server:
        gone = server.url
    with Proxy(gone) as proxy:
        async with caller(proxy.url) as call:
            with pytest.raises(aiohttp.ClientError):
                await call("dynamodb", "ListTables")
        seen = proxy.calls[0]

    assert (seen.status, seen.forwarded, seen.error) == (None, 0, "ClientConnectorError")


async def test_predicate_that_raises_fails_its_test(moto_url: str) -> None:
    """A fault that is never injected because of a slip in its predicate would let everything pass."""
    fault = Fault(effect=Effect.DENY, when=lambda call: bool(call.body["Absent"]))
    with pytest.raises(ExceptionGroup) as caught, Proxy(moto_url) as proxy, proxy.rules.applied(fault):
        async with caller(proxy.url) as call, call.client.post(proxy.url, data=b"{}") as answer:
            status = answer.status

    assert (status, [type(error) for error in caught.value.exceptions]) == (500, [KeyError])


def test_proxy_that_does_not_run_says_so() -> None:
    """Its address is only known once it listens."""
    with pytest.raises(RuntimeError, match="use it inside `with Proxy"):
        _ = Proxy("http://127.0.0.1:1").url
