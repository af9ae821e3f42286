"""
Synchronous processors in worker threads: on the real loop, since threads know no virtual time. Nothing here sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest

from partitions.clocks import BootClock
from partitions.errors import LeaseLost
from partitions.events import EndReason
from partitions.leases import Lease, current_lease, working_under
from partitions.positions import EARLIEST
from partitions.sessions import Session
from partitions.sources.base import Record
from partitions.stores.memory import MemoryStore
from partitions.verbs import Applied, Create
from processor_host.processor import Batch
from processor_host.threads import SyncBatch, in_threads
from tests.stage import PACE

__all__: list[str] = []

PATIENCE_S = 30.0
"""How long a thread or the loop waits for the other before a test fails; none of them waits in a green one."""
RECORDS = [Record(partition="p0", position=str(n), key=None, data=b"x") for n in (1, 2, 3)]


@asynccontextmanager
async def held() -> AsyncIterator[Lease]:
    """A lease that is held for the six seconds of one beat."""
    store = MemoryStore()
    await store.open()
    created = store.apply_now("g", Create(partition="p0", position=EARLIEST))
    assert isinstance(created, Applied)
    assert created.item is not None
    session = Session(
        store=store,
        group="g",
        host_id="a",
        session_id="a:1",
        clock=BootClock(),
        random=Random(1),
        pace=PACE,
        on_event=None,
    )
    assert await session.register()
    lease = await session.acquire(created.item, reason="free")
    assert lease is not None
    yield lease


def batch_of(lease: Lease, saved: list[int] | None = None) -> Batch:
    async def save(index: int) -> None:
        assert saved is not None
        saved.append(index)

    return Batch(RECORDS, lease=lease, lag_s=2.5, save=save)


def limiter(count: int = 1) -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(count)


async def test_process_runs_in_a_thread_under_its_lease() -> None:
    """What blocks there blocks neither the loop nor its beats, and finds its fencing token as everywhere."""
    seen: list[object] = []

    def process(batch: SyncBatch) -> None:
        seen.append(threading.current_thread() is not threading.main_thread())
        seen.append(current_lease())
        seen.append((batch.partition, batch.token, batch.lag_s, len(batch), [each.position for each in batch]))

    async with held() as lease:
        with working_under(lease):
            await in_threads(process, limiter())(batch_of(lease))

    assert seen == [True, lease, ("p0", 1, 2.5, 3, ["1", "2", "3"])]


async def test_checkpoint_from_a_thread_is_stored_when_it_returns() -> None:
    """The loop stores it; the thread waits."""
    saved: list[int] = []
    seen: list[list[int]] = []

    def process(batch: SyncBatch) -> None:
        batch.checkpoint(RECORDS[1])
        seen.append(list(saved))
        batch.checkpoint()

    async with held() as lease:
        await in_threads(process, limiter())(batch_of(lease, saved))

    assert (seen, saved) == ([[1]], [1, 2])


async def test_failure_in_a_thread_is_raised_as_it_is() -> None:
    """The failure policy tells errors apart by their type, so no group may be around them."""

    def process(_: SyncBatch) -> None:
        raise KeyError("late")

    async with held() as lease:
        with pytest.raises(KeyError, match="late"):
            await in_threads(process, limiter())(batch_of(lease))


async def test_thread_starts_no_further_record_once_the_lease_has_ended_and_is_told_of_it() -> None:
    """A thread cannot be cancelled; it learns of the end by the flag, or at its next record."""
    begun = threading.Event()
    seen: list[str] = []

    def process(batch: SyncBatch) -> None:
        for record in batch:
            seen.append(record.position)
            begun.set()
            seen.append(f"told {batch.ended.wait(PATIENCE_S)}")

    async with held() as lease:

        async def end() -> None:
            await anyio.to_thread.run_sync(begun.wait, PATIENCE_S)
            lease.end(EndReason.SEEN_TAKEN)

        failed: LeaseLost | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            try:
                await in_threads(process, limiter())(batch_of(lease))
            except LeaseLost as error:
                failed = error

    assert seen == ["1", "told True"]
    assert failed is not None
    assert failed.held == 1


async def test_thread_that_returns_as_told_is_not_done_where_the_end_of_its_lease_cancels_the_caller() -> None:
    """It has left out what was to come; whatever follows a call that is done, such as middleware, must not run."""
    begun = threading.Event()
    seen: list[str] = []

    def process(batch: SyncBatch) -> None:
        begun.set()
        seen.append(f"told {batch.ended.wait(PATIENCE_S)}")

    async with held() as lease:

        async def end() -> None:
            await anyio.to_thread.run_sync(begun.wait, PATIENCE_S)
            lease.end(EndReason.SEEN_TAKEN)

        async def watch_end(scope: anyio.CancelScope) -> None:
            await lease.ended.wait()
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch_end, tasks.cancel_scope)
            tasks.start_soon(end)
            await in_threads(process, limiter())(batch_of(lease))
            seen.append("done")

    assert seen == ["told True"]


async def test_cancelled_caller_tells_the_thread_and_waits_for_it() -> None:
    """A drain has taken too long: the lease must not be free while the thread still writes."""
    begun = threading.Event()
    seen: list[str] = []

    def process(batch: SyncBatch) -> None:
        begun.set()
        seen.append(f"told {batch.ended.wait(PATIENCE_S)}")

    async with held() as lease:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await anyio.to_thread.run_sync(begun.wait, PATIENCE_S)
                    scope.cancel()

                tasks.start_soon(cancel)
                await in_threads(process, limiter())(batch_of(lease))
                seen.append("went on")
        seen.append("over")

    assert (seen, scope.cancelled_caught) == (["told True", "over"], True)


async def test_threads_are_bounded_for_all_processors_together() -> None:
    """A thousand partitions must not start a thousand threads."""
    both = threading.Barrier(2)
    shared = limiter(2)
    taken: list[float] = []

    def process(_: SyncBatch) -> None:
        both.wait(PATIENCE_S)
        taken.append(shared.borrowed_tokens)

    # At least one each time: the thread's own. The barrier shows that two do run together.
    async with held() as lease, anyio.create_task_group() as tasks:
        process_in_thread = in_threads(process, shared)

        async def run() -> None:
            await process_in_thread(batch_of(lease))

        for _ in range(6):
            tasks.start_soon(run)

    assert (len(taken), {*taken} <= {1, 2}) == (6, True)


async def test_batch_of_an_ended_lease_starts_no_thread() -> None:
    """It may have waited for a free thread while the lease ended."""
    async with held() as lease:
        lease.end(EndReason.SEEN_TAKEN)
        with pytest.raises(LeaseLost):
            await in_threads(lambda _: pytest.fail("started"), limiter())(batch_of(lease))
