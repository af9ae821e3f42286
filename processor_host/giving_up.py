"""
What becomes of a failure: asks the policy, and does what it says beyond trying again.

Knows no order of records and no pieces. Nothing is passed over here without its letter: a sink that fails is tried
again with growing pauses until the letter is written, the lease is asked for, or the term ends.

A letter is written before the checkpoint, so a host that dies between them writes it again. Where the sink can join a
transaction of the lease store, both are one write, and what became of a try without an answer is found out before the
next one: then a letter is written exactly once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import anyio

from partitions.clocks import wait_until
from partitions.errors import LeaseLost
from partitions.retries import Waits
from partitions.sources.base import Record
from partitions.transactions import TransactionsUnsupported
from processor_host.decoding import DecodeFailed
from processor_host.events import LetterFailed, LetterWritten, PartitionStopped, RecordsGivenUp
from processor_host.failures import (
    Again,
    Bury,
    Failure,
    PassOver,
    Policy,
    Stage,
    Step,
    StopPartition,
    check_policy,
    what_next,
)
from processor_host.kinds import Kind
from processor_host.letters.base import JoiningSink, Letter, LetterSink, letter_of
from processor_host.term import Term
from processor_host.user_code import UserFailed, call_user, text_of

__all__ = ["Decision", "GivingUp"]

LETTER_S = 30.0
"""How long a sink may take for one letter; then it counts as failed."""
TOGETHER_MAX: Final = 8
"""Letters in one transaction: the largest that DynamoDB takes, of 400 KB each, stay below its limit of 4 MB."""

Commit = Callable[[int, Sequence[Any]], Awaitable[None]]
"""Stores that the records of a unit up to this index are done, together with operations of the lease store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done about a failure."""

    failure: Failure
    step: Step
    pause_s: float
    """Before the next try; 0.0 where the step is not to try again."""


class GivingUp:
    """Decides about the failures of one processor and does what follows."""

    def __init__(self, term: Term, kind: Kind | None) -> None:
        self._term = term
        self._kind = kind
        """None where not even a processor was made."""

    async def decide(
        self, failed: UserFailed, *, attempts: int, records: tuple[Record, ...] = (), is_part: bool = False
    ) -> Decision:
        """
        Ask the processor's own policy, or else the host's.

        Args:
            failed: What user code raised.
            attempts: Calls that failed in a row at these records, or at none, this one included.
            records: Those that were handed on together; none where `open` or `close` raised.
            is_part: As `Failure.is_part`.

        Raises:
            LeaseLost: the lease has ended.
        """
        term = self._term
        stage = "decode" if isinstance(failed.error, DecodeFailed) else failed.stage
        failure = Failure(
            partition=term.lease.partition,
            token=term.lease.token,
            stage=cast("Stage", stage),
            error=failed.error,
            attempts=attempts,
            records=records,
            is_part=is_part,
        )
        policy = await self._policy_of(failure)
        step = what_next(policy, failure)
        if not isinstance(step, Again):
            return Decision(failure=failure, step=step, pause_s=0.0)
        waits = term.parts.bounds.restart_waits
        first_s = policy.pause_s or waits.first_s
        waits = Waits(first_s=first_s, most_s=max(first_s, policy.pause_max_s or waits.most_s))
        return Decision(failure=failure, step=step, pause_s=waits.after(step.attempt, term.parts.random))

    async def give_up(
        self, step: Bury | PassOver, failure: Failure, *, after: str, commit: Commit | None = None
    ) -> bool:
        """
        Give the records of a failure up: each gets its letter first, where the policy wants one.

        Args:
            step: What the policy said.
            failure: With the records.
            after: The position before the first of them.
            commit: Stores how far it has come together with letters; None where nothing but the user may store that.

        Returns:
            True once they count as done; False where the lease was asked for before all letters were written.
        """
        term = self._term
        done = len(failure.records)
        if isinstance(step, Bury):
            done = await self._bury(step.sink, self._letters(failure, after), commit)
        if done:
            term.handled += done
            term.tell(
                RecordsGivenUp(
                    partition=term.lease.partition,
                    token=term.lease.token,
                    policy="dead letter" if isinstance(step, Bury) else "skip",
                    first=failure.records[0].position,
                    last=failure.records[done - 1].position,
                    records=done,
                    attempts=failure.attempts,
                    error=text_of(failure.error),
                )
            )
        return done == len(failure.records)

    def joins(self, step: Step) -> bool:
        """Say whether letters of this step can be stored in one transaction with the checkpoint."""
        return isinstance(step, Bury) and self._joining(step.sink) is not None

    async def stop(self, step: StopPartition) -> bool:
        """
        Pause the partition in the store, as an operator does.

        Returns:
            True once the store has it as paused; False where the lease was lost instead.
        """
        lease = self._term.lease
        try:
            await lease.pause(step.reason)
        except LeaseLost:
            return False
        self._term.tell(PartitionStopped(partition=lease.partition, token=lease.token, reason=step.reason))
        return True

    def _letters(self, failure: Failure, after: str) -> list[Letter]:
        term = self._term
        letters = []
        for record in failure.records:
            letter = letter_of(
                record,
                error=failure.error,
                stage=failure.stage,
                attempts=failure.attempts,
                after=after,
                source=term.parts.source.url,
                group=term.parts.group,
                host_id=term.parts.host_id,
                token=term.lease.token,
                time_s=term.parts.wall_s(),
            )
            letters.append(letter)
            after = record.position
        return letters

    async def _bury(self, sink: LetterSink, letters: Sequence[Letter], commit: Commit | None) -> int:
        """Write letters, in order; return how many of the first records count as done for that."""
        if commit is None or (joining := self._joining(sink)) is None:
            for letter in letters:
                if not await self._until_written(sink, (letter,), partial(self._write, sink, letter)):
                    # Those before have their letters, and none of them is stored as done: they are written again.
                    return 0
            return len(letters)
        for done in range(0, len(letters), TOGETHER_MAX):
            part = letters[done : done + TOGETHER_MAX]
            store = partial(commit, done + len(part) - 1)
            if not await self._until_written(
                sink, part, partial(self._write_together, joining, part, store), with_checkpoint=True
            ):
                return done
        return len(letters)

    def _joining(self, sink: LetterSink) -> JoiningSink | None:
        """Return the sink, if its letters can be stored in one transaction with the checkpoint."""
        if not hasattr(sink, "joins"):
            return None
        joining = cast("JoiningSink", sink)
        try:
            return joining if joining.joins(self._term.lease.begin_transaction()) else None
        except TransactionsUnsupported:
            return None

    async def _write(self, sink: LetterSink, letter: Letter) -> None:
        opened = await self._term.parts.sinks.opened(sink)
        self._term.lease.ensure_held()
        await opened.write(letter)

    async def _write_together(
        self, sink: JoiningSink, letters: Sequence[Letter], store: Callable[[Sequence[Any]], Awaitable[None]]
    ) -> None:
        """Store letters and the checkpoint behind them, unless an earlier try has done so."""
        term = self._term
        await term.parts.sinks.opened(sink)
        await term.checkpointer.settle()
        if term.checkpointer.position == letters[-1].position:
            return
        collector = term.lease.begin_transaction()
        for letter in letters:
            sink.join(collector, letter)
        await store(collector.taken())

    async def _until_written(
        self,
        sink: LetterSink,
        letters: Sequence[Letter],
        write: Callable[[], Awaitable[None]],
        *,
        with_checkpoint: bool = False,
    ) -> bool:
        """Try until letters are written, with growing pauses; False where the lease is asked for first."""
        term = self._term
        waits = term.parts.bounds.restart_waits
        attempt = 0
        while not term.lease.asked.is_set():
            attempt += 1
            try:
                with anyio.fail_after(LETTER_S):
                    await write()
            except LeaseLost:
                raise
            except Exception as error:  # Containment: a user may have written the sink.
                pause_s = waits.after(attempt, term.parts.random)
                term.tell(
                    LetterFailed(
                        partition=term.lease.partition,
                        token=term.lease.token,
                        position=letters[0].position,
                        sink=_url_of(sink),
                        error=text_of(error),
                        attempt=attempt,
                        pause_s=pause_s,
                    )
                )
                await wait_until(term.parts.clock, term.parts.clock.now_s() + pause_s, term.lease.asked)
                continue
            for letter in letters:
                term.tell(
                    LetterWritten(
                        partition=letter.partition,
                        token=letter.token,
                        position=letter.position,
                        sink=_url_of(sink),
                        is_whole=letter.is_whole,
                        with_checkpoint=with_checkpoint,
                    )
                )
            return True
        return False

    async def _policy_of(self, failure: Failure) -> Policy:
        """The processor's own, where it returns one; what is wrong with its method is told, and the host's applies."""
        term = self._term
        chosen: object = None
        kind = self._kind

        async def choose() -> None:
            nonlocal chosen
            assert kind is not None  # Called only then.
            chosen = kind.on_failure(failure)
            if inspect.isawaitable(chosen):
                chosen = await chosen
            if chosen is not None:
                chosen = check_policy(chosen)

        if kind is not None:
            try:
                await call_user(term.lease, "on_failure", choose)
            except UserFailed as failed:
                term.tell_failure("on_failure", failed.error, attempt=failure.attempts, pause_s=0.0)
                return term.parts.policy
        return cast("Policy | None", chosen) or term.parts.policy


def _url_of(sink: LetterSink) -> str:
    # A user's own sink may have no name, whatever the contract says.
    return str(getattr(sink, "url", type(sink).__name__))
