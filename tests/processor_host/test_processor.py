"""
What a user writes and is given: batches that stop at the end of their lease, and what may be a processor.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from partitions.errors import LeaseLost
from partitions.events import EndReason
from partitions.leases import Lease
from partitions.sources.base import Record
from processor_host.errors import SettingsError
from processor_host.kinds import FunctionProcessor, factory_of
from processor_host.processor import Batch, CloseReason, PartitionProcessor
from tests.stage import VALIDITY_S, VIRTUAL_TIME, Stage

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def record(n: int, partition: str = "p0") -> Record:
    return Record(partition=partition, position=str(n), key=None, data=b"x")


RECORDS = [record(n) for n in range(1, 5)]


class Saved:
    """A batch of a held lease, and the indexes that it had stored."""

    def __init__(self, lease: Lease, records: Sequence[Record] = tuple(RECORDS)) -> None:
        self.indexes: list[int] = []
        self.batch = Batch(records, lease=lease, lag_s=2.5, save=self._save, commit=self._commit)
        self.committed: list[tuple[int, int]] = []
        """The index and the number of operations of each transaction."""

    async def _save(self, index: int) -> None:
        self.indexes.append(index)

    async def _commit(self, index: int, operations: Sequence[Any]) -> None:
        self.committed.append((index, len(operations)))


async def test_batch_yields_its_records_in_order() -> None:
    """The first thing that anybody does with one, and the second: once more."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        batch = Saved(lease).batch

        assert (list(batch), list(batch), len(batch)) == (RECORDS, RECORDS, 4)
        assert (batch.partition, batch.lease, batch.lag_s) == ("p0", lease, 2.5)
        assert repr(batch) == "<Batch of 4 records of 'p0'>"


@pytest.mark.parametrize("how", ["ended", "run out unnoticed", "ask deadline unnoticed"])
async def test_batch_starts_no_further_record_once_its_lease_has_ended(how: str) -> None:
    """A host that wakes from a freeze in the middle of a batch finds out here, before anything else could tell it."""
    stage = Stage()
    session = stage.session()
    assert await session.register()
    lease = await stage.acquired(session)
    seen: list[str] = []

    def iterate() -> None:
        for each in Saved(lease).batch:
            seen.append(each.position)
            if each.position == "2":
                if how == "ended":
                    lease.end(EndReason.SEEN_TAKEN)
                elif how == "run out unnoticed":
                    stage.clock.jump(VALIDITY_S)
                else:
                    session.table.show({lease.key: "b:1"}, stage.clock.now_s())

    with pytest.raises(LeaseLost) as caught:
        iterate()

    assert (seen, caught.value.held, lease.ended.is_set()) == (["1", "2"], 1, True)


async def test_batch_of_an_ended_lease_yields_nothing() -> None:
    """It may have waited for the processor while the host was frozen."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        batch = Saved(lease).batch
        lease.end(EndReason.SEEN_TAKEN)

        with pytest.raises(LeaseLost):
            next(iter(batch))


async def test_batch_yields_its_last_record_and_then_asks_no_more() -> None:
    """Whether the lease ends after the last record is the checkpoint's business."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        seen = []
        for each in Saved(lease).batch:
            seen.append(each)
            if each is RECORDS[-1]:
                lease.end(EndReason.SEEN_TAKEN)

        assert seen == RECORDS


async def test_checkpoint_counts_up_to_and_including_the_record_it_is_given() -> None:
    """Off by one would lose a record, or repeat one."""
    stage = Stage()
    async with stage.living() as session:
        saved = Saved(await stage.acquired(session))
        for upto in (RECORDS[0], RECORDS[2], None):
            await saved.batch.checkpoint(upto)

        assert saved.indexes == [0, 2, 3]


@pytest.mark.parametrize("foreign", [record(9), record(1, "p1")])
async def test_checkpoint_refuses_a_record_that_is_not_of_its_batch(foreign: Record) -> None:
    """It would mark something as done that this batch says nothing of."""
    stage = Stage()
    async with stage.living() as session:
        saved = Saved(await stage.acquired(session))

        with pytest.raises(ValueError, match=f"{foreign.position!r} of {foreign.partition!r} is not of this batch"):
            await saved.batch.checkpoint(foreign)
        assert saved.indexes == []


