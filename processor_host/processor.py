"""
What a user writes and is given: the processor, its context and its batches.

Knows no pump and no store beyond the lease it is handed. A batch checks the lease at each record, so that a host
that wakes from a freeze in the middle of a batch starts no further record.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from partitions.leases import Lease
from partitions.sources.base import Record
from processor_host.errors import SettingsError

__all__ = [
    "Batch",
    "CloseReason",
    "FunctionProcessor",
    "PartitionProcessor",
    "ProcessorContext",
    "ProcessorFactory",
    "factory_of",
]


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


class Batch:
    """
    Some records of one partition, in their order.

    Attributes:
        partition: The partition's id.
        lease: The term under which they may be handled.
        lag_s: Seconds between the partition's newest record and the last one here; None where the source cannot say.
    """

    __slots__ = ("_commit", "_index_of", "_records", "_save", "lag_s", "lease", "partition")

    def __init__(
        self,
        records: Sequence[Record],
        *,
        lease: Lease,
        lag_s: float | None,
        save: Callable[[int], Awaitable[None]],
        commit: Callable[[int, Sequence[Any]], Awaitable[None]] | None = None,
    ) -> None:
        self._records = tuple(records)
        self._save = save
        self._commit = commit
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

    def with_records(self, records: Sequence[Record]) -> Batch:
        """
        Return this batch with other records in the place of its own, one for each, as where they were decoded.

        Raises:
            ValueError: there are more or fewer of them.
        """
        if len(records) != len(self):
            raise ValueError(f"{len(records)} records in the place of {len(self)}, expected as many")
        return Batch(records, lease=self.lease, lag_s=self.lag_s, save=self._save, commit=self._commit)

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
    again from the checkpoint, so `open` must begin afresh. Nothing is ever skipped.
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


class FunctionProcessor(PartitionProcessor):
    """A plain `async def handle(batch)` as a processor."""

    def __init__(self, handle: Callable[[Batch], Awaitable[None]]) -> None:
        self._handle = handle

    async def process(self, batch: Batch) -> None:
        """See `PartitionProcessor.process`."""
        await self._handle(batch)


ProcessorFactory = Callable[[], PartitionProcessor]
"""Makes a processor; called once for each term."""


def factory_of(processor: object) -> ProcessorFactory:
    """
    Turn what a user gives as `processor` into a factory.

    Args:
        processor: A subclass of `PartitionProcessor`, a callable without arguments that returns one, or a plain
            `async def handle(batch)`.

    Raises:
        SettingsError: it is none of these.
    """
    if inspect.iscoroutinefunction(processor):
        handle: Callable[[Batch], Awaitable[None]] = processor
        return lambda: FunctionProcessor(handle)
    if inspect.isclass(processor) and issubclass(processor, PartitionProcessor):
        if inspect.isabstract(processor):
            missing = ", ".join(sorted(processor.__abstractmethods__))
            raise SettingsError(f"processor {_name(processor)} does not define {missing}; add it to the class")
        return processor
    if not inspect.isclass(processor) and callable(processor) and not _needs_arguments(processor):
        return processor
    raise SettingsError(
        f"processor {_name(processor)} is not a processor; give a subclass of PartitionProcessor, "
        "a function without arguments that returns one, or an async def that takes a batch"
    )


def _name(processor: object) -> str:
    return getattr(processor, "__qualname__", None) or repr(processor)


def _needs_arguments(processor: Callable[..., object]) -> bool:
    return any(
        parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in inspect.signature(processor).parameters.values()
    )
