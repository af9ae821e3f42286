"""
Leaders on the memory store, in virtual time: who works, under which lease, and what ends a term.

How locks themselves are acquired and lost is tested where they are; here sessions are real, and two or three contend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest

from partitions.current import HeldLease, current_lease
from partitions.errors import LeaseLost
from partitions.lock_verbs import ReleaseLock
from partitions.locks import LockLease, LockLost, Session
from partitions.locks.leaders import Holder, Leader, run_as_leader
from partitions.stores.memory import MemoryStore
from tests.world.clocks import PlaceClock
from tests.world.diary import passes
from tests.world.loop import run_virtual

__all__: list[str] = []

D_S = 6.0
LOCK = "nightly"


@asynccontextmanager
async def session(store: MemoryStore, host_id: str) -> AsyncIterator[Session]:
    made = Session(store, group="g", duration_s=D_S, host_id=host_id, clock=PlaceClock(), random=Random(host_id))
    async with made:
        yield made


def virtually(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    run_virtual(lambda: scenario(MemoryStore()))


async def until(holds: Callable[[], object], within_s: float = 60.0) -> None:
    with anyio.fail_after(within_s):
        while not holds():
            await passes(0.01)


async def freed_by_somebody(store: MemoryStore, lease: LockLease) -> None:
    """What an operator does who insists; the holder finds out at its next look."""
    await store.submit("g", ReleaseLock(name=lease.name, owner=lease.owner, token=lease.token))


async def owner_of(store: MemoryStore) -> str | None:
    item = await store.read_lock("g", LOCK)
    return None if item is None else item.owner


def test_lease_is_the_current_one_for_all_that_a_term_calls_and_starts_and_nowhere_else() -> None:
    """A call deep below finds its fence, and one beside the term finds none."""

    async def scenario(store: MemoryStore) -> None:
        seen: dict[str, HeldLease | None] = {}
        mine: list[LockLease] = []

        async def note(where: str) -> None:
            seen[where] = current_lease()

        async def work(lease: LockLease) -> None:
            mine.append(lease)
            await note("awaited")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(note, "started")
            beside.start_soon(note, "started outside")
            await anyio.sleep_forever()

        async with session(store, "a") as a, anyio.create_task_group() as beside:
            beside.start_soon(run_as_leader, a, LOCK, work)
            await until(lambda: "started outside" in seen)
            await note("beside")
            beside.cancel_scope.cancel()
        await note("after")
        [lease] = mine
        assert seen == {
            "awaited": lease,
            "started": lease,
            "started outside": lease,
            "beside": None,
            "after": None,
        }

    virtually(scenario)


def test_lease_of_an_inner_term_is_current_within_it_alone() -> None:
    """Work on two things has two fences; each write takes the one of its own."""

    async def scenario(store: MemoryStore) -> None:
        seen: list[HeldLease | None] = []
        leases: list[LockLease] = []

        async def inner(lease: LockLease) -> None:
            leases.append(lease)
            seen.append(current_lease())

        async def outer(lease: LockLease) -> None:
            leases.append(lease)
            seen.append(current_lease())
            await Leader(a, "inner").run_once(inner)
            seen.append(current_lease())

        async with session(store, "a") as a:
            await Leader(a, "outer").run_once(outer)
        one, two = leases
        assert [seen, [each.name for each in leases]] == [[one, two, one], ["outer", "inner"]]

    virtually(scenario)


def test_work_that_outlives_its_term_keeps_the_ended_lease_and_cannot_be_fenced_by_it() -> None:
    """Were there no lease any more, or the next term's, a late write would pass."""

    async def scenario(store: MemoryStore) -> None:
        late: list[HeldLease | None] = []
        terms: list[LockLease] = []

        async def linger() -> None:
            await until(lambda: len(terms) == 2)
            lease = current_lease()
            late.append(lease)
            assert lease is not None
            with pytest.raises(LockLost, match=f"lock '{LOCK}': token 1 has ended"):
                lease.condition_check()

        async def work(lease: LockLease) -> None:
            terms.append(lease)
            if len(terms) == 1:
                beside.start_soon(linger)
            else:
                await anyio.sleep_forever()

        async with session(store, "a") as a, anyio.create_task_group() as beside:
            beside.start_soon(run_as_leader, a, LOCK, work)
            await until(lambda: late)
            beside.cancel_scope.cancel()
        assert late == [terms[0]]
        assert terms[0].ended.is_set()

    virtually(scenario)


