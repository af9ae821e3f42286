"""
One after the other: the records of a partition are handed on in its order, in units, each once the one before is done.

Knows no task and no source. A processor of batches gets what was read as a batch, or what is left of one in pieces
after a failure; one of records gets single records.

Theory of operation:
- A chunk becomes `Pieces`; the first piece is the unit that is handed on. What is done is marked, so the checkpoint is
  never ahead of a unit that is not done, and nothing begins behind one that failed.
- What failed is decided by the policy. A processor of records stays open, and its record comes again after the pause. A
  processor of batches is closed and opened again after each failure, since its state may be broken; the records and
  their pieces are carried over in memory, so that attempts count for the same records.
- Where only the user's own checkpoints count (`manual`), nothing is marked here and nothing is carried over: whoever
  is opened again gets everything behind the last checkpoint once more. It stays open where records are given up or a
  batch is split, because whatever was not checkpointed would come again, the same ones among it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import anyio

from partitions.clocks import wait_until
from partitions.sources.base import Record
from processor_host.buffer import Chunk
from processor_host.caution import Phase
from processor_host.events import BatchSplit, CheckpointMissing
from processor_host.failures import Again, HostDied, SplitUp, StopPartition
from processor_host.filling import Filling
from processor_host.giving_up import Decision, GivingUp
from processor_host.handing import Handing
from processor_host.kinds import Kind
from processor_host.pieces import Piece, Pieces
from processor_host.pump_parts import EVERY_RECORD
from processor_host.term import Carried, Outcome, RunAgain, Term, unless_asked
from processor_host.user_code import UserFailed

__all__ = ["InTurn"]

MISSING_TOLD_S: Final = 60.0
"""How often a partition tells that it waits for the user's own checkpoint at its end."""

Ended = Outcome | RunAgain


class _Marking:
    """The marks of one unit, whose first record is the one after `before` others of this term."""

    __slots__ = ("_before", "_checkpointer", "_records", "_term")

    def __init__(self, term: Term, before: int, records: Sequence[Record]) -> None:
        self._term = term
        self._checkpointer = term.checkpointer
        self._before = before
        self._records = records

    async def save(self, index: int) -> None:
        """See `Marking`."""
        self._checkpointer.mark(self._before + index + 1, self._records[index].position)
        await self._checkpointer.save()
        self._term.tell_marked()

    async def commit(self, index: int, operations: Sequence[Any]) -> None:
        """See `Marking`."""
        await self._checkpointer.commit(self._before + index + 1, self._records[index].position, operations)
        self._term.tell_marked()

    async def prepare(self, index: int, state: str) -> None:
        """See `Marking`."""
        await self._checkpointer.prepare(self._before + index + 1, self._records[index].position, state)


