"""
The session: it begins terms by its own acquires alone, knows every term it holds, and ends each in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.events import (
    AcquireRefused,
    Asked,
    EndReason,
    Event,
    LeaseAcquired,
    LeaseEnded,
    SessionBegan,
    SessionEnded,
)
from partitions.items import Known, LeaseItem
from partitions.leases import Lease
from partitions.verbs import Acquire, Ask, Beat, Drain, Leave, Pause, Register, Release, SaveCheckpoint
from tests.builders import a_lease, a_session
from tests.cuts import Cut, at_every_point
from tests.stage import HANDOFF_S, LATENCY_S, PACE, VALIDITY_S, VIRTUAL_TIME, Stage, about, verb_of
from tests.world.diary import passes

__all__: list[str] = []

FREE = a_lease("p0")
OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def ends(stage: Stage) -> list[tuple[str, int, EndReason]]:
    return [(event.partition, event.token, event.reason) for event in stage.events_of(LeaseEnded)]


# --- Acquire --------------------------------------------------------------------------------------------------------


async def test_acquire_begins_a_term_under_the_next_token() -> None:
    """The first thing of all."""
    stage = Stage()
    async with stage.living() as session:
        lease = await session.acquire(FREE, reason="free")

        assert lease is not None
        assert (stage.lease(), session.held, session.is_busy("p0")) == (OWNED, {"p0": lease}, True)
        assert (lease.partition, lease.token, lease.key, lease.position) == ("p0", 1, "p0@1", "@earliest")
        assert stage.events_of(LeaseAcquired) == [
            LeaseAcquired(
                partition="p0",
                token=1,
                reason="free",
                previous_owner=None,
                position="@earliest",
                duration_s=about(LATENCY_S),
            )
        ]


async def test_acquire_by_force_names_the_former_owner_and_goes_on_from_its_checkpoint() -> None:
    """Rule 14: on condition of the owner and token that the ask named."""
    stage = Stage()
    stage.take("p0", by="b:1")
    seen = stage.apply(SaveCheckpoint(partition="p0", owner="b:1", token=1, position="70", seq=9))
    async with stage.living() as session:
        lease = await session.acquire(seen, reason="forced")

        assert lease is not None
        # The former owner did not release: it may be frozen, but it may also have died of the next record.
        assert stage.lease() == replace(OWNED, token=2, position="70", seq=0, suspects=1)
        assert (lease.token, lease.position, lease.suspects) == (2, "70", 1)
        await lease.checkpoint("80")
        assert stage.lease() == replace(OWNED, token=2, position="80", seq=1)


async def test_acquire_that_is_refused_is_a_value() -> None:
    """A lost race is nothing wrong, and leaves no trace here."""
    stage = Stage()
    taken = stage.take("p0", by="b:1")
    async with stage.living() as session:
        assert await session.acquire(FREE, reason="free") is None
        assert (stage.lease(), session.held, session.is_busy("p0")) == (taken, {}, False)
        assert stage.events_of(AcquireRefused) == [
            AcquireRefused(partition="p0", seen_token=0, found_token=1, found_owner="b:1")
        ]


async def test_acquire_of_a_lease_that_is_gone_is_refused() -> None:
    """It was deleted at its end by somebody else."""
    stage = Stage()
    async with stage.living() as session:
        assert await session.acquire(a_lease("p9"), reason="free") is None
        assert stage.events_of(AcquireRefused) == [
            AcquireRefused(partition="p9", seen_token=0, found_token=None, found_owner=None)
        ]


async def test_acquire_is_sent_once_while_one_is_on_its_way() -> None:
    """Rule 8: of two answers nobody could say which term goes on."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), before_s=0.5)
    async with stage.living() as session:
        results: list[Lease | None] = []

        async def acquire() -> None:
            results.append(await session.acquire(FREE, reason="free"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire)
            await passes(0.1)
            busy = session.is_busy("p0")
            tasks.start_soon(acquire)

        assert (busy, results[0], len(stage.sent(Acquire))) == (True, None, 1)
        assert session.held == {"p0": results[1]}


async def test_acquire_is_not_sent_for_a_partition_that_is_held_or_being_released() -> None:
    """Rule 8: every term begins with its own acquire, and this one has not ended in the store."""
    stage = Stage()
    stage.disturb(verb_of(Release), before_s=0.5)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        while_held = await session.acquire(OWNED, reason="resolved")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lease.release)
            await passes(0.1)
            while_releasing = await session.acquire(OWNED, reason="resolved")

        assert (while_held, while_releasing, len(stage.sent(Acquire))) == (None, None, 1)
        assert session.is_busy("p0") is False


