"""
The held lease: one lookup says whether it goes on, it ends before its release is sent, and its writes are fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import anyio
import anyio.to_thread
import pytest

from partitions.clocks import BootClock
from partitions.current import HeldLease, current_lease, working_under
from partitions.errors import LeaseLost, StoreMisconfigured
from partitions.events import (
    CheckpointFailed,
    CheckpointRefused,
    CheckpointSaved,
    EndReason,
    Event,
    LeaseEnded,
    LeaseReleased,
    ReleaseFailed,
)
from partitions.leases import Lease
from partitions.positions import END
from partitions.sending import RELEASES_MAX
from partitions.sessions import Session
from partitions.stores.memory import MemoryStore
from partitions.verbs import Beat, Child, Complete, Create, Leave, Release, SaveCheckpoint
from tests.builders import a_lease
from tests.cuts import Cut, at_every_point
from tests.stage import GROUP, HANDOFF_S, LATENCY_S, PACE, VALIDITY_S, VIRTUAL_TIME, HandClock, Stage, about, verb_of
from tests.world.diary import passes

__all__: list[str] = []

CHILDREN = (
    Child(partition="p0.0", parents=("p0",), position="@earliest"),
    Child(partition="p0.1", parents=("p0",), position="@earliest"),
)
Free = Callable[[Lease], Coroutine[Any, Any, bool]]
"""Either of the two writes that free a lease."""
OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")
FREE = a_lease("p0", token=1, last_host="a")


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def lost(found: int | None = None, owner: str | None = None, *, reason: EndReason) -> tuple[object, ...]:
    return ("p0", 1, reason.value, found, owner)


async def loss(call: Callable[[], Awaitable[object]]) -> tuple[object, ...]:
    """The fields of the `LeaseLost` that a call raises."""
    with pytest.raises(LeaseLost) as caught:
        await call()
    error = caught.value
    return (error.partition, error.held, error.reason, error.found, error.owner)


# --- How long it goes on --------------------------------------------------------------------------------------------


async def test_lease_is_held_until_the_end_of_its_session_and_not_at_that_moment() -> None:
    """Rule 5: at `valid_until` itself another host may fence."""
    stage = Stage()
    session = stage.session()
    assert await session.register()
    lease = await stage.acquired(session)
    stage.clock.jump(VALIDITY_S - 2 * LATENCY_S - 0.5)
    before = (lease.is_held(), lease.remaining_s(), lease.ended.is_set())
    stage.clock.jump(lease.remaining_s())

    assert before == (True, about(0.5), False)
    # Nobody has noticed yet, and the lookup says it all the same.
    assert (lease.is_held(), lease.remaining_s(), lease.ended.is_set(), lease.end_reason) == (False, 0.0, False, None)


async def test_lease_is_held_until_the_deadline_of_an_ask_for_it() -> None:
    """Rule 10: the asker takes it by force afterwards, though the session beats on."""
    stage = Stage()
    async with stage.living() as session:
        began_s = stage.now_s - LATENCY_S
        lease = await stage.acquired(session)
        stage.ask("a:1", "p0", 1)
        await anyio.sleep(PACE.beat_interval_s + 1)
        remaining_s = lease.remaining_s()
        asked = (lease.asked.is_set(), lease.ask_deadline_s() - stage.clock.now_s())
        await lease.ended.wait()
        ended_s = stage.now_s - began_s

        assert remaining_s < VALIDITY_S
        assert asked == (True, about(HANDOFF_S - PACE.beat_interval_s - 1 - 2 * LATENCY_S))
        assert (ended_s, lease.end_reason, session.is_valid) == (about(HANDOFF_S), EndReason.ASK_DEADLINE, True)


async def test_ensure_held_ends_the_term_that_has_run_out() -> None:
    """Whoever sees the end first makes it final; nothing that comes later may find the term alive again."""
    stage = Stage()
    session = stage.session()
    assert await session.register()
    lease = await stage.acquired(session)
    lease.ensure_held()
    stage.clock.jump(VALIDITY_S)

    async def ensure() -> None:
        lease.ensure_held()

    assert await loss(ensure) == lost(reason=EndReason.SESSION_ENDED)
    assert (lease.ended.is_set(), lease.end_reason, session.held) == (True, EndReason.SESSION_ENDED, {})


async def test_end_happens_once() -> None:
    """The first reason is the true one, and metrics count ends."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)

        assert [lease.end(EndReason.SEEN_TAKEN), lease.end(EndReason.RELEASED)] == [True, False]
        assert stage.events_of(LeaseEnded) == [LeaseEnded(partition="p0", token=1, reason=EndReason.SEEN_TAKEN)]
        assert (lease.is_held(), lease.asked.is_set(), lease.end_reason) == (False, True, EndReason.SEEN_TAKEN)


