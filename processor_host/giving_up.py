"""
What becomes of a failure: asks the policy, and does what it says beyond trying again.

Knows no order of records and no pieces. Nothing is passed over here without its letter: a sink that fails is tried
again with growing pauses until the letter is written, the lease is asked for, or the term ends.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import cast

import anyio

from partitions.clocks import wait_until
from partitions.errors import LeaseLost
from partitions.retries import Waits
from partitions.sources.base import Record
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
from processor_host.letters.base import Letter, LetterSink, letter_of
from processor_host.term import Term
from processor_host.user_code import UserFailed, call_user, text_of

__all__ = ["Decision", "GivingUp"]

LETTER_S = 30.0
"""How long a sink may take for one letter; then it counts as failed."""


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

    async def give_up(self, step: Bury | PassOver, failure: Failure, *, after: str) -> bool:
        """
        Give the records of a failure up: each gets its letter first, where the policy wants one.

        Args:
            step: What the policy said.
            failure: With the records.
            after: The position before the first of them.

        Returns:
            True once they count as done; False where the lease was asked for before all letters were written.
        """
        term = self._term
        for record in failure.records if isinstance(step, Bury) else ():
            assert isinstance(step, Bury)  # Only then are there any.
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
            if not await self._write(step.sink, letter):
                return False
            after = record.position
        term.handled += len(failure.records)
        term.tell(
            RecordsGivenUp(
                partition=term.lease.partition,
                token=term.lease.token,
                policy="dead letter" if isinstance(step, Bury) else "skip",
                first=failure.records[0].position,
                last=failure.records[-1].position,
                records=len(failure.records),
                attempts=failure.attempts,
                error=text_of(failure.error),
            )
        )
        return True

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

    async def _write(self, sink: LetterSink, letter: Letter) -> bool:
        term = self._term
        waits = term.parts.bounds.restart_waits
        attempt = 0
        while not term.lease.asked.is_set():
            attempt += 1
            try:
                with anyio.fail_after(LETTER_S):
                    opened = await term.parts.sinks.opened(sink)
                    term.lease.ensure_held()
                    await opened.write(letter)
            except LeaseLost:
                raise
            except Exception as error:  # Containment: a user may have written the sink.
                pause_s = waits.after(attempt, term.parts.random)
                term.tell(
                    LetterFailed(
                        partition=letter.partition,
                        token=letter.token,
                        position=letter.position,
                        sink=_url_of(sink),
                        error=text_of(error),
                        attempt=attempt,
                        pause_s=pause_s,
                    )
                )
                await wait_until(term.parts.clock, term.parts.clock.now_s() + pause_s, term.lease.asked)
                continue
            term.tell(
                LetterWritten(
                    partition=letter.partition,
                    token=letter.token,
                    position=letter.position,
                    sink=_url_of(sink),
                    is_whole=letter.is_whole,
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
