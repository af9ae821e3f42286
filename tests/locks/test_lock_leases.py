"""The lease of a lock: how long it goes on, how it is confirmed, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from threading import Thread
from typing import Any

import anyio
import pytest

from partitions.errors import LockLost, StoreMisconfigured, StoreUnavailable
from partitions.lock_verbs import ReleaseLock
from partitions.locks import (
    LockEnd,
    LockEnded,
    LockLease,
    LockReleased,
    LockReleaseFailed,
    LocksUnread,
)
from partitions.transactions import TransactionsUnsupported
from partitions.verbs import Beat
from tests.builders import an_acquire_of_lock
from tests.locks.stage import BEAT_S, CALL_S, DURATION_S, VALIDITY_S, LockStage, of
from tests.stage import LATENCY_S, VIRTUAL_TIME, HandClock, about, verb_of
from tests.world.diary import passes

__all__: list[str] = []

SOON_S = BEAT_S + 2 * LATENCY_S
"""Within a beat."""


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def loss(lease: LockLease) -> str:
    with pytest.raises(LockLost) as raised:
        lease.ensure_held()
    return str(raised.value)


# --- How long it goes on --------------------------------------------------------------------------------------------


async def test_lease_goes_on_with_the_beats_and_ends_when_none_is_answered() -> None:
    """Nothing is written for the lock itself; its end is counted from the sending of the last good beat (rule 1)."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        await passes(10 * DURATION_S)
        assert lease.is_held()
        assert VALIDITY_S - BEAT_S - LATENCY_S <= lease.remaining_s() <= VALIDITY_S

        stage.cut("a")
        [*_, last_s] = [at_s for at_s in stage.sent_at_s(Beat) if at_s <= stage.now_s - LATENCY_S]
        await lease.ended.wait()

        assert stage.now_s == about(last_s + VALIDITY_S)
        assert (lease.is_held(), lease.remaining_s(), lease.end_reason) == (False, 0.0, LockEnd.SESSION_ENDED)
        assert stage.events_of(LockEnded) == [LockEnded(lock="nightly", token=1, reason=LockEnd.SESSION_ENDED)]
        assert loss(lease) == "lock 'nightly': token 1 has ended (session ended); stop what it protects"


async def test_beats_that_fail_are_tried_again_with_growing_waits_until_one_works() -> None:
    """At most a sixth of the duration between two; an outage that is shorter than the session costs nothing."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        away = stage.disturb(verb_of(Beat), raises=StoreUnavailable("away"))
        await passes(VALIDITY_S - BEAT_S)
        stage.network.faults.remove(away)
        tried_s = stage.sent_at_s(Beat)
        await passes(CALL_S)

        waits = [after - before for before, after in pairwise(tried_s)]
        assert waits[0] <= CALL_S / 8
        assert max(waits) <= CALL_S
        assert waits[-1] > waits[0]
        assert (lease.is_held(), lease.remaining_s() > VALIDITY_S - BEAT_S) == (True, True)


async def test_is_held_is_false_at_the_moment_of_the_end_whatever_the_loop_does() -> None:
    """Code that blocked the loop, or a machine that slept, must not go on (rule 5)."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        stage.clocks["a"].jump(VALIDITY_S)

        assert (lease.is_held(), lease.ended.is_set(), lease.remaining_s()) == (False, False, 0.0)
        assert "has ended (session ended)" in loss(lease)
        assert lease.ended.is_set()


async def test_ensure_held_in_a_thread_sees_the_end_and_leaves_it_to_the_loop() -> None:
    """Events are set on the loop alone."""
    stage = LockStage()
    async with stage.contender(clock=(clock := HandClock())) as session:
        lease = of(await session.try_acquire("nightly"))
        seen: list[object] = []

        def look() -> None:
            lease.ensure_held()
            clock.at_s += VALIDITY_S
            try:
                lease.ensure_held()
            except LockLost as error:
                seen.extend((error.name, error.held, lease.ended.is_set()))

        thread = Thread(target=look)
        thread.start()
        thread.join()
        assert seen == ["nightly", 1, False]


# --- Renewing -------------------------------------------------------------------------------------------------------