async def test_ended_term_stays_ended_while_its_session_beats_on() -> None:
    """A beat renews the terms that go on, and none that is over."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        lease.end(EndReason.SEEN_TAKEN)
        await session.renew()

        assert (lease.is_held(), lease.remaining_s(), await lease.renew()) == (False, 0.0, False)


async def test_renew_returns_true_once_a_beat_that_was_sent_after_it_is_answered() -> None:
    """A beat that is on its way already was sent before whatever its caller has just seen."""
    stage = Stage()
    stage.disturb(verb_of(Beat), before_s=0.4, after_s=0.4)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await anyio.sleep(PACE.beat_interval_s)
        assert len(stage.sent(Beat)) == 1
        called_s = stage.now_s

        assert await lease.renew()
        assert len(stage.sent(Beat)) == 2
        assert stage.sent_at_s(Beat)[1] >= called_s
        assert lease.remaining_s() == about(VALIDITY_S - 0.8)


async def test_renew_returns_false_when_the_session_ends_instead() -> None:
    """Nobody waits for an answer that cannot come."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.fence("a:1")

        assert await lease.renew() is False
        assert lease.end_reason is EndReason.SESSION_ENDED


async def test_renew_returns_false_when_the_term_alone_ends_meanwhile() -> None:
    """The session's beat says nothing of a lease that was released during it."""
    stage = Stage()
    stage.disturb(verb_of(Beat), before_s=0.4)
    results: list[bool] = []
    async with stage.living() as session:
        lease = await stage.acquired(session)

        async def renew() -> None:
            results.append(await lease.renew())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renew)
            await passes(0.1)
            await lease.release()

        assert (results, session.is_valid) == ([False], True)


# --- Checkpoint -----------------------------------------------------------------------------------------------------


async def test_checkpoint_stores_the_position_under_the_next_number() -> None:
    """Rule 7: the number tells a later checkpoint from an earlier one that arrives late."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")
        first = stage.lease()
        await lease.checkpoint("20", weight=0.5)

        assert first == replace(OWNED, position="10", seq=1)
        assert stage.lease() == replace(OWNED, position="20", seq=2, weight=0.5)
        assert stage.events_of(CheckpointSaved) == [
            CheckpointSaved(partition="p0", token=1, position="10", duration_s=about(LATENCY_S)),
            CheckpointSaved(partition="p0", token=1, position="20", duration_s=about(LATENCY_S)),
        ]


async def test_checkpoint_is_repeated_with_growing_waits_while_the_term_goes_on() -> None:
    """A store that is away for a moment costs no lease."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), fail_before=True, times=3)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")

        assert stage.lease() == replace(OWNED, position="10", seq=1)
        assert [event.attempt for event in stage.events_of(CheckpointFailed)] == [1, 2, 3]
        waits = [later - earlier - LATENCY_S / 2 for earlier, later in pairwise(stage.sent_at_s(SaveCheckpoint))]
        assert all(full / 2 <= wait_s <= full for wait_s, full in zip(waits, (0.125, 0.25, 0.5), strict=True))


