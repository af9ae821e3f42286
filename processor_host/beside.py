"""
Side by side: `concurrency=N` single records of one partition are at work together, those of one key in their order.

Knows no source. Which may begin, and how far everything is done, is `processor_host.ordering`'s to say; here are the
tasks. The checkpoint is the last record before the first that is not done, so it is never ahead of an unfinished one: a
record that fails holds it back, and its own key, while the others go on up to the window.

A drain begins nothing more and lets what is at work end; a failure that stops the partition does the same first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from partitions.clocks import wait_until
from partitions.errors import LeaseLost
from partitions.sources.base import Record
from partitions.transactions import TransactionInvalid
from processor_host.caution import Phase
from processor_host.failures import Again, Bury, Failure, PassOver, StopPartition
from processor_host.filling import Filling
from processor_host.giving_up import GivingUp
from processor_host.handing import Handing
from processor_host.kinds import Kind
from processor_host.ordering import SideBySide
from processor_host.pump_parts import EVERY_RECORD
from processor_host.term import Outcome, Term, unless_asked
from processor_host.user_code import UserFailed

__all__ = ["Beside"]


class _Marking:
    """The marks of one record at work."""

    __slots__ = ("_beside", "_number", "_record")

    def __init__(self, beside: Beside, number: int, record: Record) -> None:
        self._beside = beside
        self._number = number
        self._record = record

    async def save(self, _: int) -> None:
        """See `Marking`."""
        await self._beside.save(self._number, self._record)

    async def commit(self, _: int, operations: Sequence[Any]) -> None:
        """See `Marking`."""
        await self._beside.commit(self._number, self._record, operations)

    async def prepare(self, _: int, state: str) -> None:
        """See `Marking`."""
        await self._beside.prepare(self._number, self._record, state)


class Beside:
    """Hands on what one run of a processor of single records is given."""

    def __init__(self, term: Term, kind: Kind, handing: Handing, filling: Filling) -> None:
        bounds = term.parts.bounds
        self._term = term
        self._handing = handing
        self._filling = filling
        self._giving_up = GivingUp(term, kind)
        self._order = SideBySide(at_once=bounds.concurrency, window_max=bounds.window_max)
        self._is_each_stored = bounds.checkpoint == EVERY_RECORD
        self._base = term.checkpointer.marked
        self._before = term.checkpointer.position
        """The position before the first record that is not done."""
        self._attempts: dict[int, int] = {}
        self._lag_s: dict[int, float | None] = {}
        self._chunk_ends: deque[int] = deque()
        """Up to which number of records each chunk goes that was taken in and is not all done."""
        self._stop: StopPartition | None = None
        self._at_end: Outcome | None = None
        """How the run ends once everything that was taken in is done."""
        self._is_draining = False
        self._changed = anyio.Event()
        self._freed = anyio.Event()
        self._progressed = anyio.Event()

    async def run(self) -> Outcome:
        """Hand on until something ends that."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take_in, name=f"take in {self._term.lease.key}")
            outcome = await self._begin_all(tasks)
            tasks.cancel_scope.cancel()
        if self._stop is None or outcome is not Outcome.STOPPED:
            return outcome
        await self._save()
        return Outcome.STOPPED if await self._giving_up.stop(self._stop) else Outcome.LOST

    async def _begin_all(self, tasks: TaskGroup) -> Outcome:
        """Begin whatever may begin, until everything that was taken in is done or nothing may begin any more."""
        order = self._order
        while True:
            self._changed = anyio.Event()
            # Seen here too: whoever takes in may be waiting for room, and never hears of it.
            self._is_draining = self._is_draining or self._term.lease.asked.is_set()
            if self._is_draining or self._stop is not None:
                if order.at_work == 0:
                    return Outcome.STOPPED if self._stop is not None else Outcome.DRAINED
            elif self._at_end is not None and order.unfinished == 0:
                return self._at_end
            else:
                if (self._is_each_stored or self._is_careful()) and self._term.checkpointer.unsaved is not None:
                    # Nothing begins behind what is done and not stored.
                    await self._save()
                await self._filling.paused()
                while not self._term.lease.asked.is_set() and (begun := order.begin()) is not None:
                    number, record = begun
                    self._term.lease.ensure_held()
                    tasks.start_soon(self._handle, number, record, name=f"record {number} {self._term.lease.key}")
                if self._term.lease.asked.is_set():
                    # Since it was looked at above: nothing may be at work that would tell of a change.
                    continue
            await self._changed.wait()

    async def _take_in(self) -> None:
        """Take in what was read, as far as the window has room."""
        count = 0
        while True:
            chunk = await self._filling.next()
            if chunk is None or self._term.lease.asked.is_set():
                self._is_draining = True
                self._change()
                return
            for record in chunk.records:
                while self._order.room < 1:
                    # One of its own: an event that is set already would make this spin while something is stored.
                    self._freed = anyio.Event()
                    await self._freed.wait()
                self._lag_s[self._order.add(record)] = chunk.lag_s
                count += 1
                self._change()
            self._chunk_ends.append(count)
            self._free_chunks()
            if chunk.ended or chunk.is_over:
                self._at_end = Outcome.UNTIL_REACHED if chunk.is_over else Outcome.PARTITION_ENDED
                self._change()
                return

    async def _handle(self, number: int, record: Record) -> None:
        try:
            failed = await self._handing.hand_on(
                (record,),
                byte_count=len(record.data),
                lag_s=self._lag_s[number],
                marking=_Marking(self, number, record),
            )
            if failed is None:
                self._done(number)
            else:
                await self._failed(failed, number, record)
        except LeaseLost:
            # Whoever watches the lease ends everything else.
            return
        finally:
            self._change()

    async def _failed(self, failed: UserFailed, number: int, record: Record) -> None:
        term = self._term
        if not term.lease.is_held():
            return
        attempts = self._attempts[number] = self._attempts.get(number, 0) + 1
        decision = await self._giving_up.decide(failed, attempts=attempts, records=(record,))
        term.tell_failure(decision.failure.stage, failed.error, attempt=attempts, pause_s=decision.pause_s)
        match decision.step:
            case Bury() | PassOver() as step:
                await self._give_up(step, decision.failure, number, record)
            case StopPartition() as step:
                self._order.fail(number)
                self._stop = self._stop or step
                self._tell_progress()
            case Again():
                self._order.fail(number)
                self._change()
                clock = term.parts.clock
                await wait_until(clock, clock.now_s() + decision.pause_s, term.lease.asked)
                self._order.again(number)
            case _:
                raise AssertionError(f"a single record cannot be split: {decision.step!r}")

    async def _give_up(self, step: Bury | PassOver, failure: Failure, number: int, record: Record) -> None:
        commit = None
        if self._giving_up.joins(step) and not self._term.is_manual:
            # The checkpoint that its letter is stored with must not pass over those before it. Not at work while it
            # waits: they may need its place.
            self._order.fail(number)
            self._change()
            if not await unless_asked(self._term.lease, partial(self._until_first, number)) or self._stop is not None:
                return
            commit = _Marking(self, number, record).commit
        after = self._position_before(number)
        if await self._giving_up.give_up(step, failure, after=after, commit=commit):
            self._done(number)
            await self._save()
        elif commit is None:
            self._order.fail(number)

    async def _until_first(self, number: int) -> None:
        """Wait until everything before a record is done, or until a failure stops the partition."""
        while self._order.done < number and self._stop is None:
            await self._progressed.wait()

    def _tell_progress(self) -> None:
        # Replaced by who sets it: several may wait.
        progressed, self._progressed = self._progressed, anyio.Event()
        progressed.set()

    async def save(self, number: int, record: Record) -> None:
        """Store that a record is done that is at work, where it is the first; else only what is before it."""
        if self._order.done == number:
            self._term.checkpointer.mark(self._base + number + 1, record.position)
        await self._term.checkpointer.save()
        self._term.tell_marked()

    async def commit(self, number: int, record: Record, operations: Sequence[Any]) -> None:
        """
        Store that a record is done that is at work, together with a user's operations.

        Raises:
            TransactionInvalid: it is not the first that is not done.
        """
        if self._order.done != number:
            raise TransactionInvalid(
                f"the record at {record.position!r} is not the first that is unfinished, so its transaction would "
                "move the checkpoint past others; use concurrency=1 with transactions"
            )
        await self._term.checkpointer.commit(self._base + number + 1, record.position, operations)
        self._term.tell_marked()

    async def prepare(self, number: int, record: Record, state: str) -> None:
        """Store a user's state for a record; see `Batch.prepare`."""
        await self._term.checkpointer.prepare(self._base + number + 1, record.position, state)

    def _done(self, number: int) -> None:
        order = self._order
        order.end(number)
        self._attempts.pop(number, None)
        self._lag_s.pop(number, None)
        self._term.failures.clear()
        self._freed.set()
        self._tell_progress()
        self._term.passed(1)
        if order.position is not None:
            self._term.checkpointer.mark(self._base + order.done, order.position)
        self._free_chunks()

    def _is_careful(self) -> bool:
        """Whether a host died with this partition a short while ago, so that what is done is stored at once."""
        term = self._term
        if term.caution is not None and term.caution.phase(term.parts.clock.now_s()) is Phase.NORMAL:
            term.caution = None
        return term.caution is not None

    def _free_chunks(self) -> None:
        """Let go of the chunks whose records are all done: only then is their memory free."""
        while self._chunk_ends and self._chunk_ends[0] <= self._order.done:
            self._chunk_ends.popleft()
            self._filling.done()

    def _position_before(self, number: int) -> str:
        """The position before a record that is not done."""
        return self._order.before(number) or self._before

    async def _save(self) -> None:
        await self._term.checkpointer.save()

    def _change(self) -> None:
        self._changed.set()