async def test_renew_beats_now_and_is_true_once_that_is_answered() -> None:
    """Whoever begins a long step wants a whole duration in front of it."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        await passes(BEAT_S / 2)
        sent_s = stage.now_s

        assert await lease.renew() is True

        assert stage.sent_at_s(Beat) == [sent_s]
        assert lease.remaining_s() == about(VALIDITY_S - LATENCY_S)


async def test_renew_is_false_once_the_lease_has_ended() -> None:
    """And sends nothing more for it."""
    stage = LockStage()
    async with stage.contender() as session:
        released = of(await session.try_acquire("one"))
        await released.release()
        lost = of(await session.try_acquire("two"))
        stage.clocks["a"].jump(VALIDITY_S)
        sent = len(stage.network.calls)

        assert [await released.renew(), await lost.renew()] == [False, False]
        assert len(stage.network.calls) == sent
        assert lost.end_reason is LockEnd.SESSION_ENDED


async def test_renew_is_false_when_the_session_ends_while_it_waits() -> None:
    """The item of the session was deleted: the beat finds that out."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        stage.fence(lease.owner)

        assert await lease.renew() is False
        assert lease.end_reason is LockEnd.SESSION_ENDED


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ({"lose_request": True}, StoreUnavailable, "no beat was answered within 1 s; it is held for"),
        ({"lose_answer": True}, StoreUnavailable, "no beat was answered within 1 s; it is held for"),
        ({"raises": StoreUnavailable("throttled")}, StoreUnavailable, "no beat was answered within 1 s"),
        ({"raises": StoreMisconfigured("denied")}, StoreMisconfigured, "denied"),
    ],
)
async def test_renew_raises_how_the_store_failed_and_the_lease_is_held_still(
    what: dict[str, Any], kind: type[Exception], text: str
) -> None:
    """It has time left, and beats go on by themselves: nobody has to repeat the call to keep the lock."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        fault = stage.disturb(verb_of(Beat), **what)

        with pytest.raises(kind, match=text):
            await lease.renew()

        assert (lease.is_held(), lease.ended.is_set()) == (True, False)
        assert lease.remaining_s() > 0
        stage.network.faults.remove(fault)
        await passes(CALL_S + BEAT_S)
        assert lease.remaining_s() > VALIDITY_S - BEAT_S - LATENCY_S


# --- Releasing ------------------------------------------------------------------------------------------------------


async def test_release_ends_the_lease_first_and_then_frees_the_lock() -> None:
    """Whoever sees it free can rely on it (rule 6)."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))

        assert await lease.release() is True

        assert (lease.is_held(), lease.end_reason, stage.lock()) == (False, LockEnd.RELEASED, stage.free(1))
        [ended_s], [sent_s] = stage.at_s(LockEnded), stage.sent_at_s(ReleaseLock)
        assert ended_s <= sent_s
        assert stage.events_of(LockReleased) == [LockReleased(lock="nightly", token=1, duration_s=about(LATENCY_S))]


async def test_release_twice_does_nothing_and_never_touches_a_successors_lock() -> None:
    """Neither another session's nor the next one of the same session."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        first = of(await a.try_acquire("nightly"))
        await first.release()
        second = of(await a.try_acquire("nightly"))
        assert await first.release() is False
        assert (second.is_held(), stage.lock()) == (True, stage.held_by(a, 2))
        await second.release()
        third = of(await b.try_acquire("nightly"))

        assert [await first.release(), await second.release()] == [False, False]
        assert (third.is_held(), len(stage.sent(ReleaseLock))) == (True, 2)


async def test_release_that_arrives_again_later_leaves_the_successor_alone() -> None:
    """It carries its own token."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        stage.disturb(verb_of(ReleaseLock), repeat_after_s=1.0, times=1)
        await of(await a.try_acquire("nightly")).release()
        again = of(await a.try_acquire("nightly"))
        await passes(2)
        assert (again.is_held(), stage.lock()) == (True, stage.held_by(a, 2))
        assert await b.try_acquire("nightly") is None


