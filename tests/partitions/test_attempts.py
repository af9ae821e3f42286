"""
What a term stores beside its checkpoint: attempts, suspects, what is prepared, a pause. In virtual time.

A call that is lost, late or delivered twice must count once, and bring nothing back that was ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from partitions.errors import LeaseLost, StoreUnavailable
from partitions.events import CheckpointRefused, CheckpointSaved, EndReason, LeaseReleased
from partitions.items import PREPARED_BYTES_MAX, Prepared
from partitions.leases import Lease
from partitions.transactions import Commit
from partitions.verbs import Acquire, Attempt, Pause, Prepare, Release, SaveCheckpoint
from tests.builders import a_lease
from tests.cuts import Cut, at_every_point
from tests.stage import LATENCY_S, PACE, VALIDITY_S, VIRTUAL_TIME, Stage, about, verb_of
from tests.world.diary import passes

__all__: list[str] = []

OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")
FREE = a_lease("p0", token=1, last_host="a")
PREPARED = Prepared(state="debit 7", position="10")
FAULTS: list[Mapping[str, Any]] = [
    {"fail_before": True},
    {"lose_request": True},
    {"fail_after": True},
    {"lose_answer": True},
    {"before_s": PACE.call_timeout_s * 1.5},
    {"after_s": PACE.call_timeout_s * 1.5},
    {"repeat_after_s": 0.5},
]
EVERY_FAULT = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: next(iter(fault)))
Write = Callable[[Lease], Awaitable[object]]
EVERY_WRITE = pytest.mark.parametrize(
    "write",
    [
        lambda lease: lease.attempt(),
        lambda lease: lease.attempt("10"),
        lambda lease: lease.prepare("debit 7", "10"),
        lambda lease: lease.pause("poison"),
    ],
    ids=["attempt", "attempt and checkpoint", "prepare", "pause"],
)


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


# --- Attempts -------------------------------------------------------------------------------------------------------


async def test_attempt_is_stored_before_the_call_and_counted_over_the_terms() -> None:
    """A record that kills each process that is handed it reaches its limit."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        counts = (await lease.attempt(), await lease.attempt())
        stage.take("p0")
        lease.end(EndReason.SEEN_TAKEN)
        again = await session.acquire(stage.lease(), reason="forced")

        assert again is not None
        assert (counts, again.attempts, await again.attempt()) == ((1, 2), 2, 3)
        assert (again.position, stage.events_of(CheckpointSaved)) == ("@earliest", [])


async def test_attempt_at_the_next_record_stores_that_the_one_before_is_done() -> None:
    """One write for each record while there is suspicion."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        counts = (await lease.attempt(), await lease.attempt("10"), await lease.attempt("20"))

        assert (counts, stage.lease()) == ((1, 1, 1), replace(OWNED, position="20", seq=3, attempts=1))
        assert stage.events_of(CheckpointSaved) == [
            CheckpointSaved(partition="p0", token=1, position=position, duration_s=about(LATENCY_S))
            for position in ("10", "20")
        ]


async def test_attempt_that_names_the_stored_position_is_one_more_at_the_same_record() -> None:
    """Stored as progress it would begin the count anew each time, and no limit would ever be reached."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        counts = (await lease.attempt("@earliest"), await lease.attempt("10"), await lease.attempt("10"))

        assert (counts, stage.lease()) == ((1, 1, 2), replace(OWNED, position="10", seq=3, attempts=2))


@EVERY_FAULT
async def test_attempt_is_counted_once_whatever_the_network_does(fault: Mapping[str, Any]) -> None:
    """Counted twice, a record would be given up before its limit."""
    stage = Stage()
    stage.disturb(verb_of(Attempt), times=1, **fault)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        counts = (await lease.attempt(), await lease.attempt())
        await passes(5)

        assert (counts, stage.lease().attempts) == ((1, 2), 2)


@EVERY_FAULT
async def test_attempt_with_a_checkpoint_moves_once_whatever_the_network_does(fault: Mapping[str, Any]) -> None:
    """A duplicate that arrives late must neither move the position back nor count again."""
    stage = Stage()
    stage.disturb(verb_of(Attempt), times=1, **fault)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        counts = (await lease.attempt("10"), await lease.attempt("20"))
        await passes(5)

        assert (counts, stage.lease()) == ((1, 1), replace(OWNED, position="20", seq=2, attempts=1))


