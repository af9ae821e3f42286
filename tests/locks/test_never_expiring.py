"""Locks that never expire: they outlive their process, and only their holder's name or an operator frees them."""

from __future__ import annotations

import math

import anyio
import pytest

from partitions.errors import StoreUnavailable
from partitions.lock_verbs import AcquireLock, ReleaseLock
from partitions.locks import LockEnd, Session
from partitions.stores.memory import MemoryStore
from partitions.verbs import Fence
from tests.locks.stage import BEAT_S, DURATION_S, EXPIRY_S, LockStage, of
from tests.stage import GROUP, LATENCY_S, VIRTUAL_TIME, verb_of
from tests.world.diary import passes

__all__: list[str] = []

NAME = "migration"


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


async def test_lock_that_never_expires_outlives_its_process_and_its_session() -> None:
    """A migration that is half done must not be begun by another host, however long nobody mends it."""
    stage = LockStage()
    a = stage.contender("a")
    async with a:
        lease = of(await a.try_acquire(NAME, expires=False))
        held = stage.held_by(a, 1, NAME, expires=False)
        assert (lease.expires, lease.remaining_s(), stage.lock(NAME)) == (False, math.inf, held)
    # Here nobody looks at it any more.
    assert (lease.is_held(), lease.end_reason) == (False, LockEnd.SESSION_ENDED)

    async with stage.contender("b") as b:
        with pytest.raises(TimeoutError):
            await b.acquire(NAME, timeout_s=20 * DURATION_S)
        assert [await b.try_acquire(NAME), await b.try_acquire(NAME, expires=False)] == [None, None]
        assert await b.release_lock(NAME) is False

    assert (stage.lock(NAME), stage.sent(Fence), stage.sent(ReleaseLock)) == (held, [], [])
    # Not even tried.
    assert len(stage.sent(AcquireLock)) == 1


async def test_lock_that_never_expires_is_released_by_a_later_process_of_its_holders_name() -> None:
    """Which first has to know that it may: it gets no lease by its name alone."""
    stage = LockStage()
    async with stage.contender("a") as a:
        await a.try_acquire(NAME, expires=False)
    async with stage.contender("a") as again:
        assert await again.try_acquire(NAME, expires=False) is None

        assert await again.release_lock(NAME) is True

        assert stage.lock(NAME) == stage.free(1, NAME, expires=False)
        assert await again.release_lock(NAME) is True
        assert of(await again.try_acquire(NAME)).token == 2
        assert stage.lock(NAME) == stage.held_by(again, 2, NAME)


async def test_lease_that_never_expires_outlives_a_lost_session_of_its_process() -> None:
    """Nobody can have taken it, so the work under it goes on; and its release is that of the old session."""
    stage = LockStage()
    async with stage.contender("a") as a:
        lease = of(await a.try_acquire(NAME, expires=False))
        other = of(await a.try_acquire("other"))
        first = a.session_id
        stage.cut("a")
        await passes(2 * DURATION_S)
        stage.mend("a")
        await passes(DURATION_S)
        assert a.session_id not in (None, first)
        assert (lease.is_held(), other.is_held(), await lease.renew()) == (True, False, True)
        assert await a.try_acquire(NAME, expires=False) is None

        assert await lease.release() is True

        assert stage.lock(NAME) == stage.free(1, NAME, expires=False)


async def test_lease_that_never_expires_ends_within_a_beat_once_an_operator_has_freed_it() -> None:
    """The operator has seen owner and token, and takes the responsibility."""
    stage = LockStage()
    async with stage.contender("a") as a:
        lease = of(await a.try_acquire(NAME, expires=False))
        stage.apply(ReleaseLock(name=NAME, owner=lease.owner, token=1))
        with anyio.fail_after(BEAT_S + 2 * LATENCY_S):
            await lease.ended.wait()

        assert (lease.end_reason, await lease.renew()) == (LockEnd.SEEN_TAKEN, False)


async def test_renew_of_a_lease_that_never_expires_reads_the_item() -> None:
    """There is no beat that keeps it; who asks is told what the store has."""
    stage = LockStage()
    async with stage.contender("a") as a:
        lease = of(await a.try_acquire(NAME, expires=False))
        assert await lease.renew() is True
        stage.disturb(lambda call: call.operation == "read_lock", raises=StoreUnavailable("away"), times=1)
        with pytest.raises(StoreUnavailable, match="away"):
            await lease.renew()
        assert lease.is_held()
        stage.apply(ReleaseLock(name=NAME, owner=lease.owner, token=1))

        assert (await lease.renew(), lease.end_reason) == (False, LockEnd.SEEN_TAKEN)


