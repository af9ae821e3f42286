"""
A term's user transactions: applied once or not at all, wherever an answer or a caller is lost. In virtual time.

Each adds to a number, which a second application would show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from partitions.errors import LeaseLost, StoreMisconfigured
from partitions.events import CheckpointFailed, CheckpointRefused, CheckpointSaved, EndReason
from partitions.leases import Lease
from partitions.sessions import Session
from partitions.stores.memory import MemoryStore
from partitions.transactions import (
    Again,
    Commit,
    ConditionFailed,
    Failed,
    FailedOperation,
    Outcome,
    TransactionsUnsupported,
)
from partitions.verbs import Release, SaveCheckpoint
from tests.builders import a_lease
from tests.cuts import Cut, at_every_point
from tests.stage import GROUP, LATENCY_S, PACE, VIRTUAL_TIME, Stage, about
from tests.world.diary import passes
from tests.world.network import Call, PlaceStore

__all__: list[str] = []

OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def commits(call: Call) -> bool:
    return isinstance(call.verb, Commit)


def with_operations(call: Call) -> bool:
    return isinstance(call.verb, Commit) and bool(call.verb.operations)


def reads(call: Call) -> bool:
    return call.operation == "read_lease"


async def add(lease: Lease, position: str, amount: int = 1, key: str = "n", **checks: Any) -> None:
    """Store a position and add to a number with it, where these values are stored."""
    tx: Any = lease.begin_transaction()
    for name, value in checks.items():
        tx.check(name, value)
    tx.add(key, amount)
    await lease.commit(position, tx.taken())


def stored(stage: Stage) -> tuple[str, Mapping[str, Any]]:
    """Return what is stored: the position, and the values."""
    return stage.lease().position, stage.store.values_now(GROUP)


async def test_transaction_stores_the_position_and_the_writes_in_one_request() -> None:
    """Apart, a crash between the two would repeat or lose the writes."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add(lease, "10")
        await add(lease, "20", 5)

        assert stored(stage) == ("20", {"n": 6})
        assert stage.lease() == replace(OWNED, position="20", seq=2)
        assert [(commit.previous, commit.save.seq) for commit in stage.sent(Commit)] == [("@earliest", 1), ("10", 2)]
        assert stage.events_of(CheckpointSaved) == [
            CheckpointSaved(partition="p0", token=1, position=position, duration_s=about(LATENCY_S))
            for position in ("10", "20")
        ]


async def test_transaction_of_a_term_that_was_taken_writes_nothing_and_ends_it() -> None:
    """A paused owner must not write under an old token."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.take("p0")
        # Further than this term ever came: a number alone says nothing.
        taken = stage.apply(SaveCheckpoint(partition="p0", owner="b:1", token=2, position="7", seq=7))

        with pytest.raises(LeaseLost, match="token 1 replaced by 2"):
            await add(lease, "10")

        assert (stage.lease(), stage.store.values_now(GROUP)) == (taken, {})
        assert (lease.is_held(), lease.end_reason) == (False, EndReason.REFUSED)
        assert stage.events_of(CheckpointRefused) == [
            CheckpointRefused(partition="p0", token=1, position="10", found_token=2)
        ]


@pytest.mark.parametrize(
    "fault",
    [
        {"fail_before": True},
        {"lose_request": True},
        {"fail_after": True},
        {"lose_answer": True},
        {"before_s": PACE.call_timeout_s * 1.5},
        {"after_s": PACE.call_timeout_s * 1.5},
        {"repeat_after_s": 0.5},
    ],
    ids=lambda fault: next(iter(fault)),
)
@pytest.mark.parametrize("times", [1, 2])
async def test_transaction_is_applied_once_whatever_the_network_does(fault: Mapping[str, Any], times: int) -> None:
    """Lost before or after, late, answered with a fault, or delivered twice."""
    stage = Stage()
    disturbed = stage.disturb(commits, times=times, **fault)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add(lease, "10")
        first = stored(stage)
        await add(lease, "20")
        await passes(5)

        assert (first, stored(stage)) == (("10", {"n": 1}), ("20", {"n": 2}))
        assert disturbed.hits == times


async def test_ambiguous_answer_is_resolved_by_a_read_and_not_sent_again() -> None:
    """The server may have no memory of the request; only the item tells."""
    stage = Stage()
    stage.disturb(commits, fail_after=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add(lease, "10")

        assert stored(stage) == ("10", {"n": 1})
        assert [call.operation for _, call in stage.network.calls if commits(call) or reads(call)] == [
            "Commit",
            "read_lease",
        ]


async def test_refusal_of_what_was_applied_before_is_a_success() -> None:
    """Rule 9: neither the answer nor the read after it arrives, and the second try finds the first."""
    stage = Stage()
    stage.disturb(commits, fail_after=True, times=1)
    stage.disturb(reads, fail_before=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add(lease, "10")
        await add(lease, "20")

        assert (stored(stage), lease.is_held()) == (("20", {"n": 2}), True)
        assert len(stage.sent(Commit)) == 3


async def test_ambiguous_answer_of_a_term_that_was_taken_since_ends_it() -> None:
    """Whether it was applied, nobody here can know any more; the next owner sees it in the position."""
    stage = Stage()
    stage.disturb(commits, fail_after=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.disturb(reads, before_s=0.5)
        async with anyio.create_task_group() as tasks:

            async def commit() -> None:
                with pytest.raises(LeaseLost):
                    await add(lease, "10")

            tasks.start_soon(commit)
            await passes(0.2)
            stage.take("p0")

        assert stored(stage) == ("10", {"n": 1})
        assert (len(stage.sent(Commit)), lease.end_reason) == (1, EndReason.REFUSED)


async def test_transaction_is_tried_until_the_lease_ends_and_not_longer() -> None:
    """As a checkpoint is; a handler must not wait for a store that is gone for good."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.network.cut_off.add("world")
        began_s = stage.now_s

        with pytest.raises(LeaseLost):
            await add(lease, "10")

        assert stage.now_s - began_s <= PACE.duration_s
        assert len(stage.sent(Commit)) > 2
        assert {event.error for event in stage.events_of(CheckpointFailed)} == {"no answer within 1 s"}
        assert stored(stage) == ("@earliest", {})