@pytest.mark.parametrize("how", ["never registered", "run out", "ended"])
async def test_acquire_is_not_sent_without_a_valid_session(how: str) -> None:
    """Rule 13: an owner that is missing among the sessions counts as dead."""
    stage = Stage()
    session = stage.session()
    if how != "never registered":
        assert await session.register()
    if how == "run out":
        stage.clock.jump(VALIDITY_S)
    if how == "ended":
        session.end("test")

    assert await session.acquire(FREE, reason="free") is None
    assert (stage.sent(Acquire), stage.lease()) == ([], FREE)


async def test_acquire_waits_no_longer_for_its_answer_than_its_session_lives() -> None:
    """Rule 8: it has a time-out, and an answer after the end would bring nothing."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_request=True)
    session = stage.session()
    assert await session.register()
    stage.clock.jump(VALIDITY_S - LATENCY_S - 0.25)
    began_s = stage.now_s

    with pytest.raises(StoreUnavailable):
        await session.acquire(FREE, reason="free")

    assert stage.now_s - began_s == about(0.25)


async def test_acquire_that_is_answered_after_its_session_ended_hands_out_a_term_that_has_ended() -> None:
    """Rule 5: the store has it as this session's, and nothing may be done under it."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), before_s=0.5)
    async with stage.living() as session:
        results: list[Lease | None] = []

        async def acquire() -> None:
            results.append(await session.acquire(FREE, reason="free"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire)
            await passes(0.1)
            session.end("test")

        (lease,) = results
        assert lease is not None
        assert (lease.is_held(), lease.ended.is_set(), session.held) == (False, True, {})
        # An end without a beginning would make a count of held leases negative.
        kinds = [type(event) for event in stage.events if isinstance(event, LeaseAcquired | LeaseEnded)]
        assert kinds == [LeaseAcquired, LeaseEnded]


async def test_acquire_that_is_answered_after_a_suspend_hands_out_a_term_that_has_ended() -> None:
    """Rule 5: the end is on the clock that counted on, not in an event."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), before_s=0.5)
    session = stage.session()
    assert await session.register()
    results: list[Lease | None] = []

    async def acquire() -> None:
        results.append(await session.acquire(FREE, reason="free"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(acquire)
        await passes(0.1)
        stage.clock.jump(VALIDITY_S)

    (lease,) = results
    assert lease is not None
    assert (lease.is_held(), lease.end_reason, session.held) == (False, EndReason.SESSION_ENDED, {})


@pytest.mark.parametrize("error", [StoreMisconfigured("denied"), StoreUnavailable("throttled")])
async def test_acquire_passes_on_what_the_store_raises(error: Exception) -> None:
    """Only a broken store raises; the partition is free to be tried again."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), raises=error, times=1)
    async with stage.living() as session:
        with pytest.raises(type(error)) as caught:
            await session.acquire(FREE, reason="free")

        assert (caught.value, session.is_busy("p0")) == (error, False)
        await stage.acquired(session)


# --- An acquire whose answer was lost -------------------------------------------------------------------------------


async def test_acquire_whose_answer_was_lost_is_never_adopted() -> None:
    """Rule 8: one's own late release could free a lease one believes to hold."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        after_loss = (stage.lease(), dict(session.held), session.is_busy("p0"))
        # The same again, as an SDK that retries inside would: refused, though the store has it as one's own.
        again = await session.acquire(FREE, reason="free")
        session.compare([stage.lease()])

        assert after_loss == (OWNED, {}, False)
        assert (again, session.held) == (None, {})


async def test_acquire_whose_answer_was_lost_is_resolved_by_acquiring_again() -> None:
    """Rule 8: the new token refuses whatever of the old term is still on its way."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        lease = await session.acquire(stage.lease(), reason="resolved")

        assert lease is not None
        assert (lease.token, stage.lease()) == (2, replace(OWNED, token=2))


async def test_acquire_whose_answer_was_lost_is_resolved_by_giving_it_back() -> None:
    """Rule 8: the plan has meanwhile found another owner for it."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        await session.give_back(stage.lease())

        assert (stage.lease(), session.is_busy("p0")) == (replace(OWNED, owner=None), False)


async def test_acquire_that_arrives_after_it_was_given_up_does_not_disturb_the_term_that_began_since() -> None:
    """A slow duplicate of one's own: its condition names the token of before."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), before_s=3.0, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        lease = await stage.acquired(session)
        await passes(5)

        assert (stage.lease(), session.held, lease.is_held()) == (OWNED, {"p0": lease}, True)


async def test_late_give_back_does_not_free_the_term_that_began_since() -> None:
    """Rule 8: the reason why a lost acquire is never adopted."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    stage.disturb(verb_of(Release), before_s=3.0, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        with pytest.raises(StoreUnavailable):
            await session.give_back(stage.lease())
        lease = await session.acquire(stage.lease(), reason="resolved")
        await passes(5)

        assert lease is not None
        assert (stage.lease(), lease.is_held()) == (replace(OWNED, token=2), True)


@pytest.mark.parametrize("state", ["held", "being released", "of another"])
async def test_give_back_sends_nothing_for_a_lease_that_is_not_lost(state: str) -> None:
    """A snapshot from before the answer of one's own acquire shows the very same."""
    stage = Stage()
    stage.disturb(verb_of(Release), before_s=0.5)
    async with stage.living() as session:
        async with anyio.create_task_group() as tasks:
            if state == "of another":
                seen = stage.take("p0", by="b:1")
            else:
                lease = await stage.acquired(session)
                seen = stage.lease()
                if state == "being released":
                    tasks.start_soon(lease.release)
                    await passes(0.1)
            sent = len(stage.sent(Release))
            await session.give_back(seen)

        assert len(stage.sent(Release)) == sent


async def test_acquire_is_not_sent_while_the_lease_is_given_back() -> None:
    """Rule 8: what is being released is no lost acquire."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    stage.disturb(verb_of(Release), before_s=0.5)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.give_back, OWNED)
            await passes(0.1)

            assert (session.is_busy("p0"), await session.acquire(OWNED, reason="resolved")) == (True, None)
        assert len(stage.sent(Acquire)) == 1


# --- A read of the store --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "end"),
    [
        pytest.param(lambda own: own, None, id="as it is"),
        pytest.param(lambda own: replace(own, owner=None, token=1), None, id="older token, from before the acquire"),
        pytest.param(lambda own: replace(own, owner="b:1", token=1), None, id="older token of another owner"),
        pytest.param(lambda own: replace(own, owner="b:1", token=3), EndReason.SEEN_TAKEN, id="higher token"),
        pytest.param(lambda own: replace(own, token=3), EndReason.SEEN_TAKEN, id="higher token of this session"),
        pytest.param(lambda own: replace(own, owner=None), EndReason.SEEN_TAKEN, id="own token without an owner"),
        pytest.param(lambda own: replace(own, owner="b:1"), EndReason.SEEN_TAKEN, id="own token of another owner"),
        pytest.param(lambda own: replace(own, position="7", seq=3), None, id="other position"),
    ],
)
async def test_compare_ends_a_term_that_a_read_contradicts(
    read: Callable[[LeaseItem], LeaseItem], end: EndReason | None
) -> None:
    """Rule 6: a page that was read just before one's own acquire landed shows an older token, and ends nothing."""
    stage = Stage()
    stage.take("p0", by="b:1")
    async with stage.living() as session:
        lease = await stage.acquired(session)
        assert lease.token == 2
        session.compare([a_lease("p8"), read(stage.lease()), a_lease("p9", owner="a:1", token=1)])

        assert (lease.end_reason, lease.asked.is_set()) == (end, end is not None)
        assert session.held == ({"p0": lease} if end is None else {})


async def test_compare_asks_a_term_to_drain_when_its_lease_is_paused() -> None:
    """DESIGN section 4: an owner that sees `paused` releases unasked, and may finish what it is at."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.apply(Pause(partition="p0", seen_token=1))
        session.compare([stage.lease()])

        assert (lease.asked.is_set(), lease.is_held(), lease.ask_deadline_s()) == (True, True, float("inf"))


# --- Asks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["b:1", "", "gone:9"])
async def test_ask_drains_the_term_it_names_whoever_asks(by: str) -> None:
    """Rule 10: every ask is honoured; keeping the lease under the same token would use its key a second time."""
    stage = Stage(partitions=2)
    async with stage.living() as session:
        lease = await stage.acquired(session, "p0")
        other = await stage.acquired(session, "p1")
        stage.ask("a:1", "p0", 1, by=by)
        await anyio.sleep(PACE.beat_interval_s)

        assert (lease.asked.is_set(), lease.is_held(), other.asked.is_set()) == (True, True, False)
        left_s = HANDOFF_S - PACE.beat_interval_s - LATENCY_S
        assert stage.events_of(Asked) == [
            Asked(partition="p0", token=1, asker=by, left_s=about(min(left_s, VALIDITY_S - LATENCY_S)), held=True)
        ]


@pytest.mark.parametrize("token", [0, 2])
async def test_ask_for_another_term_leaves_this_one_alone(token: int) -> None:
    """Rule 11: the key names the term; an ask of long ago, or of a term to come, means another."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.ask("a:1", "p0", token)
        await anyio.sleep(PACE.beat_interval_s + 0.1)

        assert (lease.asked.is_set(), [event.held for event in stage.events_of(Asked)]) == (False, [False])


async def test_ask_is_removed_only_after_the_release_of_its_term_is_answered() -> None:
    """Rule 11: until then the claim of the asker must stand, or another host snatches what was released to it."""
    stage = Stage()
    stage.disturb(verb_of(Release), before_s=0.9)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        key = stage.ask("a:1", "p0", 1)
        await lease.asked.wait()
        seen = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lease.release)
            await passes(0.1)
            await session.renew()
            seen.append(dict(stage.asks()))
        await session.renew()
        seen.append(dict(stage.asks()))

        assert seen == [{key: "b:1"}, {}]


