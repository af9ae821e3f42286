"""
Discovery: makes the lease of every partition that has none.

A listing counts only if it was read *after* the lease read that lacks the partition, else a lease that was deleted at
its end is made again and replayed. So a listing that shows something new only makes the next round read the leases and
list again; a group at rest pays for listings alone.

One host looks at every interval, the first in session order; the others are its back-up and look half as often. Whoever
reads a partition to its end looks at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

import anyio

from partitions.clocks import Clock
from partitions.errors import SourceError, StoreError
from partitions.items import LeaseItem, SessionItem
from partitions.retries import call
from partitions.sources.base import PartitionInfo, Source
from partitions.stores.base import Store
from partitions.verbs import Applied, Child, Create

__all__ = ["Discovery", "Found", "is_first"]

CREATES_AT_ONCE = 16
"""Creates on their way at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one look brought."""

    listed: frozenset[str]
    """Every partition that the source lists."""
    created: tuple[LeaseItem, ...]
    """The leases that had no item when they were read: made now, here or by another host meanwhile."""
    mine: tuple[str, ...]
    """Those of them that this host made."""
    failed: tuple[str, ...]
    """One text for each that could not be made; the next round looks again."""


class Discovery:
    """Looks for partitions without a lease."""

    def __init__(
        self, *, store: Store, source: Source, group: str, clock: Clock, interval_s: float, call_timeout_s: float
    ) -> None:
        self._store = store
        self._source = source
        self._group = group
        self._clock = clock
        self._interval_s = interval_s
        self._call_timeout_s = call_timeout_s
        self._last_s: float | None = None
        self._wanted = True
        self.point = ""
        """Where the group starts; set once the group is known."""

    def want(self) -> None:
        """Look in the next round, as when a partition has ended."""
        self._wanted = True

    @property
    def is_wanted(self) -> bool:
        """Say whether leases may be missing: the next round reads them and looks."""
        return self._wanted

    def is_due(self, sessions: Iterable[SessionItem], session_id: str) -> bool:
        """Say whether this host should list the source again."""
        factor = 1 if is_first(sessions, session_id) else 2
        return self._last_s is None or self._clock.now_s() - self._last_s >= factor * self._interval_s

    async def peek(self, known: Container[str]) -> None:
        """
        List the source; want a look if it lists a partition that is not `known`.

        Raises:
            SourceError: the source could not be listed; a later round tries again.
        """
        partitions = await self._source.list_partitions()
        self._last_s = self._clock.now_s()
        if any(info.partition not in known for info in partitions):
            self._wanted = True

    async def look(self, leases: Iterable[LeaseItem]) -> Found:
        """
        List the source and make what is missing.

        Args:
            leases: All leases of the group, read before this call.

        Raises:
            SourceError: the source could not be listed; the next round tries again.
        """
        known = {lease.partition for lease in leases}
        partitions = await self._source.list_partitions()
        missing = [info for info in partitions if info.partition not in known]
        created: list[LeaseItem] = []
        mine: list[str] = []
        failed: list[str] = []
        at_once = anyio.CapacityLimiter(CREATES_AT_ONCE)

        async def create(info: PartitionInfo) -> None:
            async with at_once:
                try:
                    position = await self._source.first_position(info.partition, self.point)
                    verb = Create(partition=info.partition, position=position, parents=info.parents)
                    result = await call(lambda: self._store.submit(self._group, verb), self._call_timeout_s)
                except (SourceError, StoreError) as error:
                    # The next look makes it; the others must not fail for this one.
                    self._wanted = True
                    failed.append(f"{info.partition}: {error}")
                    return
            item = result.item if isinstance(result, Applied) else result.current
            if item is not None:
                created.append(item)
            if isinstance(result, Applied):
                mine.append(info.partition)

        self._wanted = False
        async with anyio.create_task_group() as tasks:
            for info in missing:
                tasks.start_soon(create, info, name=f"create {info.partition}")
        self._last_s = self._clock.now_s()
        return Found(
            listed=frozenset(info.partition for info in partitions),
            created=tuple(created),
            mine=tuple(sorted(mine)),
            failed=tuple(failed),
        )

    async def children_of(self, partition: str) -> Sequence[Child]:
        """Return the children of a partition that has just been read to its end, as far as the source lists them."""
        children = [info for info in await self._source.list_partitions() if partition in info.parents]
        return [
            Child(
                partition=info.partition,
                parents=info.parents,
                position=await self._source.first_position(info.partition, self.point),
            )
            for info in children
        ]


def is_first(sessions: Iterable[SessionItem], session_id: str) -> bool:
    """Say whether this session is the first of those that may work, by their ids."""
    able = (session.session_id for session in sessions if session.capacity > 0 and not session.draining)
    return session_id == min(able, default=session_id)
