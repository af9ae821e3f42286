"""
Leader election on a lock: one contender of a group works at a time, and the others can tell which.

Knows a session only by its `acquire`. A term of a leader is a term of the lock: `work` runs from the acquire until it
returns, raises, or is cancelled because the lease has ended. Then the lock is released, and the contender waits again.

- **The lease is the current one for all that a term starts, and for nothing else.** It is set in the context of the
  task that runs `work`: calls, awaits, tasks and threads that begin during the term see it, those of a nested term the
  inner one. What outlives its term keeps the context it was started in, and with it a lease that has ended:
  `ensure_held` raises there, and a transaction that the lease fences fails.
- **That a lease has ended is no fault of the work.** `LeaseLost` of this very term ends it as the cancellation does
  that comes with the end; everything else that `work` raises is raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from partitions.current import working_under
from partitions.errors import LeaseLost
from partitions.items import LockItem
from partitions.locks.checks import check_name
from partitions.locks.leases import LockLease

__all__ = ["Contender", "Holder", "Leader", "Work", "run_as_leader"]

Work = Callable[[LockLease], Awaitable[object]]
"""What a leader does, under its lease. It is cancelled when the lease ends."""


class Contender(Protocol):
    """What a leader asks of a session: that of a host, or one of `partitions.locks`."""

    async def acquire(self, name: str, /, *, on_look: Callable[[LockItem | None], None] | None = None) -> LockLease:
        """Wait for a lock; tell each look at its item."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a lock."""

    host_id: str
    session_id: str
    token: int


class Leader:
    """
    One contender for the leadership that a lock stands for.

    Attributes:
        name: The lock's name.
        lease: The present term's; None while this contender is not the leader.
    """

    def __init__(self, session: Contender, name: str) -> None:
        """
        Name a contender; nothing is sent before `run`.

        Raises:
            TypeError: no session, or no text as a name.
            ValueError: no name of a lock.
        """
        if not hasattr(session, "acquire"):
            raise TypeError(f"session={session!r} is not a session; give that first, then the lock's name")
        check_name(name)
        self.name = name
        self.lease: LockLease | None = None
        self._session = session
        self._holder: Holder | None = None

    @property
    def is_leader(self) -> bool:
        """Say whether this contender is the leader at this very moment."""
        return self.lease is not None and self.lease.is_held()

    @property
    def holder(self) -> Holder | None:
        """
        Who is the leader, as this contender saw it last; None where nobody was, or nothing was seen yet.

        For people and for routing only: whoever waits looks again and again, so it is moments old, and one that has
        died is named until it is fenced.
        """
        return self._holder

    async def run(self, work: Work) -> NoReturn:
        """
        Contend, work, and contend again, until cancelled.

        Raises:
            TypeError: `work` cannot be called, or returned nothing that can be awaited.
            StoreMisconfigured, RuntimeError: as the session's `acquire`.
            Exception: what `work` raised; its term has ended.
        """
        if not callable(work):
            raise TypeError(f"the work of {self.name!r} is {work!r}; give an async def that takes the lease")
        while True:
            await self.run_once(work)

    async def run_once(self, work: Work) -> bool:
        """
        Contend, and work for one term.

        Returns:
            True if `work` returned while the term went on; False if the term ended before.

        Raises:
            StoreMisconfigured, Exception: as `run`.
        """
        lease = await self._session.acquire(self.name, on_look=self._look)
        self.lease = lease
        self._holder = Holder(host_id=lease.owner.rpartition(":")[0], session_id=lease.owner, token=lease.token)
        try:
            with working_under(lease), lease.guard():
                awaitable = work(lease)
                if not inspect.isawaitable(awaitable):
                    raise TypeError(f"the work of {self.name!r} returned {awaitable!r}; give an async def")
                await awaitable
        except LeaseLost as lost:
            if lease.is_held() or not _is_of(lease, lost):
                raise
            return False
        except BaseExceptionGroup as group:
            if lease.is_held() or group.split(lambda error: _is_of(lease, error))[1] is not None:
                raise
            return False
        finally:
            self.lease = self._holder = None
            # Shielded, under a time-out. Nothing of the term runs here any more.
            await lease.release()
        return True

    def _look(self, item: LockItem | None) -> None:
        if item is None or item.owner is None:
            self._holder = None
        else:
            host_id = item.holder or item.owner.rpartition(":")[0]
            self._holder = Holder(host_id=host_id, session_id=item.owner, token=item.token)


async def run_as_leader(session: Contender, name: str, work: Work) -> NoReturn:
    """
    Run `work(lease)` whenever this session holds the lock `name`, and wait for it otherwise; until cancelled.

    Args:
        session: The session of a host, or one of `partitions.locks`.
        name: The lock's name.
        work: Has the lease as `current_lease()`, and is cancelled when it ends. Where it returns, the lock is released
            and this session contends again, beside the others.

    Raises:
        TypeError, ValueError: one of these is something else, as where two are swapped.
        StoreMisconfigured, RuntimeError: as the session's `acquire`.
        Exception: what `work` raised; its term has ended.
    """
    await Leader(session, name).run(work)


def _is_of(lease: LockLease, error: BaseException) -> bool:
    """Say whether an error only tells that this very term is over."""
    return isinstance(error, LeaseLost) and (error.partition, error.held) == (lease.name, lease.token)
