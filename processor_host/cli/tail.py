"""
Follow a stream and give each record to a function: `stream tail`.

Knows no lease: it reads beside any group and keeps nothing. Partitions are read side by side; one that goes on from
others begins when these have ended, so that the records of one key come in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import anyio

from partitions.positions import Start
from partitions.sources.base import PartitionInfo, Record, Source
from processor_host.errors import UserError

__all__ = ["tail"]

_LIST_S: Final = 1.0
"""Time between two looks for new partitions."""

_WAIT_S: Final = 5.0
_CLOSE_S: Final = 1.0
_RECORDS_MAX: Final = 500
_BYTES_MAX: Final = 4 * 1024 * 1024


async def tail(
    source: Source,
    emit: Callable[[Record], None],
    *,
    start: Start,
    partitions: Collection[str] = (),
    limit: int | None = None,
    follow: bool = True,
) -> None:
    """
    Read an open source and give each record to `emit`.

    Args:
        source: The source.
        emit: Called with each record.
        start: Where to begin.
        partitions: Only these; empty for all.
        limit: Return after so many records.
        follow: Wait for more where there is no more, until every partition has ended.

    Raises:
        UserError: a partition is not there.
    """
    if limit == 0:
        return
    point = await source.resolve_start(start)
    listed = {info.partition for info in await source.list_partitions()}
    if unknown := [name for name in partitions if name not in listed]:
        raise UserError(f"{source.url!r} has no partition {unknown[0]!r}; 'stream describe' lists those that it has")
    await _Tail(source, emit, point, frozenset(partitions), limit, follow).run()


class _Tail:
    """One reading of a stream. Its sets and counts are changed by its tasks only, between two awaits."""

    def __init__(
        self,
        source: Source,
        emit: Callable[[Record], None],
        point: str,
        wanted: frozenset[str],
        left: int | None,
        follow: bool,
    ) -> None:
        self._source = source
        self._emit = emit
        self._point = point
        self._wanted = wanted
        self._left = left
        self._follow = follow
        self._begun: set[str] = set()
        self._done: set[str] = set()
        """Ended; or, without following, read as far as there was something."""
        self._news = anyio.Event()

    async def run(self) -> None:
        """Read until the limit, or until everything is done."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()
                infos = [info for info in await self._source.list_partitions() if self._is_wanted(info)]
                for info in self._ready(infos):
                    self._begun.add(info.partition)
                    tasks.start_soon(self._read, info.partition, tasks.cancel_scope, name=f"tail {info.partition}")
                if self._begun <= self._done and not self._ready(infos):
                    return
                with anyio.move_on_after(_LIST_S):
                    await self._news.wait()

    def _is_wanted(self, info: PartitionInfo) -> bool:
        return not self._wanted or info.partition in self._wanted

    def _ready(self, infos: list[PartitionInfo]) -> list[PartitionInfo]:
        """Return the partitions that may begin: not begun yet, and no listed parent still to be read."""
        unread = {info.partition for info in infos} - self._done
        return [info for info in infos if info.partition not in self._begun and unread.isdisjoint(info.parents)]

    async def _read(self, partition: str, everything: anyio.CancelScope) -> None:
        reader = self._source.reader(partition, await self._source.first_position(partition, self._point))
        try:
            while True:
                fetched = await reader.read(
                    records_max=_RECORDS_MAX, bytes_max=_BYTES_MAX, wait_s=_WAIT_S if self._follow else 0.0
                )
                for record in fetched.records:
                    if self._left == 0:
                        everything.cancel()
                        return
                    self._emit(record)
                    if self._left is not None:
                        self._left -= 1
                if self._left == 0:
                    everything.cancel()
                    return
                if fetched.ended or not (self._follow or fetched.records or fetched.trimmed):
                    break
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await reader.close()
        self._done.add(partition)
        self._news.set()
