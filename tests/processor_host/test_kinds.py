"""
What a user gives as a processor, and synchronous ones in a whole host: on the real loop, as threads need it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import pytest

from partitions.leases import current_lease
from partitions.sources.base import Record
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from processor_host import HostSettings, ProcessorHost, SyncBatch
from processor_host.events import ProcessorFailed
from processor_host.kinds import FunctionProcessor, RecordFunctionProcessor, factory_of, handles_records
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext, RecordProcessor

__all__: list[str] = []

PATIENCE_S = 30.0
"""How long anything is waited for before a test fails; a green one waits for nothing."""


async def takes_record(record: Any) -> None:
    """Does nothing."""


async def takes_annotated(each: Record) -> None:
    """Does nothing."""


async def takes_batch(batch: Any) -> None:
    """Does nothing."""


class OfRecords(RecordProcessor):
    async def handle(self, record: Record) -> None:
        """Does nothing."""


class Unfinished(RecordProcessor):
    """Forgot `handle`."""


@pytest.mark.parametrize(
    ("given", "made", "is_single"),
    [
        (takes_record, RecordFunctionProcessor, True),
        (takes_annotated, RecordFunctionProcessor, True),
        (takes_batch, FunctionProcessor, False),
        (OfRecords, OfRecords, True),
        (functools.partial(OfRecords), OfRecords, None),
    ],
)
def test_kind_of_processor_is_told_by_what_it_takes(given: Any, made: type, is_single: bool | None) -> None:
    """A handler of records that got batches would fail at its first one."""
    assert (type(factory_of(given)()), handles_records(given)) == (made, is_single)


def test_processor_of_records_without_its_method_is_refused() -> None:
    """Found before a lease is taken."""
    with pytest.raises(ValueError, match="processor Unfinished does not define handle; add it to the class"):
        factory_of(Unfinished)


class Running:
    """A host over memory with one partition, on the real loop."""

    def __init__(self, processor: Any, records: int = 5, **settings: Any) -> None:
        self.source = MemorySource(time.monotonic, partitions=1)
        for _ in range(records):
            self.source.put("p0", b"x")
        self.store = MemoryStore()
        self.failed: list[str] = []
        self.seen = anyio.Event()
        self.host = ProcessorHost(
            group="g",
            source=self.source,
            store=self.store,
            processor=processor,
            settings=HostSettings(**settings),
            on_event=self._note,
        )

    def _note(self, event: object) -> None:
        if isinstance(event, ProcessorFailed):
            self.failed.append(event.error)
            self.seen.set()

    @property
    def position(self) -> str:
        """The stored checkpoint."""
        (item,) = self.store.leases_now("g")
        return item.position


async def test_synchronous_methods_run_in_threads_under_their_lease() -> None:
    """What blocks in them blocks nothing else, and a library deep below finds the fencing token."""
    loop_thread = threading.get_ident()
    seen: list[tuple[str, bool, int | None]] = []
    done = anyio.Event()

    def note(what: str) -> None:
        lease = current_lease()
        seen.append((what, threading.get_ident() == loop_thread, None if lease is None else lease.token))

    class Sync(PartitionProcessor):
        def open(self, context: ProcessorContext) -> None:  # type: ignore[override]
            note("open")

        def process(self, batch: SyncBatch) -> None:  # type: ignore[override]
            note("process")
            positions = [record.position for record in batch]
            batch.checkpoint()
            if positions[-1] == "5":
                anyio.from_thread.run_sync(done.set)

        def close(self, reason: CloseReason) -> None:  # type: ignore[override]
            note(f"close {reason.value}")

    running = Running(Sync)
    async with running.host:
        with anyio.fail_after(PATIENCE_S):
            await done.wait()
        assert running.position == "5"

    assert seen == [("open", False, 1), ("process", False, 1), ("close host stopping", False, 1)]
    assert running.failed == []


async def test_synchronous_handler_of_records_gets_each_in_order() -> None:
    """One after the other, though every call may be another thread's."""
    handled: list[str] = []
    done = anyio.Event()

    class Sync(RecordProcessor):
        def handle(self, record: Record) -> None:  # type: ignore[override]
            handled.append(record.position)
            if record.position == "5":
                anyio.from_thread.run_sync(done.set)

    running = Running(Sync)
    async with running.host:
        with anyio.fail_after(PATIENCE_S):
            await done.wait()

    assert (handled, running.position, running.failed) == (["1", "2", "3", "4", "5"], "5", [])


async def test_end_of_the_lease_reaches_a_thread_as_a_flag_and_its_batch_is_not_done() -> None:
    """A thread cannot be cancelled; what it left out must not count, and it must be waited for."""
    begun = anyio.Event()
    told: list[bool] = []

    class Sync(PartitionProcessor):
        def process(self, batch: SyncBatch) -> None:  # type: ignore[override]
            anyio.from_thread.run_sync(begun.set)
            told.append(batch.ended.wait(PATIENCE_S))

    running = Running(Sync, drain_timeout_s=1.0, lease_duration_s=0.6, restart_pause_max_s=1.0)
    async with running.host as host:
        with anyio.fail_after(PATIENCE_S):
            await begun.wait()
        assert host.session is not None
        host.session.end("the test ends it")
        with anyio.fail_after(PATIENCE_S):
            while not told:
                await anyio.lowlevel.checkpoint()
        assert running.position == "@earliest"

    assert told[0] is True


@pytest.mark.parametrize("kind", [PartitionProcessor, RecordProcessor])
async def test_method_that_only_returns_something_to_await_fails_with_the_remedy(kind: type) -> None:
    """Its work would never be done, and count as done."""

    async def work(_: object) -> None:
        raise AssertionError("nobody awaits this")

    class OfBatches(PartitionProcessor):
        def process(self, batch: Batch) -> Any:
            return work(batch)

    class Single(RecordProcessor):
        def handle(self, record: Record) -> Any:
            return work(record)

    made: Callable[[], Any] = OfBatches if kind is PartitionProcessor else Single
    running = Running(made)
    async with running.host:
        with anyio.fail_after(PATIENCE_S):
            await running.seen.wait()

    name = "process" if kind is PartitionProcessor else "handle"
    assert running.failed[0] == f"TypeError: {name} returned something to be awaited; write `async def {name}`"
    assert running.position == "@earliest"
