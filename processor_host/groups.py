"""
The group's own item: set up by the first host, checked by every other before it takes a lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

import anyio

from partitions.clocks import Clock
from partitions.errors import SourceMismatch, SourceUnavailable, StoreMisconfigured, StoreUnavailable
from partitions.items import SCHEMA_VERSION, GroupItem
from partitions.positions import parse_start
from partitions.retries import Waits, call
from partitions.sources.base import Source
from partitions.stores.base import Store
from partitions.verbs import Applied, SetUp
from processor_host.errors import SettingsError

__all__ = ["set_up_group"]

R = TypeVar("R")

CALLS_AT_LEAST = 3
"""Tries that fit into the patience where none of them is answered."""


async def set_up_group(
    store: Store, source: Source, group: str, *, start: str, clock: Clock, random: Random, patience_s: float
) -> str:
    """
    Make sure that the group's item is there and fits the source.

    Where the group starts is resolved once, by the host that makes the item: "latest" moves, what is stored does not.

    Args:
        store: An open store.
        source: An open source.
        group: The group's id.
        start: `earliest`, `latest` or an ISO time, as the user wrote it; only a new group uses it.
        clock: This host's clock.
        random: Spreads the waits.
        patience_s: How long a call that fails for now is tried again, seconds.

    Returns:
        The point of the stream where the group starts.

    Raises:
        SettingsError: `start` is none of these.
        SourceMismatch: the group has leases of another stream.
        StoreMisconfigured: a newer version of this product has set the group up.
        StoreError, SourceError: as the store and the source raise them, a passing fault once the patience is over.
    """
    try:
        wanted = parse_start(start)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    patience = _Patience(clock, random, patience_s)
    identity = await patience.call(source.identity)
    item = await patience.call(partial(store.read_group, group))
    if item is None:
        fresh = GroupItem(source=identity, start=await patience.call(partial(source.resolve_start, wanted)))
        result = await patience.call(partial(store.submit, group, SetUp(item=fresh)))
        # Refused: another host was faster, and its start is everybody's.
        item = result.item if isinstance(result, Applied) else result.current
    if item is None:
        raise StoreMisconfigured(f"{store.url}: the item of group {group!r} was deleted meanwhile; start again")
    if item.schema_version != SCHEMA_VERSION:
        raise StoreMisconfigured(
            f"{store.url}: group {group!r} has items of version {item.schema_version}, expected {SCHEMA_VERSION}; "
            "run the version of processor-host that made them, or use another group"
        )
    if item.source != identity:
        raise SourceMismatch(group, found=identity, expected=item.source)
    return item.start


class _Patience:
    """Repeats a call that fails for now, with growing waits, until the patience for all calls together is over."""

    def __init__(self, clock: Clock, random: Random, patience_s: float) -> None:
        self._clock = clock
        self._random = random
        self._until_s = clock.now_s() + patience_s
        self._call_s = patience_s / CALLS_AT_LEAST
        self._waits = Waits(first_s=self._call_s / 4, most_s=self._call_s)

    async def call(self, send: Callable[[], Awaitable[R]]) -> R:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(send, self._call_s)
            except (StoreUnavailable, SourceUnavailable):
                pause_s = self._waits.after(attempt, self._random)
                if self._clock.now_s() + pause_s >= self._until_s:
                    raise
                await anyio.sleep(pause_s)
