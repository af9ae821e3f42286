"""
What a user writes and is given: the processor, its context and its batches.

Knows no pump and no store beyond the lease it is handed. A batch checks the lease at each record, so that a host
that wakes from a freeze in the middle of a batch starts no further record.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from partitions.items import Prepared
from partitions.leases import Lease
from partitions.sources.base import Record
from processor_host.failures import Failure, Policy

__all__ = [
    "Batch",
    "CloseReason",
    "PartitionProcessor",
    "ProcessorContext",
    "RecordProcessor",
]


PAUSE_MAX_S: Final = 3600.0
"""Of one call of `batch.pause_s`: what was paused for longer would be forgotten, and no lag would explain it."""


class CloseReason(Enum):
    """Why a processor is closed."""

    LEASE_LOST = "lease lost"
    """The lease ended before the processor could be drained; write nothing more for the partition."""
    HANDED_OFF = "handed off"
    """Another host asked for the partition, or it was paused; the lease is still held while `close` runs."""
    PARTITION_ENDED = "partition ended"
    """The partition was processed to its end."""
    HOST_STOPPING = "host stopping"
    """The host gives everything away; the lease is still held while `close` runs."""
    FAILED = "failed"
    """The processor raised; it is opened again from the checkpoint after a pause, under the same lease."""
    UNTIL_REACHED = "until reached"
    """The partition was processed to where `until` ends this run; the lease is still held while `close` runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorContext:
    """What a processor is opened with."""

    partition: str
    lease: Lease
    """The term under which it works; its `token` is the fencing token, its `ended` the event to stop on."""
    position: str
    """The last record done; the first record of the first batch is the one after it."""
    host_id: str
    group: str
    resources: Any
    """What the host's `lifespan` yielded; None without one."""
    prepared: Prepared | None = None
    """What was prepared by `batch.prepare` before a fail-over and never checkpointed: `state` and `position`."""
    confirm: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)

    async def confirm_prepared(self) -> None:
        """
        Store the position of `prepared`: its records are done after all, and the first batch begins behind them.

        For `open`, where the other half of what was prepared turns out to have been done. Without this call the records
        come again from the checkpoint.

        Raises:
            ValueError: nothing is prepared by an earlier term.
            LeaseLost: the lease has ended.
        """
        if self.confirm is None:
            raise ValueError("this context was made without a lease's store, so nothing is prepared")
        await self.confirm()


