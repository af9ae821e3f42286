"""
The locks of a host: acquired under whatever session it has at the moment, and its singletons, which live on them.

Knows no plan and no pump. `partitions.locks` has the rules; here is what a host adds. Its sessions are those of its
partitions, so a lock costs no beats of its own, and ends with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, overload

import anyio

from partitions.beats import Pace
from partitions.clocks import Clock
from partitions.events import OnEvent
from partitions.items import LeaseItem, LockItem
from partitions.leases import Lease
from partitions.locks.contending import Locks
from partitions.locks.leases import LockLease
from partitions.retries import Waits
from partitions.sessions import Session
from partitions.stores.base import Store
from processor_host.settings import HostSettings
from processor_host.singletons import Singleton, Singletons

__all__ = ["HostLocks", "HostSession", "pace_of"]

OnLook = Callable[[LockItem | None], None]


def pace_of(settings: HostSettings) -> Pace:
    """Return the times of a host's sessions."""
    timings = settings.timings()
    return Pace(
        duration_s=timings.lease_duration_s,
        handoff_s=timings.handoff_s,
        beat_interval_s=timings.beat_interval_s,
        call_timeout_s=timings.call_timeout_s,
    )


class HostLocks:
    """
    What a host has of locks, through all of its lives.

    Attributes:
        locks: Acquires, holds and watches them.
        singletons: Those that the host was given.
    """

    def __init__(
        self,
        *,
        store: Store,
        group: str,
        host_id: str,
        settings: HostSettings,
        singletons: Mapping[str, Singleton],
        resources: Any,
        clock: Clock,
        random: Random,
        on_event: OnEvent | None,
    ) -> None:
        """Put them together; nothing is sent before a session has begun."""
        self.locks = Locks(
            store=store,
            group=group,
            host_id=host_id,
            is_named=settings.host_id is not None,
            clock=clock,
            random=random,
            pace=pace_of(settings),
            on_event=on_event,
        )
        self.singletons = Singletons(
            singletons,
            contender=self.locks,
            resources=resources,
            clock=clock,
            random=random,
            pauses=Waits(first_s=settings.restart_pause_s, most_s=settings.restart_pause_max_s),
            on_event=on_event,
        )

    @property
    def running(self) -> tuple[str, ...]:
        """The singletons that have not ended here."""
        return self.singletons.running

    async def run(self) -> None:
        """Look at the locks that are held, and run the singletons, until `close`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.locks.watch, name="locks")
                await self.singletons.run()
                tasks.cancel_scope.cancel()
        finally:
            # Also where the host was cancelled or has failed: who waits for a lock would do so for ever.
            self.close()

    def begin(self, session: Session) -> None:
        """Go on under a session that was just registered."""
        self.locks.begin(session)
        self.singletons.begin()

    def drain(self) -> None:
        """Cancel the singletons, and contend for none until the next session begins."""
        self.singletons.end()

    def close(self) -> None:
        """End for good: the last session is over."""
        self.singletons.close()
        self.locks.close()


class HostSession(Session):
    """
    The session of a host, from which also locks are acquired; see `partitions.locks.Locks`.

    What waits for a lock goes on to wait under the host's next session, where this one is lost.
    """

    def __init__(self, locks: Locks, **given: Any) -> None:
        """Name a session: `given` is what `Session` takes."""
        super().__init__(**given)
        self._locks = locks

    @overload
    async def acquire(self, seen: LeaseItem, *, reason: str) -> Lease | None: ...

    @overload
    async def acquire(
        self, seen: str, *, timeout_s: float | None = None, expires: bool = True, on_look: OnLook | None = None
    ) -> LockLease: ...

    async def acquire(self, seen: LeaseItem | str, **given: Any) -> Lease | LockLease | None:
        """Acquire a lock by its name, as `Locks.acquire` does; or, as the host does, a lease as it was seen."""
        if isinstance(seen, str):
            return await self._locks.acquire(seen, **given)
        return await super().acquire(seen, **given)

    async def try_acquire(self, name: str, *, expires: bool = True) -> LockLease | None:
        """See `Locks.try_acquire`."""
        return await self._locks.try_acquire(name, expires=expires)

    async def release_lock(self, name: str) -> bool:
        """See `Locks.release_lock`."""
        return await self._locks.release_lock(name)