async def test_ask_that_meets_an_acquire_on_its_way_holds_for_the_term_that_the_answer_brings() -> None:
    """Rule 10: the asker saw the lease as taken before this host did, and waits no longer for it."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), after_s=0.8)
    async with stage.living() as session:
        began_s = stage.clock.now_s() - LATENCY_S
        results: list[Lease | None] = []

        async def acquire() -> None:
            results.append(await session.acquire(FREE, reason="free"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire)
            await passes(0.1)
            key = stage.ask("a:1", "p0", 1)
            await session.renew()
            assert [event.held for event in stage.events_of(Asked)] == [False]
            # It must not be removed either: the term it names may still begin here.
            await session.renew()
            assert stage.asks() == {key: "b:1"}

        (lease,) = results
        assert lease is not None
        assert (lease.asked.is_set(), lease.is_held()) == (True, True)
        assert lease.ask_deadline_s() - began_s == about(HANDOFF_S)


async def test_ask_for_an_acquire_that_was_given_up_is_removed() -> None:
    """Rule 11: its term can no longer begin here, because a lost answer is never adopted."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    async with stage.living() as session:
        with pytest.raises(StoreUnavailable):
            await session.acquire(FREE, reason="free")
        stage.ask("a:1", "p0", 1)
        await session.renew()
        await session.renew()

        assert stage.asks() == {}