async def test_checkpoint_gives_up_when_its_term_ends_and_sends_nothing_after() -> None:
    """Rule 5: the time-out of the last try is what is left, not a whole one."""
    stage = Stage()
    stage.disturb(verb_of(Beat, SaveCheckpoint), lose_request=True)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        end_s = stage.now_s + lease.remaining_s()

        assert await loss(lambda: lease.checkpoint("10")) == lost(reason=EndReason.SESSION_ENDED)
        assert stage.now_s == about(end_s)
        sent = len(stage.sent(SaveCheckpoint))
        await passes(10)
        assert (len(stage.sent(SaveCheckpoint)), sent >= 4) == (sent, True)


async def test_checkpoint_is_repeated_when_the_store_is_misconfigured_for_a_moment() -> None:
    """The lease is held all the same; only its end makes the loss of a mark final."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), raises=StoreMisconfigured("denied"), times=2)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")

        assert stage.lease() == replace(OWNED, position="10", seq=1)


async def test_checkpoint_is_repeated_when_the_stores_client_was_cancelled_inside() -> None:
    """A cancellation of its own is no answer, and none of the caller's."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), raises=asyncio.CancelledError(), times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")

        assert stage.lease() == replace(OWNED, position="10", seq=1)


@pytest.mark.parametrize("fault", ["fail_after", "lose_answer"])
async def test_checkpoint_whose_answer_was_lost_is_found_to_be_stored(fault: str) -> None:
    """Rule 9: the repeat is refused because the first try had been applied; that is no lost lease."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), **{fault: True}, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")

        assert stage.lease() == replace(OWNED, position="10", seq=1)
        assert (lease.is_held(), len(stage.sent(SaveCheckpoint))) == (True, 2)
        assert (len(stage.events_of(CheckpointSaved)), stage.events_of(CheckpointRefused)) == (1, [])


async def test_checkpoint_of_a_former_owner_is_refused_and_ends_its_term() -> None:
    """The fence: the next owner goes on from its own position."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        taken = stage.take("p0")

        assert await loss(lambda: lease.checkpoint("10")) == lost(2, "b:1", reason=EndReason.REFUSED)
        assert (stage.lease(), lease.end_reason, session.held) == (taken, EndReason.REFUSED, {})
        assert stage.events_of(CheckpointRefused) == [
            CheckpointRefused(partition="p0", token=1, position="10", found_token=2)
        ]
        assert await loss(lambda: lease.checkpoint("20")) == lost(reason=EndReason.REFUSED)
        assert len(stage.sent(SaveCheckpoint)) == 1


async def test_checkpoint_is_refused_when_its_own_token_has_no_owner() -> None:
    """Rule 6: somebody freed it; the token alone does not make an owner."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.apply(Release(partition="p0", owner="a:1", token=1, position="5", seq=3))

        assert await loss(lambda: lease.checkpoint("10")) == lost(1, None, reason=EndReason.REFUSED)
        assert stage.lease() == replace(FREE, position="5", seq=3)


@pytest.mark.parametrize("by", ["b:1", "a:1"])
async def test_checkpoint_of_a_former_term_is_refused_though_a_later_number_is_stored(by: str) -> None:
    """Rule 9: owner, token and number are compared; a session may have begun a newer term of the same lease itself."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.take("p0", by=by)
        stored = stage.apply(SaveCheckpoint(partition="p0", owner=by, token=2, position="150", seq=4))

        assert await loss(lambda: lease.checkpoint("120")) == lost(2, by, reason=EndReason.REFUSED)
        assert stage.lease() == stored


async def test_checkpoint_that_is_delivered_twice_does_not_move_the_position_back() -> None:
    """Rule 7: a duplicate that arrives after a later one."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint, seq=1), repeat_after_s=1.0)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")
        await lease.checkpoint("20")
        await passes(2)

        writes = [write for write in stage.network.history if isinstance(write.verb, SaveCheckpoint)]
        assert [write.verb.seq for write in writes] == [1, 2, 1]
        assert stage.lease() == replace(OWNED, position="20", seq=2)


async def test_checkpoints_of_one_term_are_sent_one_after_the_other() -> None:
    """Of two on their way the later one may arrive first, and the earlier would be refused."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), before_s=0.5, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lease.checkpoint, "10")
            await passes(0.1)
            tasks.start_soon(lease.checkpoint, "20")

        first_s, second_s = stage.sent_at_s(SaveCheckpoint)
        assert second_s - first_s == about(0.5 + LATENCY_S / 2)
        assert stage.lease() == replace(OWNED, position="20", seq=2)


