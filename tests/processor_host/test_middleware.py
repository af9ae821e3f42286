"""
Middleware around `process`: its order, what it may do with a batch, and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partitions.errors import LeaseLost
from partitions.events import EndReason
from partitions.sources.base import Record
from processor_host.errors import SettingsError
from processor_host.middleware import Middleware, NotHandedOn, Process, around, check_middleware
from processor_host.processor import Batch
from tests.stage import VIRTUAL_TIME, Stage

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


async def nothing(_: int) -> None:
    return


def batch_of(lease: Any, count: int = 2) -> Batch:
    records = [Record(partition="p0", position=str(n), key=None, data=b"x") for n in range(1, count + 1)]
    return Batch(records, lease=lease, lag_s=None, save=nothing)


def noting(name: str, notes: list[str]) -> Middleware:
    async def middleware(batch: Batch, process: Process) -> None:
        notes.append(f"{name} begins")
        try:
            await process(batch)
            notes.append(f"{name} ends")
        except ValueError:
            notes.append(f"{name} sees the failure")
            raise

    return middleware


def processing(notes: list[str], error: Exception | None = None) -> Process:
    async def process(batch: Batch) -> None:
        notes.append(f"process {len(batch)}")
        if error is not None:
            raise error

    return process


async def test_middleware_runs_in_the_order_of_its_list() -> None:
    """Who is first sees the batch first and the outcome last, so tracing can have decoding inside of it."""
    stage, notes = Stage(), list[str]()
    async with stage.living() as session:
        batch = batch_of(await stage.acquired(session))
        await around([noting("a", notes), noting("b", notes)], processing(notes))(batch)

    assert notes == ["a begins", "b begins", "process 2", "b ends", "a ends"]


async def test_failure_passes_through_every_middleware() -> None:
    """It must reach the failure policy, and be seen on its way."""
    stage, notes = Stage(), list[str]()
    async with stage.living() as session:
        batch = batch_of(await stage.acquired(session))
        with pytest.raises(ValueError, match="bad"):
            await around([noting("a", notes), noting("b", notes)], processing(notes, ValueError("bad")))(batch)

    assert notes == ["a begins", "b begins", "process 2", "b sees the failure", "a sees the failure"]


async def test_end_of_the_lease_passes_through_middleware() -> None:
    """The pump tells it from a failure by its type."""
    stage, notes = Stage(), list[str]()
    async with stage.living() as session:
        lease = await stage.acquired(session)

        async def process(batch: Batch) -> None:
            lease.end(EndReason.SEEN_TAKEN)
            tuple(batch)

        with pytest.raises(LeaseLost):
            await around([noting("a", notes)], process)(batch_of(lease))

    assert notes == ["a begins"]


async def test_middleware_that_hands_nothing_on_is_a_failure() -> None:
    """Returning counts the records as done; forgetting one await would lose all of them without a word."""
    stage, notes = Stage(), list[str]()

    async def forgetful(batch: Batch, process: Process) -> None:
        return

    async with stage.living() as session:
        batch = batch_of(await stage.acquired(session))
        with pytest.raises(NotHandedOn, match="a middleware returned without `await process"):
            await around([noting("a", notes), forgetful], processing(notes))(batch)

    assert notes == ["a begins", "a ends"]


async def test_middleware_that_swallows_a_failure_is_a_failure() -> None:
    """Retrying is fine; giving records up is the failure policy's, where it can be seen."""
    stage, notes = Stage(), list[str]()

    async def swallowing(batch: Batch, process: Process) -> None:
        try:
            await process(batch)
        except ValueError:
            return

    async with stage.living() as session:
        batch = batch_of(await stage.acquired(session))
        with pytest.raises(NotHandedOn):
            await around([swallowing], processing(notes, ValueError("bad")))(batch)

    assert notes == ["process 2"]


async def test_middleware_that_is_not_async_is_a_failure_that_says_so() -> None:
    """Awaiting what is None tells nobody which of several functions it was."""
    stage = Stage()

    def plain(batch: Batch, process: Process) -> None:
        return

    async with stage.living() as session:
        batch = batch_of(await stage.acquired(session))
        with pytest.raises(TypeError, match=r"plain is not async; write `async def`"):
            await around([plain], processing([]))(batch)  # type: ignore[list-item]


def test_no_middleware_costs_nothing() -> None:
    """Most hosts have none, and hand on many batches."""
    process = processing([])

    assert around([], process) is process


class Called:
    async def __call__(self, batch: Batch, process: Process) -> None:
        await process(batch)


class TakesTwo:
    def __init__(self, batch: Batch, process: Process) -> None:
        self.given = (batch, process)


def test_middleware_may_be_any_callable_of_two() -> None:
    """A class with settings of its own is as good as a function."""
    first, second = Called(), noting("a", [])

    assert check_middleware([first, second]) == (first, second)
    assert check_middleware(()) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: 3, "is no list; write middleware=[…]"),
        (lambda: "tracing", "middleware='tracing' is no list; write middleware=[…]"),
        (lambda: [Called], "middleware Called is not one; give an `async def`"),
        (lambda: [TakesTwo], "middleware TakesTwo is not one; give an `async def`"),
        (lambda: [print, 3], "middleware 3 is not one; give an `async def`"),
        (lambda: [nothing], "middleware nothing is not one; give an `async def`"),
    ],
)
def test_what_is_no_middleware_is_refused(value: Callable[[], object], text: str) -> None:
    """At the start, not at the first batch."""
    with pytest.raises(SettingsError) as refused:
        check_middleware(value())

    assert text in str(refused.value)
