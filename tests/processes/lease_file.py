"""
The lease file as an observer sees it: who owns what now, and how that changed over time.

Reads through `SqliteStore` alone, as a host does, and writes nothing. A lease counts as owned where its owner's session
is there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.from_thread import BlockingPortal

from partitions.items import LeaseItem, SessionItem
from partitions.stores.sqlite import SqliteStore

__all__ = ["Held", "LeaseFile", "Timeline", "now_s"]

LOOK_S = 0.02
"""How often a timeline looks."""

CALL_TIMEOUT_S = 2.0


def now_s() -> float:
    """Return the time on the clock of hosts and journals."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One lease at one moment."""

    host: str | None
    """The host id of an owner that has a session; else None."""
    session_id: str | None
    token: int
    position: str


@dataclass(slots=True, kw_only=True)
class Sample:
    """What was seen from one moment to another."""

    leases: Mapping[str, Held]
    from_s: float
    until_s: float


@dataclass(slots=True)
class Timeline:
    """All that was seen of the leases while they were watched."""

    samples: list[Sample] = field(default_factory=list)

    def unowned_s(self, since_s: float = 0.0) -> dict[str, float]:
        """Return the longest time that each partition was without an owner: from last seen owned to seen so again."""
        longest: dict[str, float] = {}
        for partition in self.samples[-1].leases:
            owned_s: float | None = None
            is_free = False
            longest[partition] = 0.0
            for sample in self.samples:
                held = sample.leases.get(partition)
                if held is not None and held.host is not None:
                    if is_free and owned_s is not None:
                        longest[partition] = max(longest[partition], sample.from_s - owned_s)
                    owned_s, is_free = sample.until_s, False
                elif sample.until_s >= since_s:
                    is_free = True
            if is_free and owned_s is not None:
                longest[partition] = max(longest[partition], self.samples[-1].until_s - owned_s)
        return longest

    def of(self, partition: str) -> list[tuple[float, Held]]:
        """Return each state of one lease and when it was first seen."""
        states: list[tuple[float, Held]] = []
        for sample in self.samples:
            held = sample.leases.get(partition)
            if held is not None and (not states or states[-1][1] != held):
                states.append((sample.from_s, held))
        return states


class LeaseFile:
    """Reads the items of one group."""

    def __init__(self, path: Path, group: str, portal: BlockingPortal) -> None:
        self._store = SqliteStore(path, call_timeout_s=CALL_TIMEOUT_S)
        self._group = group
        self._portal = portal
        self._is_open = False

    def close(self) -> None:
        """Let go of the file."""
        if self._is_open:
            self._portal.call(self._store.close)
            self._is_open = False

    def leases(self) -> dict[str, LeaseItem]:
        """Return every lease by partition."""
        return {item.partition: item for item in self._portal.call(self._store_of_group().read_leases, self._group)}

    def sessions(self) -> dict[str, SessionItem]:
        """Return every session by its id."""
        store = self._store_of_group()
        items = self._portal.call(lambda: store.read_sessions(self._group, consistent=True))
        return {item.session_id: item for item in items}

    def held(self) -> dict[str, Held]:
        """Return every lease with its living owner."""
        return self._portal.call(self._look, self._store_of_group())

    def held_by(self, host: str) -> dict[str, Held]:
        """Return the leases of one host."""
        return {partition: held for partition, held in self.held().items() if held.host == host}

    def shares(self) -> dict[str, int]:
        """Return how many leases each living host has."""
        held, sessions = self._portal.call(self._read, self._store_of_group())
        counts = Counter(each.host for each in held.values() if each.host is not None)
        return {item.host_id: counts[item.host_id] for item in sessions.values()}

    @contextmanager
    def watch(self) -> Iterator[Timeline]:
        """Look every `LOOK_S` while the body runs."""
        timeline = Timeline()
        store = self._store_of_group()
        watching = self._portal.start_task_soon(self._watch, store, timeline)
        try:
            yield timeline
            # A timeline that has stopped looking would show no gap.
            if watching.done():
                watching.result()
        finally:
            watching.cancel()

    async def _watch(self, store: SqliteStore, timeline: Timeline) -> None:
        while True:
            leases = await self._look(store)
            at_s = now_s()
            if timeline.samples and timeline.samples[-1].leases == leases:
                timeline.samples[-1].until_s = at_s
            else:
                timeline.samples.append(Sample(leases=leases, from_s=at_s, until_s=at_s))
            await anyio.sleep(LOOK_S)

    async def _look(self, store: SqliteStore) -> dict[str, Held]:
        held, _ = await self._read(store)
        return held

    async def _read(self, store: SqliteStore) -> tuple[dict[str, Held], dict[str, SessionItem]]:
        """Leases first, sessions second, as hosts do: an owner that is missing then is gone."""
        leases = await store.read_leases(self._group)
        sessions = {item.session_id: item for item in await store.read_sessions(self._group, consistent=True)}
        held = {
            item.partition: Held(
                host=sessions[item.owner].host_id if item.owner in sessions else None,
                session_id=item.owner,
                token=item.token,
                position=item.position,
            )
            for item in sorted(leases, key=lambda item: item.partition)
        }
        return held, sessions

    def _store_of_group(self) -> SqliteStore:
        if not self._is_open:
            self._portal.call(self._store.open)
            self._is_open = True
        return self._store