async def test_release_whose_answer_is_lost_is_sent_again_and_its_refusal_is_good() -> None:
    """Free under its own token is its own success."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        stage.disturb(verb_of(ReleaseLock), fail_after=True, times=1)

        assert await lease.release() is True
        assert (len(stage.sent(ReleaseLock)), stage.lock()) == (2, stage.free(1))


async def test_release_that_fails_is_told_and_is_sent_again_once_a_beat() -> None:
    """Not raised: the lease has ended, which is all that the holder wanted to be sure of."""
    stage = LockStage()
    async with stage.contender("a") as a:
        lease = of(await a.try_acquire("nightly"))
        away = stage.disturb(verb_of(ReleaseLock), raises=StoreUnavailable("away"))

        async with lease:
            pass

        assert stage.events_of(LockReleaseFailed) == [LockReleaseFailed(lock="nightly", token=1, error="away")]
        assert (lease.end_reason, a.held, stage.lock()) == (LockEnd.RELEASED, {}, stage.held_by(a, 1))
        assert len(stage.sent(ReleaseLock)) == 3
        await passes(SOON_S)
        assert len(stage.sent(ReleaseLock)) == 4
        stage.network.faults.remove(away)
        await passes(SOON_S)
        assert stage.lock() == stage.free(1)
        await passes(3 * BEAT_S)
        assert len(stage.sent(ReleaseLock)) == 5


async def test_lock_whose_release_failed_is_free_once_the_session_is_gone() -> None:
    """Nobody has to mend anything."""
    stage = LockStage()
    async with stage.contender("b") as b:
        async with stage.contender("a") as a:
            lease = of(await a.try_acquire("nightly"))
            stage.disturb(verb_of(ReleaseLock), raises=StoreUnavailable("away"))
            assert await lease.release() is False
            assert await b.try_acquire("nightly") is None

        assert of(await b.try_acquire("nightly")).token == 2


async def test_lock_whose_release_failed_may_be_acquired_again_by_its_session() -> None:
    """Under a new token, so that whatever is still on its way of the old term cannot free it."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        fault = stage.disturb(verb_of(ReleaseLock), before_s=1.5 * CALL_S)
        assert await lease.release() is False
        stage.network.faults.remove(fault)

        again = of(await session.try_acquire("nightly"))

        await passes(4 * BEAT_S)
        assert (again.is_held(), again.token > 1, stage.lock()) == (True, True, stage.held_by(session, again.token))


async def test_release_is_shielded_from_cancellation() -> None:
    """A task that is cancelled must not leave the lock taken for a whole duration."""
    stage = LockStage()
    async with stage.contender() as session:
        with anyio.CancelScope() as scope:
            async with await session.acquire("nightly"):
                scope.cancel()
                await passes(60)

        assert stage.lock() == stage.free(1)


# --- What is lost ---------------------------------------------------------------------------------------------------


def taken(stage: LockStage, lease: LockLease) -> None:
    """An operator frees the lock, and another session takes it."""
    stage.apply(ReleaseLock(name="nightly", owner=lease.owner, token=lease.token))
    stage.register("b:1")
    stage.apply(an_acquire_of_lock(stage.free(1), "b:1"))


def acquired_again(stage: LockStage, lease: LockLease) -> None:
    """The lock is this session's, under another token: its own acquire that was sent twice."""
    item = stage.lock()
    stage.apply(an_acquire_of_lock(item, lease.owner))


def freed(stage: LockStage, lease: LockLease) -> None:
    """An operator frees the lock."""
    stage.apply(ReleaseLock(name="nightly", owner=lease.owner, token=lease.token))


def deleted(stage: LockStage, lease: LockLease) -> None:
    """Somebody deletes the item."""
    stage.forget()


def made_anew(stage: LockStage, lease: LockLease) -> None:
    """Somebody deletes the item, and another session makes it: with the very token of the old one."""
    stage.forget()
    stage.register("b:1")
    stage.apply(an_acquire_of_lock(None, "b:1"))


def gone(stage: LockStage, lease: LockLease) -> None:
    """The table is deleted."""
    stage.store._groups = None