class InTurn:
    """Hands on what one run of a processor is given."""

    def __init__(self, term: Term, kind: Kind, handing: Handing, filling: Filling) -> None:
        self._term = term
        self._handing = handing
        self._filling = filling
        self._giving_up = GivingUp(term, kind)
        self._stays_open = kind.is_single
        self._is_each_stored = term.parts.bounds.checkpoint == EVERY_RECORD
        self._is_single = kind.is_single or self._is_each_stored
        self._handed = term.checkpointer.marked
        """Records of this term that were handed on and are done or given up, whether or not they are marked."""

    async def run(self, *, while_suspect: bool = False) -> Ended | None:
        """Hand on until something ends that; None where it was to end with the term's one-at-a-time phase, and did."""
        term = self._term
        if (carried := term.take_carried()) is not None:
            self._handed = carried.before
            try:
                ended = await self._hand_on(carried.chunk, carried.pieces)
            finally:
                term.parts.budget.give_back(carried.chunk.bytes)
            if ended is None:
                ended = await self._behind(carried.chunk)
            if ended is not None:
                return ended
        while not while_suspect or term.is_one_at_a_time():
            chunk = await self._filling.next()
            if chunk is None or term.lease.asked.is_set():
                return Outcome.DRAINED
            ended = await self._hand_on(chunk, None) if chunk.records else None
            if ended is None:
                ended = await self._behind(chunk)
            if ended is not None:
                return ended
            self._filling.done()
        return None

    async def _behind(self, chunk: Chunk) -> Ended | None:
        """Return how the run ends behind a chunk that is done, if it does."""
        if chunk.is_over or chunk.ended:
            if not await self._is_all_marked():
                return Outcome.DRAINED
            return Outcome.UNTIL_REACHED if chunk.is_over else Outcome.PARTITION_ENDED
        return Outcome.DRAINED if self._term.lease.asked.is_set() else None

    async def _hand_on(self, chunk: Chunk, pieces: Pieces | None) -> Ended | None:
        """Hand on one chunk, or the pieces that are left of it; return how the run ends, if it does."""
        term = self._term
        base = self._handed
        if pieces is None:
            is_single = self._is_single or term.is_one_at_a_time()
            pieces = Pieces.of(len(chunk.records), single=is_single, attempts=term.take_attempts())
        while pieces.left:
            term.lease.ensure_held()
            if term.caution is not None:
                ended, pieces = await self._with_care(chunk, pieces, base)
                if ended is not None:
                    return ended
                if not pieces.left:
                    break
            piece = pieces.left[0]
            failed = await self._hand_on_piece(chunk, piece, base)
            if failed is None:
                self._done(base + piece.stop, chunk, piece)
                pieces = pieces.passed()
                if self._is_each_stored:
                    await term.checkpointer.save()
            else:
                ended, pieces = await self._failed(failed, chunk, pieces, base)
                if ended is not None:
                    return ended
            if pieces.left:
                await self._filling.paused()
                if term.lease.asked.is_set():
                    return Outcome.DRAINED
        self._handed = base + len(chunk.records)
        return None

    async def _hand_on_piece(self, chunk: Chunk, piece: Piece, base: int) -> UserFailed | None:
        first = piece.start
        is_whole = piece.stop - first == len(chunk.records)
        records = chunk.records if is_whole else chunk.records[first : piece.stop]
        return await self._handing.hand_on(
            records,
            byte_count=chunk.bytes if is_whole else sum(len(record.data) for record in records),
            lag_s=chunk.lag_s,
            marking=_Marking(self._term, base + first, records),
        )

    def _done(self, count: int, chunk: Chunk, piece: Piece) -> None:
        """Note that a piece is done or given up."""
        self._term.failures.clear()
        self._term.failing = None
        self._term.passed(piece.stop - piece.start)
        if self._term.is_manual:
            self._term.failed_at.pop(chunk.records[piece.start].position, None)
        else:
            self._term.checkpointer.mark(count, chunk.records[piece.stop - 1].position)

    async def _failed(self, failed: UserFailed, chunk: Chunk, pieces: Pieces, base: int) -> tuple[Ended | None, Pieces]:
        """Do what the policy says about the first of the pieces; return how the run ends, if it does."""
        term = self._term
        if not term.lease.is_held():
            return Outcome.LOST, pieces
        # A transaction that was cancelled or not answered may have been applied: then its records are not to blame.
        await term.checkpointer.settle()
        stopped_at = pieces.left[0].stop
        before, pieces = pieces.done, pieces.without(term.checkpointer.marked - base)
        if found := pieces.done - before:
            term.tell_marked(found_done=found)
        is_blamed = bool(pieces.left) and pieces.left[0].stop == stopped_at
        records: tuple[Record, ...] = ()
        if is_blamed:
            pieces = self._counted(pieces, chunk, base)
            records = chunk.records[pieces.left[0].start : stopped_at]
        piece = pieces.left[0] if is_blamed else Piece(start=stopped_at, stop=stopped_at, attempts=1)
        decision = await self._giving_up.decide(failed, attempts=piece.attempts, records=records, is_part=piece.is_part)
        return await self._act(decision, failed, chunk, pieces, base)

    async def _with_care(self, chunk: Chunk, pieces: Pieces, base: int) -> tuple[Ended | None, Pieces]:
        """Do what has to be stored before the next unit begins, in a term whose partition a host died with."""
        term = self._term
        caution = term.caution
        assert caution is not None  # Called only then.
        phase = caution.phase(term.parts.clock.now_s())
        if phase is Phase.CAREFUL:
            await term.checkpointer.save()
            return None, pieces
        if phase is Phase.NORMAL or len(pieces.left) == 0:
            term.caution = None
            return None, pieces
        piece = pieces.left[0]
        if (attempts := term.take_deaths()) > 0:
            record = chunk.records[piece.start]
            failed = UserFailed("process", HostDied(record.partition, record.position, attempts))
            decision = await self._giving_up.decide(failed, attempts=attempts, records=(record,), is_part=True)
            if not isinstance(decision.step, Again):
                ended, pieces = await self._act(decision, failed, chunk, pieces, base, stays_open=True)
                return (
                    (ended, pieces)
                    if ended is not None or not pieces.left
                    else await self._with_care(chunk, pieces, base)
                )
        # Where only the user marks, no write tells which record is next unless it is the first behind the checkpoint.
        if term.checkpointer.marked == base + piece.start:
            await term.checkpointer.attempt()
            term.caution = caution.begun()
        return None, pieces

    def _counted(self, pieces: Pieces, chunk: Chunk, base: int) -> Pieces:
        """Count one more failure of the first piece; where it is read again, by the position of its first record."""
        first = pieces.left[0]
        if not self._term.is_manual:
            pieces = pieces.failed()
            is_single = first.stop - first.start == 1
            self._term.failing = (base + first.start, pieces.left[0].attempts) if is_single else None
            return pieces
        position = chunk.records[pieces.left[0].start].position
        attempts = self._term.failed_at[position] = self._term.failed_at.get(position, 0) + 1
        return pieces.failed(attempts)

    async def _act(
        self,
        decision: Decision,
        failed: UserFailed,
        chunk: Chunk,
        pieces: Pieces,
        base: int,
        *,
        stays_open: bool = False,
    ) -> tuple[Ended | None, Pieces]:
        term = self._term
        failure, step = decision.failure, decision.step
        stays_open = (
            stays_open
            or self._stays_open
            or (not isinstance(step, Again) and (term.is_manual or failure.stage == "decode"))
        )
        # Otherwise it is told once the processor is closed and what was done is stored.
        is_told = stays_open or not isinstance(step, Again)
        if is_told:
            term.tell_failure(failure.stage, failed.error, attempt=failure.attempts, pause_s=decision.pause_s)
        match step:
            case StopPartition():
                return (Outcome.STOPPED if await self._giving_up.stop(step) else Outcome.LOST), pieces
            case SplitUp():
                pieces = pieces.split(step.at)
                term.tell(
                    BatchSplit(
                        partition=term.lease.partition,
                        token=term.lease.token,
                        records=len(failure.records),
                        parts=len(step.at) + 1,
                    )
                )
            case Again():
                pass
            case _:
                piece = pieces.left[0]
                after = chunk.records[piece.start - 1].position if piece.start else self._position_before(base)
                marking = _Marking(term, base + piece.start, failure.records)
                commit = None if term.is_manual else marking.commit
                if not await self._giving_up.give_up(step, failure, after=after, commit=commit):
                    return Outcome.DRAINED, pieces
                self._done(base + piece.stop, chunk, piece)
                pieces = pieces.passed()
                # At once: a host that dies before would give them up, and write their letters, again.
                await term.checkpointer.save()
        if stays_open:
            if isinstance(step, Again):
                term.checkpointer.save_soon()
                clock = term.parts.clock
                await wait_until(clock, clock.now_s() + decision.pause_s, term.lease.asked)
                if term.lease.asked.is_set():
                    return Outcome.DRAINED, pieces
            return None, pieces
        if not term.is_manual and (pieces.left or chunk.ended or chunk.is_over):
            term.carry(Carried(chunk=chunk, pieces=pieces, before=base))
        again = RunAgain(
            stage=failure.stage,
            error=failed.error,
            attempt=failure.attempts,
            pause_s=decision.pause_s,
            is_told=is_told,
        )
        return again, pieces

    def _position_before(self, base: int) -> str:
        """The position before a chunk, whose first record has the number `base`."""
        checkpointer = self._term.checkpointer
        return checkpointer.position if checkpointer.marked == base else self._filling.before

    async def _is_all_marked(self) -> bool:
        """Wait for the user's own checkpoints where nothing else marks; False where the lease is asked for first."""
        term = self._term
        began_s = term.parts.clock.now_s()
        while (missing := self._handed - term.checkpointer.marked) > 0:
            waited_s = term.parts.clock.now_s() - began_s
            term.tell(
                CheckpointMissing(
                    partition=term.lease.partition, token=term.lease.token, records=missing, waited_s=waited_s
                )
            )
            with anyio.move_on_after(MISSING_TOLD_S):
                await unless_asked(term.lease, partial(term.checkpointer.wait_for, self._handed))
            if term.lease.asked.is_set():
                return False
        return True