async def test_checkpoint_after_an_abandoned_one_wins_though_that_arrives_later() -> None:
    """Rule 7: a caller that was cancelled leaves a write on its way."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint, seq=1), before_s=1.0)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with anyio.move_on_after(0.2):
            await lease.checkpoint("10")
        await lease.checkpoint("20")
        await passes(2)

        assert stage.lease() == replace(OWNED, position="20", seq=2)


def test_checkpoint_leaves_the_term_usable_wherever_its_caller_is_cancelled() -> None:
    """A processor is cancelled at a drain, and the release still has to carry its last mark."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(SaveCheckpoint), fail_after=True, times=1)
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await cut.during(lambda: lease.checkpoint("10"))
            held = lease.is_held()
            await lease.checkpoint("20")

            assert (held, session.held) == (True, {"p0": lease})
            assert (stage.lease().position, stage.lease().owner) == ("20", "a:1")

    assert at_every_point(scenario) > 3


# --- Release and complete -------------------------------------------------------------------------------------------


async def test_release_frees_the_lease_with_its_last_checkpoint() -> None:
    """One write instead of two, at the moment when somebody waits."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")

        assert await lease.release("20")
        assert stage.lease() == replace(FREE, position="20", seq=2)
        assert (lease.end_reason, session.held, session.is_busy("p0")) == (EndReason.RELEASED, {}, False)
        assert stage.events_of(LeaseReleased) == [
            LeaseReleased(partition="p0", token=1, position="20", duration_s=about(LATENCY_S))
        ]


async def test_release_without_a_position_leaves_the_stored_checkpoint() -> None:
    """What is stored already needs no second write."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")

        assert await lease.release()
        assert stage.lease() == replace(FREE, position="10", seq=1)


@pytest.mark.parametrize("free", [Lease.release, lambda lease: lease.complete(CHILDREN)])
async def test_term_ends_before_the_write_that_frees_it_is_sent(free: Free) -> None:
    """Rule 6: whoever sees the lease free may rely on it; until then no snapshot takes it for a lost acquire."""
    stage = Stage()
    stage.disturb(verb_of(Release, Complete), before_s=0.5, after_s=0.4)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        seen: list[tuple[bool, bool, bool, int]] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(free, lease)
            for _ in range(2):
                await passes(0.44)
                sent = len(stage.sent(Release, Complete))
                seen.append((lease.is_held(), lease.ended.is_set(), session.is_busy("p0"), sent))

        assert seen == [(False, True, True, 1), (False, True, True, 1)]
        ended_s, sent_s = stage.at_s(LeaseEnded)[0], stage.sent_at_s(Release, Complete)[0]
        assert (ended_s <= sent_s, session.is_busy("p0")) == (True, False)


@pytest.mark.parametrize("together", [False, True])
async def test_release_twice_does_nothing_the_second_time(together: bool) -> None:
    """A user's `finally` may come after the host's own release."""
    stage = Stage()
    results: list[bool] = []
    async with stage.living() as session:
        lease = await stage.acquired(session)

        async def release() -> None:
            results.append(await lease.release("10"))

        if together:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(release)
                tasks.start_soon(release)
        else:
            await release()
            await release()

        assert (sorted(results), len(stage.sent(Release))) == ([False, True], 1)
        assert len(stage.events_of(LeaseEnded)) == 1


