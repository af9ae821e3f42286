"""
The lease of a lock as it is on this host: how long it goes on, its one end, and its release.

Knows its store only for the fence of a transaction; it starts no task. `partitions.locks.holding` has those that go on,
and sends what their holder sends.

A term ends once and for good, and it ends here *before* its release is sent (DESIGN rule 6). The lookups may be made in
any thread; an end belongs to the loop's, on which its events are set.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from types import TracebackType
from typing import Any

import anyio

from partitions.clocks import Clock
from partitions.errors import LockLost
from partitions.events import OnEvent, tell
from partitions.items import LockItem
from partitions.locks.events import LockEnd, LockEnded
from partitions.stores.base import Store, transactions_of
from partitions.transactions import TransactionsUnsupported

__all__ = ["LockLease", "LockTerms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTerms:
    """What all leases of one `Locks` share; made by it."""

    store: Store
    group: str
    clock: Clock
    on_ended: Callable[[LockLease], None]
    """Called once by each lease, as it ends."""
    release: Callable[[LockLease], Awaitable[bool]]
    """Frees the lock in the store, once the lease has ended here."""
    on_event: OnEvent | None


class LockLease:
    """
    The right that a lock stands for, while `is_held()`. `async with` releases it at the end of the body.

    Attributes:
        name: The lock's name.
        token: The fencing token of this term; hand it to whatever can compare it.
        owner: The session id under which the store has it.
        expires: Whether it ends with the session.
        ended: Set once the term has ended, for whatever reason. Await it to stop.
    """

    def __init__(
        self,
        terms: LockTerms,
        item: LockItem,
        *,
        owner: str,
        until_s: Callable[[], float],
        renew: Callable[[LockLease], Awaitable[None]],
    ) -> None:
        """
        Begin a term.

        Args:
            terms: What it shares with the others.
            item: The lock as the acquire's answer showed it.
            owner: The session id.
            until_s: Returns until when the term goes on if nothing more is heard, seconds of the clock.
            renew: Returns once the store has confirmed that the term goes on.
        """
        self.name = item.name
        self.token = item.token
        self.owner = owner
        self.expires = item.expires
        self.ended = anyio.Event()
        self._terms = terms
        self._until_s = until_s
        self._renew = renew
        self._reason: LockEnd | None = None
        self._guards: set[anyio.CancelScope] = set()
        self._thread = get_ident()
        """The loop's: only there may events be set and scopes be cancelled."""

    def __repr__(self) -> str:
        return f"<LockLease {self.name}@{self.token} {'held' if self.is_held() else self._reason}>"

    @property
    def end_reason(self) -> LockEnd | None:
        """Why the term ended; None while nobody has noticed an end."""
        return self._reason

    def is_held(self) -> bool:
        """Say whether the term still goes on at this very moment. Check it after every await before acting on it."""
        return self._reason is None and self._terms.clock.now_s() < self._until_s()

    def remaining_s(self) -> float:
        """
        Return how long the term goes on if nothing more is heard from the store, seconds.

        0.0 once it has ended; infinity while a lock is held that does not expire.
        """
        if self._reason is not None:
            return 0.0
        until_s = self._until_s()
        return until_s if until_s == math.inf else max(0.0, until_s - self._terms.clock.now_s())

    def ensure_held(self) -> None:
        """
        Return if the term goes on. May be called in any thread.

        Raises:
            LockLost: it has ended. Stop what the lock protects; somebody else may hold it.
        """
        if self.is_held():
            return
        # In another thread the end is only seen; the session, which is as far, makes it final.
        if get_ident() == self._thread:
            self.end(LockEnd.SESSION_ENDED)
        raise self._lost()

    async def renew(self) -> bool:
        """
        Have the store confirm now, instead of at the next beat, that the term goes on.

        One beat renews every lease of the session. A lock that does not expire is read instead. Beats go on by
        themselves whatever this one does, so nobody has to call it to keep a lock.

        Returns:
            True once it is confirmed; False if the term has ended.

        Raises:
            StoreUnavailable: no answer within the call time-out, or a passing fault. The lease is still held, for
                `remaining_s()`; beats are tried again with growing waits until one is answered.
            StoreMisconfigured: the store denies its use or is not there. The lease is still held, as above, unless the
                store itself is gone.
        """
        if self.is_held():
            await self._renew(self)
        if not self.is_held():
            self.end(LockEnd.SESSION_ENDED)
            return False
        return True

    async def release(self) -> bool:
        """
        End the term here, then free the lock in the store. Twice does nothing.

        Shielded from cancellation, under time-outs. A successor's lock is never touched. A release that fails is told
        as an event, not raised: it is sent again once a beat, and the lock is free once the session is gone.

        Returns:
            True if this call freed the lock; False if the term had ended before, or nobody knows.
        """
        if not self.is_held():
            self.end(LockEnd.SESSION_ENDED)
            return False
        return await self._terms.release(self)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """
        Cancel the body when the lease ends.

        Raises:
            LockLost: the lease had ended before, or ended meanwhile and the body was cancelled.
        """
        self.ensure_held()
        with anyio.CancelScope() as scope:
            self._guards.add(scope)
            try:
                yield
            finally:
                self._guards.discard(scope)
        if scope.cancelled_caught:
            raise self._lost()

    def condition_check(self, *, resource: bool = False) -> Mapping[str, Any]:
        """
        Return what fences a DynamoDB transaction of your own by this term: `{"ConditionCheck": {…}}`.

        Put it into the TransactItems of your own TransactWriteItems, in the account and region of the table of locks:
        the transaction is then cancelled unless the store still has this owner and this token.

        Args:
            resource: Values as the client of a boto3 resource takes them (`table.meta.client`), plain Python; else as
                the low-level client takes them (`{"S": …}`).

        Raises:
            LockLost: the term has ended.
            TransactionsUnsupported: the locks are not in DynamoDB.
        """
        self.ensure_held()
        store = self._terms.store
        transactions = transactions_of(store)
        if transactions is None:
            raise TransactionsUnsupported(
                store.url, "condition checks, which are DynamoDB's", remedy="compare tokens in your own database"
            )
        return transactions.lock_check(
            self._terms.group, name=self.name, owner=self.owner, token=self.token, resource=resource
        )

    async def __aenter__(self) -> LockLease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.release()

    def end(self, reason: LockEnd) -> bool:
        """
        End the term on this host, at once and for good; sends nothing.

        Returns:
            True for the call that ended it, False where it had ended before.
        """
        if self._reason is not None:
            return False
        self._reason = reason
        self._terms.on_ended(self)
        self.ended.set()
        for scope in tuple(self._guards):
            scope.cancel()
        tell(self._terms.on_event, LockEnded(lock=self.name, token=self.token, reason=reason))
        return True

    def _lost(self) -> LockLost:
        return LockLost(self.name, held=self.token, reason=(self._reason or LockEnd.SESSION_ENDED).value)
