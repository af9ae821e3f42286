"""
The reads: one item, all items under some keys, and items by their keys, to the last page.

Knows no kind of item; answers with attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio

from partitions.codecs.items import Attributes
from partitions.codecs.keys import PK, Key
from partitions.codecs.values import to_text
from partitions.errors import StoreError, StoreUnavailable
from partitions.stores.dynamodb._calls import READS, Calls

__all__ = ["get", "get_some", "query_all"]

BATCHES_MAX: Final = 8
"""Requests for the keys of one batch; DynamoDB leaves out those for which it has no capacity left."""


async def get(calls: Calls, key: Key, *, use: str = READS) -> Attributes | None:
    """Return one item as it is now, strongly consistent; None where there is none."""
    request = {"TableName": calls.table, "Key": key.attributes(), "ConsistentRead": True}
    answer = await calls.send(use, "get_item", request, is_read=True)
    found: Attributes | None = answer.get("Item")
    return found


async def get_some(calls: Calls, keys: Sequence[Key]) -> list[Attributes]:
    """
    Return the items of at most 100 keys, strongly consistent, in any order; those that are not there are left out.

    Raises:
        StoreUnavailable: some are left over after `BATCHES_MAX` requests.
    """
    found: list[Attributes] = []
    left: dict[str, Any] = {
        calls.table: {"Keys": [key.attributes() for key in dict.fromkeys(keys)], "ConsistentRead": True}
    }
    if not keys:
        return found
    for attempt in range(1, BATCHES_MAX + 1):
        answer = await calls.send(READS, "batch_get_item", {"RequestItems": left}, is_read=True, needs="Responses")
        found += answer["Responses"].get(calls.table, ())
        left = answer.get("UnprocessedKeys") or {}
        if not left:
            return found
        await calls.pause(attempt)
    count = len(left[calls.table]["Keys"])
    raise StoreUnavailable(
        f"dynamodb:BatchGetItem on table {calls.table!r} left {count} of {len(keys)} items out, "
        f"{BATCHES_MAX} times in a row; try again more slowly, or raise the table's read capacity"
    )


async def query_all(calls: Calls, pks: Sequence[str], *, consistent: bool) -> list[Attributes]:
    """Return every item under these keys, in any order; the keys are read at once, each page after page."""
    if len(pks) == 1:
        return await _query(calls, pks[0], consistent=consistent)
    found: list[Attributes] = []
    failed: list[StoreError] = []

    async def one(pk: str) -> None:
        try:
            found.extend(await _query(calls, pk, consistent=consistent))
        except StoreError as error:
            # Kept apart from the group, which would wrap it into another exception.
            failed.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for pk in pks:
            tasks.start_soon(one, pk, name=f"query {pk}")
    if failed:
        raise failed[0]
    return found


async def _query(calls: Calls, pk: str, *, consistent: bool) -> list[Attributes]:
    request: dict[str, Any] = {
        "TableName": calls.table,
        "KeyConditionExpression": "#pk = :pk",
        "ExpressionAttributeNames": {"#pk": PK},
        "ExpressionAttributeValues": {":pk": to_text(pk)},
        "ConsistentRead": consistent,
    }
    found: list[Attributes] = []
    while True:
        answer = await calls.send(READS, "query", request, is_read=True, needs="Items")
        found += answer["Items"]
        if not (last := answer.get("LastEvaluatedKey")):
            return found
        request = request | {"ExclusiveStartKey": last}