async def test_newer_term_is_not_bound_by_the_ask_for_an_older_one() -> None:
    """Rule 11: one that was acquired again, under the next token."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.ask("a:1", "p0", 1)
        await lease.asked.wait()
        assert await lease.release()
        newer = await session.acquire(stage.lease(), reason="free")
        await anyio.sleep(HANDOFF_S + 5)

        assert newer is not None
        assert (newer.token, newer.asked.is_set(), newer.is_held()) == (2, False, True)
        assert stage.asks() == {}


async def test_ask_that_names_no_term_is_cleared_away() -> None:
    """Whoever wrote it, it must neither end the beats nor stand for ever."""
    stage = Stage()
    async with stage.living() as session:
        stage.apply(Ask(session_id="a:1", keys=("nonsense",), asker="b:1"))
        await passes(2 * PACE.beat_interval_s + 0.1)

        assert (session.is_valid, stage.asks(), stage.events_of(Asked)) == (True, {}, [])


async def test_ask_ends_its_term_in_time_while_no_beat_is_answered() -> None:
    """Rule 10: the deadline is a moment of its own, before the end that the last beat allowed."""
    pace = replace(PACE, handoff_s=PACE.duration_s)
    stage = Stage()
    async with stage.living(stage.session(pace=pace)) as session:
        began_s = stage.now_s - LATENCY_S
        lease = await stage.acquired(session)
        stage.ask("a:1", "p0", 1)
        await lease.asked.wait()
        stage.disturb(verb_of(Beat), lose_request=True)
        await lease.ended.wait()

        # The ask was shown by the first beat, so its deadline is dated from the register.
        assert (stage.now_s - began_s, lease.end_reason) == (about(VALIDITY_S), EndReason.ASK_DEADLINE)
        assert session.is_valid


async def test_ask_ends_a_term_in_time_that_began_after_the_ask_was_shown() -> None:
    """Rule 10: the watch must learn of a new term at once; no beat may come to tell it."""
    stage = Stage()
    stage.disturb(verb_of(Acquire), after_s=0.8)
    async with stage.living(stage.session(pace=replace(PACE, handoff_s=PACE.duration_s))) as session:
        began_s = stage.now_s - LATENCY_S
        await anyio.sleep(PACE.beat_interval_s - 0.2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.acquired, session)
            await passes(0.1)
            stage.ask("a:1", "p0", 1)
        stage.disturb(verb_of(Beat), lose_request=True)
        lease = session.held["p0"]
        await lease.ended.wait()

        assert (stage.now_s - began_s, lease.end_reason) == (about(VALIDITY_S), EndReason.ASK_DEADLINE)


async def test_terms_end_each_at_their_own_moment() -> None:
    """One deadline must neither hurry nor hold up another."""
    stage = Stage(partitions=3)
    async with stage.living() as session:
        began_s = stage.now_s - LATENCY_S
        leases = [await stage.acquired(session, f"p{n}") for n in range(3)]
        stage.ask("a:1", "p0", 1)
        await passes(2 * PACE.beat_interval_s)
        stage.ask("a:1", "p1", 1)
        await passes(30)

        at = [at_s - began_s for at_s in stage.at_s(LeaseEnded)]
        assert at == [about(HANDOFF_S), about(2 * PACE.beat_interval_s + HANDOFF_S)]
        assert [lease.end_reason for lease in leases] == [EndReason.ASK_DEADLINE, EndReason.ASK_DEADLINE, None]


# --- The end of a session -------------------------------------------------------------------------------------------


async def test_every_term_ends_when_the_session_runs_out() -> None:
    """Rules 4 and 6: at the moment itself, and before anybody is told that the session is over."""
    stage = Stage(partitions=2)
    async with stage.living() as session:
        began_s = stage.now_s - LATENCY_S
        leases = [await stage.acquired(session, f"p{n}") for n in range(2)]
        stage.disturb(verb_of(Beat), lose_request=True)
        await passes(10)

        assert [at_s - began_s for at_s in stage.at_s(LeaseEnded)] == [about(VALIDITY_S)] * 2
        assert [lease.end_reason for lease in leases] == [EndReason.SESSION_ENDED] * 2
        assert (session.held, session.is_valid, session.is_over) == ({}, False, True)
        assert stage.events_of(SessionEnded) == [
            SessionEnded(session_id="a:1", reason="its duration ran out before a beat was answered", lost=True)
        ]
        assert isinstance(stage.events[-1], SessionEnded)


async def test_every_term_ends_when_the_session_was_fenced() -> None:
    """Rule 4: others have taken the leases, or are about to."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)
        stage.fence("a:1")
        await anyio.sleep(PACE.beat_interval_s + 0.1)

        assert (lease.end_reason, session.is_valid, stage.item()) == (EndReason.SESSION_ENDED, False, None)


