"""
The held lease: one term of one partition on this host, and the writes that only its holder may send.

Knows its session's table (`partitions.table`) and a store; it starts no task. A term ends once and for good, and it
ends here *before* its release is sent (rule 6): whoever sees the lease free in the store can rely on it.

- `is_held` is one lookup: now < min(the session's end, the deadline of an ask for this term).
- `ended` is the event that everything working for the partition stops on. It fires at the moment the session's
  watch sees the end; `is_held` is never later than it.
- At most one write of a term is on its way, and each checkpoint has a number, so that a late duplicate changes nothing.
- A refused write may be one's own earlier success whose answer was lost: the returned item is compared first (rule 9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import NoReturn

import anyio

from partitions.clocks import Clock
from partitions.errors import LeaseLost, StoreError
from partitions.events import (
    CheckpointFailed,
    CheckpointRefused,
    CheckpointSaved,
    EndReason,
    Event,
    LeaseEnded,
    LeaseReleased,
    OnEvent,
    ReleaseFailed,
    tell,
)
from partitions.items import LeaseItem, ask_key
from partitions.retries import Waits, call
from partitions.stores.base import Store
from partitions.table import SessionTable
from partitions.verbs import Applied, Child, Complete, LeaseVerb, Release, Result, SaveCheckpoint

__all__ = ["Lease", "Terms", "current_lease", "working_under"]

RELEASES_MAX = 3
"""Tries of a release; after that a snapshot shows what became of it, and the session's end frees the lease anyway."""

_current: ContextVar[Lease | None] = ContextVar("partitions_current_lease", default=None)


def current_lease() -> Lease | None:
    """Return the lease under which the caller works, anywhere in its call tree; None outside of one."""
    return _current.get()


@contextmanager
def working_under(lease: Lease) -> Iterator[None]:
    """Make `lease` the current one for the body and everything it calls, awaits or starts."""
    token = _current.set(lease)
    try:
        yield
    finally:
        _current.reset(token)


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
    on_ended: Callable[[Lease], None]
    """Called once by each term, as it ends."""
    on_event: OnEvent | None


