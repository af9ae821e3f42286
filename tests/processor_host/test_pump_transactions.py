"""
`batch.transaction()` in a pump: a user's writes with the checkpoint, and where the term goes on after each way to fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from partitions.errors import LeaseLost
from partitions.sources.base import Record
from partitions.transactions import Commit, ConditionFailed, TransactionInvalid
from partitions.verbs import Release, SaveCheckpoint
from processor_host.events import BatchCut, ProcessorFailed
from processor_host.kinds import FunctionProcessor
from processor_host.processor import Batch
from tests.builders import a_lease
from tests.processor_host.pumping import Pumping, failures, pumping, put
from tests.stage import GROUP, LATENCY_S, VIRTUAL_TIME, Stage
from tests.world.diary import passes
from tests.world.network import Call

__all__: list[str] = []

OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def with_operations(call: Call) -> bool:
    return isinstance(call.verb, Commit) and bool(call.verb.operations)


def values(stage: Stage) -> dict[str, Any]:
    return dict(stage.store.values_now(GROUP))


def each(*positions: int) -> dict[str, int]:
    """What is stored where each of these records was counted once."""
    return {str(position): 1 for position in positions}


async def count_all(batch: Batch) -> None:
    """Count each record of the batch once for each time that this takes effect."""
    async with batch.transaction() as tx:
        for record in batch:
            tx.add(record.position, 1)


def handler(handle: Any) -> Mapping[str, Any]:
    return {"factory": lambda: FunctionProcessor(handle)}


async def until_stored(it: Pumping, position: str, within_s: float = 600.0) -> None:
    with anyio.fail_after(within_s):
        while it.stage.lease().position != position:
            await passes(0.01)


async def test_transaction_stores_the_batch_and_no_checkpoint_follows_it() -> None:
    """What is stored already needs no second write, and the next batch goes on behind it."""
    stage = Stage()
    put(stage, 25)
    async with pumping(stage, **handler(count_all)) as it:
        await until_stored(it, "25")
        await passes(5)

        assert values(stage) == each(*range(1, 26))
        assert [commit.save.position for commit in stage.sent(Commit)] == ["10", "20", "25"]
        assert stage.sent(SaveCheckpoint) == []
        it.drain()
        assert await it.over() == "drained"
        assert [release.position for release in stage.sent(Release)] == [None]
        assert stage.lease() == replace(OWNED, owner=None, position="25", seq=3)


async def test_transaction_upto_a_record_leaves_the_rest_of_the_batch_to_the_usual_checkpoint() -> None:
    """A batch may take several transactions, each of at most 99 operations, or end without one."""

    async def handle(batch: Batch) -> None:
        records = list(batch)
        for part in (records[:4], records[4:8]):
            async with batch.transaction(upto=part[-1]) as tx:
                for record in part:
                    tx.add(record.position, 1)

    stage = Stage()
    put(stage, 10)
    async with pumping(stage, **handler(handle)) as it:
        await until_stored(it, "10")

        assert values(stage) == each(*range(1, 9))
        assert [(commit.previous, commit.save.position) for commit in stage.sent(Commit)] == [
            ("@earliest", "4"),
            ("4", "8"),
        ]
        assert [save.position for save in stage.sent(SaveCheckpoint)] == ["10"]


async def test_nothing_is_stored_where_the_block_raises() -> None:
    """The handler failed in the middle; its records are handled again, all of them."""
    stage = Stage()
    put(stage, 3)
    tries: list[int] = []

    async def handle(batch: Batch) -> None:
        tries.append(len(batch))
        async with batch.transaction() as tx:
            for record in batch:
                tx.add(record.position, 1)
            if len(tries) == 1:
                raise RuntimeError("in the block")

    async with pumping(stage, **handler(handle)) as it:
        await passes(0.5)
        first = (values(stage), stage.lease(), stage.sent(Commit))
        await until_stored(it, "3")

        assert first == ({}, OWNED, [])
        assert (tries, values(stage), failures(stage)) == ([3, 3], each(1, 2, 3), [("process", 1)])


async def test_handler_that_fails_after_its_transaction_goes_on_behind_it() -> None:
    """The records are done, whatever became of the handler."""
    stage = Stage()
    put(stage, 5)
    seen: list[list[int]] = []

    async def handle(batch: Batch) -> None:
        records = list(batch)
        seen.append([int(record.position) for record in records])
        async with batch.transaction(upto=records[min(2, len(records) - 1)]) as tx:
            for record in records[:3]:
                tx.add(record.position, 1)
        if len(seen) == 1:
            raise RuntimeError("after the block")

    async with pumping(stage, **handler(handle)) as it:
        await until_stored(it, "5")

        assert (seen, values(stage)) == ([[1, 2, 3, 4, 5], [4, 5]], each(1, 2, 3, 4, 5))


async def test_failed_condition_is_the_handlers_failure_and_it_may_handle_it() -> None:
    """It knows which of its operations found what, and decides on another transaction."""
    stage = Stage()
    put(stage, 2)
    found: list[Any] = []

    async def handle(batch: Batch) -> None:
        try:
            async with batch.transaction() as tx:
                tx.check("open", 1)
                tx.add("n", 1)
        except ConditionFailed as failed:
            found.append([(failure.index, failure.item) for failure in failed.failures])
            async with batch.transaction() as tx:
                tx.put("open", 1)

    async with pumping(stage, **handler(handle)) as it:
        await until_stored(it, "2")

        assert (found, values(stage), failures(stage)) == ([[(0, {"open": None})]], {"open": 1}, [])


@pytest.mark.parametrize("fault", [{}, {"lose_answer": True}, {"lose_request": True}, {"before_s": 3.0}])
async def test_handler_with_a_time_out_writes_each_record_once(fault: Mapping[str, Any]) -> None:
    """Its own time-out may strike while the transaction is on its way: the pump finds out and reads on behind it."""
    stage = Stage()
    put(stage, 6)
    stage.disturb(with_operations, times=2, **fault)

    async def handle(batch: Batch) -> None:
        with anyio.fail_after(LATENCY_S * 0.75):
            await count_all(batch)

    async with pumping(stage, batch_records_max=2, **handler(handle)) as it:
        with anyio.move_on_after(120):
            await until_stored(it, "6")
        await passes(10)

        # Where nothing is slow the time-out strikes while the answer is on its way, each time.
        assert values(stage) == each(*range(1, int(it.stage.lease().position) + 1))
        assert stage.events_of(ProcessorFailed) != []
        assert stage.lease().position == "6"


async def test_handler_that_tries_again_after_its_own_time_out_is_not_applied_twice() -> None:
    """The second is told that its records are done, fails, and the pump goes on behind them."""
    stage = Stage()
    put(stage, 2)
    errors: list[str] = []
    # The answer takes longer than the handler waits.
    stage.disturb(with_operations, times=1, after_s=0.5)

    async def handle(batch: Batch) -> None:
        with anyio.move_on_after(0.1) as scope:
            await count_all(batch)
        if scope.cancelled_caught:
            try:
                await count_all(batch)
            except TransactionInvalid as error:
                errors.append(str(error))
                raise

    async with pumping(stage, **handler(handle)) as it:
        await until_stored(it, "2")
        await passes(5)
        put(stage, 1)
        await until_stored(it, "3")

        assert values(stage) == each(1, 2, 3)
        assert [error[:60] for error in errors] == ["the records up to '2' are marked as done already, so a crash"]


async def test_second_transaction_of_the_same_records_is_refused() -> None:
    """A crash between the two would lose it: the records are done once the first is stored."""
    stage = Stage()
    put(stage, 2)

    async def handle(batch: Batch) -> None:
        await count_all(batch)
        await count_all(batch)

    async with pumping(stage, **handler(handle)) as it:
        await passes(3)

        assert (values(stage), it.stage.lease().position) == (each(1, 2), "2")
        assert failures(stage) == [("process", 1)]


@pytest.mark.parametrize("is_applied", [True, False])
async def test_drain_that_cuts_a_transaction_leaves_the_position_that_belongs_to_the_writes(is_applied: bool) -> None:
    """The next owner starts behind what was written, or before what was not."""
    stage = Stage()
    put(stage, 12)
    handled: list[int] = []

    async def handle(batch: Batch) -> None:
        handled.append(len(batch))
        if len(handled) == 1:
            return
        await count_all(batch)

    fault: Mapping[str, Any] = {"after_s": 600.0} if is_applied else {"lose_request": True}
    stage.disturb(with_operations, **fault)
    stage.disturb(lambda call: call.operation == "read_lease", lose_request=True)
    async with pumping(stage, checkpoint_interval_s=1000.0, **handler(handle)) as it:
        await passes(0.2)
        assert handled == [10, 2]
        key = stage.ask("a:1", "p0", 1)
        await it.over()

        assert key == "p0@1"
        assert len(stage.events_of(BatchCut)) == 1
        # The mark of the first batch is not stored over the second: it may be further already.
        assert [release.position for release in stage.sent(Release)] == [None]
        assert (stage.lease().position, values(stage)) == (("12", each(11, 12)) if is_applied else ("@earliest", {}))


async def test_transaction_of_a_lost_lease_ends_the_pump_and_writes_nothing() -> None:
    """As a refused checkpoint does."""
    stage = Stage()
    put(stage, 2)
    raised: list[type[BaseException]] = []

    async def handle(batch: Batch) -> None:
        stage.take("p0")
        try:
            await count_all(batch)
        except LeaseLost as error:
            raised.append(type(error))
            raise

    async with pumping(stage, **handler(handle)) as it:
        assert await it.over() == "lease lost"
        assert (raised, values(stage), stage.lease().owner) == ([LeaseLost], {}, "b:1")


async def test_transaction_refuses_what_it_cannot_do_before_it_sends_anything() -> None:
    """A record of another batch, too many operations, a call after the block."""
    stage = Stage()
    put(stage, 2)
    errors: list[str] = []

    async def handle(batch: Batch) -> None:
        async def foreign() -> None:
            async with batch.transaction(upto=Record(partition="p0", position="77", key=None, data=b"")):
                pass

        async def too_many() -> None:
            async with batch.transaction() as tx:
                for n in range(100):
                    tx.add(str(n), 1)

        async def after_the_block() -> None:
            kept = None
            try:
                async with batch.transaction() as tx:
                    kept = tx
                    raise RuntimeError
            except RuntimeError:
                assert kept is not None
                kept.add("late", 1)

        for call in (foreign, too_many, after_the_block):
            try:
                await call()
            except (ValueError, TransactionInvalid) as error:
                errors.append(str(error)[:48])

    async with pumping(stage, **handler(handle)):
        await passes(3)

        assert errors == [
            "transaction(upto=…): the record at '77' of 'p0' ",
            "100 operations in one transaction, expected at m",
            "the transaction has ended; call its methods insi",
        ]
        assert (stage.sent(Commit), values(stage)) == ([], {})
