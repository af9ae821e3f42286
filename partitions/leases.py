"""
The held lease: one term of one partition on this host, and the writes that only its holder may send.

How long it goes on is in `partitions.terms`, what it saves in `partitions.saves`. A term ends here *before* its release
is sent (rule 6): whoever sees the lease free in the store can rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import anyio

from partitions.current import current_lease, working_under
from partitions.events import (
    CheckpointRefused,
    EndReason,
    LeaseReleased,
    ReleaseFailed,
)
from partitions.items import PREPARED_BYTES_MAX, LeaseItem, Prepared
from partitions.saves import Saves
from partitions.sending import Sending
from partitions.terms import Term, Terms
from partitions.transactions import Collector
from partitions.verbs import Child, Complete, Release

__all__ = ["Lease", "current_lease", "working_under"]


class Lease(Term):
    """
    The right to process one partition, while `is_held()`.

    Attributes:
        partition: The partition's id.
        key: The ask key of this term.
        token: The fencing token of this term; hand it to whatever can compare it.
        position: The checkpoint at which the term began: the last record done.
        weight: What the partition weighed then; 0 where nobody has measured it.
        attempts: Calls with the record after it that earlier terms began and that did not end well, as far as counted.
        suspects: How many terms before this one in a row may have died of a record, nothing done since.
        prepared: What an earlier term prepared and nobody has checkpointed since; None where nothing is pending.
        ended: Set once the term has ended, for whatever reason. Await it to stop.
        asked: Set once the lease is to be given up, as when somebody asks for it, or has ended: start nothing new.
    """

    def __init__(self, terms: Terms, item: LeaseItem) -> None:
        super().__init__(terms, item)
        self.position = item.position
        self.weight = item.weight
        self.attempts = item.attempts
        self.suspects = item.suspects
        self.prepared = item.prepared
        self._sending = Sending(
            self,
            store=terms.store,
            group=terms.group,
            owner=terms.session_id,
            random=terms.random,
            call_timeout_s=terms.call_timeout_s,
            on_event=terms.on_event,
        )
        self._saves = Saves(self, item, sending=self._sending, clock=terms.clock, on_event=terms.on_event)

    async def checkpoint(self, position: str, *, weight: float | None = None, keeps_prepared: bool = False) -> None:
        """
        Store that everything up to `position` is done, under the fence of this term.

        Returns once the store has it. Failed calls are repeated with growing waits for as long as the term goes on.
        Calls come one after the other; positions must not go back within a term, which the caller sees to. One that
        goes on ends the counts of attempts and suspects, and what is prepared.

        Args:
            position: The last record done.
            weight: The new weight; None leaves the stored one.
            keeps_prepared: Leave what is prepared, whose own position is still to come.

        Raises:
            LeaseLost: the term has ended, or the store holds another owner or token (then the term ends here).
        """
        await self._saves.checkpoint(position, weight=weight, keeps_prepared=keeps_prepared)

    async def attempt(self, position: str | None = None) -> int:
        """
        Count a call that is about to begin with one record, so that the count stands if the record kills the process.

        Retried as a checkpoint is.

        Args:
            position: The record before it, if that was done since: this stores it, and counts anew. None, or the stored
                position, for one more attempt at the record right after the stored position.

        Returns:
            How many attempts at this record are counted now, this one among them.

        Raises:
            LeaseLost: as `checkpoint`; do not begin the call.
        """
        return await self._saves.attempt(position)

    async def prepare(self, state: str, position: str) -> None:
        """
        Store `state` beside the checkpoint, for a checkpoint at `position` that is pending; the checkpoint stays.

        Whoever begins the next term finds both in `prepared`, until a checkpoint goes on or something else is prepared.
        Retried as a checkpoint is.

        Raises:
            LeaseLost: as `checkpoint`.
            ValueError: the state is too long.
        """
        if (size := len(state.encode())) > PREPARED_BYTES_MAX:
            raise ValueError(
                f"partition {self.partition!r}: a prepared state of {size} bytes, expected at most "
                f"{PREPARED_BYTES_MAX}, because every host reads it; store it elsewhere, and prepare its key"
            )
        await self._saves.prepare(Prepared(state=state, position=position))

    async def pause(self, reason: str) -> None:
        """
        Take the partition out of the plan until somebody resumes it; the term goes on until it is released.

        Once it is stored, `asked` is set: start nothing new, then release. Retried as a checkpoint is.

        Args:
            reason: For people; stored beside it.

        Raises:
            LeaseLost: as `checkpoint`.
        """
        await self._saves.pause(reason)
        self.asked.set()

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

    async def release(
        self,
        position: str | None = None,
        *,
        attempts: int | None = None,
        keeps_prepared: bool = False,
        is_reset: bool = False,
    ) -> bool:
        """
        End the term here, then free the lease in the store, with `position` as its last checkpoint if given.

        Nothing may still be running for the partition. Shielded from cancellation, under a time-out. A release that
        fails is told, not raised: a snapshot will show what became of it.

        Args:
            position: The last record done; None, or the stored one, where nothing was done since.
            attempts: Calls in a row with the next record that failed, which the next owner goes on counting. None
                leaves the stored count, which a checkpoint ends.
            keeps_prepared: As for `checkpoint`.
            is_reset: A person says where to go on. What stands beside the checkpoint ends also where that is the stored
                position.

        Returns:
            True if the store is known to have the lease as free; False if the term had ended before, or is unsure.
        """
        if not self.is_held():
            self.end(self.reason_of_time())
            return False
        free = self._saves.release(position, attempts=attempts, keeps_prepared=keeps_prepared, is_reset=is_reset)
        return await self._give_up(free, EndReason.RELEASED, free.position)

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
                error = await self._sending.free(verb)
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