@pytest.mark.parametrize("free", [Lease.release, lambda lease: lease.complete(CHILDREN)])
async def test_term_that_has_ended_sends_nothing_to_free_it(free: Free) -> None:
    """Its lease is somebody else's business by now, or the session's end frees it."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        lease.end(EndReason.SEEN_TAKEN)

        assert await free(lease) is False
        assert (stage.sent(Release, Complete), stage.lease()) == ([], OWNED)


@pytest.mark.parametrize("free", [Lease.release, lambda lease: lease.complete(CHILDREN)])
async def test_term_that_has_run_out_unnoticed_sends_nothing_to_free_it(
    free: Free,
) -> None:
    """After a suspend the release would carry a checkpoint of work that others have repeated."""
    stage = Stage()
    session = stage.session()
    assert await session.register()
    lease = await stage.acquired(session)
    stage.clock.jump(VALIDITY_S)

    assert await free(lease) is False
    assert (stage.sent(Release, Complete), lease.end_reason) == ([], EndReason.SESSION_ENDED)


@pytest.mark.parametrize("fault", ["fail_after", "lose_answer"])
async def test_release_whose_answer_was_lost_is_found_to_be_done(fault: str) -> None:
    """Rule 9: free under the same token is one's own success."""
    stage = Stage()
    stage.disturb(verb_of(Release), **{fault: True}, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)

        assert await lease.release("10")
        assert (stage.lease(), len(stage.sent(Release))) == (replace(FREE, position="10", seq=1), 2)
        assert stage.events_of(ReleaseFailed) == []