async def test_session_goes_on_when_the_stores_client_was_cancelled_inside() -> None:
    """The beat is tried again like one that was not answered."""
    stage = Stage()
    stage.disturb(verb_of(Beat), raises=asyncio.CancelledError(), times=2)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        await passes(10)

        assert (lease.is_held(), session.is_valid) == (True, True)


async def test_session_that_is_over_does_not_come_back() -> None:
    """Rule 4: losing a session is final, whatever its item says."""
    stage = Stage()
    stage.disturb(verb_of(Beat), after_s=0.5)
    async with stage.living() as session:
        await anyio.sleep(PACE.beat_interval_s + 0.2)
        session.end("test")
        await passes(10)

        assert (session.is_valid, session.table.valid_until_s) == (False, float("-inf"))
        assert len(stage.sent(Beat)) == 1
        assert stage.events_of(SessionEnded) == [SessionEnded(session_id="a:1", reason="test", lost=True)]


async def test_session_whose_loop_is_cancelled_ends_every_term() -> None:
    """Rule 15: nothing goes on under a session that nobody keeps alive."""
    stage = Stage()
    async with stage.living() as session:
        lease = await stage.acquired(session)

    assert (lease.is_held(), lease.end_reason, session.is_valid) == (False, EndReason.SESSION_ENDED, False)