def test_attempt_leaves_the_term_usable_wherever_its_caller_is_cancelled() -> None:
    """A drain that comes meanwhile still carries the last mark; a cancelled one is at most one too many."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Attempt), fail_after=True, times=1)
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await cut.during(lambda: lease.attempt("10"))
            held = lease.is_held()
            count = await lease.attempt("20")

            assert (held, count, stage.lease().position, stage.lease().attempts) == (True, 1, "20", 1)

    assert at_every_point(scenario) > 3


async def test_attempt_in_doubt_is_settled_before_a_transaction() -> None:
    """It may have moved the position that the transaction names as the one before."""
    for fault in ({"fail_after": True}, {"lose_request": True}, {"before_s": 3.0}):
        stage = Stage()
        stage.disturb(verb_of(Attempt), times=1, **fault)
        async with stage.living() as session:
            lease = await stage.acquired(session)
            with anyio.move_on_after(0.015):
                await lease.attempt("10")
            await passes(0.1)
            await lease.commit("20", ())
            await passes(5)

            assert (stage.lease().position, stage.lease().attempts, lease.is_held()) == ("20", 0, True), fault


# --- What is prepared -----------------------------------------------------------------------------------------------


async def test_what_is_prepared_is_given_to_the_next_term_until_a_checkpoint_goes_on() -> None:
    """Whoever comes next asks the application whether its commit has happened."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.prepare("debit 7", "10")
        stage.take("p0")
        lease.end(EndReason.SEEN_TAKEN)
        again = await session.acquire(stage.lease(), reason="forced")
        assert again is not None
        await again.checkpoint("10")

        assert (lease.prepared, again.prepared, again.position) == (None, PREPARED, "@earliest")
        assert stage.lease() == replace(OWNED, token=3, position="10", seq=1)


