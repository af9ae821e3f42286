"""
The held lease: one term of one partition on this host, and the writes that only its holder may send.

Knows its session's table (`partitions.table`) and a store; it starts no task. A term ends once and for good, and it
ends here *before* its release is sent (rule 6): whoever sees the lease free in the store can rely on it.

- `is_held` is one lookup: now < min(the session's end, the deadline of an ask for this term).
- `ended` is the event that everything working for the partition stops on. It fires at the moment the session's
  watch sees the end; `is_held` is never later than it.
- What is sent for it is in `partitions.saves`: one save after the other, each with a number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

import anyio

from partitions.clocks import Clock
from partitions.errors import LeaseLost
from partitions.events import (
    CheckpointRefused,
    EndReason,
    Event,
    LeaseEnded,
    LeaseReleased,
    OnEvent,
    ReleaseFailed,
    tell,
)
from partitions.items import LeaseItem, ask_key
from partitions.saves import Saves
from partitions.stores.base import Store
from partitions.table import SessionTable
from partitions.transactions import Collector
from partitions.verbs import Child, Complete, Release

__all__ = ["Lease", "Terms", "current_lease", "working_under"]

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
        self._reason: EndReason | None = None
        self._saves = Saves(
            self,
            item,
            store=terms.store,
            group=terms.group,
            owner=terms.session_id,
            clock=terms.clock,
            random=terms.random,
            call_timeout_s=terms.call_timeout_s,
            on_event=terms.on_event,
        )
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
        await self._saves.checkpoint(position, weight=weight)

    def begin_transaction(self) -> Collector:
        """
        Return the store's collector of a user's operations, for `commit`; sends nothing.

        Raises:
            TransactionsUnsupported: the store has no user transactions.
        """
        return self._saves.transactions().begin()

    async def commit(self, position: str, operations: Sequence[Any]) -> None:
        """
        Store `position` as `checkpoint` does, and a user's operations with it in one transaction, or nothing.

        Retried as a checkpoint is. A caller that is cancelled, or gets anything but LeaseLost or what the operations
        themselves raise, does not know whether it was applied; `settled` finds that out.

        Raises:
            LeaseLost: as `checkpoint`.
            ConditionFailed: a condition of the operations did not hold. Other stores raise what is theirs.
            StoreMisconfigured: the store, or what the operations name, is not there or denied.
        """
        await self._saves.commit(position, operations)

    async def settled(self) -> str:
        """
        Return the stored position, once nothing that was sent before can change it any more.

        Raises:
            LeaseLost: as `checkpoint`.
        """
        return await self._saves.settled()

    def condition_check(self, *, resource: bool = False) -> Mapping[str, Any]:
        """
        Return what fences a DynamoDB transaction of your own by this term: `{"ConditionCheck": {…}}`.

        Put it into the TransactItems of your own TransactWriteItems, in the account and region of the lease table: the
        transaction is then cancelled unless this session still owns the lease under this token. It moves no checkpoint;
        `batch.transaction()` does. The table that it names is not one your transaction may write as well.

        Args:
            resource: Values as the client of a boto3 resource takes them (`table.meta.client`), plain Python; else as
                the low-level client takes them (`{"S": …}`).

        Raises:
            LeaseLost: the term has ended.
            TransactionsUnsupported: the leases are not in DynamoDB.
        """
        self.ensure_held()
        terms = self._terms
        return self._saves.transactions().condition_check(
            terms.group, partition=self.partition, owner=terms.session_id, token=self.token, resource=resource
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
        # Not where a transaction is in doubt: the stored position may be further than this one.
        position, seq = self._saves.with_release(position)
        free = Release(
            partition=self.partition, owner=self._terms.session_id, token=self.token, position=position, seq=seq
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
                error = await self._saves.free(verb)
        finally:
            terms.releasing.discard(self.partition)
        if error is not None:
            self._tell(ReleaseFailed(partition=self.partition, token=self.token, error=error))
            return False
        duration_s = terms.clock.now_s() - began_s
        self._tell(LeaseReleased(partition=self.partition, token=self.token, position=position, duration_s=duration_s))
        return True

    def refused(self, position: str, current: LeaseItem | None) -> NoReturn:
        """End the term, whose write the store refused because of what it holds, and raise LeaseLost."""
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