async def test_session_whose_observer_breaks_goes_on() -> None:
    """Observing must not change what is observed."""

    def broken(event: Event) -> None:
        raise ValueError(event)

    stage = Stage()
    async with stage.living(stage.session(on_event=broken)) as session:
        lease = await stage.acquired(session)
        await lease.checkpoint("10")
        await passes(10)

        assert await lease.release("20")


async def test_run_returns_why_the_session_is_over() -> None:
    """Somebody will read it in a log."""
    stage = Stage()
    session = stage.session()
    assert await session.register()
    stage.disturb(verb_of(Beat), lose_request=True)

    assert await session.run() == "its duration ran out before a beat was answered"


async def test_register_that_fails_ends_the_session() -> None:
    """Rule 1: who is not sure takes a new id."""
    stage = Stage()
    stage.disturb(verb_of(Register), lose_request=True)
    session = stage.session()

    assert await session.register() is False
    assert (session.is_over, session.is_valid) == (True, False)
    assert stage.events_of(SessionBegan) == []
    assert stage.events_of(SessionEnded) == [
        SessionEnded(session_id="a:1", reason="it could not be registered in time", lost=True)
    ]


async def test_register_writes_what_the_host_brings() -> None:
    """Others plan by it, and people read it."""
    stage = Stage()
    session = stage.session(capacity=2.0, max_leases=5, draining=True, extra={"pid": 41})

    assert await session.register()
    assert stage.item() == a_session(
        "a:1", duration_s=6.0, handoff_s=18.0, capacity=2.0, max_leases=5, draining=True, extra={"pid": 41}
    )
    assert (session.draining, stage.events) == (True, [SessionBegan(session_id="a:1")])


async def test_leave_ends_the_session_then_deletes_its_item() -> None:
    """Rule 4: only after every term has ended."""
    stage = Stage()
    stage.disturb(verb_of(Leave), before_s=0.5)
    async with stage.living() as session:
        lease = await stage.acquired(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.leave)
            await passes(0.1)
            on_its_way = (session.is_valid, lease.is_held(), len(stage.sent(Leave)), stage.item() is None)

        assert (on_its_way, stage.item()) == ((False, False, 1, False), None)
        assert stage.events_of(SessionEnded) == [SessionEnded(session_id="a:1", reason="it left", lost=False)]


async def test_leave_deletes_the_item_of_a_session_that_was_lost() -> None:
    """Rule 4: at once, or its leases wait for its fence."""
    stage = Stage()
    async with stage.living() as session:
        session.end("test")

        assert await session.leave()
        assert (stage.item(), len(stage.events_of(SessionEnded))) == (None, 1)


async def test_session_has_left_once_the_store_has_said_so() -> None:
    """A second try that is not answered brings the item back for nobody."""
    stage = Stage()
    async with stage.living() as session:
        stage.disturb(verb_of(Leave), fail_before=True, times=3)
        results = [await session.leave(), session.has_left]
        results += [await session.leave(), session.has_left]
        stage.disturb(verb_of(Leave), fail_before=True)
        results += [await session.leave(), session.has_left]

        assert results == [False, False, True, True, True, True]


async def test_renew_returns_whether_the_session_goes_on() -> None:
    """Nobody waits for a beat of a session that is over."""
    stage = Stage()
    async with stage.living() as session:
        before = await session.renew()
        session.end("test")

        assert (before, await session.renew()) == (True, False)


# --- What it publishes ----------------------------------------------------------------------------------------------


async def test_session_publishes_what_it_holds_and_knows() -> None:
    """Others compare it with the plan, and read the leases where it does not fit."""
    stage = Stage(partitions=3)
    async with stage.living() as session:
        for n in range(3):
            await stage.acquired(session, f"p{n}")
        await session.held["p2"].release()
        session.publish(known=Known(count=3, checksum=9), load=1.5)
        await session.renew()

        item = stage.item()
        assert item is not None
        assert (item.owned, item.known, item.load) == (2, Known(count=3, checksum=9), 1.5)