async def test_release_whose_answer_was_lost_is_done_when_the_next_owner_has_the_lease() -> None:
    """Rule 9: a higher token can only follow a release that was applied."""
    stage = Stage()
    stage.disturb(verb_of(Release), lose_answer=True, times=1)
    results: list[bool] = []
    async with stage.living() as session:
        lease = await stage.acquired(session)

        async def release() -> None:
            results.append(await lease.release("10"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(release)
            await passes(0.5)
            taken = stage.take("p0")

        assert (results, stage.lease()) == ([True], taken)


async def test_release_that_fails_is_told_and_not_raised() -> None:
    """Rule 6: a snapshot will show what became of it; nothing is handled meanwhile."""
    stage = Stage()
    stage.disturb(verb_of(Release), fail_before=True)
    async with stage.living() as session:
        lease = await stage.acquired(session)

        assert await lease.release() is False
        assert (lease.is_held(), session.is_busy("p0"), stage.lease()) == (False, False, OWNED)
        assert len(stage.sent(Release)) == RELEASES_MAX
        assert stage.events_of(ReleaseFailed) == [
            ReleaseFailed(partition="p0", token=1, error="Release: a fault on the way")
        ]


@pytest.mark.parametrize("fault", [{}, {"fail_before": True, "times": 1}, {"lose_answer": True, "times": 1}])
def test_release_is_sent_wherever_its_caller_is_cancelled(fault: dict[str, object]) -> None:
    """Rule 6: shielded, or a host that is stopped twice keeps its partitions from everybody for a duration."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Release), **{"times": 0, **fault})
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await cut.during(lambda: lease.release("10"))

            assert stage.lease() == replace(FREE, position="10", seq=1)
            assert (lease.is_held(), session.held, session.is_busy("p0")) == (False, {}, False)
            assert len(stage.events_of(LeaseReleased)) == 1

    assert at_every_point(scenario) > 0


async def test_complete_finishes_the_partition_and_makes_its_children_in_one_write() -> None:
    """A crash between the two would leave children that nobody reads for a while."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)

        assert await lease.complete(CHILDREN)
        assert stage.lease() == replace(FREE, position=END, finished=True)
        assert [stage.lease("p0.0"), stage.lease("p0.1")] == [
            a_lease("p0.0", parents=("p0",)),
            a_lease("p0.1", parents=("p0",)),
        ]
        assert (lease.end_reason, session.held) == (EndReason.COMPLETED, {})


async def test_complete_leaves_a_child_that_is_there_as_it_is() -> None:
    """After a merge the other parent may have made it, and it may have an owner by now."""
    stage = Stage(partitions=2)
    stage.apply(Create(partition="p0.0", position="@earliest", parents=("p0",)))
    child = stage.take("p0.0")
    async with stage.living() as session:
        lease = await stage.acquired(session)

        assert await lease.complete(CHILDREN)
        assert stage.lease("p0.0") == child


@pytest.mark.parametrize("fault", ["fail_after", "lose_answer"])
async def test_complete_whose_answer_was_lost_is_found_to_be_done(fault: str) -> None:
    """Rule 9, as for every write."""
    stage = Stage()
    stage.disturb(verb_of(Complete), **{fault: True}, times=1)
    async with stage.living() as session:
        lease = await stage.acquired(session)

        assert await lease.complete(())
        assert (stage.lease(), len(stage.sent(Complete))) == (replace(FREE, position=END, finished=True), 2)


def test_complete_is_sent_wherever_its_caller_is_cancelled() -> None:
    """A partition that was read to its end must not be read again because its host stops just then."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Complete), fail_before=True, times=1)
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await cut.during(lambda: lease.complete(CHILDREN))

            assert stage.lease() == replace(FREE, position=END, finished=True)
            assert (session.held, session.is_busy("p0")) == ({}, False)

    assert at_every_point(scenario) > 0


# --- Guard ----------------------------------------------------------------------------------------------------------


async def test_guard_cancels_its_body_when_the_lease_ends() -> None:
    """What a user does under a lease stops with it, wherever it waits."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        steps: list[str] = []

        async def body() -> None:
            with lease.guard():
                try:
                    steps.append("began")
                    await anyio.sleep_forever()
                finally:
                    steps.append("cancelled")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_soon, lease)
            assert await loss(body) == lost(reason=EndReason.SEEN_TAKEN)

        assert (steps, lease._guards) == (["began", "cancelled"], set())


async def _end_soon(lease: Lease) -> None:
    await passes(1)
    lease.end(EndReason.SEEN_TAKEN)


async def test_guard_of_an_ended_lease_does_not_begin() -> None:
    """The body would do its first step without a lease."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        lease.end(EndReason.SEEN_TAKEN)

        async def body() -> None:
            with lease.guard():
                raise AssertionError("the body ran")

        assert await loss(body) == lost(reason=EndReason.SEEN_TAKEN)


async def test_guard_lets_its_body_return_and_fail() -> None:
    """It watches the lease and nothing else."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with lease.guard():
            await passes(1)
        with pytest.raises(ValueError, match="the user's"), lease.guard():
            raise ValueError("the user's")

        assert (lease.is_held(), lease._guards) == (True, set())
        lease.end(EndReason.SEEN_TAKEN)
        await passes(1)


async def test_guard_raises_nothing_when_its_body_had_done_its_work() -> None:
    """The lease ended after the last await: the work was done while it was held."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with lease.guard():
            await passes(1)
            lease.end(EndReason.SEEN_TAKEN)


async def test_guard_takes_the_cancellation_of_its_caller_for_no_lost_lease() -> None:
    """A time-out of the user's own stays one."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        with anyio.move_on_after(1) as scope, lease.guard():
            await anyio.sleep_forever()

        assert (scope.cancelled_caught, lease.is_held()) == (True, True)


async def test_guard_strikes_at_the_moment_an_ask_comes_due() -> None:
    """The session's watch looks at each term's own moment, not at the next beat."""
    stage = Stage()
    async with stage.living() as session:
        began_s = stage.now_s - LATENCY_S
        lease = await stage.acquired(session)
        stage.ask("a:1", "p0", 1)

        async def body() -> None:
            with lease.guard():
                await anyio.sleep_forever()

        assert await loss(body) == lost(reason=EndReason.ASK_DEADLINE)
        assert stage.now_s - began_s == about(HANDOFF_S)


# --- The current lease ----------------------------------------------------------------------------------------------


async def test_current_lease_is_that_of_the_call_tree() -> None:
    """A library deep below a processor finds the fencing token without being handed it."""
    stage = Stage(partitions=2)
    async with stage.living() as session:
        outer = await stage.acquired(session, "p0")
        inner = await stage.acquired(session, "p1")
        seen: list[HeldLease | None] = [current_lease()]

        async def child() -> None:
            await passes(1)
            seen.append(current_lease())

        with working_under(outer):
            seen.append(current_lease())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child)
                with working_under(inner):
                    seen.append(current_lease())
            seen.append(current_lease())
        seen.append(current_lease())

        assert seen == [None, outer, inner, outer, outer, None]


