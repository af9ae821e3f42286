"""
The pump: one term of one partition, from its acquire to its release.

It runs the processor (`processor_host.running`) until something but a failure ends that, and ends in one of these ways:
the lease ended (nothing more is handled or written), it was asked to drain (the running user code may end, then the
last checkpoint goes with the release), the partition was stopped by its failure policy (it is paused in the store, and
released), or it was read to its end (it is completed). One that is where `until` ends is kept until the host stops.

A failure of user code or of the source stays here: the processor is closed and opened again from its checkpoint after a
growing pause, while the lease is held. Nothing is ever skipped that the failure policy did not give up, and an
iteration is never ended early, since both would checkpoint records that nobody has handled.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from partitions.clocks import wait_until
from partitions.errors import LeaseLost
from partitions.leases import Lease, working_under
from partitions.verbs import Child
from processor_host.events import PartitionDone, PartitionStopped, PumpEnded
from processor_host.pump_parts import PumpParts
from processor_host.running import Running
from processor_host.term import Outcome, RunAgain, Term, unless_asked

__all__ = ["PartitionPump"]


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
        self._term = Term(lease, parts)

    async def run(self) -> None:
        """Handle the partition until the term is over and the processor has ended. Raises nothing of user code."""
        try:
            with working_under(self.lease):
                outcome = await self._until_over()
        finally:
            self.has_ended = True
            self._term.drop_carried()
            if self._parts.replay is not None:
                self._parts.replay.count(self.lease.partition, self._term.handled)
        if outcome is Outcome.UNTIL_REACHED:
            outcome = await self._park()
        # Only here, where no user code runs any more, may the lease be freed.
        if outcome is Outcome.PARTITION_ENDED:
            if await self.lease.complete(await self._children()):
                self._parts.on_freed(self.lease)
        elif outcome is not Outcome.LOST and await self._release():
            self._parts.on_freed(self.lease)
        self._term.tell(PumpEnded(partition=self.lease.partition, token=self.lease.token, reason=outcome.value))

    async def pause(self, reason: str) -> None:
        """
        Pause the partition in the store, and drain it: what still runs after the drain time-out is cancelled.

        The lease is released once no user code runs any more, as at any drain. Raises nothing: a lease that is lost
        meanwhile is another host's matter.
        """
        lease = self.lease
        try:
            await lease.pause(reason)
        except LeaseLost:
            return
        self._term.drain_by_s = self._parts.clock.now_s() + self._parts.bounds.close_timeout_s
        self._term.tell(PartitionStopped(partition=lease.partition, token=lease.token, reason=reason))

    async def _release(self) -> bool:
        term = self._term
        return await self.lease.release(
            term.checkpointer.unsaved, attempts=term.attempts, keeps_prepared=term.checkpointer.keeps_prepared
        )

    async def _children(self) -> Sequence[Child]:
        try:
            return await self._parts.children_of(self.lease.partition)
        except Exception:  # Containment: whatever a source raises, this partition is done.
            # Completed without them; discovery makes their leases once the source answers. Given up as it is, it would
            # be read to its end again and again, as fast as it can be acquired.
            return ()

    async def _until_over(self) -> Outcome:
        """Run the processor again and again until something but a failure ends it."""
        running = Running(self._term)
        while self.lease.is_held():
            if self.lease.asked.is_set():
                return Outcome.DRAINED
            ended = await running.run_once()
            if isinstance(ended, RunAgain):
                await self._pause(ended)
                continue
            return ended if self.lease.is_held() else Outcome.LOST
        return Outcome.LOST

    async def _pause(self, failed: RunAgain) -> None:
        """Store what is done, tell of the failure, and wait before the next run; an ask ends both."""
        await self._save_unless_asked()
        self._term.reconcile()
        if not self.lease.is_held():
            return
        if not failed.is_told:
            self._term.tell_failure(failed.stage, failed.error, attempt=failed.attempt, pause_s=failed.pause_s)
        if failed.pause_s > 0:
            await wait_until(self._parts.clock, self._parts.clock.now_s() + failed.pause_s, self.lease.asked)

    async def _park(self) -> Outcome:
        """Keep the lease of a partition that is where this run ends, until the host stops or another host asks."""
        replay = self._parts.replay
        assert replay is not None  # Nothing else ends a run there.
        await self._save_unless_asked()
        if self.lease.is_held():
            self._term.tell(
                PartitionDone(partition=self.lease.partition, token=self.lease.token, handled=self._term.handled)
            )
            replay.park(self.lease.partition)
            await self.lease.asked.wait()
            replay.left(self.lease.partition)
        return Outcome.DRAINED if self.lease.is_held() else Outcome.LOST

    async def _save_unless_asked(self) -> None:
        # The release carries the checkpoint too; a store that refuses this one must not hold up the hand-off.
        await unless_asked(self.lease, self._save)

    async def _save(self) -> None:
        try:
            await self._term.checkpointer.save()
        except LeaseLost:
            # Whoever waits for this sees that the lease is no longer held.
            return