async def test_acquire_in_doubt_of_a_lock_that_never_expires_is_settled_also_under_the_next_session() -> None:
    """Nobody's fence would ever free it."""
    stage = LockStage()
    async with stage.contender("a") as a:
        stage.disturb(verb_of(AcquireLock), lose_answer=True, times=1)
        with pytest.raises(StoreUnavailable):
            await a.try_acquire(NAME, expires=False)
        assert stage.lock(NAME) == stage.held_by(a, 1, NAME, expires=False)
        stage.cut("a")
        await passes(2 * DURATION_S)
        stage.mend("a")

        await passes(2 * BEAT_S)

        assert (stage.lock(NAME), a.held) == (stage.free(1, NAME, expires=False), {})


async def test_acquire_again_of_a_lock_that_never_expires_resolves_one_in_doubt() -> None:
    """Under the next token, by the same session."""
    stage = LockStage()
    async with stage.contender("a") as a:
        stage.disturb(verb_of(AcquireLock), lose_answer=True, times=1)

        lease = await a.acquire(NAME, expires=False)

        assert (lease.token, stage.lock(NAME)) == (2, stage.held_by(a, 2, NAME, expires=False))


async def test_release_by_name_frees_what_is_held_here_and_leaves_what_is_anothers() -> None:
    """A lock that ends with a session is that session's, also where both have one name."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b:
        mine = of(await a.try_acquire(NAME))
        assert await b.release_lock(NAME) is False
        async with stage.contender("a") as namesake:
            assert await namesake.release_lock(NAME) is False
        assert mine.is_held()

        assert await a.release_lock(NAME) is True

        assert (mine.end_reason, stage.lock(NAME)) == (LockEnd.RELEASED, stage.free(1, NAME))


async def test_release_by_name_is_refused_for_a_term_that_began_meanwhile() -> None:
    """It frees what it has seen, and nothing that another process has acquired since."""
    stage = LockStage()
    async with stage.contender("a") as a:
        await a.try_acquire(NAME, expires=False)
        owner = a.session_id
    async with stage.contender("a") as again, stage.contender("b") as b:

        def overtaken(item: object) -> object:
            assert owner is not None
            stage.apply(ReleaseLock(name=NAME, owner=owner, token=1))
            stage.apply(
                AcquireLock(
                    name=NAME, seen_owner=None, seen_token=1, session_id=b.session_id or "", host_id="b", expires=False
                )
            )
            return item

        stage.disturb(lambda call: call.operation == "read_lock", changes=overtaken, times=1)

        assert await again.release_lock(NAME) is False
        assert stage.lock(NAME) == stage.held_by(b, 2, NAME, expires=False)


async def test_release_by_name_leaves_the_lock_of_a_namesake_that_is_registered() -> None:
    """It may be at work: one machine has many processes, and all of them may have one host id."""
    stage = LockStage()
    async with stage.contender("a") as a:
        lease = of(await a.try_acquire(NAME, expires=False))
        async with stage.contender("a") as namesake:
            assert await namesake.release_lock(NAME) is False
        assert (lease.is_held(), stage.lock(NAME)) == (True, stage.held_by(a, 1, NAME, expires=False))


async def test_release_by_name_frees_the_lock_of_a_namesake_that_was_seen_dead() -> None:
    """A process that restarts after a crash comes before anybody has fenced its last session; each call is a look."""
    stage = LockStage()
    async with stage.contender("a") as a:
        await a.try_acquire(NAME, expires=False)
        stage.cut("a")
        async with stage.contender("b", host_id="a") as again:
            assert await again.release_lock(NAME) is False
            await passes(EXPIRY_S + LATENCY_S)

            assert await again.release_lock(NAME) is True

        assert stage.lock(NAME) == stage.free(1, NAME, expires=False)


async def test_release_by_name_frees_what_this_session_is_said_to_have_and_does_not_hold() -> None:
    """Its own acquire was not answered; that it is registered protects nobody's work."""
    stage = LockStage()
    async with stage.contender("a") as a:
        stage.disturb(verb_of(AcquireLock), lose_answer=True, times=1)
        with pytest.raises(StoreUnavailable):
            await a.try_acquire(NAME, expires=False)

        assert await a.release_lock(NAME) is True

        assert stage.lock(NAME) == stage.free(1, NAME, expires=False)


async def test_release_by_name_of_a_lock_that_never_was_says_no() -> None:
    """A slip in the name must not look like a lock that is free now."""
    stage = LockStage()
    async with stage.contender("a") as a:
        assert await a.release_lock("migratoin") is False
        assert stage.lock("migratoin") is None


async def test_lock_that_never_expires_needs_a_host_id_that_was_given() -> None:
    """The machine's name is that of every process on it, and of none once the container is gone."""
    store = MemoryStore()
    async with Session(store, group=GROUP) as session:
        for acquire in (session.acquire, session.try_acquire):
            with pytest.raises(ValueError, match=f"lock 'migration' with expires=False .*'{session.host_id}' is only"):
                await acquire(NAME, expires=False)
        assert store.lock_now(GROUP, NAME) is None
