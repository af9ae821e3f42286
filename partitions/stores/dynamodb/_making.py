"""
The table as a whole: is it there, is it fit, make it, remove it.

Knows no item. What a table must be is in `tables`; here are the calls. DynamoDB makes and removes tables in the
background, so both are waited for, with growing waits and a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.stores.dynamodb._calls import READS, Calls, code_of
from partitions.stores.dynamodb.tables import problems_of

__all__ = ["check_table", "create_table", "delete_table", "describe_table"]

WAITS_MAX: Final = 90
"""Looks at a table that is being made or removed: about two minutes; real tables take some seconds."""

_FIRST_S: Final = 0.02
_MOST_S: Final = 1.5


async def describe_table(calls: Calls) -> dict[str, Any] | None:
    """Return what DescribeTable says of the table, or None where it is certain that there is none."""
    try:
        request = {"TableName": calls.table}
        answer = await calls.send(READS, "describe_table", request, is_read=True, needs="Table")
    except StoreMisconfigured as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise
    table: dict[str, Any] = answer["Table"]
    return table


async def check_table(calls: Calls, *, allow_replicas: bool) -> None:
    """
    Return if hosts can run on the table.

    Raises:
        StoreMisconfigured: it is not there, has other keys, takes no requests, or has replicas that were not allowed.
    """
    description = await describe_table(calls)
    named = f"dynamodb:DescribeTable on table {calls.table!r} in {calls.region}"
    if description is None:
        raise StoreMisconfigured(
            f"{named}: there is no such table; check its name, the region and the account, "
            "or make it with 'processor-host table create'"
        )
    if problems := problems_of(description, allow_replicas=allow_replicas):
        told = "; ".join(
            f"{each.property} is {each.found}, expected {each.expected}: {each.remedy}" for each in problems
        )
        raise StoreMisconfigured(f"{named}: {told}")


async def create_table(calls: Calls, request: Mapping[str, Any]) -> bool:
    """
    Make the table where there is none, and wait until it takes requests.

    Args:
        calls: About the table.
        request: The arguments of CreateTable, as `tables.create_request` makes them.

    Returns:
        True if it was made here, False if it was there or somebody else was faster.
    """
    if (found := await describe_table(calls)) is None:
        try:
            await calls.send(READS, "create_table", request)
        except StoreUnavailable as error:
            if code_of(error) != "ResourceInUseException":
                raise
            is_ours = False
        else:
            is_ours = True
    elif found["TableStatus"] == "CREATING":
        is_ours = False
    else:
        return False
    await _until(calls, "CREATING", is_wanted=lambda table: table is not None and table["TableStatus"] != "CREATING")
    return is_ours


async def delete_table(calls: Calls) -> None:
    """Remove the table and wait until it is gone; one that is not there stays so."""
    try:
        await calls.send(READS, "delete_table", {"TableName": calls.table})
    except StoreMisconfigured as error:
        if code_of(error) != "ResourceNotFoundException":
            raise
        return
    except StoreUnavailable as error:
        # Somebody else removes it at this moment.
        if code_of(error) != "ResourceInUseException":
            raise
    await _until(calls, "DELETING", is_wanted=lambda table: table is None)


async def _until(calls: Calls, status: str, *, is_wanted: Callable[[dict[str, Any] | None], bool]) -> None:
    for attempt in range(WAITS_MAX):
        if is_wanted(await describe_table(calls)):
            return
        await anyio.sleep(min(_MOST_S, _FIRST_S * 2 ** min(attempt, 16)))
    raise StoreUnavailable(f"table {calls.table!r} is still {status} after {WAITS_MAX} looks; look again later")
