"""What the tests of the proxy have: moto behind it, and a table of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from tests.proxy import Proxy
from tests.servers.fixtures import aws_dummies, moto_url
from tests.servers.raw import Answer, Caller, caller

__all__ = ["Table", "aws_dummies", "moto_url", "proxy", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table, as its client sees it through the proxy and as it is."""

    name: str
    through: Caller
    direct: Caller

    async def add(self, sk: str, by: Caller | None = None) -> Answer:
        """Add 1 to the number of one item, which shows how often it was applied; through the proxy."""
        return await (by or self.through)(
            "dynamodb",
            "UpdateItem",
            TableName=self.name,
            Key={"pk": {"S": "group"}, "sk": {"S": sk}},
            UpdateExpression="ADD #n :one",
            ExpressionAttributeNames={"#n": "n"},
            ExpressionAttributeValues={":one": {"N": "1"}},
        )

    async def applied(self, sk: str) -> int:
        """How often an addition to the item was applied; not through the proxy."""
        key = {"pk": {"S": "group"}, "sk": {"S": sk}}
        got = await self.direct("dynamodb", "GetItem", TableName=self.name, Key=key, ConsistentRead=True)
        return int(got.body["Item"]["n"]["N"]) if "Item" in got.body else 0


@pytest.fixture
def proxy(moto_url: str) -> Iterator[Proxy]:
    """A proxy without faults in front of moto."""
    with Proxy(moto_url) as running:
        yield running


@pytest.fixture
async def table(proxy: Proxy, moto_url: str) -> AsyncIterator[Table]:
    """An empty table."""
    async with caller(proxy.url) as through, caller(moto_url) as direct:
        made = Table(name=f"t-{uuid4()}", through=through, direct=direct)
        await direct.make_table(made.name)
        yield made
