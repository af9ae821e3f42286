"""
A counter that is counted under a lock: read once in a term, then written without a look at what is there.

Nothing but the lock and the fence keeps two writers apart: each writes the number it has read, plus one for each write
of its own. So with one writer too many, updates are lost. A term begins by raising the fence, and reads after that:
else a late write of an earlier holder could come between the read and the first write.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol

from partitions.locks import LockLease
from partitions.sql import FenceRefused, SqlFence
from tests.servers.raw import Answer, Caller

__all__ = ["Counter", "FileCounter", "TableCounter"]

NAME = "counter"
FENCE = SqlFence(style="qmark")


class Counter(Protocol):
    """Where the number is."""

    async def entered(self, lease: LockLease) -> int | None:
        """Raise the fence to the lease's token and return the number; None where the fence refuses it."""
        ...

    async def write(self, value: int, lease: LockLease, *, is_first: bool) -> bool:
        """Write a number; False where the fence refuses it."""
        ...


class FileCounter:
    """A table of an SQLite file; each write is one transaction behind the fence, with a row for the history in it."""

    def __init__(self, path: Path) -> None:
        self._base = sqlite3.connect(path, isolation_level=None, timeout=30.0)
        # A test's own file need not outlive a crash of the machine.
        self._base.execute("PRAGMA synchronous = OFF")

    def create(self) -> None:
        """Make the file's tables; once, by whoever starts the writers."""
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("CREATE TABLE counters (value INTEGER NOT NULL)")
        self._base.execute("INSERT INTO counters VALUES (0)")
        self._base.execute("CREATE TABLE history (id INTEGER PRIMARY KEY, value INTEGER, token INTEGER)")
        self._base.execute(*FENCE.created())
        self._base.execute(*FENCE.row_made(NAME))

    def value(self) -> int:
        """Return the number."""
        return int(self._base.execute("SELECT value FROM counters").fetchone()[0])

    def history(self) -> list[tuple[int, int]]:
        """Return every number that was written, with its token, in the order of the writes."""
        return self._base.execute("SELECT value, token FROM history ORDER BY id").fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    async def entered(self, lease: LockLease) -> int | None:
        """See `Counter`."""
        found: int | None = self._fenced(lease, self.value)
        return found

    async def write(self, value: int, lease: LockLease, *, is_first: bool) -> bool:
        """See `Counter`."""

        def do() -> bool:
            self._base.execute("UPDATE counters SET value = ?", (value,))
            self._base.execute("INSERT INTO history (value, token) VALUES (?, ?)", (value, lease.token))
            return True

        return self._fenced(lease, do) or False

    def _fenced(self, lease: LockLease, do: Any) -> Any:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            FENCE.check(self._base.execute(*FENCE.raised_to(NAME, lease.token)).rowcount, NAME, lease.token)
            found = do()
            self._base.execute("COMMIT")
        except FenceRefused:
            self._base.execute("ROLLBACK")
            return None
        return found


class TableCounter:
    """
    An item of a DynamoDB table, with its fence in it; written without the SDK, whose calls would be most of the work.

    The first write of a term is a transaction with the lease's own condition, the others compare the fence alone.
    """

    def __init__(self, call: Caller, table: str) -> None:
        self._call = call
        self._table = table

    async def create(self) -> None:
        """Make the table and the item."""
        made = await self._call(
            "dynamodb",
            "CreateTable",
            TableName=self._table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        assert made.status == 200, made
        item = {"id": {"S": NAME}, "value": {"N": "0"}, "fence": {"N": "0"}}
        put = await self._call("dynamodb", "PutItem", TableName=self._table, Item=item)
        assert put.status == 200, put

    async def value(self) -> int:
        """Return the number."""
        key = {"id": {"S": NAME}}
        answer = await self._call("dynamodb", "GetItem", TableName=self._table, Key=key, ConsistentRead=True)
        return int(answer.body["Item"]["value"]["N"])

    async def entered(self, lease: LockLease) -> int | None:
        """See `Counter`."""
        update = self._update("SET fence = :token", {":token": {"N": str(lease.token)}})
        answer = await self._call("dynamodb", "UpdateItem", **update, ReturnValues="ALL_NEW")
        return int(answer.body["Attributes"]["value"]["N"]) if is_written(answer) else None

    async def write(self, value: int, lease: LockLease, *, is_first: bool) -> bool:
        """See `Counter`."""
        values = {":token": {"N": str(lease.token)}, ":value": {"N": str(value)}}
        update = self._update("SET #value = :value, fence = :token", values)
        update["ExpressionAttributeNames"] = {"#value": "value"}
        if not is_first:
            return is_written(await self._call("dynamodb", "UpdateItem", **update))
        items = [dict(lease.condition_check()), {"Update": update}]
        return is_written(await self._call("dynamodb", "TransactWriteItems", TransactItems=items))

    def _update(self, expression: str, values: dict[str, Any]) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Key": {"id": {"S": NAME}},
            "UpdateExpression": expression,
            "ConditionExpression": "fence <= :token",
            "ExpressionAttributeValues": values,
        }


def is_written(answer: Answer) -> bool:
    """Say whether a write was applied; False where the fence refused it. Anything else is a fault of the test."""
    codes = {reason["Code"] for reason in answer.body.get("CancellationReasons", ())}
    is_refused = answer.error == "ConditionalCheckFailedException" or "ConditionalCheckFailed" in codes
    assert answer.status == 200 or is_refused, answer
    return answer.status == 200