async def test_drain_is_published_at_once() -> None:
    """The others begin to ask from then on."""
    stage = Stage()
    async with stage.living() as session:
        await passes(0.5)
        session.drain()
        session.drain()
        await anyio.sleep(LATENCY_S)

        item = stage.item()
        assert item is not None
        assert (session.draining, item.draining, len(stage.sent(Beat))) == (True, True, 1)


async def test_drain_asked_by_an_operator_is_known_after_the_next_beat() -> None:
    """The host stops for it as for a signal."""
    stage = Stage()
    async with stage.living() as session:
        stage.apply(Drain(session_id="a:1"))
        with anyio.fail_after(PACE.beat_interval_s + 0.1):
            await session.drain_asked.wait()


# --- Cancelled anywhere ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["", "fail_before", "fail_after", "lose_answer"])
def test_acquire_leaves_no_trace_wherever_its_caller_is_cancelled(fault: str) -> None:
    """No term that nobody knows of, no busy mark that keeps the partition from this host for ever."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        if fault:
            stage.disturb(verb_of(Acquire), **{fault: True}, times=1)
        async with stage.living() as session:
            got: list[Lease | None] = []

            async def acquire() -> None:
                try:
                    got.append(await session.acquire(FREE, reason="free"))
                except StoreUnavailable:
                    got.append(None)

            ended = await cut.during(acquire)
            handed_out = {lease.partition: lease for lease in got if lease is not None}
            assert (session.held, ended) == (handed_out, bool(got))
            assert session.is_busy("p0") is bool(handed_out)

            await passes(2)
            seen = stage.lease()
            session.compare([seen])
            assert session.held == handed_out
            if not handed_out:
                # A later snapshot shows what became of it: free, or one's own and to be resolved.
                assert seen.owner in (None, "a:1")
                lease = await session.acquire(seen, reason="resolved")
                assert lease is not None
                assert (lease.token, stage.lease()) == (seen.token + 1, replace(OWNED, token=seen.token + 1))

    assert at_every_point(scenario) > 0


def test_give_back_leaves_no_busy_mark_wherever_its_caller_is_cancelled() -> None:
    """The next snapshot shows what became of it."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
        async with stage.living() as session:
            with pytest.raises(StoreUnavailable):
                await session.acquire(FREE, reason="free")
            await cut.during(lambda: session.give_back(OWNED))
            busy = session.is_busy("p0")
            await passes(1)
            await session.give_back(stage.lease())

            assert (busy, stage.lease()) == (False, replace(OWNED, owner=None))

    assert at_every_point(scenario) > 0


@pytest.mark.parametrize("fault", ["fail_before", "fail_after", "lose_answer"])
def test_register_can_be_undone_wherever_its_caller_is_cancelled(fault: str) -> None:
    """A host that is stopped while it starts leaves nothing that others have to wait for."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Register), **{fault: True}, times=1)
        session = stage.session()
        await cut.during(session.register)
        # As a host does that gives up: what may still be on its way arrives first.
        await anyio.sleep(LATENCY_S)
        assert await session.leave()

        assert (stage.item(), session.is_valid) == (None, False)

    assert at_every_point(scenario) > 2


def test_renew_disturbs_nothing_wherever_its_caller_is_cancelled() -> None:
    """It is the session's beat, not the caller's."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await cut.during(session.renew)
            await passes(20)

            assert (lease.is_held(), session.held) == (True, {"p0": lease})

    assert at_every_point(scenario) > 0


def test_leave_is_sent_wherever_its_caller_is_cancelled() -> None:
    """Rule 4: the last write of a host that is stopped twice."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        async with stage.living() as session:
            lease = await stage.acquired(session)
            await cut.during(session.leave)

            assert (lease.is_held(), session.held, stage.item()) == (False, {}, None)

    assert at_every_point(scenario) > 0


def test_every_term_ends_wherever_the_run_of_its_session_is_cancelled() -> None:
    """Rule 15: also in the middle of a beat, or while it fails."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Beat), fail_before=True, times=1)
        stage.disturb(verb_of(Beat), lose_answer=True, times=1)
        session = stage.session()
        assert await session.register()
        lease = await stage.acquired(session)
        stage.disturb(verb_of(Beat), lose_request=True)
        await cut.during(session.run)

        assert (lease.is_held(), lease.ended.is_set(), session.held, session.is_over) == (False, True, {}, True)
        assert ends(stage) == [("p0", 1, EndReason.SESSION_ENDED)]

    assert at_every_point(scenario) > 3
