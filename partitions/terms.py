"""
The term as it is on this host: how long it goes on, and its one end.

Knows its session's table (`partitions.table`); it sends nothing and starts no task. A term ends once and for good.

- `is_held` is one lookup: now < min(the session's end, the deadline of an ask for this term).
- `ended` is the event that everything working for the partition stops on. It fires at the moment the session's
  watch sees the end; `is_held` is never later than it.
- The lookups may be made in any thread; an end belongs to the loop's, on which its events are set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from threading import get_ident

import anyio

from partitions.clocks import Clock
from partitions.errors import LeaseLost
from partitions.events import EndReason, Event, LeaseEnded, OnEvent, tell
from partitions.items import LeaseItem, ask_key
from partitions.stores.base import Store
from partitions.table import SessionTable

__all__ = ["Term", "Terms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all terms of one session share; made by the session."""

    store: Store
    group: str
    session_id: str
    clock: Clock
    random: Random
    table: SessionTable
    call_timeout_s: float
    renew: Callable[[], Awaitable[bool]]
    releasing: set[str]
    """Partitions whose term has ended here while the write that frees them is on its way."""
    on_ended: Callable[[Term], None]
    """Called once by each term, as it ends."""
    on_event: OnEvent | None


class Term:
    """
    One term of one partition on this host, without its writes.

    Attributes: see `partitions.leases.Lease`.
    """

    def __init__(self, terms: Terms, item: LeaseItem) -> None:
        self.partition = item.partition
        self.token = item.token
        self.key = ask_key(item.partition, item.token)
        self.ended = anyio.Event()
        self.asked = anyio.Event()
        self._terms = terms
        self._reason: EndReason | None = None
        self._guards: set[anyio.CancelScope] = set()
        self._thread = get_ident()
        """The loop's: only there may events be set and scopes be cancelled."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key} {'held' if self.is_held() else self._reason}>"

    @property
    def end_reason(self) -> EndReason | None:
        """Why the term ended; None while nobody has noticed an end."""
        return self._reason

    def is_held(self) -> bool:
        """Say whether the term still goes on at this very moment. Check it after every await before acting on it."""
        return self._reason is None and self._terms.table.is_valid(self.key)

    def remaining_s(self) -> float:
        """Return how long the term goes on if nothing more is heard from the store, seconds; 0.0 once it has ended."""
        return 0.0 if self._reason is not None else self._terms.table.remaining_s(self.key)

    def ask_deadline_s(self) -> float:
        """Return by when an ask ends the term, on this host's clock; infinity where nobody has asked."""
        return self._terms.table.ask_deadline_s(self.key)

    def ensure_held(self) -> None:
        """
        Return if the term goes on. May be called in any thread.

        Raises:
            LeaseLost: it has ended. Stop working on the partition; whoever owns it now goes on from the checkpoint.
        """
        if self.is_held():
            return
        # In another thread the end is only seen; the session's watch, which is as far, makes it final.
        if get_ident() == self._thread:
            self.end(self.reason_of_time())
        raise self._lost()

    async def renew(self) -> bool:
        """
        Beat now instead of at the next period; one beat renews every lease of the session.

        Returns:
            True once a beat that was sent after this call is answered and the term goes on; False if it has ended.
        """
        return self.is_held() and await self._terms.renew() and self.is_held()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """
        Cancel the body when the lease ends.

        Raises:
            LeaseLost: the lease had ended before, or ended meanwhile and the body was cancelled.
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

    def end(self, reason: EndReason) -> bool:
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
        self.asked.set()
        for scope in tuple(self._guards):
            scope.cancel()
        tell(self._terms.on_event, LeaseEnded(partition=self.partition, token=self.token, reason=reason))
        return True

    def reason_of_time(self) -> EndReason:
        """Return which of the two ends the table holds for this term comes first."""
        table = self._terms.table
        over = table.ask_deadline_s(self.key) <= table.valid_until_s
        return EndReason.ASK_DEADLINE if over else EndReason.SESSION_ENDED

    def _lost(self, *, found: int | None = None, owner: str | None = None) -> LeaseLost:
        reason = (self._reason or self.reason_of_time()).value
        return LeaseLost(self.partition, held=self.token, reason=reason, found=found, owner=owner)

    def _tell(self, event: Event) -> None:
        tell(self._terms.on_event, event)
