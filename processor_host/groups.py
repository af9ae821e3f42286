"""
The group's own item: set up by the first host, checked by every other before it takes a lease.
"""

from __future__ import annotations

from functools import partial

from partitions.errors import SourceMismatch, StoreMisconfigured
from partitions.items import SCHEMA_VERSION, GroupItem
from partitions.positions import parse_start
from partitions.retries import call
from partitions.sources.base import Source
from partitions.stores.base import Store
from partitions.verbs import Applied, SetUp
from processor_host.errors import SettingsError

__all__ = ["set_up_group"]


async def set_up_group(store: Store, source: Source, group: str, *, start: str, timeout_s: float) -> str:
    """
    Make sure that the group's item is there and fits the source.

    Where the group starts is resolved once, by the host that makes the item: "latest" moves, what is stored does not.

    Args:
        store: An open store.
        source: An open source.
        group: The group's id.
        start: `earliest`, `latest` or an ISO time, as the user wrote it; only a new group uses it.
        timeout_s: How long each call may take.

    Returns:
        The point of the stream where the group starts.

    Raises:
        SettingsError: `start` is none of these.
        SourceMismatch: the group has leases of another stream.
        StoreMisconfigured: a newer version of this product has set the group up.
        StoreError, SourceError: as the store and the source raise them.
    """
    try:
        wanted = parse_start(start)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    identity = await source.identity()
    item = await call(partial(store.read_group, group), timeout_s)
    if item is None:
        fresh = GroupItem(source=identity, start=await source.resolve_start(wanted))
        result = await call(partial(store.submit, group, SetUp(item=fresh)), timeout_s)
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