class Lease:
    """
    The right to process one partition, while `is_held()`.

    Attributes:
        partition: The partition's id.
        key: The ask key of this term.
        token: The fencing token of this term; hand it to whatever can compare it.
        position: The checkpoint at which the term began: the last record done.
        ended: Set once the term has ended, for whatever reason. Await it to stop.
        asked: Set once the lease is to be given up, as when somebody asks for it, or has ended: start nothing new.
    """

    def __init__(self, terms: Terms, item: LeaseItem) -> None:
        self.partition = item.partition
        self.token = item.token
        self.position = item.position
        self.ended = anyio.Event()
        self.asked = anyio.Event()
        self._terms = terms
        self.key = ask_key(item.partition, item.token)
        self._seq = item.seq
        self._reason: EndReason | None = None
        self._one_write = anyio.Lock()
        self._guards: set[anyio.CancelScope] = set()

    def __repr__(self) -> str:
        return f"<Lease {self.key} {'held' if self.is_held() else self._reason}>"

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
        Return if the term goes on.

        Raises:
            LeaseLost: it has ended. Stop working on the partition; whoever owns it now goes on from the checkpoint.
        """
        if self.is_held():
            return
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

    async def checkpoint(self, position: str, *, weight: float | None = None) -> None:
        """
        Store that everything up to `position` is done, under the fence of this term.

        Returns once the store has it. Failed calls are repeated with growing waits for as long as the term goes on.
        Calls come one after the other; positions must not go back within a term, which the caller sees to.

        Raises:
            LeaseLost: the term has ended, or the store holds another owner or token (then the term ends here).
        """
        async with self._one_write:
            self._seq += 1
            save = SaveCheckpoint(
                partition=self.partition,
                owner=self._terms.session_id,
                token=self.token,
                position=position,
                seq=self._seq,
                weight=weight,
            )
            began_s = self._terms.clock.now_s()
            result = await self._send_while_held(save)
            if not isinstance(result, Applied) and not self._is_stored(result.current, save.seq):
                self._refused(position, result.current)
            duration_s = self._terms.clock.now_s() - began_s
            self._tell(
                CheckpointSaved(partition=self.partition, token=self.token, position=position, duration_s=duration_s)
            )

    async def release(self, position: str | None = None) -> bool:
        """
        End the term here, then free the lease in the store, with `position` as its last checkpoint if given.

        Nothing may still be running for the partition. Shielded from cancellation, under a time-out. A release that
        fails is told, not raised: a snapshot will show what became of it.

        Returns:
            True if the store is known to have the lease as free; False if the term had ended before, or is unsure.
        """
        if not self.is_held():
            self.end(self.reason_of_time())
            return False
        seq = self._seq + 1
        free = Release(
            partition=self.partition,
            owner=self._terms.session_id,
            token=self.token,
            position=position,
            seq=None if position is None else seq,
        )
        return await self._give_up(free, EndReason.RELEASED, position)

    async def complete(self, children: Sequence[Child]) -> bool:
        """
        End the term here, then mark the partition as processed to its end and create `children` with it.

        Returns:
            As `release`.
        """
        if not self.is_held():
            self.end(self.reason_of_time())
            return False
        done = Complete(
            partition=self.partition, owner=self._terms.session_id, token=self.token, children=tuple(children)
        )
        return await self._give_up(done, EndReason.COMPLETED, None)

    async def _give_up(self, verb: Release | Complete, reason: EndReason, position: str | None) -> bool:
        terms = self._terms
        # Marked before the term ends: a snapshot must not take the lease for one whose acquire was lost (rule 8).
        terms.releasing.add(self.partition)
        began_s = terms.clock.now_s()
        self.end(reason)
        try:
            with anyio.CancelScope(shield=True):
                error = await self._send_release(verb)
        finally:
            terms.releasing.discard(self.partition)
        if error is not None:
            self._tell(ReleaseFailed(partition=self.partition, token=self.token, error=error))
            return False
        duration_s = terms.clock.now_s() - began_s
        self._tell(LeaseReleased(partition=self.partition, token=self.token, position=position, duration_s=duration_s))
        return True

    async def _send_release(self, verb: Release | Complete) -> str | None:
        """Send the write that frees the lease, a few times; return what is wrong, or None where it is free."""
        terms = self._terms
        waits = Waits(first_s=terms.call_timeout_s / 8, most_s=terms.call_timeout_s)
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await self._call(verb, terms.call_timeout_s)
            except StoreError as error:
                if attempt >= RELEASES_MAX:
                    return str(error)
                await anyio.sleep(waits.after(attempt, terms.random))
                continue
            if isinstance(result, Applied):
                return None
            # Free under the same token is one's own release whose answer was lost, a higher token the next owner.
            current = result.current
            is_free = current is None or current.token > self.token or current.owner is None
            return None if is_free else f"the store has owner {current.owner!r}" if current else None

    async def _send_while_held(self, verb: SaveCheckpoint) -> Result[LeaseItem]:
        terms = self._terms
        waits = Waits(first_s=terms.call_timeout_s / 8, most_s=terms.call_timeout_s)
        attempt = 0
        while True:
            self.ensure_held()
            attempt += 1
            try:
                return await self._call(verb, min(terms.call_timeout_s, self.remaining_s()))
            except StoreError as error:
                self._tell(
                    CheckpointFailed(partition=self.partition, token=self.token, error=str(error), attempt=attempt)
                )
                await anyio.sleep(min(waits.after(attempt, terms.random), self.remaining_s()))

    async def _call(self, verb: LeaseVerb, timeout_s: float) -> Result[LeaseItem]:
        return await call(lambda: self._terms.store.submit(self._terms.group, verb), timeout_s)

    def _is_stored(self, current: LeaseItem | None, seq: int) -> bool:
        """Say whether a refused checkpoint is stored all the same: its first answer was lost (rule 9)."""
        return (
            current is not None
            and current.owner == self._terms.session_id
            and current.token == self.token
            and current.seq >= seq
        )

    def _refused(self, position: str, current: LeaseItem | None) -> NoReturn:
        found = None if current is None else current.token
        self._tell(CheckpointRefused(partition=self.partition, token=self.token, position=position, found_token=found))
        self.end(EndReason.REFUSED)
        raise self._lost(found=found, owner=None if current is None else current.owner)

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
