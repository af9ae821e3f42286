"""
The pump: one term of one partition, from its acquire to its release.

It hands batches to the processor, marks what is done and has it stored, and ends in one of three ways: the lease ended
(nothing more is handled or written), it was asked to drain (the running `process` may end, then the last checkpoint
goes with the release), or the partition was read to its end (it is completed).

A failure of user code or of the source stays here: the processor is closed and opened again from its checkpoint after a
growing pause, while the lease is held. A batch is never skipped and an iteration never ended early, since both would
checkpoint records that nobody has handled.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from enum import Enum
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from partitions.clocks import wait_until
from partitions.errors import LeaseLost
from partitions.events import Event, tell
from partitions.leases import Lease, working_under
from partitions.verbs import Child
from processor_host.buffer import Chunk, RecordBuffer
from processor_host.checkpointer import Checkpointer
from processor_host.events import (
    BatchCut,
    BatchHandled,
    ProcessorFailed,
    PumpEnded,
    PumpStarted,
)
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext
from processor_host.pump_parts import PumpParts
from processor_host.reading import ReadAhead
from processor_host.user_code import UserFailed, call_user, text_of

__all__ = ["PartitionPump"]

CANCELLED_CLOSE_S = 1.0
"""How long `close` may take where the host is cancelled."""
DRAIN_LOOK_S = 0.5
"""How often a draining pump looks whether its deadline has come nearer."""


class _Outcome(Enum):
    """How one run of a processor ended."""

    DRAINED = "drained"
    PARTITION_ENDED = "partition ended"
    LOST = "lease lost"


class PartitionPump:
    """
    Runs the processor of one term.

    Attributes:
        lease: The term.
        has_ended: The processor has ended: no user code of this term runs any more. Its release may be on its way.
        finished: Set once `run` is over.
    """

    def __init__(self, lease: Lease, parts: PumpParts) -> None:
        self.lease = lease
        self.has_ended = False
        self.finished = anyio.Event()
        self._parts = parts
        self._checkpointer = Checkpointer(lease, interval_s=parts.bounds.checkpoint_interval_s)
        self._acquired_s = parts.clock.now_s()
        self._processor: PartitionProcessor | None = None
        self._failures = 0
        self._process = anyio.CancelScope()
        """Around the running `open` or `process`; cancelled when a drain has taken too long."""

    async def run(self) -> None:
        """Handle the partition until the term is over and the processor has ended. Raises nothing of user code."""
        try:
            with working_under(self.lease):
                outcome = await self._until_over()
        finally:
            self.has_ended = True
        # Only here, where no user code runs any more, may the lease be freed.
        if outcome is _Outcome.PARTITION_ENDED:
            if await self.lease.complete(await self._children()):
                self._parts.on_freed(self.lease)
        elif outcome is _Outcome.DRAINED and await self.lease.release(self._checkpointer.unsaved):
            self._parts.on_freed(self.lease)
        self._tell(PumpEnded(partition=self.lease.partition, token=self.lease.token, reason=outcome.value))

    async def _children(self) -> Sequence[Child]:
        try:
            return await self._parts.children_of(self.lease.partition)
        except Exception:  # Containment: whatever a source raises, this partition is done.
            # Completed without them; discovery makes their leases once the source answers. Given up as it is, it would
            # be read to its end again and again, as fast as it can be acquired.
            return ()

    async def _until_over(self) -> _Outcome:
        """Run the processor again and again until something but a failure ends it."""
        while self.lease.is_held():
            if self.lease.asked.is_set():
                return _Outcome.DRAINED
            try:
                outcome = await self._run_once()
            except UserFailed as failed:
                await self._pause(failed)
                continue
            return outcome if self.lease.is_held() else _Outcome.LOST
        return _Outcome.LOST

    async def _run_once(self) -> _Outcome:
        """
        Open the processor, hand it batches until something ends that, close it.

        Raises:
            UserFailed: user code raised; it is to be run again.
        """
        buffer = RecordBuffer(
            self._parts.budget,
            records_max=self._parts.bounds.prefetch_records_max,
            bytes_max=self._parts.bounds.prefetch_bytes_max,
        )
        is_open = False
        outcome = _Outcome.LOST
        failure: UserFailed | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_end, tasks.cancel_scope, name=f"watch end {self.lease.key}")
                tasks.start_soon(self._watch_ask, buffer, name=f"watch ask {self.lease.key}")
                try:
                    with anyio.CancelScope() as self._process:
                        await call_user(self.lease, "open", self._open)
                        is_open = True
                    outcome = await self._fill_and_empty(buffer, tasks) if is_open else _Outcome.DRAINED
                except UserFailed as failed:
                    failure = failed
                except LeaseLost:
                    outcome = _Outcome.LOST
                tasks.cancel_scope.cancel()
        finally:
            buffer.close()
            # Also where the whole host is cancelled: who was opened is closed.
            if is_open:
                close_failure = await self._close(outcome if failure is None else None)
                # A drained term goes on elsewhere; any other is run again, since `close` may have had work to do.
                if failure is None and outcome is _Outcome.PARTITION_ENDED:
                    failure = close_failure
        if failure is not None:
            raise failure
        return outcome

    async def _open(self) -> None:
        if self._processor is None:
            processor = self._parts.factory()
            if not isinstance(processor, PartitionProcessor):
                raise TypeError(f"the processor factory returned {processor!r}, which is not a PartitionProcessor")
            self._processor = processor
        position = self._checkpointer.position
        context = ProcessorContext(
            partition=self.lease.partition,
            lease=self.lease,
            position=position,
            host_id=self._parts.host_id,
            group=self._parts.group,
            resources=self._parts.resources,
        )
        await self._processor.open(context)
        since_acquired_s = self._parts.clock.now_s() - self._acquired_s
        self._tell(
            PumpStarted(
                partition=self.lease.partition,
                token=self.lease.token,
                position=position,
                since_acquired_s=since_acquired_s,
            )
        )

    async def _close(self, outcome: _Outcome | None) -> UserFailed | None:
        """Close the processor in bounded time, `outcome` None after a failure; return what it raised."""
        processor = self._processor
        assert processor is not None  # It was opened.
        reason = self._close_reason(outcome)
        limit_s = self._parts.bounds.close_timeout_s
        if anyio.current_effective_deadline() == -math.inf:
            # The whole host is cancelled: somebody is waiting for it to be gone.
            limit_s = min(limit_s, CANCELLED_CLOSE_S)
        if self.lease.is_held() and self.lease.asked.is_set():
            # Half of the margin is for `close`, the rest for the release.
            left_s = self._drain_by_s() + self._parts.bounds.release_margin_s / 2 - self._parts.clock.now_s()
            limit_s = min(limit_s, max(0.0, left_s))
        try:
            with anyio.move_on_after(limit_s, shield=True):
                await call_user(self.lease, "close", lambda: processor.close(reason))
        except UserFailed as failed:
            self._tell(self._failure_event(failed, pause_s=0.0))
            return failed
        except LeaseLost:
            pass
        return None

    def _close_reason(self, outcome: _Outcome | None) -> CloseReason:
        if not self.lease.is_held():
            return CloseReason.LEASE_LOST
        if outcome is None:
            return CloseReason.FAILED
        if outcome is _Outcome.PARTITION_ENDED:
            return CloseReason.PARTITION_ENDED
        is_stopping = self._parts.stopping.is_set() or outcome is _Outcome.LOST
        return CloseReason.HOST_STOPPING if is_stopping else CloseReason.HANDED_OFF

    async def _pause(self, failed: UserFailed) -> None:
        """Store what is done, tell of the failure, and wait before the next run; an ask ends both."""
        async with anyio.create_task_group() as tasks:
            # The release carries the checkpoint too; a store that refuses this one must not hold up the hand-off.
            tasks.start_soon(self._watch_giving_up, tasks.cancel_scope, name=f"watch ask {self.lease.key}")
            await self._save_once()
            tasks.cancel_scope.cancel()
        if not self.lease.is_held():
            return
        self._failures += 1
        pause_s = self._parts.bounds.restart_waits.after(self._failures, self._parts.random)
        self._tell(self._failure_event(failed, pause_s=pause_s))
        await wait_until(self._parts.clock, self._parts.clock.now_s() + pause_s, self.lease.asked)

    def _failure_event(self, failed: UserFailed, *, pause_s: float) -> ProcessorFailed:
        return ProcessorFailed(
            partition=self.lease.partition,
            token=self.lease.token,
            stage=failed.stage,
            error=text_of(failed.error),
            traceback="".join(traceback.format_exception(failed.error)),
            attempt=self._failures,
            pause_s=pause_s,
        )

    async def _fill_and_empty(self, buffer: RecordBuffer, tasks: TaskGroup) -> _Outcome:
        tasks.start_soon(self._reader().run, buffer, name=f"read {self.lease.key}")
        tasks.start_soon(self._save_regularly, name=f"checkpoint {self.lease.key}")
        return await self._hand_on(buffer)

    async def _hand_on(self, buffer: RecordBuffer) -> _Outcome:
        """Give one chunk after the other to `process`, and mark each that it returned from."""
        while True:
            chunk = await buffer.get()
            if chunk is None or self.lease.asked.is_set():
                return _Outcome.DRAINED
            if chunk.records:
                self.lease.ensure_held()
                with anyio.CancelScope() as self._process:
                    await self._handle(chunk)
                if self._process.cancelled_caught:
                    self._tell(
                        BatchCut(partition=self.lease.partition, token=self.lease.token, records=len(chunk.records))
                    )
                    return _Outcome.DRAINED
            if chunk.ended:
                return _Outcome.PARTITION_ENDED
            if self.lease.asked.is_set():
                return _Outcome.DRAINED
            buffer.done()

    async def _handle(self, chunk: Chunk) -> None:
        processor = self._processor
        assert processor is not None  # It was opened.
        before = self._checkpointer.marked

        async def save(index: int) -> None:
            self._checkpointer.mark(before + index + 1, chunk.records[index].position)
            await self._checkpointer.save()

        async def commit(index: int, operations: Sequence[Any]) -> None:
            await self._checkpointer.commit(before + index + 1, chunk.records[index].position, operations)

        batch = Batch(chunk.records, lease=self.lease, lag_s=chunk.lag_s, save=save, commit=commit)
        began_s = self._parts.clock.now_s()
        await call_user(self.lease, "process", lambda: processor.process(batch))
        # Raised again where it swallowed its cancellation and returned: what it left out must not count as done.
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._checkpointer.mark(before + len(chunk.records), chunk.records[-1].position)
        self._failures = 0
        self._tell(
            BatchHandled(
                partition=self.lease.partition,
                records=len(chunk.records),
                bytes=chunk.bytes,
                duration_s=self._parts.clock.now_s() - began_s,
                lag_s=chunk.lag_s,
            )
        )

    def _reader(self) -> ReadAhead:
        return ReadAhead(
            source=self._parts.source,
            partition=self.lease.partition,
            position=self._checkpointer.position,
            records_max=self._parts.bounds.batch_records_max,
            bytes_max=self._parts.bounds.batch_bytes_max,
            wait_s=self._parts.bounds.read_wait_s,
            random=self._parts.random,
            on_event=self._parts.on_event,
        )

    async def _watch_end(self, scope: anyio.CancelScope) -> None:
        """Stop everything at once when the term ends."""
        await self.lease.ended.wait()
        scope.cancel()

    async def _watch_giving_up(self, scope: anyio.CancelScope) -> None:
        """Stop something at once when the lease is asked for, or the term ends."""
        await self.lease.asked.wait()
        scope.cancel()

    async def _watch_ask(self, buffer: RecordBuffer) -> None:
        """Once the lease is asked for: hand on nothing more, and cancel what still runs near the deadline."""
        await self.lease.asked.wait()
        buffer.close()
        # Looked at again and again, because an ask or a stop may set an earlier deadline meanwhile.
        while (left_s := self._drain_by_s() - self._parts.clock.now_s()) > 0:
            await anyio.sleep(min(left_s, DRAIN_LOOK_S))
        self._process.cancel()

    def _drain_by_s(self) -> float:
        """Return when the running `process` is cancelled: so early that `close` and the release still fit in."""
        return min(self.lease.ask_deadline_s() - self._parts.bounds.release_margin_s, self._parts.stop_by_s())

    async def _save_once(self) -> None:
        try:
            await self._checkpointer.save()
        except LeaseLost:
            # Whoever waits for this sees that the lease is no longer held.
            return

    async def _save_regularly(self) -> None:
        try:
            await self._checkpointer.run()
        except LeaseLost:
            # The watch on the lease's end stops everything else.
            return

    def _tell(self, event: Event) -> None:
        tell(self._parts.on_event, event)
