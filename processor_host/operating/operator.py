"""
The operator: one person at work on one group, with what is needed to read and write its items with patience.

Knows no command. A call that fails for now is sent again for `patience_s`: every write that is sent from here is
conditional, and whoever sends one compares what a refusal returns, for it may be the echo of an earlier try (rule 9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Final, TypeVar

import anyio

from partitions.clocks import Clock
from partitions.errors import StoreUnavailable
from partitions.items import GroupItem, LeaseItem, LockItem, Scalar, SessionItem
from partitions.retries import Waits, call
from partitions.sources.base import Source
from partitions.stores.base import Store
from partitions.verbs import Result, Verb
from processor_host.errors import UserError

__all__ = ["LOOK_S", "Operator", "Snapshot", "chunks", "text_of_session"]

R = TypeVar("R")
T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

LOOK_S: Final = 0.5
"""Between two looks at what is waited for."""

READ_AT_ONCE: Final = 100
"""Leases in one read, as in the contract of the store."""

_FIRST_WAIT_S: Final = 0.25
_MOST_WAIT_S: Final = 2.0
_READ_CALLS: Final = 4
"""Call time-outs that a read of all leases may take: it has many pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All leases of a group and, read after them, all of its sessions: an owner that is not among them is gone."""

    leases: Mapping[str, LeaseItem]
    """By partition."""
    sessions: Mapping[str, SessionItem]
    """By session id."""

    def owner_of(self, lease: LeaseItem) -> SessionItem | None:
        """Return the session that owns a lease; None where it is free, also by its owner's end."""
        return None if lease.owner is None else self.sessions.get(lease.owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who works on a group, from where and with what."""

    store: Store
    """An open store."""
    group: str
    clock: Clock
    random: Random
    host_id: str = "operator"
    """The name under which its sessions show."""
    about: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    """Fields for people in its sessions' items."""
    tell: Callable[[str], None] = field(default=lambda _: None)
    """Gets a line where something takes time."""
    call_timeout_s: float = 5.0
    patience_s: float = 15.0
    """How long a call that fails for now is sent again, seconds."""

    async def submit(self, verb: Verb[T]) -> Result[T]:
        """
        Send a write, again where it fails for now: what is refused may be one's own earlier success.

        Raises:
            StoreUnavailable: no answer; it may or may not have been applied.
            StoreMisconfigured: no retry helps.
        """
        return await self._patiently(partial(self.store.submit, self.group, verb), self.call_timeout_s)

    async def snapshot(self) -> Snapshot:
        """
        Read all leases, then all sessions (rule 13).

        Raises:
            StoreError: as `submit`.
        """
        leases = await self._patiently(partial(self.store.read_leases, self.group), _READ_CALLS * self.call_timeout_s)
        return Snapshot(
            leases=MappingProxyType({lease.partition: lease for lease in leases}), sessions=await self.sessions()
        )

    async def sessions(self) -> Mapping[str, SessionItem]:
        """Read all sessions, consistently; by session id. Raises as `submit`."""
        read = partial(self.store.read_sessions, self.group, consistent=True)
        found = await self._patiently(read, _READ_CALLS * self.call_timeout_s)
        return MappingProxyType({session.session_id: session for session in found})

    async def some_leases(self, partitions: Iterable[str]) -> Mapping[str, LeaseItem]:
        """Read these leases; those without an item are left out. Raises as `submit`."""
        found: dict[str, LeaseItem] = {}
        for names in chunks(partitions):
            read = partial(self.store.read_some_leases, self.group, names)
            found |= {lease.partition: lease for lease in await self._patiently(read, self.call_timeout_s)}
        return MappingProxyType(found)

    async def locks(self) -> tuple[LockItem, ...]:
        """Read all locks, in any order. Raises as `submit`."""
        read = partial(self.store.read_locks, self.group)
        return await self._patiently(read, _READ_CALLS * self.call_timeout_s)

    async def lock(self, name: str) -> LockItem | None:
        """Read one lock; None where it has no item. Raises as `submit`."""
        return await self._patiently(partial(self.store.read_lock, self.group, name), self.call_timeout_s)

    async def group_item(self) -> GroupItem:
        """
        Read the group's own item.

        Raises:
            UserError: nobody has set the group up.
            StoreError: as `submit`.
        """
        item = await self._patiently(partial(self.store.read_group, self.group), self.call_timeout_s)
        if item is None:
            raise UserError(
                f"{self.store.url} has no group {self.group!r}; check --group and --store, or start a host of it first"
            )
        return item

    async def item_if_any(self) -> GroupItem | None:
        """
        Read the group's own item; None for a group that has sessions or locks alone, which need none.

        Raises:
            UserError: there is nothing of the group at all.
            StoreError: as `submit`.
        """
        item = await self._patiently(partial(self.store.read_group, self.group), self.call_timeout_s)
        if item is None and not await self.locks() and not await self.sessions():
            return await self.group_item()
        return item

    async def check_source(self, source: Source) -> None:
        """
        See that a source is the stream that the group reads.

        Raises:
            UserError: it is another one, whose positions mean nothing here.
        """
        item = await self.group_item()
        if (identity := await source.identity()) != item.source:
            raise UserError(
                f"group {self.group!r} belongs to the stream {item.source!r}, but the source is {identity!r}; "
                "point --source at the group's own stream"
            )

    def check_partitions(self, partitions: Iterable[str], leases: Mapping[str, LeaseItem]) -> None:
        """
        See that each partition has a lease.

        Raises:
            UserError: one has none; a slip must change nothing.
        """
        for partition in partitions:
            if partition not in leases:
                raise UserError(
                    f"group {self.group!r} has no partition {partition!r}; 'processor-host status' lists those it has"
                )

    async def _patiently(self, send: Callable[[], Awaitable[R]], timeout_s: float) -> R:
        waits = Waits(first_s=_FIRST_WAIT_S, most_s=_MOST_WAIT_S)
        until_s = self.clock.now_s() + self.patience_s
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call(send, timeout_s)
            except StoreUnavailable as error:
                pause_s = waits.after(attempt, self.random)
                if self.clock.now_s() + pause_s >= until_s:
                    raise StoreUnavailable(
                        f"{self.store.url}: {error}; after {attempt} tries it may or may not have been done: "
                        "look with 'processor-host status' and run the command again"
                    ) from error
            await anyio.sleep(pause_s)


def chunks(partitions: Iterable[str]) -> list[Sequence[str]]:
    """Divide names into as many as one read takes."""
    names = sorted(partitions)
    return [names[start : start + READ_AT_ONCE] for start in range(0, len(names), READ_AT_ONCE)]


def text_of_session(session: SessionItem) -> str:
    """Name a session for people: its host, and its own part where the two need telling apart."""
    return f"{session.host_id} ({session.session_id})"
