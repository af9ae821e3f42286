"""Acquiring: who gets a lock, when one that is held may be taken over, and what becomes of acquires in doubt."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import pytest

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.events import SessionFenced
from partitions.items import LockItem
from partitions.lock_verbs import AcquireLock, ReleaseLock
from partitions.locks import LockAcquired, LockEnd, LockEnded, LockLease
from partitions.locks.holding import OWED_MAX
from partitions.locks.rivals import RIVALS_MAX, Rivals
from partitions.stores.base import READ_SOME_MAX
from partitions.verbs import Applied, Beat, Fence, Leave, Refused
from tests.locks.stage import BEAT_S, CALL_S, DURATION_S, EXPIRY_S, POLL_S, VALIDITY_S, LockStage, of
from tests.stage import GROUP, LATENCY_S, VIRTUAL_TIME, HandClock, about, verb_of
from tests.world.diary import passes

__all__: list[str] = []

LOOK_S = DURATION_S / 12
"""Between two looks of a waiting contender at the owner's session."""


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


# --- Free locks -----------------------------------------------------------------------------------------------------


async def test_free_lock_is_acquired_at_once_and_by_one_alone() -> None:
    """The first thing of all; who comes second is told at once, and nobody waits."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        began_s = stage.now_s
        lease = of(await a.try_acquire("nightly"))
        second = await b.try_acquire("nightly")

        assert (second, stage.lock()) == (None, stage.held_by(a, 1))
        assert (lease.name, lease.token, lease.owner, lease.is_held()) == ("nightly", 1, a.session_id, True)
        assert (a.held, b.held) == ({"nightly": lease}, {})
        # Two calls for the one; for the other the lock and its owner's session.
        assert stage.now_s - began_s == about(4 * LATENCY_S)
        acquired = LockAcquired(lock="nightly", token=1, previous_owner=None, duration_s=about(2 * LATENCY_S))
        assert stage.events_of(LockAcquired) == [acquired]
        item = stage.store.lock_now(GROUP, "nightly")
        assert item is not None
        assert dict(item.extra) == {"pid": 7, "host_name": "h"}


async def test_token_rises_with_each_acquire_and_stays_after_a_release() -> None:
    """No two terms ever share one, whoever holds them."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        tokens = []
        for session in (a, b, b, a):
            async with await session.acquire("nightly") as lease:
                tokens.append(lease.token)
            assert stage.lock() == stage.free(lease.token)

        assert tokens == [1, 2, 3, 4]


async def test_token_of_an_item_that_was_deleted_starts_at_1_again() -> None:
    """As the docs say: nobody but whoever deleted it knows that there was one."""
    stage = LockStage()
    async with stage.contender() as session:
        for _ in range(3):
            await of(await session.try_acquire("nightly")).release()
        stage.forget()

        assert of(await session.try_acquire("nightly")).token == 1


async def test_session_holds_a_lock_once_and_its_own_tasks_wait_for_one_another() -> None:
    """A lock excludes tasks of one process as it excludes processes."""
    stage = LockStage()
    async with stage.contender() as session:
        lease = of(await session.try_acquire("nightly"))
        order = []

        async def contend() -> None:
            async with await session.acquire("nightly") as mine:
                order.append(mine.token)

        assert await session.try_acquire("nightly") is None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(contend)
            tasks.start_soon(contend)
            await passes(1)
            assert order == []
            await lease.release()

        assert (order, stage.lock()) == ([2, 3], stage.free(3))


async def test_lock_is_not_acquired_while_its_release_is_on_its_way() -> None:
    """What is being released is not taken for an acquire whose answer was lost (rule 8)."""
    stage = LockStage()
    async with stage.contender() as session, anyio.create_task_group() as tasks:
        lease = of(await session.try_acquire("nightly"))
        stage.disturb(verb_of(ReleaseLock), before_s=0.5)
        tasks.start_soon(lease.release)
        await passes(0.1)

        assert (lease.is_held(), await session.try_acquire("nightly")) == (False, None)
        assert len(stage.sent(AcquireLock)) == 1


