"""
The group's own item: set up by the first host, checked by every other before it takes a lease.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

import anyio

from partitions.clocks import Clock
from partitions.errors import SourceMismatch, SourceUnavailable, StoreMisconfigured, StoreUnavailable
from partitions.events import OnEvent, tell
from partitions.items import SCHEMA_VERSION, GroupItem
from partitions.retries import Waits, call
from partitions.sources.base import Source
from partitions.stores.base import Store
from partitions.verbs import Adopt, Applied, Result, SetUp
from partitions.weights import LOAD_MODE, load_rule_of
from processor_host.errors import SettingsError
from processor_host.events import BalanceKept, GroupAdopted, StartKept, StoreSlow
from processor_host.settings import HostSettings
from processor_host.starts import parse_starts
from processor_host.weigher import BYTES, SECONDS

__all__ = ["set_up_group"]

R = TypeVar("R")

DEFAULT_MODE = (HostSettings().balance, HostSettings().weigh_by)
"""What a host that was told nothing asks for, which is nothing."""
FIRST_CALL_S = 10.0
"""How long one call of the set-up may take, whatever the lease duration: it measures how slow the store is."""
DURATION_PER_LATENCY = 9
"""The smallest lease duration that is named, per second of latency: its sixth leaves half as much again for a beat."""


async def set_up_group(
    store: Store,
    source: Source,
    group: str,
    *,
    settings: HostSettings,
    clock: Clock,
    random: Random,
    on_event: OnEvent | None,
) -> str:
    """
    Make sure that the group's item is there and fits the source.

    Where the group starts is resolved once, by the host that makes the item: "latest" moves, what is stored does not. A
    call that fails for now is tried again for one lease duration.

    Args:
        store: An open store.
        source: An open source.
        group: The group's id.
        settings: Of the host: where a new group starts, whether another stream is adopted, and the timings.
        clock: This host's clock.
        random: Spreads the waits.
        on_event: Gets `StoreSlow` if the first read took longer than a beat may.

    Returns:
        The point of the stream where the group starts.

    Raises:
        SettingsError: `start` is not a start.
        SourceMismatch: the group has leases of another stream.
        StoreMisconfigured: a newer version of this product has set the group up.
        StoreError, SourceError: as the store and the source raise them, a passing fault once the patience is over.
    """
    try:
        wanted = parse_starts(settings.start).point
    except ValueError as error:
        raise SettingsError(str(error)) from None
    patience = _Patience(clock, random, settings.lease_duration_s)
    identity = await patience.call(source.identity)
    began_s = clock.now_s()
    item = await patience.call(partial(store.read_group, group))
    _warn_if_slow(clock.now_s() - began_s, settings, on_event)
    if item is None:
        start = await patience.call(partial(source.resolve_start, wanted))
        fresh = GroupItem(source=identity, start=start, plan_mode=settings.balance, weighed_by=settings.weigh_by)
        # Refused: another host was faster, and its start is everybody's.
        item = item_of(await patience.call(partial(store.submit, group, SetUp(item=fresh))))
    elif settings.start != "earliest":
        tell(on_event, StartKept(start=item.start, asked=str(settings.start)))
    if item is not None and item.source != identity and settings.adopt_stream:
        old = item.source
        item = item_of(await patience.call(partial(store.submit, group, Adopt(seen_source=old, source=identity))))
        tell(on_event, GroupAdopted(old=old, new=identity))
    if item is None:
        raise StoreMisconfigured(f"{store.url}: the item of group {group!r} was deleted meanwhile; start again")
    if item.schema_version != SCHEMA_VERSION:
        raise StoreMisconfigured(
            f"{store.url}: group {group!r} has items of version {item.schema_version}, expected {SCHEMA_VERSION}; "
            "run the version of processor-host that made them, or use another group"
        )
    if item.source != identity:
        raise SourceMismatch(group, found=identity, expected=item.source)
    _check_mode(store, group, item)
    if (settings.balance, settings.weigh_by) not in (DEFAULT_MODE, (item.plan_mode, item.weighed_by)):
        asked = f"{settings.balance} by {settings.weigh_by}"
        tell(on_event, BalanceKept(balance=f"{item.plan_mode} by {item.weighed_by}", asked=asked))
    return item.start


def _check_mode(store: Store, group: str, item: GroupItem) -> None:
    """Refuse a way of planning that this version does not know: two that differ would move leases for ever."""
    try:
        if item.plan_mode in ("count", LOAD_MODE) and item.weighed_by in (BYTES, SECONDS):
            load_rule_of(item)
            return
        problem = f"plan mode {item.plan_mode!r} by {item.weighed_by!r}"
    except ValueError as error:
        problem = str(error)
    raise StoreMisconfigured(
        f"{store.url}: group {group!r} is planned in a way that this version does not know: {problem}; "
        "run the version of processor-host that set it up, or use another group"
    )


def item_of(result: Result[GroupItem]) -> GroupItem | None:
    """Return what the store holds after a write, whether or not it was applied."""
    return result.item if isinstance(result, Applied) else result.current


def _warn_if_slow(latency_s: float, settings: HostSettings, on_event: OnEvent | None) -> None:
    """Tell, once, of a store that answers more slowly than a beat may take: no lease could be kept on it."""
    timeout_s = settings.timings().call_timeout_s
    if latency_s >= timeout_s:
        smallest_s = math.ceil(DURATION_PER_LATENCY * latency_s)
        tell(
            on_event,
            StoreSlow(
                lease_duration_s=settings.lease_duration_s,
                call_timeout_s=timeout_s,
                latency_s=latency_s,
                smallest_duration_s=smallest_s,
            ),
        )


class _Patience:
    """Repeats a call that fails for now, with growing waits, until the patience for all calls together is over."""

    def __init__(self, clock: Clock, random: Random, patience_s: float) -> None:
        self._clock = clock
        self._random = random
        self._until_s = clock.now_s() + patience_s
        self._waits = Waits(first_s=patience_s / 12, most_s=patience_s / 3)

    async def call(self, send: Callable[[], Awaitable[R]]) -> R:
        """Await `send()`, again where it fails for now."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(send, FIRST_CALL_S)
            except (StoreUnavailable, SourceUnavailable):
                pause_s = self._waits.after(attempt, self._random)
                if self._clock.now_s() + pause_s >= self._until_s:
                    raise
                await anyio.sleep(pause_s)