async def test_conflict_is_tried_again_without_a_read() -> None:
    """The server has said that nothing was applied."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.network.store = Changed(stage, *[Again(reason="conflict")] * 3)
        await add(lease, "10")

        assert stored(stage) == ("10", {"n": 1})
        assert not any(reads(call) for _, call in stage.network.calls)
        assert [(event.error, event.attempt) for event in stage.events_of(CheckpointFailed)] == [
            ("conflict", 1),
            ("conflict", 2),
            ("conflict", 3),
        ]


async def test_failed_condition_of_the_user_is_raised_and_leaves_nothing_in_doubt() -> None:
    """Nothing was stored, and what follows is sent as if it had not been tried."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add(lease, "10", key="m")

        with pytest.raises(ConditionFailed) as raised:
            await add(lease, "20", m=7)

        (failure,) = raised.value.failures
        assert (failure.index, failure.item) == (0, {"m": 1})
        assert isinstance(failure, FailedOperation)
        assert (stored(stage), lease.is_held()) == (("10", {"m": 1}), True)

        await lease.checkpoint("15")
        await add(lease, "20", m=1)

        assert stored(stage) == ("20", {"m": 1, "n": 1})
        assert len(stage.sent(Commit)) == 3


async def test_condition_that_fails_on_ones_own_lost_write_is_a_success() -> None:
    """A server without a memory of the request finds what its first delivery wrote, and so do conditions on it."""
    stage = Stage()
    # The first is applied, but neither its answer nor the read after it arrives; of the second the server tells the
    # user's half only.
    stage.disturb(commits, fail_after=True, times=1)
    stage.disturb(reads, fail_before=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.network.store = Changed(stage, None, Failed(error=ConditionFailed("p0", ())))
        await add(lease, "10", n=None)

        assert (stored(stage), lease.is_held()) == (("10", {"n": 1}), True)
        assert len(stage.sent(Commit)) == 2


async def test_transaction_that_failed_while_an_earlier_try_is_on_its_way_is_settled_first() -> None:
    """The try that is late may find the condition true again; a checkpoint behind it would then cover its writes."""
    stage = Stage()
    stage.disturb(with_operations, before_s=3.0, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.network.store = Changed(stage, Failed(error=ConditionFailed("p0", ())))
        with pytest.raises(ConditionFailed):
            await add(lease, "20")
        await lease.checkpoint("10")
        await passes(5)

        assert stored(stage) == ("10", {})
        assert [bool(commit.operations) for commit in stage.sent(Commit)] == [True, True, False]


async def test_checkpoint_in_doubt_is_settled_before_a_transaction() -> None:
    """A transaction names the position stored before it, which a cancelled checkpoint may or may not have moved."""
    for fault in ({"fail_after": True}, {"lose_request": True}, {"before_s": 3.0}):
        stage = Stage()
        stage.disturb(lambda call: isinstance(call.verb, SaveCheckpoint), times=1, **fault)
        async with stage.living() as session:
            lease = await stage.acquired(session)
            with anyio.move_on_after(0.015):
                await lease.checkpoint("10")
            await passes(0.1)
            await add(lease, "20")
            await passes(5)

            assert stored(stage) == ("20", {"n": 1}), fault


async def test_every_checkpoint_in_doubt_is_settled_before_a_transaction() -> None:
    """The first was applied, and the second arrives while that is found out: it is no other host's doing."""
    stage = Stage()
    stage.disturb(lambda call: isinstance(call.verb, SaveCheckpoint), lose_answer=True, times=1)
    stage.disturb(lambda call: isinstance(call.verb, SaveCheckpoint), before_s=0.1, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        for position in ("10", "15"):
            with anyio.move_on_after(0.015):
                await lease.checkpoint(position)
        # The second arrives between the first settling and whatever is sent next.
        await passes(0.115 - 0.030 - LATENCY_S)
        await add(lease, "20")

        assert (stored(stage), lease.is_held()) == (("20", {"n": 1}), True)
        assert [commit.previous for commit in stage.sent(Commit)] == ["@earliest", "10", "15", "15"]


@pytest.mark.parametrize("fault", [{}, {"fail_after": True}, {"fail_before": True}, {"before_s": 2.0}])
def test_transaction_is_whole_and_the_term_goes_on_wherever_its_caller_is_cancelled(fault: Mapping[str, Any]) -> None:
    """
    A drain or a user's own time-out strikes at any await: the position then tells whether it was applied.

    Whoever goes on from the settled position writes each record once.
    """

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await add(lease, "10")
            stage.disturb(commits, times=1, **fault)
            await cut.during(lambda: add(lease, "20"))
            position = await lease.settled()
            seen = stored(stage)
            if position == "10":
                await add(lease, "20")
            await add(lease, "30")
            await passes(5)

            assert seen == (position, {"n": 1 if position == "10" else 2})
            assert (stored(stage), lease.is_held()) == (("30", {"n": 3}), True)

    assert at_every_point(scenario) > 1


@pytest.mark.parametrize("delay_s", [0.1, 0.5, 2.0])
async def test_transaction_in_doubt_is_not_applied_after_a_later_checkpoint(delay_s: float) -> None:
    """Else its records would be handled again from an older position, and write twice."""
    stage = Stage()
    stage.disturb(with_operations, before_s=delay_s, lose_answer=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add_cancelled(lease, "20")
        await lease.checkpoint("10")
        await passes(5)

        assert stored(stage) == ("10", {})


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
async def test_release_carries_no_position_while_a_transaction_is_in_doubt(delay_s: float) -> None:
    """An older position would have its records write again under the next owner."""
    stage = Stage()
    stage.disturb(with_operations, before_s=delay_s, lose_answer=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await add_cancelled(lease, "20")
        assert await lease.release("10")
        await passes(5)

        assert stored(stage) == (("20", {"n": 1}) if delay_s == 0.0 else ("@earliest", {}))
        assert [(release.position, release.seq) for release in stage.sent(Release)] == [(None, None)]


async def test_misconfigured_store_is_raised_at_once_and_the_term_goes_on() -> None:
    """As where the table that the user's own operations name is not there: no wait mends it."""
    stage = Stage()
    stage.disturb(commits, raises=StoreMisconfigured("table 'orders' is not there"), times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        began_s = stage.now_s

        with pytest.raises(StoreMisconfigured, match="table 'orders' is not there"):
            await add(lease, "10")

        assert (stage.now_s, lease.is_held()) == (began_s, True)
        await add(lease, "10")
        assert stored(stage) == ("10", {"n": 1})


async def test_store_without_transactions_says_so_by_its_name() -> None:
    """Before anything is collected, and with what to do instead."""

    class Plain(PlaceStore):
        transactions = None  # type: ignore[assignment]

    stage = Stage()
    session = Session(
        store=Plain(stage.network),
        group=GROUP,
        host_id="a",
        session_id="a:1",
        clock=stage.clock,
        random=stage.random,
        pace=PACE,
        on_event=stage.tell,
    )
    async with stage.living(session):
        lease = await stage.acquired(session)

        with pytest.raises(TransactionsUnsupported, match="store 'memory:' has no user transactions; use "):
            lease.begin_transaction()


async def test_condition_check_is_for_dynamodb_and_says_so() -> None:
    """Nothing outside this process can check this store."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)

        with pytest.raises(TransactionsUnsupported, match="store 'memory:' has no condition checks, which are Dynamo"):
            lease.condition_check()

        stage.fence("a:1")
        lease.end(EndReason.SESSION_ENDED)
        with pytest.raises(LeaseLost):
            lease.condition_check()


async def add_cancelled(lease: Lease, position: str) -> None:
    """Send a transaction whose caller is cancelled right after."""
    with anyio.move_on_after(LATENCY_S * 2) as scope:
        await add(lease, position)
    assert scope.cancelled_caught


class Changed(MemoryStore):
    """A store that answers its first commits with these instead, None: as it should, and applies none of them."""

    __slots__ = ("_answers",)

    def __init__(self, stage: Stage, *answers: Outcome | None) -> None:
        super().__init__()
        self._groups = stage.store._groups
        self._answers = list(answers)

    def commit_now(self, group: str, commit: Commit) -> Outcome:
        """See `MemoryStore`."""
        answer = self._answers.pop(0) if self._answers else None
        return super().commit_now(group, commit) if answer is None else answer
