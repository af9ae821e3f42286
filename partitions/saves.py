"""
What one term saves: checkpoints and what stands beside them, and user transactions, one after the other.

Sends through `partitions.sending`; it starts no task. Each save uses up a number (`seq`) whether or not it is ever
answered, so that a late duplicate changes nothing (rule 7).

A checkpoint that goes on ends the counts of attempts and suspects, since something was done. One of the position that
is stored is no progress and leaves them; a release leaves such a position out.

A save whose answer never came is *in doubt*. A plain checkpoint in doubt matters to the next transaction only, which
names the position stored before it. A transaction in doubt matters to everything that follows: a checkpoint or a
release that carried an older position would move the stored one back behind writes that were applied, and the records
would write once more. So it is settled before the next save (`partitions.transactions` says how), and a release that
comes before that carries no position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import anyio

from partitions.clocks import Clock
from partitions.errors import StoreError, StoreMisconfigured
from partitions.events import CheckpointSaved, OnEvent, tell
from partitions.items import LeaseItem, Prepared
from partitions.retries import call
from partitions.sending import Sending, Term
from partitions.stores.base import Transactions, transactions_of
from partitions.transactions import Again, Commit, Failed, Outcome, TransactionsUnsupported
from partitions.verbs import Applied, Attempt, Pause, Prepare, Refused, Release, SaveCheckpoint

__all__ = ["Saves"]


class _Doubt(Enum):
    """Which save, if any, was sent in this term and not answered; the worst of them."""

    NONE = "none"
    CHECKPOINT = "checkpoint"
    TRANSACTION = "transaction"


class Saves:
    """See the module."""

    def __init__(
        self,
        term: Term,
        item: LeaseItem,
        *,
        sending: Sending,
        clock: Clock,
        on_event: OnEvent | None,
    ) -> None:
        self._term = term
        self._sending = sending
        self._clock = clock
        self._on_event = on_event
        self._one_write = anyio.Lock()
        self._seq = item.seq
        self._position = item.position
        """As it is stored, or was before everything that is in doubt."""
        self._doubt = _Doubt.NONE

    def release(self, position: str | None, *, attempts: int | None, keeps_prepared: bool, is_reset: bool) -> Release:
        """Return the release of this term, with what it may carry."""
        free = Release(partition=self._term.partition, owner=self._sending.owner, token=self._term.token)
        if self._doubt is _Doubt.TRANSACTION:
            # The stored position may be further than this one, and the count may be another record's.
            return free
        if position is None or (position == self._position and not is_reset):
            # Carrying the position that is stored would look like progress: suspects would end with nothing done.
            return replace(free, attempts=attempts)
        return replace(free, position=position, seq=self._seq + 1, attempts=attempts, keeps_prepared=keeps_prepared)

    async def checkpoint(self, position: str, *, weight: float | None, keeps_prepared: bool) -> None:
        """See `Lease.checkpoint`."""
        async with self._one_write:
            await self._settle_transaction()
            save = self._next(position, weight=weight, keeps_prepared=keeps_prepared)
            began_s = self._clock.now_s()
            await self._send_moving(save, position)
            self._saved(position, began_s)

    async def attempt(self, position: str | None) -> int:
        """See `Lease.attempt`."""
        async with self._one_write:
            await self._settle_transaction()
            self._seq += 1
            attempt = Attempt(
                partition=self._term.partition,
                owner=self._sending.owner,
                token=self._term.token,
                seq=self._seq,
                position=None if position == self._position else position,
            )
            began_s = self._clock.now_s()
            if attempt.position is None:
                stored = await self._sending.until_stored(attempt, self._position)
            else:
                stored = await self._send_moving(attempt, attempt.position)
                self._saved(attempt.position, began_s)
            return stored.attempts

    async def prepare(self, prepared: Prepared) -> None:
        """See `Lease.prepare`."""
        async with self._one_write:
            self._seq += 1
            prepare = Prepare(
                partition=self._term.partition,
                owner=self._sending.owner,
                token=self._term.token,
                seq=self._seq,
                prepared=prepared,
            )
            await self._sending.until_stored(prepare, self._position)

    async def pause(self, reason: str) -> None:
        """See `Lease.pause`."""
        async with self._one_write:
            verb = Pause(partition=self._term.partition, seen_token=self._term.token, reason=reason)
            result = await self._sending.while_held(verb)
            if not isinstance(result, Applied):
                self._term.refused(self._position, result.current)

    async def commit(self, position: str, operations: Sequence[Any]) -> None:
        """See `Lease.commit`."""
        async with self._one_write:
            self.transactions()
            await self._settle()
            commit = Commit(save=self._next(position), previous=self._position, operations=tuple(operations))
            began_s = self._clock.now_s()
            self._doubt = _Doubt.TRANSACTION
            outcome = await self._decided(commit)
            if isinstance(outcome, Failed):
                raise outcome.error
            if isinstance(outcome, Refused):
                self._term.refused(position, outcome.current)
            self._saved(position, began_s)

    async def settled(self) -> str:
        """See `Lease.settled`."""
        async with self._one_write:
            await self._settle()
            return self._position

    def transactions(self) -> Transactions:
        """
        Return what the store offers for user transactions.

        Raises:
            TransactionsUnsupported: nothing.
        """
        store = self._sending.store
        transactions = transactions_of(store)
        if transactions is None:
            raise TransactionsUnsupported(
                store.url, "user transactions", remedy="use `batch.checkpoint()`, and writes that may be repeated"
            )
        return transactions

    def _next(self, position: str, *, weight: float | None = None, keeps_prepared: bool = False) -> SaveCheckpoint:
        self._seq += 1
        advances = position != self._position
        return SaveCheckpoint(
            partition=self._term.partition,
            owner=self._sending.owner,
            token=self._term.token,
            position=position,
            seq=self._seq,
            weight=weight,
            advances=advances,
            keeps_prepared=keeps_prepared or not advances,
        )

    def _saved(self, position: str, began_s: float) -> None:
        self._position = position
        self._doubt = _Doubt.NONE
        duration_s = self._clock.now_s() - began_s
        tell(
            self._on_event,
            CheckpointSaved(
                partition=self._term.partition, token=self._term.token, position=position, duration_s=duration_s
            ),
        )

    async def _settle_transaction(self) -> None:
        if self._doubt is _Doubt.TRANSACTION:
            await self._settle()

    async def _settle(self) -> None:
        """Make sure of the stored position, and that nothing in doubt will be applied later."""
        attempt = 0
        while self._doubt is not _Doubt.NONE:
            attempt += 1
            commit = Commit(save=self._next(self._position), previous=self._position)
            try:
                outcome = await self._decided(commit)
            except StoreMisconfigured as error:
                # As for a checkpoint, which this may stand in front of: it may be mended while the lease is held.
                await self._sending.failed(str(error), attempt)
                continue
            if isinstance(outcome, Failed):
                raise outcome.error
            if isinstance(outcome, Applied):
                self._doubt = _Doubt.NONE
                return
            current = outcome.current
            # Each turn finds one more of one's own saves applied, and there are no new ones meanwhile.
            if current is None or not self._sending.is_mine(current) or current.position == self._position:
                self._term.refused(self._position, current)
            self._position = current.position

    async def _decided(self, commit: Commit) -> Applied[LeaseItem] | Refused[LeaseItem] | Failed:
        """
        Send a commit until it is known what became of it, for as long as the term goes on.

        Where it failed and no try of it was left without an answer, nothing is in doubt any more.

        Raises:
            LeaseLost: the term has ended.
            StoreMisconfigured: no retry helps.
        """
        transactions = self.transactions()
        sending = self._sending
        is_unsure = False
        attempt = 0
        while True:
            self._term.ensure_held()
            attempt += 1
            try:
                outcome: Outcome = await call(lambda: transactions.commit(sending.group, commit), sending.timeout_s())
            except StoreMisconfigured:
                raise
            except StoreError as error:
                is_unsure = True
                reason = str(error)
                # Whatever it shows is certain only if it is a success, or the end: what is on its way may still arrive.
                if (found := await self._sending.look_for(commit.save)) is not None:
                    return found
            else:
                if isinstance(outcome, Refused) and self._sending.is_stored(outcome.current, commit.save):
                    return Applied(item=outcome.current)
                if isinstance(outcome, Failed):
                    # Its condition may fail on what an earlier try of this very commit has written.
                    if (found := await self._sending.look_for(commit.save)) is not None:
                        return found
                    if not is_unsure:
                        self._doubt = _Doubt.NONE
                    return outcome
                if not isinstance(outcome, Again):
                    return outcome
                reason = outcome.reason
            await self._sending.failed(reason, attempt)

    async def _send_moving(self, save: SaveCheckpoint | Attempt, position: str) -> LeaseItem:
        """Send what moves the stored position to this one."""
        if self._doubt is _Doubt.NONE:
            self._doubt = _Doubt.CHECKPOINT
        return await self._sending.until_stored(save, position)
