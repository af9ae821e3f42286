"""
Listing all shards of a stream: every page, and over again where the token of a page has expired.

Knows no host. The next page is asked for by its token alone, since name and token together are refused. A token lives
for five minutes and cannot be renewed, so an expired one begins the listing anew; twice at most, for a listing that
takes longer than that every time would never end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from partitions.errors import SourceUnavailable
from partitions.sources.kinesis._calls import CallRefused, Calls, Refusal, stream_argument

__all__ = ["list_shards"]

PAGE: Final = 1000
"""Shards asked for at once; the default of ListShards."""
PAGES_MAX: Final = 1000
"""A listing that is longer is a server that goes round in circles."""
TRIES: Final = 3


async def list_shards(calls: Calls, stream: str) -> list[Mapping[str, Any]]:
    """
    Return what ListShards says of every shard of a stream, open or closed, that still has records or may get some.

    Raises:
        SourceUnavailable: a passing fault, or tokens that expire again and again.
        SourceMisconfigured: no retry helps.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return await _all_pages(calls, stream)
        except CallRefused as refused:
            if refused.refusal is not Refusal.EXPIRED or attempt == TRIES:
                raise refused.as_error() from refused
    raise AssertionError("the last try returns or raises")


async def _all_pages(calls: Calls, stream: str) -> list[Mapping[str, Any]]:
    shards: list[Mapping[str, Any]] = []
    arguments: Mapping[str, Any] = stream_argument(stream)
    for _ in range(PAGES_MAX):
        page = await calls.list_shards(stream, {**arguments, "MaxResults": PAGE})
        shards += page["Shards"]
        if not (token := page.get("NextToken")):
            return shards
        arguments = {"NextToken": token}
    raise SourceUnavailable(f"ListShards of stream {stream!r} did not end after {PAGES_MAX} pages of {PAGE}")
