"""
Contending for locks, on whatever session a host has at the moment: inside a host as `host.session`, else as `Session`.

Uses a store and sessions; knows no plan. Theory of operation:

- **A lock lives as long as the session that owns it** (DESIGN section 2), so holding one costs no writes of its own. It
  is taken from nobody whose session is there: a contender reads the lock, then the owner's session, and takes over once
  that is gone, or once it has fenced it (`partitions.locks.rivals`).
- **An acquire whose answer was lost is never adopted** (rule 8): it is acquired again, or released (`owing`).
- **Nobody starves.** Whoever waits looks at the lock after a random wait around `poll_s`, always the same one however
  long it has waited; and whoever has released waits as long before its own next acquire. So among those that wait each
  has the same chance, and the one that has just had its turn has none.
- **A lock that does not expire** is taken from nobody at all while its holder is set. Its lease here ends by its
  release, by what a read shows, or when this host stops looking.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any, Final

from partitions.beats import Pace
from partitions.clocks import Clock, sleep_until
from partitions.errors import StoreUnavailable
from partitions.events import OnEvent, tell
from partitions.items import LockItem, Scalar
from partitions.lock_verbs import ReleaseLock
from partitions.locks.checks import check_name, check_named, check_timeout
from partitions.locks.events import LockAcquired, LockEnd
from partitions.locks.holding import HeldLocks
from partitions.locks.leases import LockLease, LockTerms
from partitions.locks.owing import acquire_of, after_acquire
from partitions.locks.renewals import by_beat
from partitions.locks.rivals import Rivals
from partitions.retries import Waits, call
from partitions.sessions import Session as Life
from partitions.stores.base import Store
from partitions.verbs import Applied

__all__ = ["POLL_S", "Locks"]

POLL_S: Final = 0.25
"""Between two looks of one that waits, on average: as an asker looks at the leases it asked for."""

ROUNDS_MAX: Final = 3
"""Acquires in one try: a refusal may show that an earlier one of one's own was applied, which is then repeated."""


