"""
The writes of one term: its checkpoints and user transactions, one after the other, and the one that frees it.

Knows a store and, of the term, only what `Term` says; it starts no task. Each save uses up a number (`seq`) whether or
not it is ever answered, so that a late duplicate changes nothing (rule 7). A refused save may be one's own earlier
success whose answer was lost: the returned item is compared first (rule 9).

A save whose answer never came is *in doubt*. A plain checkpoint in doubt matters to the next transaction only, which
names the position stored before it. A transaction in doubt matters to everything that follows: a checkpoint or a
release that carried an older position would move the stored one back behind writes that were applied, and the records
would write once more. So it is settled before the next save (`partitions.transactions` says how), and a release that
comes before that carries no position.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import Any, Final, NoReturn, Protocol

import anyio

from partitions.clocks import Clock
from partitions.errors import StoreError, StoreMisconfigured
from partitions.events import CheckpointFailed, CheckpointSaved, OnEvent, tell
from partitions.items import LeaseItem
from partitions.retries import Waits, call
from partitions.stores.base import Store, Transactions, transactions_of
from partitions.transactions import Again, Commit, Failed, Outcome, TransactionsUnsupported
from partitions.verbs import Applied, Complete, Refused, Release, Result, SaveCheckpoint

__all__ = ["RELEASES_MAX", "Saves", "Term"]

RELEASES_MAX: Final = 3
"""Tries of a release; after that a snapshot shows what became of it, and the session's end frees the lease anyway."""