async def test_acquires_of_two_tasks_at_once_send_one() -> None:
    """At most one acquire per lock is on its way (rule 8)."""
    stage = LockStage()
    async with stage.contender() as session:
        found: list[LockLease | None] = []

        async def acquire() -> None:
            found.append(await session.try_acquire("nightly"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire)
            tasks.start_soon(acquire)

        assert sorted(lease is None for lease in found) == [False, True]
        assert len(stage.sent(AcquireLock)) == 1


async def test_lost_race_is_none() -> None:
    """Both saw it free; the second to arrive is refused, and reads nothing more."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        stage.disturb(lambda call: call.operation == "AcquireLock" and call.place == "b", before_s=0.1)
        found: dict[str, LockLease | None] = {}

        async def acquire(name: str) -> None:
            found[name] = await (a if name == "a" else b).try_acquire("nightly")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire, "a")
            tasks.start_soon(acquire, "b")

        assert (found["b"], stage.lock()) == (None, stage.held_by(a, 1))


async def test_waiting_ends_with_the_time_it_was_given() -> None:
    """A `TimeoutError` and no lease; a lock that is to be had at once is had also in no time."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        async with await a.acquire("nightly", timeout_s=0):
            began_s = stage.now_s
            with pytest.raises(TimeoutError, match="lock 'nightly' of group 'g' was not to be had within 3 s"):
                await b.acquire("nightly", timeout_s=3)

        assert stage.now_s - began_s == pytest.approx(3, abs=2 * LATENCY_S + 0.01)


async def test_one_that_waits_has_a_released_lock_within_a_look() -> None:
    """A look costs one read; it is sent around every `poll_s`."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        lease = of(await a.try_acquire("nightly"))
        async with anyio.create_task_group() as tasks:
            had_s: list[float] = []

            async def wait() -> None:
                assert (await b.acquire("nightly")).token == 2
                had_s.append(stage.now_s)

            tasks.start_soon(wait)
            await passes(10)
            reads = [at_s for at_s, call in stage.network.calls if call.operation == "read_lock" and call.place == "b"]
            await lease.release()
            released_s = stage.now_s

        assert had_s[0] - released_s <= 1.5 * POLL_S + 2 * LATENCY_S
        waits = [after - before - LATENCY_S for before, after in pairwise(reads)]
        # Sometimes the owner's session is read after the lock.
        assert min(waits) >= 0.5 * POLL_S
        assert max(waits) <= 1.5 * POLL_S + LATENCY_S + 1e-9
        # Spread, so that no two keep step.
        assert len({round(wait_s, 2) for wait_s in waits}) > 10


async def test_every_look_at_the_item_is_told() -> None:
    """So a follower knows who leads."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        owners: list[str | None] = []
        async with await a.acquire("nightly"), anyio.create_task_group() as tasks:

            async def follow() -> None:
                await b.acquire("nightly", on_look=lambda item: owners.append(None if item is None else item.owner))

            tasks.start_soon(follow)
            await passes(1)
            tasks.cancel_scope.cancel()

        assert set(owners) == {a.session_id}
        assert 3 <= len(owners) <= 8


# --- Owners that are gone or dead -----------------------------------------------------------------------------------


async def test_lock_of_a_session_that_left_is_free_at_once() -> None:
    """A lock lives as long as the session that owns it, also where nobody released it."""
    stage = LockStage()
    async with stage.contender("b") as b:
        async with stage.contender("a") as a:
            lease = of(await a.try_acquire("nightly"))
            owner = a.session_id
        assert (lease.end_reason, stage.sent(ReleaseLock)) == (LockEnd.SESSION_ENDED, [])
        [left_s] = stage.sent_at_s(Leave)
        [ended_s] = stage.at_s(LockEnded)
        assert ended_s <= left_s

        taken = of(await b.try_acquire("nightly"))

        assert (taken.token, stage.lock()) == (2, stage.held_by(b, 2))
        assert stage.events_of(LockAcquired)[-1].previous_owner == owner


async def test_dead_owner_is_watched_for_its_whole_duration_and_then_fenced() -> None:
    """Counted on the contender's clock from the look that showed the last beat, so no clock is compared (rule 12)."""
    stage = LockStage()
    async with stage.contender("b") as b, stage.contender("a") as a:
        lease = of(await a.try_acquire("nightly"))
        stage.cut("a")
        cut_s = stage.now_s

        taken = await b.acquire("nightly")

        took_s = stage.now_s - cut_s
        assert EXPIRY_S <= took_s <= EXPIRY_S + LOOK_S + 1.5 * POLL_S + 6 * LATENCY_S
        assert (taken.token, lease.is_held(), lease.end_reason) == (2, False, LockEnd.SESSION_ENDED)
        [fenced] = stage.events_of(SessionFenced)
        assert (fenced.session_id, fenced.host_id) == (lease.owner, "a")
        assert fenced.unchanged_s >= EXPIRY_S


async def test_contender_that_has_just_come_waits_a_whole_duration_too() -> None:
    """It cannot know how old the last beat is that it sees."""
    stage = LockStage()
    async with stage.contender("a") as a:
        await a.try_acquire("nightly")
        stage.cut("a")
        await passes(2 * DURATION_S)
        began_s = stage.now_s

        async with stage.contender("b") as b:
            await b.acquire("nightly")

            assert EXPIRY_S <= stage.now_s - began_s <= EXPIRY_S + 1.5 * POLL_S + 6 * LATENCY_S


async def test_owner_that_beats_keeps_its_lock_however_long_others_wait() -> None:
    """Nobody fences it, and the lease goes on without any write about the lock."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        lease = of(await a.try_acquire("nightly"))

        with pytest.raises(TimeoutError):
            await b.acquire("nightly", timeout_s=20 * DURATION_S)

        assert (lease.is_held(), stage.sent(Fence), len(stage.sent(AcquireLock))) == (True, [], 1)
        assert lease.remaining_s() >= VALIDITY_S - BEAT_S - LATENCY_S


async def test_owner_whose_beat_arrives_as_it_is_fenced_lives() -> None:
    """A fence is on condition of the very beat that was seen; the contender waits anew."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        lease = of(await a.try_acquire("nightly"))
        # Its beats are answered; others see them only when they look, which for this long they cannot.
        assert await b.try_acquire("nightly") is None
        stage.disturb(
            lambda call: call.operation == "read_session" and call.place == "b",
            changes=lambda session: replace(session, beat=0),
        )
        await passes(EXPIRY_S)

        assert await b.try_acquire("nightly") is None

        [fence] = [write for write in stage.network.history if isinstance(write.verb, Fence)]
        assert isinstance(fence.result, Refused)
        assert (lease.is_held(), stage.lock()) == (True, stage.held_by(a, 1))
        # The answer to the fence was a look.
        await passes(EXPIRY_S - 1)
        assert await b.try_acquire("nightly") is None
        assert len(stage.sent(Fence)) == 1


async def test_tries_again_and_again_fence_a_dead_owner_too() -> None:
    """Each try is a look: who never waits must get the lock of a dead one all the same."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        await a.try_acquire("nightly")
        stage.cut("a")
        cut_s = stage.now_s
        while (lease := await b.try_acquire("nightly")) is None:
            await passes(1)

        assert EXPIRY_S <= stage.now_s - cut_s <= EXPIRY_S + 1 + 6 * LATENCY_S
        assert lease.token == 2


async def test_contender_without_a_living_session_of_its_own_acquires_nothing() -> None:
    """An acquire under a session that is over would be free at once, and block others until they saw that."""
    stage = LockStage()
    session = stage.contender("a")
    async with session:
        stage.cut("a")
        await passes(VALIDITY_S)
        assert await session.try_acquire("nightly") is None

    assert stage.sent(AcquireLock) == []


async def test_one_that_waits_goes_on_under_its_next_session() -> None:
    """A session that is lost is final, but whoever waits has lost nothing."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        lease = of(await a.try_acquire("nightly"))
        first = b.session_id
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                taken = await b.acquire("nightly")
                assert (taken.token, taken.owner, taken.is_held()) == (2, b.session_id, True)

            tasks.start_soon(wait)
            stage.cut("b")
            await passes(2 * DURATION_S)
            stage.mend("b")
            await passes(DURATION_S)
            assert b.session_id not in (None, first)
            await lease.release()


async def test_contender_whose_session_has_run_out_unnoticed_sends_nothing() -> None:
    """As after a suspend of its machine: by its own clock it is over, whatever its tasks know."""
    stage = LockStage()
    async with stage.contender("a") as a:
        stage.clocks["a"].jump(VALIDITY_S)
        sent = len(stage.network.calls)

        assert await a.try_acquire("nightly") is None
        assert len(stage.network.calls) == sent


async def test_contender_whose_session_runs_out_while_it_looks_acquires_nothing() -> None:
    """Checked right before sending (rule 14)."""
    stage = LockStage()
    async with stage.contender("a") as a:

        def suspend(item: LockItem | None) -> LockItem | None:
            stage.clocks["a"].jump(VALIDITY_S)
            return item

        stage.disturb(lambda call: call.operation == "read_lock", changes=suspend)

        assert await a.try_acquire("nightly") is None
        assert stage.sent(AcquireLock) == []


async def test_rivals_are_looked_at_some_times_in_their_duration_and_as_it_is_over() -> None:
    """A look costs a read for each that waits; the last one comes at the very end, and no later."""
    stage = LockStage()
    stage.register("b:1")
    clock = HandClock()

    async def send(do: Callable[[], Awaitable[Any]]) -> Any:
        return await do()

    rivals = Rivals(stage.store, GROUP, clock=clock, send=send, on_event=None)
    assert rivals.next_look_s("b:1") == float("-inf")
    assert await rivals.is_gone("b:1") is False
    assert rivals.next_look_s("b:1") == about(clock.at_s + LOOK_S)
    since_s, clock.at_s = clock.at_s, clock.at_s + EXPIRY_S - LOOK_S / 2
    assert await rivals.is_gone("b:1") is False
    assert rivals.next_look_s("b:1") == about(since_s + EXPIRY_S)
    clock.at_s = since_s + EXPIRY_S
    assert (await rivals.is_gone("b:1"), stage.store.sessions_now(GROUP)) == (True, ())
    assert rivals.next_look_s("b:1") == float("-inf")


async def test_rivals_that_are_not_asked_about_are_forgotten_one_by_one() -> None:
    """A process that lives for years meets many sessions; the one that is forgotten is watched anew."""
    stage = LockStage()
    clock = HandClock()

    async def send(do: Callable[[], Awaitable[Any]]) -> Any:
        return await do()

    rivals = Rivals(stage.store, GROUP, clock=clock, send=send, on_event=None)
    for number in range(RIVALS_MAX + 1):
        stage.register(f"b:{number}")
        await rivals.is_gone(f"b:{number}")

    looked = [rivals.next_look_s(f"b:{number}") > 0 for number in range(RIVALS_MAX + 1)]
    assert looked == [False, *[True] * RIVALS_MAX]


# --- Acquires in doubt ----------------------------------------------------------------------------------------------


async def test_acquire_whose_answer_is_lost_is_acquired_again_and_never_adopted() -> None:
    """One's own late release could free what one believes to hold (rule 8); a new token cannot be freed by it."""
    stage = LockStage()
    async with stage.contender() as session:
        stage.disturb(verb_of(AcquireLock), lose_answer=True, times=1)

        lease = await session.acquire("nightly")

        assert (lease.token, stage.lock()) == (2, stage.held_by(session, 2))


async def test_acquire_that_is_refused_for_its_own_earlier_success_is_sent_again() -> None:
    """As where an SDK repeats a write inside one call (rule 9)."""
    stage = LockStage()
    async with stage.contender() as session:
        stage.disturb(verb_of(AcquireLock), changes=lambda applied: Refused(current=applied.item), times=1)

        lease = of(await session.try_acquire("nightly"))

        assert (lease.token, stage.lock()) == (2, stage.held_by(session, 2))


async def test_try_whose_answer_is_lost_raises_and_the_lock_is_released_soon() -> None:
    """Nobody holds it, so it must not stay taken for as long as the session lives."""
    stage = LockStage()
    async with stage.contender() as session:
        stage.disturb(verb_of(AcquireLock), lose_answer=True, times=1)
        with pytest.raises(StoreUnavailable):
            await session.try_acquire("nightly")
        assert (stage.lock(), session.held) == (stage.held_by(session, 1), {})

        await passes(BEAT_S + 2 * LATENCY_S)

        assert stage.lock() == stage.free(1)
        await passes(3 * BEAT_S)
        assert len(stage.sent(ReleaseLock)) == 1


async def test_acquire_that_arrives_long_after_it_was_given_up_is_released() -> None:
    """It is looked for until it can no longer apply."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        stage.disturb(verb_of(AcquireLock), before_s=4.3 * BEAT_S, times=1)
        with pytest.raises(StoreUnavailable):
            await a.try_acquire("nightly")
        await passes(3.9 * BEAT_S)
        assert stage.lock() == stage.held_by(a, 1)

        taken = await b.acquire("nightly")

        assert (taken.token, a.held) == (2, {})
        reads = len([None for _, call in stage.network.calls if call.operation == "read_some_locks"])
        await taken.release()
        await passes(3 * BEAT_S)
        assert reads == len([None for _, call in stage.network.calls if call.operation == "read_some_locks"])


async def test_acquires_in_doubt_of_very_many_locks_are_not_looked_at_for_ever() -> None:
    """An outage, and a lock of another name in each try: the first are left to the end of the session."""
    stage = LockStage()
    async with stage.contender() as session:
        away = stage.disturb(verb_of(AcquireLock), raises=StoreUnavailable("away"))
        names = [f"job-{number}" for number in range(OWED_MAX + 5)]
        for name in names:
            with pytest.raises(StoreUnavailable):
                await session.try_acquire(name)
        stage.network.faults.remove(away)
        before = len(stage.network.calls)
        await passes(1.5 * BEAT_S)

        looks = [call for _, call in stage.network.calls[before:] if call.operation == "read_some_locks"]
        assert len(looks) == OWED_MAX // READ_SOME_MAX


@pytest.mark.parametrize("name", ["", "x" * 1025, "ü" * 513])
async def test_name_that_some_store_cannot_keep_is_refused_by_all(name: str) -> None:
    """Before anything is sent, also where the lock would have to be waited for."""
    stage = LockStage()
    async with stage.contender() as session:
        with pytest.raises(ValueError, match="expected 1 to 1024"):
            await session.try_acquire(name)
        with pytest.raises(ValueError, match="expected 1 to 1024"):
            await session.acquire(name)
        assert of(await session.try_acquire("ü" * 512)).is_held()


async def test_acquire_that_arrives_twice_changes_nothing_the_second_time() -> None:
    """A late duplicate is refused by the token it saw."""
    stage = LockStage()
    async with stage.contender() as session:
        stage.disturb(verb_of(AcquireLock), repeat_after_s=1.0, times=1)
        await of(await session.try_acquire("nightly")).release()

        await passes(2)

        assert stage.lock() == stage.free(1)


async def test_acquire_that_is_cancelled_on_its_way_is_released() -> None:
    """The caller is gone, and nobody else knows of it."""
    stage = LockStage()
    async with stage.contender() as session:
        with anyio.move_on_after(1.7 * LATENCY_S):
            await session.acquire("nightly")
        assert stage.lock() == stage.held_by(session, 1)

        await passes(BEAT_S + 2 * LATENCY_S)

        assert (stage.lock(), session.held) == (stage.free(1), {})


async def test_acquire_answered_after_a_whole_duration_hands_out_a_lease_that_has_ended() -> None:
    """As where the machine was suspended meanwhile: whoever holds it must not begin (rule 5)."""
    stage = LockStage()
    async with stage.contender() as session:

        def suspend(applied: Applied[LockItem]) -> Applied[LockItem]:
            stage.clocks["a"].jump(DURATION_S)
            return applied

        stage.disturb(verb_of(AcquireLock), changes=suspend, times=1)

        lease = of(await session.try_acquire("nightly"))

        assert (lease.is_held(), lease.ended.is_set(), lease.remaining_s()) == (False, True, 0.0)
        assert lease.end_reason is LockEnd.SESSION_ENDED
        assert session.held == {}


async def test_acquire_waits_while_the_store_is_away_and_tries_with_growing_waits() -> None:
    """At most a sixth of the duration: an outage must not be met with `poll_s`."""
    stage = LockStage()
    async with stage.contender() as session:
        away = stage.disturb(lambda call: call.operation == "read_lock", raises=StoreUnavailable("away"))
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                assert (await session.acquire("nightly")).token == 1

            tasks.start_soon(wait)
            await passes(20)
            stage.network.faults.remove(away)

        tried_s = [at_s for at_s, call in stage.network.calls if call.operation == "read_lock"]
        waits = [after - before for before, after in pairwise(tried_s)]
        assert waits[0] < CALL_S / 4
        assert max(waits) <= CALL_S
        assert len(tried_s) <= 3 + 20 / (CALL_S / 2) + 3


async def test_what_no_retry_helps_is_raised_at_once() -> None:
    """A right that is missing must not show as a lock that is never free."""
    stage = LockStage()
    async with stage.contender() as session:
        stage.disturb(verb_of(AcquireLock), raises=StoreMisconfigured("denied"))

        with pytest.raises(StoreMisconfigured, match="denied"):
            await session.acquire("nightly")
        with pytest.raises(StoreMisconfigured, match="denied"):
            await session.try_acquire("nightly")
        assert stage.sent(Beat) == []


async def test_acquire_of_what_this_session_holds_says_so_when_its_time_is_over() -> None:
    """Two parts of a program may contend under one session; who has forgotten a lease must be told where it is."""
    stage = LockStage()
    async with stage.contender() as session:
        await session.acquire("nightly")
        with pytest.raises(TimeoutError, match="this session holds it itself, under token 1; release that lease"):
            await session.acquire("nightly", timeout_s=1)


@pytest.mark.parametrize(
    ("timeout_s", "error", "text"),
    [
        (-1, ValueError, "timeout_s=-1 is not a time; use 0 or more, or None"),
        (math.nan, ValueError, "timeout_s=nan is not a time"),
        ("5", TypeError, "timeout_s='5' is not a number of seconds"),
        (True, TypeError, "timeout_s=True is not a number of seconds"),
    ],
)
async def test_acquire_refuses_a_time_that_is_none(timeout_s: Any, error: type[Exception], text: str) -> None:
    """Before anything is sent: one that is not a number would never be over."""
    stage = LockStage()
    async with stage.contender() as session:
        with pytest.raises(error, match=text):
            await session.acquire("nightly", timeout_s=timeout_s)
        assert stage.sent(AcquireLock) == []


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (7, TypeError, "lock 7 is not a text; give the lock's name as a str"),
        ("\ud800", ValueError, "cannot be written as UTF-8"),
    ],
)
async def test_lock_needs_a_name_that_every_store_can_keep(name: Any, error: type[Exception], text: str) -> None:
    """A store would refuse it in words of its own."""
    async with LockStage().contender() as session:
        for acquire in (session.acquire, session.try_acquire, session.release_lock):
            with pytest.raises(error, match=text):
                await acquire(name)