def test_work_is_cancelled_when_its_lease_ends_and_runs_again_under_the_next_one() -> None:
    """Whoever has lost the lock stops at once, and is one of many contenders then."""

    async def scenario(store: MemoryStore) -> None:
        began: list[LockLease] = []
        ended: list[int] = []

        async def work(lease: LockLease) -> None:
            began.append(lease)
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(lease.token)

        async with session(store, "a") as a, anyio.create_task_group() as tasks:
            tasks.start_soon(run_as_leader, a, LOCK, work)
            await until(lambda: began)
            await freed_by_somebody(store, began[0])
            await until(lambda: len(began) == 2, within_s=D_S)
            assert (ended, [lease.token for lease in began]) == ([1], [1, 2])
            assert current_lease() is None
            tasks.cancel_scope.cancel()

    virtually(scenario)


def test_what_work_raises_ends_the_term_and_is_raised() -> None:
    """The lock is free by then, so that another contender may try."""

    async def scenario(store: MemoryStore) -> None:
        async def work(lease: LockLease) -> None:
            raise KeyError("mine")

        async with session(store, "a") as a:
            with pytest.raises(KeyError, match="mine"):
                await run_as_leader(a, LOCK, work)
            assert (await owner_of(store), a.held, current_lease()) == (None, {}, None)

    virtually(scenario)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_work_that_finds_its_lease_ended_contends_again(is_grouped: bool) -> None:
    """`ensure_held` says in the work's own words what the cancellation says; it is no error of the work."""

    async def scenario(store: MemoryStore) -> None:
        tokens: list[int] = []

        async def find_out(lease: LockLease) -> None:
            with anyio.CancelScope(shield=True):
                await lease.ended.wait()
                lease.ensure_held()

        async def work(lease: LockLease) -> None:
            tokens.append(lease.token)
            if len(tokens) > 1:
                await anyio.sleep_forever()
            await freed_by_somebody(store, lease)
            if not is_grouped:
                await find_out(lease)
            async with anyio.create_task_group() as inner:
                inner.start_soon(find_out, lease)

        async with session(store, "a") as a, anyio.create_task_group() as tasks:
            tasks.start_soon(run_as_leader, a, LOCK, work)
            await until(lambda: tokens == [1, 2])
            tasks.cancel_scope.cancel()

    virtually(scenario)


def test_lost_lease_of_something_else_is_raised() -> None:
    """The leader's own is held, so whatever has ended, somebody has to hear of it."""

    async def scenario(store: MemoryStore) -> None:
        async def work(lease: LockLease) -> None:
            raise LeaseLost("p0", held=lease.token, reason="write refused")

        async with session(store, "a") as a:
            with pytest.raises(LeaseLost, match="partition 'p0'"):
                await run_as_leader(a, LOCK, work)

    virtually(scenario)


def test_leader_whose_work_returns_lets_the_others_have_their_turn() -> None:
    """Who is done for now releases the lock and contends again, so that two take turns."""

    async def scenario(store: MemoryStore) -> None:
        turns: list[str] = []

        def working(name: str) -> Callable[[LockLease], Awaitable[None]]:
            async def work(lease: LockLease) -> None:
                turns.append(name)
                await passes(0.01)

            return work

        async with session(store, "a") as a, session(store, "b") as b, anyio.create_task_group() as tasks:
            tasks.start_soon(run_as_leader, a, LOCK, working("a"))
            tasks.start_soon(run_as_leader, b, LOCK, working("b"))
            await until(lambda: len(turns) >= 40)
            tasks.cancel_scope.cancel()
        assert min(turns.count("a"), turns.count("b")) >= 10

    virtually(scenario)


