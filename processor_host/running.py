"""
One run of one processor: opened, handed records until something ends that, closed.

Knows no pause and no release: how it ended is a value, and the pump goes on from that. The processor is closed whatever
happens, in bounded time, and while the lease is held wherever that is possible.
"""

from __future__ import annotations

import math
from functools import partial

import anyio
from anyio.abc import TaskGroup

from partitions.errors import LeaseLost
from processor_host.beside import Beside
from processor_host.buffer import RecordBuffer
from processor_host.ends import End
from processor_host.errors import SettingsError
from processor_host.events import OneAtATime, PumpStarted
from processor_host.failures import StopPartition
from processor_host.filling import Filling
from processor_host.giving_up import GivingUp
from processor_host.handing import Handing
from processor_host.in_turn import InTurn
from processor_host.kinds import Kind, kind_of, misfit
from processor_host.processor import CloseReason, ProcessorContext
from processor_host.reading import ReadAhead
from processor_host.term import Outcome, RunAgain, Term, unless_asked
from processor_host.user_code import UserFailed, call_user

__all__ = ["Running"]

CANCELLED_CLOSE_S = 1.0
"""How long `close` may take where the host is cancelled."""
DRAIN_LOOK_S = 0.5
"""How often a draining pump looks whether its deadline has come nearer."""
UNTIL_WAIT_S = 1.0
"""How long a read waits at most where a replay has to notice that nothing is left."""

_REASONS = {
    Outcome.PARTITION_ENDED: CloseReason.PARTITION_ENDED,
    Outcome.UNTIL_REACHED: CloseReason.UNTIL_REACHED,
    # It is paused in the store, and given up for that.
    Outcome.STOPPED: CloseReason.HANDED_OFF,
}