async def test_what_is_prepared_stays_over_a_checkpoint_that_lies_before_it() -> None:
    """The saver may store the mark of an earlier batch at any moment; a crash then must not lose the state."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.prepare("debit 7", "10")
        await lease.checkpoint("5", keeps_prepared=True)
        saved = stage.lease()
        await lease.release("7", keeps_prepared=True)

        assert saved == replace(OWNED, position="5", seq=2, prepared=PREPARED)
        assert stage.lease() == replace(FREE, position="7", seq=3, prepared=PREPARED)


@EVERY_FAULT
async def test_what_was_prepared_does_not_come_back_whatever_the_network_does(fault: Mapping[str, Any]) -> None:
    """Its checkpoint is stored: confirmed once more, it would move the position back."""
    stage = Stage()
    stage.disturb(verb_of(Prepare), times=1, **fault)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.prepare("debit 7", "10")
        prepared = stage.lease().prepared
        await lease.checkpoint("20")
        await passes(5)

        assert (prepared, stage.lease()) == (PREPARED, replace(OWNED, position="20", seq=2))


async def test_state_of_more_bytes_than_every_host_should_read_is_refused_before_it_is_sent() -> None:
    """Bytes, not letters: an item's size is what a read costs."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.prepare("ü" * (PREPARED_BYTES_MAX // 2), "10")
        with pytest.raises(ValueError, match="a prepared state of 4097 bytes, expected at most 4096"):
            await lease.prepare("ü" * (PREPARED_BYTES_MAX // 2) + ".", "20")

        assert ([verb.seq for verb in stage.sent(Prepare)], lease.is_held()) == ([1], True)


# --- All of them ----------------------------------------------------------------------------------------------------


@EVERY_WRITE
async def test_write_of_a_term_that_was_taken_changes_nothing_and_ends_it(write: Write) -> None:
    """A paused owner must not count, prepare or stop anything under an old token."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.take("p0")
        # Further than this term ever came: a number alone says nothing.
        taken = stage.apply(SaveCheckpoint(partition="p0", owner="b:1", token=2, position="7", seq=7))

        with pytest.raises(LeaseLost, match="token 1 replaced by 2"):
            await write(lease)

        assert (stage.lease(), lease.is_held(), lease.end_reason) == (taken, False, EndReason.REFUSED)
        assert [refused.found_token for refused in stage.events_of(CheckpointRefused)] == [2]


@EVERY_WRITE
async def test_write_is_tried_until_the_term_ends_and_not_longer(write: Write) -> None:
    """Afterwards the lease may be another's."""
    stage = Stage()
    session = stage.session()
    assert await session.register()
    lease = await stage.acquired(session)
    stage.disturb(lambda call: True, fail_before=True)
    began_s = stage.now_s

    with pytest.raises(LeaseLost):
        await write(lease)

    assert lease.end_reason is EndReason.SESSION_ENDED
    assert VALIDITY_S - 0.1 < stage.now_s - began_s < VALIDITY_S
    assert stage.lease() == OWNED
    assert len(stage.sent(Attempt, Prepare, Pause)) > 3


@pytest.mark.parametrize("position", [None, "30"])
async def test_attempt_comes_after_a_transaction_in_doubt_is_settled(position: str | None) -> None:
    """Which record is the next one depends on whether it was applied."""
    stage = Stage()
    stage.disturb(lambda call: isinstance(call.verb, Commit), lose_answer=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with anyio.move_on_after(0.015):
            await lease.commit("20", ())
        count = await lease.attempt(position)

        assert [commit.previous for commit in stage.sent(Commit)] == ["@earliest", "@earliest", "20"]
        assert (count, stage.lease().position, stage.lease().attempts) == (1, position or "20", 1)


# --- What is no progress --------------------------------------------------------------------------------------------


async def suspected(stage: Stage, lease: Lease) -> None:
    """Two attempts, and something prepared; the term before died."""
    await lease.attempt()
    await lease.attempt()
    await lease.prepare("debit 7", "10")
    assert stage.lease() == replace(OWNED, token=2, suspects=1, attempts=2, prepared=PREPARED, seq=3), (
        "the stage is set otherwise"
    )


async def after_a_death(stage: Stage, session: Any) -> Lease:
    stage.take("p0", by="z:1")
    lease = await stage.acquired(session)
    await suspected(stage, lease)
    return lease


async def test_checkpoint_of_the_stored_position_leaves_what_stands_beside_it() -> None:
    """Nothing was done; the next record is as suspect as before."""
    stage = Stage()
    async with stage.living() as session:
        lease = await after_a_death(stage, session)
        before = stage.lease()
        await lease.checkpoint("@earliest", weight=2.0)

        assert stage.lease() == replace(before, seq=4, weight=2.0)


async def test_settling_leaves_what_stands_beside_the_checkpoint() -> None:
    """A doubt that is settled, and a transaction that stores no further position, are no progress."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), lose_request=True, times=1)
    async with stage.living() as session:
        lease = await after_a_death(stage, session)
        before = stage.lease()
        with anyio.move_on_after(0.015):
            await lease.checkpoint("5")
        settled = await lease.settled()
        after_settling = stage.lease()
        await lease.commit("@earliest", ())

        assert (settled, after_settling) == ("@earliest", replace(before, seq=5))
        assert stage.lease() == replace(before, seq=6)


async def test_transaction_that_advances_ends_what_stands_beside_the_checkpoint() -> None:
    """It is a checkpoint."""
    stage = Stage()
    async with stage.living() as session:
        lease = await after_a_death(stage, session)
        await lease.commit("10", ())

        assert stage.lease() == replace(OWNED, token=2, position="10", seq=4)


@pytest.mark.parametrize("position", [None, "@earliest"])
@pytest.mark.parametrize("attempts", [None, 7])
async def test_release_without_progress_leaves_suspects(position: str | None, attempts: int | None) -> None:
    """A host that drains right after the start has proven nothing; its failed calls count on."""
    stage = Stage()
    async with stage.living() as session:
        lease = await after_a_death(stage, session)
        before = stage.lease()
        assert await lease.release(position, attempts=attempts)

        assert stage.lease() == replace(before, owner=None, attempts=2 if attempts is None else attempts)
        assert [released.position for released in stage.events_of(LeaseReleased)] == [None]


async def test_release_with_progress_ends_suspects_and_carries_its_own_count() -> None:
    """The record that failed is another one than that which was suspected."""
    stage = Stage()
    async with stage.living() as session:
        lease = await after_a_death(stage, session)
        assert await lease.release("10", attempts=3)

        assert stage.lease() == replace(FREE, token=2, position="10", seq=4, attempts=3)


async def test_release_of_a_reset_ends_what_stands_beside_the_checkpoint_also_of_the_stored_position() -> None:
    """A person who says where to go on says that nothing of before counts."""
    stage = Stage()
    async with stage.living() as session:
        lease = await after_a_death(stage, session)
        assert await lease.release("@earliest", is_reset=True)

        assert stage.lease() == replace(FREE, token=2, seq=4)


async def test_release_carries_no_count_while_a_transaction_is_in_doubt() -> None:
    """The stored position may be further: the count would be another record's."""
    stage = Stage()
    stage.disturb(lambda call: isinstance(call.verb, Commit), lose_answer=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with anyio.move_on_after(0.015):
            await lease.commit("20", ())
        assert await lease.release("10", attempts=3)

        assert stage.lease() == replace(FREE, position="20", seq=1)
        assert [(free.position, free.attempts) for free in stage.sent(Release)] == [(None, None)]


async def test_release_of_a_position_that_is_in_doubt_carries_it() -> None:
    """Whether it is stored is not known, so it is said."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), lose_answer=True, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with anyio.move_on_after(0.015):
            await lease.checkpoint("20")
        assert await lease.release("20")

        assert [(free.position, free.seq) for free in stage.sent(Release)] == [("20", 2)]


# --- A pause --------------------------------------------------------------------------------------------------------


@EVERY_FAULT
async def test_pause_is_stored_with_its_reason_and_the_term_goes_on_to_its_release(fault: Mapping[str, Any]) -> None:
    """A partition that is given up for good is stopped where every host reads it, by whoever holds it (rule 15)."""
    stage = Stage()
    stage.disturb(verb_of(Pause), times=1, **fault)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.pause("record 10 failed 5 times")
        before = (lease.is_held(), lease.asked.is_set(), lease.ended.is_set())
        assert await lease.release("9", attempts=5)
        await passes(5)

        assert before == (True, True, False)
        assert stage.lease() == replace(
            FREE, position="9", seq=1, attempts=5, paused=True, extra={"paused_because": "record 10 failed 5 times"}
        )


# --- Who may have died of a record ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "suspects"),
    [("b:1", 1), ("a:0", 1), ("a:7", 0), (None, 0)],
    ids=["another host", "this host before it was started again", "a session that this process lost", "released"],
)
async def test_acquire_counts_an_owner_that_may_have_died_of_a_record(owner: str | None, suspects: int) -> None:
    """A store that was away ends every session of the fleet: that is nobody's death."""
    stage = Stage()
    if owner is not None:
        stage.take("p0", by=owner)
    async with stage.living(stage.session(earlier=("a:6", "a:7"))) as session:
        lease = await stage.acquired(session)

        assert (lease.suspects, stage.lease().suspects) == (suspects, suspects)


async def test_acquire_again_after_a_lost_answer_counts_the_death_before_it_once() -> None:
    """Rule 8: the term between was nobody's, so no record was handed on in it."""
    stage = Stage()
    stage.take("p0", by="b:1")
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(stage.lease(), reason="expired")
        lease = await session.acquire(stage.lease(), reason="resolved")

        assert lease is not None
        assert (lease.token, lease.suspects) == (3, 1)


async def test_suspects_stay_over_a_session_that_is_lost_without_progress() -> None:
    """The death before it is as unexplained as it was."""
    stage = Stage()
    stage.take("p0", by="b:1")
    async with stage.living() as first:
        await stage.acquired(first)
        first.end("the store was away")
    async with stage.living(stage.session("a:2", earlier=("a:1",))) as second:
        lease = await stage.acquired(second)

        assert (lease.token, lease.suspects) == (3, 1)


async def test_session_tells_the_others_that_its_host_is_sick_and_well_again() -> None:
    """They decide by it whether they are the healthy ones."""
    stage = Stage()
    async with stage.living() as session:
        told = []
        for is_sick in (True, True, False):
            session.publish_sick(is_sick)
            # The balancer publishes on its own, whatever the health is.
            session.publish(known=None)
            await session.renew()
            item = stage.item()
            assert item is not None
            told.append(item.sick)

        assert told == [True, True, False]