def test_follower_sees_who_is_the_leader() -> None:
    """Whoever does not lead can send on to who does."""

    async def scenario(store: MemoryStore) -> None:
        async def work(lease: LockLease) -> None:
            await lease.ended.wait()
            await anyio.sleep_forever()

        async with session(store, "b") as b:
            follower = Leader(b, LOCK)
            seen = [follower.holder]
            async with session(store, "a") as a, anyio.create_task_group() as tasks:
                first = Leader(a, LOCK)
                tasks.start_soon(first.run, work)
                await until(lambda: first.is_leader)
                tasks.start_soon(follower.run, work)
                await until(lambda: follower.holder is not None)
                seen += [follower.holder, first.holder]
                assert not follower.is_leader
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follower.run, work)
                await until(lambda: follower.is_leader)
                seen.append(follower.holder)
                assert (follower.lease, first.lease, first.is_leader) == (b.held[LOCK], None, False)
                tasks.cancel_scope.cancel()
            seen.append(follower.holder)
            ids = a.session_id, b.session_id
        leading = Holder(host_id="a", session_id=str(seen[1] and seen[1].session_id), token=1)
        assert seen == [None, leading, leading, Holder(host_id="b", session_id=str(ids[1]), token=2), None]
        assert leading.session_id.startswith("a:")

    virtually(scenario)


def test_contender_that_is_cancelled_leaves_no_lock_behind() -> None:
    """Neither the one that works nor the one that waits; their sessions go on, and hold what else they hold."""

    async def scenario(store: MemoryStore) -> None:
        working: list[str] = []

        async def work(lease: LockLease) -> None:
            working.append(lease.owner)
            await anyio.sleep_forever()

        async with session(store, "a") as a, session(store, "b") as b:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_as_leader, a, LOCK, work)
                await until(lambda: working)
                tasks.start_soon(run_as_leader, b, LOCK, work)
                await passes(D_S)
                tasks.cancel_scope.cancel()
            at_once = await owner_of(store)
            await passes(D_S)
            assert (working, at_once, await owner_of(store)) == ([a.session_id], None, None)
            assert (a.held, b.held) == ({}, {})

    virtually(scenario)


def test_work_that_is_not_async_is_refused_and_the_lock_is_free() -> None:
    """A plain function would have done its work under no cancellation."""

    async def scenario(store: MemoryStore) -> None:
        async with session(store, "a") as a:
            with pytest.raises(TypeError, match="the work of 'nightly' returned 7; give an async def"):
                await run_as_leader(a, LOCK, lambda lease: 7)  # type: ignore[arg-type, return-value]
            assert await owner_of(store) is None

    virtually(scenario)


async def test_leader_refuses_what_is_no_session_no_name_or_no_work() -> None:
    """Swapped arguments would otherwise fail in some attribute, or only once it is the leader."""

    async def work(lease: LockLease) -> None:
        raise AssertionError

    lone: Any = Session(MemoryStore(), group="g")
    refused: list[tuple[tuple[Any, Any, Any], type[Exception], str]] = [
        (("nightly", session, work), TypeError, "session='nightly' is not a session; give that first, then the lock"),
        ((lone, work, "nightly"), TypeError, "is not a text; give the lock's name as a str"),
        ((lone, "", work), ValueError, "lock '' has a name of 0 bytes"),
        ((lone, "nightly", "work"), TypeError, "the work of 'nightly' is 'work'; give an async def"),
    ]
    for given, error, text in refused:
        with pytest.raises(error, match=text):
            await run_as_leader(*given)