class Delays(PartitionProcessor):
    async def process(self, batch: Batch) -> None:
        """Does nothing."""


class Halfway(PartitionProcessor):
    """Forgot `process`."""


async def handle(batch: Batch) -> None:
    """Does nothing."""


async def handle_into(sink: list[Batch], batch: Batch) -> None:
    sink.append(batch)


def make() -> PartitionProcessor:
    return Delays()


@pytest.mark.parametrize("given", [Delays, make, functools.partial(Delays), lambda size=3: Delays()])
def test_factory_makes_a_processor_of_its_own_for_each_term(given: Any) -> None:
    """State of one term must not be seen by the next."""
    factory = factory_of(given)
    first, second = factory(), factory()

    assert (type(first), type(second), first is second) == (Delays, Delays, False)


async def test_function_is_a_processor() -> None:
    """The smallest thing that works."""
    stage = Stage()
    sink: list[Batch] = []
    processor = factory_of(functools.partial(handle_into, sink))()
    assert isinstance(processor, PartitionProcessor)
    async with stage.living() as session:
        batch = Saved(await stage.acquired(session)).batch
        await processor.process(batch)
        await processor.close(CloseReason.HANDED_OFF)

    assert (type(processor), sink) == (FunctionProcessor, [batch])
    assert type(factory_of(handle)()) is FunctionProcessor


async def takes_none() -> None:
    """Would fail at every batch."""


async def takes_two(batch: Batch, more: int) -> None:
    """The same."""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Halfway, "processor Halfway does not define process; add it to the class"),
        (PartitionProcessor, "processor PartitionProcessor does not define process"),
        (
            Delays(),
            "is not a processor; give a subclass of PartitionProcessor or RecordProcessor, a function without "
            "arguments that returns one, or an async def that takes a batch or a record",
        ),
        (takes_none, "processor takes_none takes (); an async def as processor takes a batch or a record, and nothing"),
        (takes_two, "processor takes_two takes (batch, more); an async def as processor takes a batch or a record"),
        (lambda batch: None, "is not a processor"),
        (dict, "processor dict is not a processor"),
        ("delays:Delays", "processor 'delays:Delays' is not a processor"),
        (None, "processor None is not a processor"),
    ],
)
def test_factory_of_names_what_is_wrong_with_anything_else(given: object, text: str) -> None:
    """Found before a lease is taken, and told with the remedy."""
    with pytest.raises(SettingsError) as caught:
        factory_of(given)

    assert text in str(caught.value)


async def test_batch_with_other_records_saves_and_commits_in_the_place_of_its_own() -> None:
    """As where they were decoded: the pump knows the records by their place in the batch."""
    stage = Stage()
    async with stage.living() as session:
        saved = Saved(await stage.acquired(session))
        others = [record(10 * n) for n in range(1, 5)]
        changed = saved.batch.with_records(others)
        await changed.checkpoint(upto=others[1])
        async with changed.transaction(upto=others[2]) as tx:
            tx.put("key", 1)

        assert (list(changed), saved.indexes, saved.committed) == (others, [1], [(2, 1)])
        assert (changed.partition, changed.lease, changed.lag_s) == ("p0", saved.batch.lease, 2.5)
        with pytest.raises(ValueError, match="3 records in the place of 4, expected as many"):
            saved.batch.with_records(others[:3])


async def test_batch_that_was_made_without_transactions_says_so() -> None:
    """Before the block begins, and not by storing the writes without the checkpoint."""
    stage = Stage()

    async def save(_: int) -> None:
        raise AssertionError("nothing is to be stored")

    async with stage.living() as session:
        batch = Batch(RECORDS, lease=await stage.acquired(session), lag_s=None, save=save)

        with pytest.raises(TypeError, match=r"this batch was made without transactions; .* should use `with_records`"):
            async with batch.transaction():
                raise AssertionError("the block has begun")


async def test_transaction_of_a_lease_that_has_ended_does_not_begin() -> None:
    """The block may do work for which it needs the partition."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        saved = Saved(lease)
        lease.end(EndReason.SEEN_TAKEN)

        with pytest.raises(LeaseLost):
            async with saved.batch.transaction():
                raise AssertionError("the block has begun")
        assert saved.committed == []
