"""
A user's own table on a DynamoDB server: items of an id and a number `n`.

Knows no store. Its client is the user's: what it calls is not noted as a call of this product.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aioboto3  # type: ignore[import-untyped]  # It has no types.

__all__ = ["client_at", "numbers_table", "session", "table_name"]


@cache
def session() -> aioboto3.Session:
    """One for all, because each would read the model of the service again."""
    return aioboto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


def table_name(folder: Path, what: str) -> str:
    """A name that no other test on the same server has."""
    return f"{what}-" + hashlib.sha256(str(folder).encode()).hexdigest()[:20]


def client_at(url: str) -> Any:
    """A user's low-level client, as an async context manager."""
    return session().client("dynamodb", endpoint_url=url)


@asynccontextmanager
async def numbers_table(url: str, name: str) -> AsyncIterator[tuple[str, Callable[[], Awaitable[int]]]]:
    """Make the table; give its name and what returns the sum of its numbers."""
    async with client_at(url) as client:
        await client.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        await client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})

        async def total() -> int:
            answer = await client.scan(TableName=name, ConsistentRead=True)
            return sum(int(item["n"]["N"]) for item in answer["Items"])

        yield name, total
