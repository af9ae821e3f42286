"""
Synchronous processors: a plain `def process(batch)` in a worker thread, so that what blocks in it blocks nothing else.

Knows no pump. A thread cannot be cancelled: where the lease ends, or a drain has taken too long, the thread is told by
a flag and by the end of its iteration, and the caller waits until it returns. It must wait, since a lease must not be
free while user code of its term still runs.

What such code may touch: its `SyncBatch`, and of a lease what only reads (`token`, `is_held()`, `remaining_s()`).
`current_lease()` works in the thread. Events, guards and the like belong to the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import anyio
import anyio.from_thread
import anyio.lowlevel

from partitions.errors import LeaseLost
from partitions.leases import Lease
from partitions.sources.base import Record
from processor_host.middleware import Process
from processor_host.processor import Batch

__all__ = ["SyncBatch", "in_threads"]


class SyncBatch:
    """
    A batch for code in a thread.

    Attributes:
        partition: The partition's id.
        token: The fencing token of the term.
        lag_s: As `Batch.lag_s`.
        ended: Set once the work is to stop: the lease has ended, or a drain has taken too long. Wait for it instead of
            sleeping.
    """

    __slots__ = ("_batch", "_records", "ended", "lag_s", "partition", "token")

    def __init__(self, batch: Batch, ended: threading.Event) -> None:
        """Called on the event loop, where the batch may be iterated; raises `LeaseLost` as that does."""
        self._batch = batch
        self._records = tuple(batch)
        self.partition = batch.partition
        self.token = batch.lease.token
        self.lag_s = batch.lag_s
        self.ended = ended

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        """
        Yield the records.

        Raises:
            LeaseLost: the lease has ended, seen right before a record would have been handed on.
        """
        for record in self._records:
            # Only looked at: the end of a term is told to everybody by the loop.
            if not self._batch.lease.is_held():
                raise LeaseLost(self.partition, held=self.token, reason="it ended while a thread was at work")
            yield record

    def checkpoint(self, upto: Record | None = None) -> None:
        """
        Store now that everything up to `upto` is done, this record included; returns once it is stored.

        Raises:
            ValueError: `upto` is not of this batch.
            LeaseLost: the lease has ended; nothing was stored.
        """
        anyio.from_thread.run(self._batch.checkpoint, upto)


def in_threads(process: Callable[[SyncBatch], None], limiter: anyio.CapacityLimiter) -> Process:
    """
    Return a synchronous `process` as one that the pump can await.

    Args:
        process: Called in a worker thread. What it raises, the awaiting caller gets.
        limiter: How many threads all processors of the host have at the same time.
    """

    async def run(batch: Batch) -> None:
        ended = threading.Event()
        given = SyncBatch(batch, ended)
        error: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell_end, batch.lease, ended, name=f"watch end for a thread of {batch.lease.key}")
            try:
                await anyio.to_thread.run_sync(partial(process, given), limiter=limiter)
            except Exception as failed:  # Containment: raised again below, where no task group wraps it.
                error = failed
            tasks.cancel_scope.cancel()
        # A thread that was told to stop and returned has left records out; they must not count as done.
        await anyio.lowlevel.checkpoint_if_cancelled()
        if error is not None:
            raise error

    return run


async def _tell_end(lease: Lease, ended: threading.Event) -> None:
    try:
        await lease.ended.wait()
    finally:
        # Also where the caller is cancelled, as when a drain has taken too long: the thread is waited for then.
        ended.set()
