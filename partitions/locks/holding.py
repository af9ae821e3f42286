"""
The locks that one host holds, the writes of them that are on their way, and the look at all of them once a beat.

Uses a store; knows no session but by its id. A name is *busy* while a lease of it goes on here, or an acquire or a
release of it waits for its answer: at most one acquire per lock is on its way, and what is being released is not taken
for an acquire whose answer was lost (DESIGN rule 8).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final

import anyio

from partitions.clocks import Clock
from partitions.errors import StoreError, StoreGone
from partitions.events import OnEvent, tell
from partitions.items import LockItem
from partitions.lock_verbs import ReleaseLock
from partitions.locks.events import LockEnd, LockReleased, LockReleaseFailed, LocksUnread
from partitions.locks.leases import LockLease
from partitions.locks.owing import Next, Owed, next_of
from partitions.locks.rivals import Send
from partitions.retries import Waits
from partitions.stores.base import READ_SOME_MAX, Store
from partitions.verbs import Applied

__all__ = ["OWED_MAX", "HeldLocks"]

OWED_MAX: Final = 1000
"""Locks that are looked at for what is owed; beyond, the oldest is left to the end of the session."""

RELEASES_MAX: Final = 3
"""Tries of a release; after that it is owed, and the look at the locks sends it again."""


class HeldLocks:
    """
    What goes on here, by the name of the lock.

    Attributes:
        leases: The leases that have not ended; read only for everybody else.
    """

    def __init__(
        self,
        store: Store,
        group: str,
        *,
        clock: Clock,
        random: Random,
        send: Send,
        waits: Waits,
        on_event: OnEvent | None,
    ) -> None:
        """
        Begin with none.

        Args:
            store: Where the locks are.
            group: The group's id.
            clock: This host's clock.
            random: Spreads the waits.
            send: Makes one call of the store.
            waits: Those between two tries of a release.
            on_event: Gets what became of releases.
        """
        self.leases: dict[str, LockLease] = {}
        self._store = store
        self._group = group
        self._clock = clock
        self._random = random
        self._send = send
        self._waits = waits
        self._on_event = on_event
        self._acquiring: set[str] = set()
        self._releasing: set[str] = set()
        self._owed: dict[str, list[Owed]] = {}

    def is_busy(self, name: str) -> bool:
        """Say whether a lease of the lock goes on here, or an acquire or a release of it waits for its answer."""
        return name in self.leases or name in self._acquiring or name in self._releasing

    def why_not(self, name: str) -> str:
        """Return how a message ends that says that a lock was not to be had."""
        if (mine := self.leases.get(name)) is None:
            return "; wait longer, or see who holds it"
        return f": this session holds it itself, under token {mine.token}; release that lease first, or use it"

    @contextmanager
    def acquiring(self, name: str) -> Iterator[None]:
        """Mark that an acquire waits for its answer; `begin` comes inside."""
        self._acquiring.add(name)
        try:
            yield
        finally:
            self._acquiring.discard(name)

    def begin(self, lease: LockLease) -> None:
        """Hold a lease that has just begun. Nothing that was sent before for this lock can apply any more."""
        self.leases[lease.name] = lease
        self._owed.pop(lease.name, None)

    def ended(self, lease: LockLease) -> None:
        """Drop a lease that has ended."""
        if self.leases.get(lease.name) is lease:
            del self.leases[lease.name]

    def end_all(self, reason: LockEnd, *, of: str | None = None) -> None:
        """End every lease; or those alone that end with the session `of`, with which also goes what it owes."""
        for lease in tuple(self.leases.values()):
            if of is None or (lease.owner == of and lease.expires):
                lease.end(reason)
        for name, owed in tuple(self._owed.items()):
            self._keep(name, [each for each in owed if of is not None and not (each.owner == of and each.expires)])

    def owe(self, owed: Owed) -> None:
        """Note that the store may have, or get, a term that nobody holds."""
        already = self._owed.setdefault(owed.name, [])
        if owed not in already:
            already.append(owed)
        if len(self._owed) > OWED_MAX:
            del self._owed[next(iter(self._owed))]

    def answered(self, name: str, item: LockItem | None) -> None:
        """Drop what is not owed any more, from the item in an answer."""
        self._keep(name, [owed for owed in self._owed.get(name, ()) if next_of(item, owed) is not Next.NOTHING])

    async def release(self, lease: LockLease) -> bool:
        """End a lease here, then free its lock in the store; see `LockLease.release`."""
        self._releasing.add(lease.name)
        began_s = self._clock.now_s()
        lease.end(LockEnd.RELEASED)
        try:
            with anyio.CancelScope(shield=True):
                error = await self._free(lease)
        finally:
            self._releasing.discard(lease.name)
        if error is not None:
            # Only once no call of it waits any more: the look must not send another one beside it.
            self.owe(Owed(name=lease.name, owner=lease.owner, token=lease.token, expires=lease.expires, acquire=None))
            tell(self._on_event, LockReleaseFailed(lock=lease.name, token=lease.token, error=error))
            return False
        duration_s = self._clock.now_s() - began_s
        tell(self._on_event, LockReleased(lock=lease.name, token=lease.token, duration_s=duration_s))
        return True

    async def look(self) -> None:
        """
        Read every lock that is held or owed, end the leases that the store contradicts, and settle what is owed.

        Returns where there is nothing to read.
        """
        names = sorted({*self.leases, *self._owed})
        for first in range(0, len(names), READ_SOME_MAX):
            await self._look_at(names[first : first + READ_SOME_MAX])

    async def confirm(self, lease: LockLease) -> None:
        """
        Read one lock, and end its lease where the store contradicts it.

        Raises:
            StoreUnavailable, StoreMisconfigured: as the contract of stores says.
        """
        self._compare(lease, await self._send(lambda: self._store.read_lock(self._group, lease.name)))

    async def _look_at(self, names: list[str]) -> None:
        # Only what was held before the read began: a read that overtakes an acquire's answer shows an older item.
        held = [self.leases[name] for name in names if name in self.leases]
        try:
            found = await self._send(lambda: self._store.read_some_locks(self._group, names))
        except StoreGone as error:
            tell(self._on_event, LocksUnread(error=str(error)))
            for lease in held:
                lease.end(LockEnd.STORE_GONE)
            return
        except StoreError as error:
            tell(self._on_event, LocksUnread(error=str(error)))
            return
        items = {item.name: item for item in found}
        for lease in held:
            self._compare(lease, items.get(lease.name))
        for name in names:
            await self._settle(name, items.get(name))

    def _compare(self, lease: LockLease, item: LockItem | None) -> None:
        # Any other token is another term: an item that was deleted and made anew has a lower one.
        if item is None or (item.owner, item.token) != (lease.owner, lease.token):
            lease.end(LockEnd.SEEN_TAKEN)

    async def _settle(self, name: str, item: LockItem | None) -> None:
        """Release what the store has for a session of this host and nobody holds."""
        for owed in tuple(self._owed.get(name, ())):
            if self.is_busy(name):
                return
            step = next_of(item, owed)
            if step is Next.WAIT:
                continue
            if step is Next.RELEASE:
                verb = ReleaseLock(name=name, owner=owed.owner, token=owed.token)
                self._releasing.add(name)
                try:
                    await self._send(partial(self._store.submit, self._group, verb))
                except StoreError:
                    # The next look shows what became of it.
                    return
                finally:
                    self._releasing.discard(name)
            self._keep(name, [each for each in self._owed.get(name, ()) if each != owed])

    async def _free(self, lease: LockLease) -> str | None:
        """Send the release, a few times; return what is wrong, or None where the lock is free or another's."""
        verb = ReleaseLock(name=lease.name, owner=lease.owner, token=lease.token)
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await self._send(lambda: self._store.submit(self._group, verb))
            except StoreError as error:
                if attempt >= RELEASES_MAX:
                    return str(error)
                await anyio.sleep(self._waits.after(attempt, self._random))
                continue
            # Refused is as good: it is free, as after one's own release whose answer was lost, or a successor's.
            assert isinstance(result, Applied) or (
                result.current is None or (result.current.owner, result.current.token) != (lease.owner, lease.token)
            )
            return None

    def _keep(self, name: str, owed: list[Owed]) -> None:
        if owed:
            self._owed[name] = owed
        else:
            self._owed.pop(name, None)