async def test_current_lease_is_that_of_each_of_two_processors_side_by_side() -> None:
    """A host runs many partitions on one loop; a token of the neighbour's would defeat the fence."""
    stage = Stage(partitions=2)
    async with stage.living() as session:
        seen: list[tuple[Lease, HeldLease | None]] = []

        async def processor(lease: Lease) -> None:
            with working_under(lease):
                await passes(1)
                seen.append((lease, current_lease()))

        async with anyio.create_task_group() as tasks:
            for partition in ("p0", "p1"):
                tasks.start_soon(processor, await stage.acquired(session, partition))

        assert [mine is current for mine, current in seen] == [True, True]


def test_current_lease_is_seen_in_a_thread() -> None:
    """Blocking clients run in threads; this is the one test here on a real loop, as threads need real time."""

    async def scenario() -> tuple[HeldLease | None, HeldLease | None, Lease]:
        store = MemoryStore()
        store.apply_now(GROUP, Create(partition="p0", position="@earliest"))
        session = Session(
            store=store,
            group=GROUP,
            host_id="a",
            session_id="a:1",
            clock=BootClock(),
            random=Random(1),
            pace=PACE,
        )
        assert await session.register()
        lease = await session.acquire(a_lease("p0"), reason="free")
        assert lease is not None
        with working_under(lease):
            inside = await anyio.to_thread.run_sync(current_lease)
        return inside, await anyio.to_thread.run_sync(current_lease), lease

    inside, outside, lease = asyncio.run(scenario())

    assert (inside, outside) == (lease, None)


def test_ensure_held_raises_in_a_thread_and_leaves_the_end_to_the_loop() -> None:
    """Events are not to be set from a thread: tasks that wait on them would wake late or never."""
    clock = HandClock()
    told: list[Event] = []

    async def scenario() -> tuple[object, ...]:
        store = MemoryStore()
        store.apply_now(GROUP, Create(partition="p0", position="@earliest"))
        session = Session(
            store=store,
            group=GROUP,
            host_id="a",
            session_id="a:1",
            clock=clock,
            random=Random(1),
            pace=PACE,
            on_event=told.append,
        )
        assert await session.register()
        lease = await session.acquire(a_lease("p0"), reason="free")
        assert lease is not None
        await anyio.to_thread.run_sync(lease.ensure_held)
        clock.at_s += VALIDITY_S

        async def in_thread() -> None:
            await anyio.to_thread.run_sync(lease.ensure_held)

        def guarded() -> None:
            with lease.guard():
                pass

        async def guarded_in_thread() -> None:
            await anyio.to_thread.run_sync(guarded)

        reasons = (await loss(in_thread), await loss(guarded_in_thread))
        ends = [event for event in told if isinstance(event, LeaseEnded)]
        seen = (reasons, lease.is_held(), lease.ended.is_set(), lease.end_reason, list(ends))
        with pytest.raises(LeaseLost):
            lease.ensure_held()
        return (*seen, lease.ended.is_set(), lease.end_reason)

    of_time = lost(reason=EndReason.SESSION_ENDED)
    assert asyncio.run(scenario()) == ((of_time, of_time), False, False, None, [], True, EndReason.SESSION_ENDED)


# --- Together -------------------------------------------------------------------------------------------------------


async def test_lease_ends_before_its_session_is_left() -> None:
    """Rule 4: `leave` deletes the item, and from that moment on others take the leases."""
    stage = Stage()
    stage.disturb(verb_of(Leave), before_s=0.5)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.leave)
            await passes(0.1)

            assert (lease.is_held(), lease.end_reason, stage.item() is not None) == (
                False,
                EndReason.SESSION_ENDED,
                True,
            )
        assert stage.item() is None