class Batch:
    """
    Some records of one partition, in their order.

    Attributes:
        partition: The partition's id.
        lease: The term under which they may be handled.
        lag_s: Seconds between the partition's newest record and the last one here; None where the source cannot say.
    """

    __slots__ = (
        *("_commit", "_index_of", "_pause", "_prepare", "_records", "_save"),
        *("lag_s", "lease", "partition"),
    )

    def __init__(
        self,
        records: Sequence[Record],
        *,
        lease: Lease,
        lag_s: float | None,
        save: Callable[[int], Awaitable[None]],
        commit: Callable[[int, Sequence[Any]], Awaitable[None]] | None = None,
        pause: Callable[[float], None] | None = None,
        prepare: Callable[[int, str], Awaitable[None]] | None = None,
    ) -> None:
        self._records = tuple(records)
        self._save = save
        self._commit = commit
        self._pause = pause
        self._prepare = prepare
        self._index_of: dict[str, int] | None = None
        self.partition = lease.partition
        self.lease = lease
        self.lag_s = lag_s

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} records of {self.partition!r}>"

    def __iter__(self) -> Iterator[Record]:
        """
        Yield the records.

        Raises:
            LeaseLost: the lease has ended, seen right before a record would have been handed on.
        """
        for record in self._records:
            self.lease.ensure_held()
            yield record

    async def checkpoint(self, upto: Record | None = None) -> None:
        """
        Store now that everything up to `upto` is done, this record included.

        Without this call a batch is done once `process` has returned, and is stored within the checkpoint interval.

        Args:
            upto: A record of this batch; None for the last one.

        Raises:
            ValueError: `upto` is not of this batch.
            LeaseLost: the lease has ended; nothing was stored.
        """
        await self._save(self._index(upto, "checkpoint"))

    @asynccontextmanager
    async def transaction(self, upto: Record | None = None) -> AsyncIterator[Any]:
        """
        Collect writes of your own and store them together with the checkpoint, in one transaction of the lease store.

        What `tx` takes is the store's: on DynamoDB `put`, `update`, `delete` and `check` (up to 99, in the account and
        region of the lease table), on SQLite `execute` (tables of your own in the lease file). Everything is sent at
        the end of the block. Whatever the block raises, nothing is stored and the records are not done.

        Each transaction goes further in the batch than the one before. Let what it raises leave `process`: the records
        are then handled again, unless it turns out to have been applied.

        Args:
            upto: A record of this batch, done with all before it if and only if the transaction is; None for the last.

        Raises:
            ValueError: `upto` is not of this batch.
            LeaseLost: the lease has ended. The transaction was not applied, or its records will not be handled again.
            ConditionFailed: a condition of your own did not hold; nothing was stored. On SQLite, a failing statement
                raises what `sqlite3` does.
            TransactionInvalid: it cannot be sent: too much, two operations on one item, records that are done already.
            TransactionsUnsupported: the store of the group has no transactions.
        """
        index = self._index(upto, "transaction")
        if self._commit is None:
            raise TypeError(
                "this batch was made without transactions; whatever made it of another batch should use `with_records`"
            )
        self.lease.ensure_held()
        collector = self.lease.begin_transaction()
        try:
            yield collector
        finally:
            operations = collector.taken()
        await self._commit(index, operations)

    async def prepare(self, state: str, upto: Record | None = None) -> None:
        """
        Store a state of your own beside the checkpoint, before a write elsewhere that belongs with it: two phases.

        If this host dies before the checkpoint reaches `upto`, the next owner finds both in `context.prepared`. There
        it looks whether the write was done, and calls `context.confirm_prepared()` if so.

        Args:
            state: At most 4,096 bytes of UTF-8; store the key of anything larger.
            upto: A record of this batch, up to which the state speaks; None for the last one.

        Raises:
            ValueError: `upto` is not of this batch, or the state is too long.
            LeaseLost: the lease has ended; nothing was stored.
        """
        index = self._index(upto, "prepare")
        if self._prepare is None:
            raise TypeError("this batch was made without a way to prepare; whatever made it should use `with_records`")
        await self._prepare(index, state)

    def pause_s(self, seconds: float) -> None:
        """
        Hand on nothing more of this partition for a while, counted from now; the last call counts.

        What runs goes on, and so does reading, up to its bounds. A hand-off or a stop does not wait for it.

        Args:
            seconds: From 0, which ends an earlier pause, to `PAUSE_MAX_S`.

        Raises:
            ValueError: it is not within those bounds.
        """
        if not (math.isfinite(seconds) and 0 <= seconds <= PAUSE_MAX_S):
            raise ValueError(
                f"pause_s({seconds!r}): expected 0 to {PAUSE_MAX_S:g} seconds; to stop a partition for longer, pause "
                "it in the store, as on_failure=Stop() does"
            )
        if self._pause is None:
            raise TypeError("this batch was made without pauses; whatever made it should use `with_records`")
        self._pause(seconds)

    def with_records(self, records: Sequence[Record]) -> Batch:
        """
        Return this batch with other records in the place of its own, one for each, as where they were decoded.

        Raises:
            ValueError: there are more or fewer of them.
        """
        if len(records) != len(self):
            raise ValueError(f"{len(records)} records in the place of {len(self)}, expected as many")
        return Batch(
            records,
            lease=self.lease,
            lag_s=self.lag_s,
            save=self._save,
            commit=self._commit,
            pause=self._pause,
            prepare=self._prepare,
        )

    def _index(self, upto: Record | None, what: str) -> int:
        if upto is None:
            return len(self._records) - 1
        if self._index_of is None:
            self._index_of = {record.position: index for index, record in enumerate(self._records)}
        index = self._index_of.get(upto.position, -1)
        if index < 0 or self._records[index] != upto:
            raise ValueError(
                f"{what}(upto=…): the record at {upto.position!r} of {upto.partition!r} is not of this batch"
            )
        return index


class PartitionProcessor(ABC):
    """
    Handles one partition. One instance is made for each term; its methods never run at the same time.

    An exception in any of them closes the processor with FAILED; after a growing pause the same instance is opened
    again from the checkpoint, so `open` must begin afresh. Nothing is skipped, unless `on_failure` says so.

    A method may be a plain `def`; it then runs in a worker thread, and `process` gets a `SyncBatch`.
    """

    async def open(self, context: ProcessorContext) -> None:  # noqa: B027 (nothing to open is the usual case)
        """Get ready; called before the first batch and again after a failure. Does nothing unless overridden."""

    @abstractmethod
    async def process(self, batch: Batch) -> None:
        """
        Handle a batch. Once this returns, all of its records count as done.

        It is cancelled when the lease ends, or when a drain takes too long.
        """

    async def close(self, reason: CloseReason) -> None:  # noqa: B027 (nothing to close is the usual case)
        """Let go of what `open` took; called once for each `open` that returned. Does nothing unless overridden."""

    def on_failure(self, failure: Failure) -> Policy | Awaitable[Policy | None] | None:
        """Choose what becomes of one failure; None for the host's own policy. May be async; must not block."""
        return None


class RecordProcessor(ABC):
    """
    Handles one partition, record by record: what fails is one record, and its neighbours are not handled again for it.

    One instance is made for each term. With `concurrency` above 1, records of different keys are handled side by side;
    else nothing runs at the same time. An exception in `handle` hands the same record on again after a growing pause,
    without `close` and `open`. Plain `def` methods run in worker threads.
    """

    async def open(self, context: ProcessorContext) -> None:  # noqa: B027 (nothing to open is the usual case)
        """See `PartitionProcessor.open`."""

    @abstractmethod
    async def handle(self, record: Record) -> None:
        """
        Handle a record. Once this returns, it counts as done.

        It is cancelled when the lease ends, or when a drain takes too long. `current_lease()` has the fencing token.
        """

    async def close(self, reason: CloseReason) -> None:  # noqa: B027 (nothing to close is the usual case)
        """See `PartitionProcessor.close`."""

    def on_failure(self, failure: Failure) -> Policy | Awaitable[Policy | None] | None:
        """See `PartitionProcessor.on_failure`."""
        return None