class Running:
    """Runs the processor of one term, one run after the other; the same instance is opened each time."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._lease = term.lease
        self._parts = term.parts
        self._acquired_s = term.parts.clock.now_s()
        self._kind: Kind | None = None
        self._cut = anyio.CancelScope()
        """Around the running user code; cancelled when a drain has taken too long."""

    async def run_once(self) -> Outcome | RunAgain:
        """Open the processor, hand it records until something ends that, close it."""
        bounds = self._parts.bounds
        buffer = RecordBuffer(
            self._parts.budget, records_max=bounds.prefetch_records_max, bytes_max=bounds.prefetch_bytes_max
        )
        is_open = False
        ended: Outcome | RunAgain = Outcome.LOST
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_end, tasks.cancel_scope, name=f"watch end {self._lease.key}")
                tasks.start_soon(self._watch_ask, buffer, name=f"watch ask {self._lease.key}")
                try:
                    with anyio.CancelScope() as self._cut:
                        await call_user(self._lease, "open", self._open)
                        is_open = True
                        self._term.failures.pop("open", None)
                    ended = await self._hand_on(buffer, tasks) if is_open else Outcome.DRAINED
                except UserFailed as failed:
                    ended = await self._failed(failed)
                except LeaseLost:
                    ended = Outcome.LOST
                tasks.cancel_scope.cancel()
        finally:
            buffer.close()
            # Also where the whole host is cancelled: who was opened is closed.
            if is_open:
                close_failure = await self._close(ended)
                # A drained term goes on elsewhere; any other is run again, since `close` may have had work to do.
                if close_failure is not None and ended in (Outcome.PARTITION_ENDED, Outcome.UNTIL_REACHED):
                    ended = await self._failed(close_failure)
        return ended

    async def _failed(self, failed: UserFailed) -> Outcome | RunAgain:
        """Decide what follows where `open` raised, or `close` at the end: no record is to blame."""
        term = self._term
        if not self._lease.is_held():
            return Outcome.LOST
        attempt = term.failures[failed.stage] = term.failures.get(failed.stage, 0) + 1
        giving_up = GivingUp(term, self._kind)
        try:
            decision = await giving_up.decide(failed, attempts=attempt)
            if isinstance(decision.step, StopPartition):
                term.tell_failure(failed.stage, failed.error, attempt=attempt, pause_s=0.0)
                return Outcome.STOPPED if await giving_up.stop(decision.step) else Outcome.LOST
        except LeaseLost:
            return Outcome.LOST
        return RunAgain(stage=failed.stage, error=failed.error, attempt=attempt, pause_s=decision.pause_s)

    async def _open(self) -> None:
        if self._kind is None:
            kind = kind_of(self._parts.factory(), threads=self._parts.threads)
            _check_fits(kind, checkpoint=self._parts.bounds.checkpoint, concurrency=self._parts.bounds.concurrency)
            self._kind = kind
        position = self._term.checkpointer.position
        context = ProcessorContext(
            partition=self._lease.partition,
            lease=self._lease,
            position=position,
            host_id=self._parts.host_id,
            group=self._parts.group,
            resources=self._parts.resources,
            prepared=self._term.checkpointer.prepared,
            confirm=self._term.checkpointer.confirm,
        )
        await self._kind.open(context)
        since_acquired_s = self._parts.clock.now_s() - self._acquired_s
        if self._term.caution is not None and self._lease.suspects:
            self._term.tell(
                OneAtATime(
                    partition=self._lease.partition,
                    token=self._lease.token,
                    suspects=self._lease.suspects,
                    attempts=self._lease.attempts,
                )
            )
        self._term.tell(
            PumpStarted(
                partition=self._lease.partition,
                token=self._lease.token,
                position=position,
                since_acquired_s=since_acquired_s,
                carried=self._term.carried_records,
            )
        )

    async def _hand_on(self, buffer: RecordBuffer, tasks: TaskGroup) -> Outcome | RunAgain:
        """Read, store and hand on, until something ends that."""
        kind = self._kind
        assert kind is not None  # It was opened.
        replay = self._parts.replay
        end: End | None = None
        if replay is not None:
            if not await unless_asked(self._lease, partial(replay.find_end, self._lease.partition)):
                return Outcome.DRAINED
            end = replay.ends[self._lease.partition]
        filling = Filling(self._term, buffer, end)
        handing = Handing(self._term, kind, pause=filling.pause)
        if not self._term.nothing_follows:
            tasks.start_soon(self._reader().run, buffer, name=f"read {self._lease.key}")
        tasks.start_soon(self._save_regularly, name=f"checkpoint {self._lease.key}")
        is_beside = kind.is_single and self._parts.bounds.concurrency > 1
        in_turn = InTurn(self._term, kind, handing, filling)
        ended: Outcome | RunAgain | None = Outcome.DRAINED
        try:
            with anyio.CancelScope() as self._cut:
                # One at a time first, where a host died with one of these records.
                ended = await in_turn.run(while_suspect=True) if is_beside else await in_turn.run()
                if ended is None:
                    ended = await Beside(self._term, kind, handing, filling).run()
        except SettingsError as error:
            if replay is None:
                raise
            # No end can be found, on any host, however often it is tried.
            replay.failed(error)
            return Outcome.DRAINED
        if self._cut.cancelled_caught:
            handing.tell_cut()
            return Outcome.DRAINED
        assert ended is not None  # Only what was to go on side by side ends with nothing.
        return ended

    def _reader(self) -> ReadAhead:
        bounds = self._parts.bounds
        is_replay = self._parts.replay is not None
        return ReadAhead(
            source=self._parts.source,
            partition=self._lease.partition,
            position=self._term.read_from,
            records_max=bounds.batch_records_max,
            bytes_max=bounds.batch_bytes_max,
            wait_s=min(bounds.read_wait_s, UNTIL_WAIT_S) if is_replay else bounds.read_wait_s,
            random=self._parts.random,
            on_event=self._parts.on_event,
            tells_of_nothing=is_replay,
        )

    async def _close(self, ended: Outcome | RunAgain) -> UserFailed | None:
        """Close the processor in bounded time; return what it raised."""
        kind = self._kind
        assert kind is not None  # It was opened.
        reason = self._close_reason(ended)
        limit_s = self._parts.bounds.close_timeout_s
        if anyio.current_effective_deadline() == -math.inf:
            # The whole host is cancelled: somebody is waiting for it to be gone.
            limit_s = min(limit_s, CANCELLED_CLOSE_S)
        if self._lease.is_held() and self._lease.asked.is_set():
            # Half of the margin is for `close`, the rest for the release.
            left_s = self._drain_by_s() + self._parts.bounds.release_margin_s / 2 - self._parts.clock.now_s()
            limit_s = min(limit_s, max(0.0, left_s))
        try:
            with anyio.move_on_after(limit_s, shield=True):
                await call_user(self._lease, "close", lambda: kind.close(reason))
        except UserFailed as failed:
            self._term.tell_failure("close", failed.error, attempt=self._term.failures.get("close", 0), pause_s=0.0)
            return failed
        except LeaseLost:
            pass
        return None

    def _close_reason(self, ended: Outcome | RunAgain) -> CloseReason:
        if not self._lease.is_held():
            return CloseReason.LEASE_LOST
        if isinstance(ended, RunAgain):
            return CloseReason.FAILED
        if ended in _REASONS:
            return _REASONS[ended]
        is_stopping = self._parts.stopping.is_set() or ended is Outcome.LOST
        return CloseReason.HOST_STOPPING if is_stopping else CloseReason.HANDED_OFF

    async def _watch_end(self, scope: anyio.CancelScope) -> None:
        """Stop everything at once when the term ends."""
        await self._lease.ended.wait()
        scope.cancel()

    async def _watch_ask(self, buffer: RecordBuffer) -> None:
        """Once the lease is asked for: hand on nothing more, and cancel what still runs near the deadline."""
        await self._lease.asked.wait()
        buffer.close()
        # Looked at again and again, because an ask or a stop may set an earlier deadline meanwhile.
        while (left_s := self._drain_by_s() - self._parts.clock.now_s()) > 0:
            await anyio.sleep(min(left_s, DRAIN_LOOK_S))
        self._cut.cancel()

    def _drain_by_s(self) -> float:
        """Return when the running user code is cancelled: so early that `close` and the release still fit in."""
        asked_by_s = self._lease.ask_deadline_s() - self._parts.bounds.release_margin_s
        return min(asked_by_s, self._parts.stop_by_s(), self._term.drain_by_s)

    async def _save_regularly(self) -> None:
        try:
            await self._term.checkpointer.run()
        except LeaseLost:
            # The watch on the lease's end stops everything else.
            return


def _check_fits(kind: Kind, *, checkpoint: str, concurrency: int) -> None:
    """Refuse a processor that only a factory knew, and that the settings do not fit."""
    if problem := misfit(handles_records=kind.is_single, checkpoint=checkpoint, concurrency=concurrency):
        raise SettingsError(problem)