@pytest.mark.parametrize(
    ("lose", "reason"),
    [
        (taken, LockEnd.SEEN_TAKEN),
        (acquired_again, LockEnd.SEEN_TAKEN),
        (freed, LockEnd.SEEN_TAKEN),
        (deleted, LockEnd.SEEN_TAKEN),
        (made_anew, LockEnd.SEEN_TAKEN),
        (gone, LockEnd.STORE_GONE),
    ],
)
async def test_lease_that_is_lost_ends_for_good_within_a_beat(
    lose: Callable[[LockStage, LockLease], None], reason: LockEnd
) -> None:
    """Whatever becomes of the item, by whomever: each held lock is read once a beat."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        other = of(await session.try_acquire("other"))
        await passes(2.5 * BEAT_S)
        assert lease.is_held()
        lose(stage, lease)
        lost_s = stage.now_s

        await lease.ended.wait()

        assert stage.now_s - lost_s <= SOON_S
        assert (lease.is_held(), lease.end_reason, lease.remaining_s()) == (False, reason, 0.0)
        assert (await lease.release(), await lease.renew()) == (False, False)
        await passes(2 * BEAT_S)
        assert lease.end_reason is reason
        assert other.is_held() == (reason is not LockEnd.STORE_GONE)
    # What it had is not freed for another.
    assert [verb.name for verb in stage.sent(ReleaseLock)] == []


async def test_locks_that_are_held_are_read_together_once_a_beat_and_none_costs_nothing() -> None:
    """One read for all of them; a session that holds nothing reads nothing."""
    stage = LockStage()

    def looks() -> list[float]:
        return [at_s for at_s, call in stage.network.calls if call.operation == "read_some_locks"]

    async with stage.contender() as session:
        await passes(5 * BEAT_S)
        assert looks() == []
        for name in ("one", "two", "three"):
            await session.try_acquire(name)
        await passes(10 * BEAT_S)
        assert len(looks()) in (9, 10)
        assert all(after - before == about(BEAT_S + LATENCY_S) for before, after in pairwise(looks()))


async def test_look_that_fails_is_told_and_ends_nothing() -> None:
    """The session says how long the lease goes on; a read that is not answered says nothing."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        matches = lambda call: call.operation == "read_some_locks"  # noqa: E731
        stage.disturb(matches, raises=StoreMisconfigured("denied"), times=1)
        stage.disturb(matches, fail_before=True, times=1)
        await passes(3 * BEAT_S)

        told = [event.error for event in stage.events_of(LocksUnread)]
        assert told == ["denied", "read_some_locks: a fault on the way"]
        assert lease.is_held()


async def test_look_that_was_sent_before_an_acquire_ends_nothing() -> None:
    """It shows the lock as it was before (rule 6)."""
    stage = LockStage()
    async with stage.contender() as session:
        first = of(await session.try_acquire("nightly"))
        stage.disturb(lambda call: call.operation == "read_some_locks", after_s=CALL_S / 2, times=1)
        await passes(BEAT_S)
        assert [call.operation for _, call in stage.network.calls][-1] == "read_some_locks"
        await first.release()
        second = of(await session.try_acquire("nightly"))

        await passes(CALL_S)

        assert (second.token, second.is_held()) == (2, True)


# --- Guards ---------------------------------------------------------------------------------------------------------


async def test_guard_cancels_its_body_when_the_lease_ends() -> None:
    """Whatever it awaits; and says why."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        stage.forget()
        began_s = stage.now_s
        with pytest.raises(LockLost, match=r"token 1 has ended \(seen taken\)"), lease.guard():
            await passes(3600)

        assert stage.now_s - began_s <= SOON_S


async def test_guard_lets_a_body_end_and_does_not_begin_one_under_a_lease_that_has_ended() -> None:
    """A body that ends by itself is not told of what comes later."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        with lease.guard():
            await passes(1)
        await lease.release()

        with pytest.raises(LockLost), lease.guard():
            pytest.fail("the body has run")


async def test_guard_leaves_a_cancellation_that_is_not_its_own() -> None:
    """Whoever cancels the task gets what it asked for."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        with anyio.move_on_after(1) as scope, lease.guard():
            await passes(60)

        assert (scope.cancelled_caught, lease.is_held()) == (True, True)


# --- Transactions ---------------------------------------------------------------------------------------------------


async def test_condition_check_is_dynamodbs_alone_and_needs_a_lease_that_goes_on() -> None:
    """Elsewhere the token is compared in one's own database."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        with pytest.raises(TransactionsUnsupported, match="compare tokens in your own database"):
            lease.condition_check()
        await lease.release()
        with pytest.raises(LockLost):
            lease.condition_check()
