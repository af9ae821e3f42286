"""
What a store makes of answers that are none: pages of HTML, nothing at all, JSON that was cut off or is of another make.

A server of a few lines sends them, because no server for tests can be made to, and a played client would pass over the
SDK's own parser, which takes most of them for an answer without members.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from partitions.errors import StoreUnavailable
from partitions.positions import END
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.dynamodb.tables import create_request
from partitions.transactions import Commit
from partitions.verbs import Child, Complete, Fence, SaveCheckpoint
from tests.builders import a_beat, a_register
from tests.stores.kinds import dynamodb_at

__all__: list[str] = []

TABLE = {
    "TableStatus": "ACTIVE",
    **{name: create_request("leases")[name] for name in ("AttributeDefinitions", "KeySchema")},
}
SAVE = SaveCheckpoint(partition="p", owner="a:1", token=1, position="7", seq=1)


class Middlebox:
    """Answers every request with the status and the body at hand."""

    def __init__(self) -> None:
        self.status = 200
        self.body = json.dumps({"Table": TABLE}).encode()
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
                await reader.readexactly(sum(int(value) for name, _, value in lines if name == b"content-length"))
                self.requests += 1
                start = f"HTTP/1.1 {self.status} Told\r\ncontent-length: {len(self.body)}\r\n\r\n"
                writer.write(start.encode() + self.body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def between() -> AsyncIterator[tuple[Middlebox, DynamoDBStore]]:
    """A store that has opened its table, and what it has got in between since."""
    box = Middlebox()
    server = await asyncio.start_server(box.serve, "127.0.0.1", 0)
    async with server:
        store = dynamodb_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "leases")
        await store.open()
        try:
            yield box, store
        finally:
            await store.close()


async def a_commit(store: DynamoDBStore) -> Any:
    tx = store.transactions.begin()
    tx.put("numbers", {"id": "n"})
    return await store.transactions.commit("g", Commit(save=SAVE, previous="6", operations=tx.taken()))


CHILD = Child(partition="c", parents=("p",), position="@earliest")
COMPLETE = Complete(partition="p", owner="a:1", token=1, children=(CHILD,))

CALLS: dict[str, Callable[[DynamoDBStore], Awaitable[Any]]] = {
    "register": lambda store: store.submit("g", a_register()),
    "beat": lambda store: store.submit("g", a_beat()),
    "fence": lambda store: store.submit("g", Fence(session_id="a:1", seen_beat=0)),
    "checkpoint": lambda store: store.submit("g", SAVE),
    "complete": lambda store: store.submit("g", COMPLETE),
    "transaction": a_commit,
    "one lease": lambda store: store.read_lease("g", "p"),
    "some leases": lambda store: store.read_some_leases("g", ["p"]),
    "all leases": lambda store: store.read_leases("g"),
    "sessions": lambda store: store.read_sessions("g", consistent=True),
    "table": lambda store: store.exists(),
}


async def in_doubt(store: DynamoDBStore) -> dict[str, bool]:
    """Say of each call whether it ends in `StoreUnavailable`."""
    ends = {}
    for name, call in CALLS.items():
        try:
            await call(store)
        except StoreUnavailable:
            ends[name] = True
        else:
            ends[name] = False
    return ends


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>Accept our terms</html>"),
        (200, b'{"Attributes": {"owner"'),
        (200, b"[]"),
        (200, b"null"),
        (200, b"\xff\xfe"),
        (204, b""),
        (302, b"<html>Moved</html>"),
        (400, b"[]"),
        (400, b"\xff\xfe"),
        (503, b""),
    ],
)
async def test_what_is_no_answer_leaves_every_call_in_doubt(status: int, body: bytes) -> None:
    """Taken for an answer without members, it would be a fence, a transaction or a release that was never sent."""
    async with between() as (box, store):
        box.status, box.body = status, body

        assert await in_doubt(store) == dict.fromkeys(CALLS, True)


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ({"Attributes": "x"}, ["beat", "checkpoint"]),
        ({"Items": "x"}, ["all leases", "sessions"]),
        ({"Item": []}, ["one lease"]),
        ({}, ["beat", "checkpoint", "some leases", "all leases", "sessions", "table"]),
    ],
    ids=str,
)
async def test_answer_of_another_make_leaves_a_call_in_doubt(body: dict[str, Any], calls: list[str]) -> None:
    """As any other failure of the network: an error of the parser's own would end the host."""
    async with between() as (box, store):
        box.body = json.dumps(body).encode()

        for name in calls:
            with pytest.raises(StoreUnavailable):
                await CALLS[name](store)


async def test_what_answered_in_place_of_the_service_is_told() -> None:
    """Who reads it has to find the proxy."""
    async with between() as (box, store):
        box.body = b"<html>Accept our terms</html>"

        told = (
            r"dynamodb:GetItem on table 'leases' in us-east-1 failed \(ResponseParserError: status 200 with 29 bytes "
            "that are no JSON object, beginning b'<html>Accept our terms</html>'"
        )
        with pytest.raises(StoreUnavailable, match=told):
            await store.read_lease("g", "p")


@pytest.mark.parametrize("reasons", [[], [None], [{"Code": "ConditionalCheckFailed"}]], ids=str)
async def test_cancelled_transaction_without_a_reason_for_each_action_is_in_doubt(reasons: list[Any]) -> None:
    """Nobody can say whose condition it was."""
    async with between() as (box, store):
        box.status = 400
        box.body = json.dumps({"__type": "x#TransactionCanceledException", "CancellationReasons": reasons}).encode()

        with pytest.raises(StoreUnavailable):
            await a_commit(store)


async def test_complete_whose_item_is_gone_since_is_applied() -> None:
    """An answer without members is one: where a transaction has one, and a read of what is not there."""
    async with between() as (box, store):
        box.body = b" {}\n"

        assert (await store.submit("g", COMPLETE)).item is None  # type: ignore[union-attr]
        assert await store.read_lease("g", END) is None