class Locks:
    """Acquires, holds and watches locks under one session after the other. Made by a host, or by `Session`."""

    def __init__(
        self,
        *,
        store: Store,
        group: str,
        host_id: str,
        is_named: bool,
        clock: Clock,
        random: Random,
        pace: Pace,
        poll_s: float = POLL_S,
        extra: Mapping[str, Scalar] = MappingProxyType({}),
        on_event: OnEvent | None = None,
    ) -> None:
        """
        Begin without a session: `begin` gives one, and `watch` must run beside it.

        Args:
            store: An open one.
            group: The group's id; its hosts and its locks share the table of sessions.
            host_id: The stable name of this host.
            is_named: Whether somebody gave it that name; else it acquires nothing that does not expire.
            clock: Its clock.
            random: Spreads the waits.
            pace: The times of its sessions.
            poll_s: How long one that waits waits between two looks, on average; the same for all contenders, or those
                that look more often win more often.
            extra: Fields for people in the items of the locks that are held.
            on_event: Gets every event.
        """
        self._store = store
        self._group = group
        self._host_id = host_id
        self._is_named = is_named
        self._unusable: str | None = None
        """Why no session will ever be there to acquire under; None while one is, or will be."""
        self._clock = clock
        self._random = random
        self._pace = pace
        self._poll_s = poll_s
        self._extra = extra
        self._on_event = on_event
        self._life: Life | None = None
        self._released: dict[str, float] = {}
        """When locks were released here, as far as it matters still."""
        waits = Waits(first_s=pace.call_timeout_s / 8, most_s=pace.duration_s / 6)
        self._waits = waits
        self._rivals = Rivals(store, group, clock=clock, send=self._send, on_event=on_event)
        self._held = HeldLocks(
            store, group, clock=clock, random=random, send=self._send, waits=waits, on_event=on_event
        )
        self._terms = LockTerms(
            store=store,
            group=group,
            clock=clock,
            on_ended=self._held.ended,
            release=self._release,
            on_event=on_event,
        )

    @property
    def held(self) -> Mapping[str, LockLease]:
        """The leases that go on here, by the name of the lock."""
        return self._held.leases

    @property
    def host_id(self) -> str:
        """The stable name of this host."""
        return self._host_id

    @property
    def session_id(self) -> str | None:
        """The id of the present session; None before the first and between two."""
        return None if self._life is None else self._life.session_id

    # --- For users ----------------------------------------------------------------------------------------------------

    async def try_acquire(self, name: str, *, expires: bool = True) -> LockLease | None:
        """
        Acquire a lock at once, or not at all.

        A lock whose owner is dead but not fenced is not free yet. Tried again and again, this fences it in time, as
        `acquire` does: each try is a look.

        Args:
            name: The lock's name; whoever uses a name in this group means the same lock.
            expires: Whether it ends with this session. Where it does not, it stays with `host_id` until it is released,
                by this lease, by `release_lock` of any process of that name, or by an operator.

        Returns:
            The lease; it may have ended already, where the answer came too late. None where another session has the
            lock, where this one has it already, and where there is no session at the moment.

        Raises:
            StoreUnavailable: no answer. If the lock was acquired all the same, it is released within a beat or so.
            StoreMisconfigured: no retry helps.
            ValueError: no name of a lock; or it does not expire, and this host was given no `host_id`.
            RuntimeError: the session was not entered, or is over for good.
        """
        self._check(name, expires=expires)
        life = self._living()
        if life is None or self._held.is_busy(name):
            return None
        with self._held.acquiring(name):
            return await self._try(name, life, expires=expires)

    async def acquire(
        self,
        name: str,
        *,
        timeout_s: float | None = None,
        expires: bool = True,
        on_look: Callable[[LockItem | None], None] | None = None,
    ) -> LockLease:
        """
        Acquire a lock, waiting until it is free or its owner is dead.

        Where the store cannot be reached it is tried again with growing waits.

        Args:
            name: As `try_acquire`.
            timeout_s: How long to wait, seconds; None waits for ever. Looked at between two tries.
            expires: As `try_acquire`.
            on_look: Gets the lock's item as each look shows it; None where it has none.

        Returns:
            The lease; it may have ended already, where the answer came too late.

        Raises:
            TimeoutError: the lock was not to be had in that time; the text tells where this session holds it itself.
            StoreMisconfigured, ValueError, RuntimeError: as `try_acquire`; the last also where it ends meanwhile.
        """
        check_timeout(timeout_s)
        self._check(name, expires=expires)
        until_s = math.inf if timeout_s is None else self._clock.now_s() + timeout_s
        failures = 0
        # Whoever has just had its turn lets the others look once.
        await sleep_until(self._clock, min(until_s, self._released.get(name, -math.inf)))
        while True:
            error: StoreUnavailable | None = None
            self._check(name, expires=expires)
            life = self._living()
            if life is not None and not self._held.is_busy(name):
                try:
                    with self._held.acquiring(name):
                        lease = await self._try(name, life, expires=expires, is_waiting=True, on_look=on_look)
                    failures = 0
                    if lease is not None:
                        return lease
                except StoreUnavailable as unavailable:
                    error = unavailable
                    failures += 1
            now_s = self._clock.now_s()
            if now_s >= until_s:
                raise TimeoutError(
                    f"lock {name!r} of group {self._group!r} was not to be had within {timeout_s} s"
                    f"{self._held.why_not(name)}"
                ) from error
            wait_s = self._waits.after(failures, self._random) if failures else self._turn_s()
            await sleep_until(self._clock, min(until_s, now_s + wait_s))

    async def release_lock(self, name: str) -> bool:
        """
        Free a lock of this host by its name: one that is held here, or one that does not expire and that an earlier
        process with the same `host_id` acquired.

        One that died without leaving is registered until it was watched for its whole duration; each call is a look.

        Returns:
            True if the lock is free now; False if it has no item, is another's, ends with a session that is not this
            one, or is of another session that is registered and may be at work.

        Raises:
            StoreUnavailable: no answer; call it again.
            StoreMisconfigured: no retry helps.
            ValueError: no name of a lock.
        """
        check_name(name)
        lease = self._held.leases.get(name)
        if lease is not None:
            return await lease.release()
        item = await self._send(lambda: self._store.read_lock(self._group, name))
        while item is not None and item.owner is not None:
            if item.expires or item.holder != self._host_id:
                return False
            if item.owner != self.session_id and not await self._rivals.is_gone(item.owner):
                return False
            verb = ReleaseLock(name=name, owner=item.owner, token=item.token)
            result = await self._send(partial(self._store.submit, self._group, verb))
            # Each refusal means that somebody else has written meanwhile.
            item = result.item if isinstance(result, Applied) else result.current
        return item is not None

    # --- For whoever has the session ----------------------------------------------------------------------------------

    def begin(self, life: Life) -> None:
        """Go on under a session that was just registered; its locks end with it, before it leaves."""
        self._life = life
        life.at_end(lambda: self._over(life))

    def _over(self, life: Life) -> None:
        if self._life is life:
            self._life = None
        self._held.end_all(LockEnd.SESSION_ENDED, of=life.session_id)

    def close(self) -> None:
        """End every lease here: nobody looks at the locks any more. Those that do not expire stay with their holder."""
        self._life = None
        self._unusable = "is over; make another one"
        self._held.end_all(LockEnd.SESSION_ENDED)

    async def watch(self) -> None:
        """Look at the locks that are held once a beat, for ever, and end the leases that were lost."""
        while True:
            await sleep_until(self._clock, self._clock.now_s() + self._pace.beat_interval_s)
            await self._held.look()

    def _living(self) -> Life | None:
        return self._life if self._life is not None and self._life.is_valid else None

    def _check(self, name: str, *, expires: bool) -> None:
        check_name(name)
        check_named(name, self._host_id, is_named=expires or self._is_named)
        if self._unusable is not None:
            raise RuntimeError(f"session {self._host_id!r} of group {self._group!r} {self._unusable}")

    # --- One try ------------------------------------------------------------------------------------------------------

    async def _try(
        self,
        name: str,
        life: Life,
        *,
        expires: bool,
        is_waiting: bool = False,
        on_look: Callable[[LockItem | None], None] | None = None,
    ) -> LockLease | None:
        began_s = self._clock.now_s()
        item: LockItem | None = await self._send(lambda: self._store.read_lock(self._group, name))
        if on_look is not None:
            on_look(item)
        for _ in range(ROUNDS_MAX):
            is_free = await self._rivals.have_left(item, mine=life.session_id, is_waiting=is_waiting)
            if not is_free or not life.is_valid:
                return None
            verb = acquire_of(
                name, item, session_id=life.session_id, host_id=self._host_id, expires=expires, extra=self._extra
            )
            self._held.owe(after_acquire(verb))
            result = await self._send(partial(self._store.submit, self._group, verb))
            if isinstance(result, Applied):
                assert result.item is not None  # No acquire deletes.
                return self._begun(result.item, life, began_s, item)
            self._held.answered(name, result.current)
            item = result.current
            if item is None or item.owner != life.session_id:
                # Somebody was faster.
                return None
        return None

    def _begun(self, item: LockItem, life: Life, began_s: float, seen: LockItem | None) -> LockLease:
        lease = LockLease(
            self._terms,
            item,
            owner=life.session_id,
            until_s=(lambda: life.table.valid_until_s) if item.expires else (lambda: math.inf),
            renew=by_beat(life, call_timeout_s=self._pace.call_timeout_s) if item.expires else self._held.confirm,
        )
        self._held.begin(lease)
        duration_s = self._clock.now_s() - began_s
        previous = None if seen is None or seen.owner == life.session_id else seen.owner
        tell(
            self._on_event,
            LockAcquired(lock=item.name, token=item.token, previous_owner=previous, duration_s=duration_s),
        )
        # Told first, so that every end is preceded by its beginning. The answer may have come too late (rule 5).
        if not lease.is_held():
            lease.end(LockEnd.SESSION_ENDED)
        return lease

    async def _release(self, lease: LockLease) -> bool:
        try:
            return await self._held.release(lease)
        finally:
            now_s = self._clock.now_s()
            self._released = {name: until_s for name, until_s in self._released.items() if until_s > now_s}
            self._released[lease.name] = now_s + self._turn_s()

    def _turn_s(self) -> float:
        """Return how long to wait for one's turn: spread, so that no two contenders keep step."""
        return self._poll_s * (0.5 + self._random.random())

    async def _send(self, do: Callable[[], Awaitable[Any]]) -> Any:
        return await call(do, self._pace.call_timeout_s)