class Term(Protocol):
    """What saves need of the term to which they belong."""

    partition: str
    token: int

    def ensure_held(self) -> None:
        """Raise LeaseLost where the term has ended."""
        ...

    def remaining_s(self) -> float:
        """Return how long it goes on, seconds."""
        ...

    def refused(self, position: str, current: LeaseItem | None) -> NoReturn:
        """End the term, which the store has under another owner or token, and raise LeaseLost."""
        ...


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
        store: Store,
        group: str,
        owner: str,
        clock: Clock,
        random: Random,
        call_timeout_s: float,
        on_event: OnEvent | None,
    ) -> None:
        self._term = term
        self._store = store
        self._group = group
        self._owner = owner
        self._clock = clock
        self._random = random
        self._call_timeout_s = call_timeout_s
        self._on_event = on_event
        self._one_write = anyio.Lock()
        self._seq = item.seq
        self._position = item.position
        """As it is stored, or was before everything that is in doubt."""
        self._doubt = _Doubt.NONE

    def with_release(self, position: str | None) -> tuple[str | None, int | None]:
        """Return the position that a release may carry, and its number; None where it must leave the stored one."""
        if position is None or self._doubt is _Doubt.TRANSACTION:
            return None, None
        return position, self._seq + 1

    async def checkpoint(self, position: str, *, weight: float | None) -> None:
        """See `Lease.checkpoint`."""
        async with self._one_write:
            if self._doubt is _Doubt.TRANSACTION:
                await self._settle()
            save = self._next(position, weight=weight)
            began_s = self._clock.now_s()
            if self._doubt is _Doubt.NONE:
                self._doubt = _Doubt.CHECKPOINT
            result = await self._send_while_held(save)
            if not isinstance(result, Applied) and not self._is_stored(result.current, save):
                self._term.refused(position, result.current)
            self._saved(position, began_s)

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

    async def free(self, verb: Release | Complete) -> str | None:
        """Send the write that frees the lease, a few times; return what is wrong, or None where it is free."""
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await call(lambda: self._store.submit(self._group, verb), self._call_timeout_s)
            except StoreError as error:
                if attempt >= RELEASES_MAX:
                    return str(error)
                await anyio.sleep(self._wait_s(attempt))
                continue
            if isinstance(result, Applied):
                return None
            # Free under the same token is one's own release whose answer was lost, a higher token the next owner.
            current = result.current
            is_free = current is None or current.token > self._term.token or current.owner is None
            return None if is_free else f"the store has owner {current.owner!r}" if current else None

    def transactions(self) -> Transactions:
        """
        Return what the store offers for user transactions.

        Raises:
            TransactionsUnsupported: nothing.
        """
        transactions = transactions_of(self._store)
        if transactions is None:
            raise TransactionsUnsupported(
                self._store.url, "user transactions", remedy="use `batch.checkpoint()`, and writes that may be repeated"
            )
        return transactions

    def _next(self, position: str, *, weight: float | None = None) -> SaveCheckpoint:
        self._seq += 1
        return SaveCheckpoint(
            partition=self._term.partition,
            owner=self._owner,
            token=self._term.token,
            position=position,
            seq=self._seq,
            weight=weight,
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
                await self._failed(str(error), attempt)
                continue
            if isinstance(outcome, Failed):
                raise outcome.error
            if isinstance(outcome, Applied):
                self._doubt = _Doubt.NONE
                return
            current = outcome.current
            # Each turn finds one more of one's own saves applied, and there are no new ones meanwhile.
            if current is None or not self._is_mine(current) or current.position == self._position:
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
        is_unsure = False
        attempt = 0
        while True:
            self._term.ensure_held()
            attempt += 1
            try:
                outcome: Outcome = await call(lambda: transactions.commit(self._group, commit), self._timeout_s())
            except StoreMisconfigured:
                raise
            except StoreError as error:
                is_unsure = True
                reason = str(error)
                # Whatever it shows is certain only if it is a success, or the end: what is on its way may still arrive.
                if (found := await self._look_for(commit.save)) is not None:
                    return found
            else:
                if isinstance(outcome, Refused) and self._is_stored(outcome.current, commit.save):
                    return Applied(item=outcome.current)
                if isinstance(outcome, Failed):
                    # Its condition may fail on what an earlier try of this very commit has written.
                    if (found := await self._look_for(commit.save)) is not None:
                        return found
                    if not is_unsure:
                        self._doubt = _Doubt.NONE
                    return outcome
                if not isinstance(outcome, Again):
                    return outcome
                reason = outcome.reason
            await self._failed(reason, attempt)

    async def _look_for(self, save: SaveCheckpoint) -> Applied[LeaseItem] | Refused[LeaseItem] | None:
        """Read the lease: say whether this save is in it, or that it is another's; None where it shows neither."""
        try:
            found = await call(lambda: self._store.read_lease(self._group, save.partition), self._timeout_s())
        except StoreError:
            return None
        if self._is_stored(found, save):
            return Applied(item=found)
        return None if found is not None and self._is_mine(found) else Refused(current=found)

    async def _send_while_held(self, save: SaveCheckpoint) -> Result[LeaseItem]:
        attempt = 0
        while True:
            self._term.ensure_held()
            attempt += 1
            try:
                return await call(lambda: self._store.submit(self._group, save), self._timeout_s())
            except StoreError as error:
                await self._failed(str(error), attempt)

    async def _failed(self, error: str, attempt: int) -> None:
        """Tell of a try that failed, and wait before the next."""
        term = self._term
        tell(
            self._on_event,
            CheckpointFailed(partition=term.partition, token=term.token, error=error, attempt=attempt),
        )
        await anyio.sleep(min(self._wait_s(attempt), term.remaining_s()))

    def _wait_s(self, attempt: int) -> float:
        return Waits(first_s=self._call_timeout_s / 8, most_s=self._call_timeout_s).after(attempt, self._random)

    def _timeout_s(self) -> float:
        return min(self._call_timeout_s, self._term.remaining_s())

    def _is_mine(self, current: LeaseItem) -> bool:
        return current.owner == self._owner and current.token == self._term.token

    def _is_stored(self, current: LeaseItem | None, save: SaveCheckpoint) -> bool:
        """Say whether a save is stored although it was refused or not answered: its first answer was lost (rule 9)."""
        return current is not None and self._is_mine(current) and current.seq >= save.seq
