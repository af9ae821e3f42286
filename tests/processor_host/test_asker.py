"""
The asker: what it asks for, what it takes once it is released, and when it may take by force.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from partitions.clocks import CLOCK_DRIFT, Clock
from partitions.errors import StoreUnavailable
from partitions.events import LeaseAcquired, LeaseEnded
from partitions.items import ASKS_MAX, LeaseItem, SessionItem, ask_key
from partitions.leases import Lease
from partitions.sessions import Session
from partitions.verbs import Acquire, Ask, Beat, Complete, Delete, Leave, Pause, Release
from processor_host.asker import ASK_LOOK_S, Asker
from tests.builders import a_lease
from tests.stage import GROUP, LATENCY_S, PACE, VIRTUAL_TIME, Stage, beside, verb_of
from tests.world.clocks import PlaceClock
from tests.world.diary import passes

__all__: list[str] = []

FORCE_S = PACE.handoff_s * (1 + CLOCK_DRIFT)
LOOKS_S = 2 * ASK_LOOK_S + 4 * LATENCY_S
"""Enough for one whole look after the present one, and an acquire."""


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


@dataclass
class Asking:
    """The asker of "b:1", and the terms that it brought."""

    stage: Stage
    session: Session
    asker: Asker
    began: list[Lease]
    overs: list[float]
    """When it was told that a lease had moved on without it, on the loop's clock."""

    async def run(self) -> None:
        await self.asker.run(self.began.append)

    async def ask(self, *leases: LeaseItem, owner: SessionItem | None = None) -> int:
        return await self.asker.ask(owner or self.owner, leases or (self.stage.lease(),))

    @property
    def owner(self) -> SessionItem:
        item = self.stage.item("a:1")
        assert item is not None
        return item


@asynccontextmanager
async def asking(stage: Stage, *, clock: Clock | None = None, **more: Any) -> AsyncIterator[Asking]:
    session = stage.session("b:1", clock=clock, **more)
    overs: list[float] = []
    async with stage.living(session):
        asker = Asker(
            session,
            store=stage.store_of_a_host(),
            group=GROUP,
            clock=clock or stage.clock,
            call_timeout_s=PACE.call_timeout_s,
            on_over=lambda: overs.append(stage.now_s),
        )
        it = Asking(stage, session, asker, [], overs)
        async with beside(it.run):
            yield it


def owned(partitions: int = 1) -> Stage:
    """A stage where "a:1" owns every lease; the test decides what it does."""
    stage = Stage(partitions=partitions)
    stage.register("a:1")
    for n in range(partitions):
        stage.take(f"p{n}", by="a:1")
    return stage


def release(stage: Stage, partition: str = "p0", **last: Any) -> None:
    stage.apply(Release(partition=partition, owner="a:1", token=1, **last))


def reads(stage: Stage) -> list[float]:
    return [at_s for at_s, call in stage.network.calls if call.operation == "read_some_leases"]


# --- Asking ---------------------------------------------------------------------------------------------------------


async def test_ask_writes_all_keys_into_the_owners_item_in_one_request() -> None:
    """A host that joins asks each owner for several leases at once."""
    stage = owned(3)
    async with asking(stage) as it:
        added = await it.ask(*(stage.lease(f"p{n}") for n in range(3)))

        keys = frozenset({"p0@1", "p1@1", "p2@1"})
        assert (added, stage.asks("a:1")) == (3, dict.fromkeys(keys, "b:1"))
        assert (it.asker.pending, len(stage.sent(Ask))) == (keys, 1)


async def test_ask_is_repeated_once_without_what_others_have_asked_for_meanwhile() -> None:
    """The request is refused as a whole; what stands already is waited for all the same."""
    stage = owned(3)
    async with asking(stage) as it:
        seen = it.owner
        stage.ask("a:1", "p1", 1, by="c:1")
        added = await it.ask(*(stage.lease(f"p{n}") for n in range(3)), owner=seen)

        assert (added, [verb.keys for verb in stage.sent(Ask)]) == (
            2,
            [("p0@1", "p1@1", "p2@1"), ("p0@1", "p2@1")],
        )
        assert stage.asks("a:1") == {"p0@1": "b:1", "p1@1": "c:1", "p2@1": "b:1"}
        assert it.asker.pending == {"p0@1", "p1@1", "p2@1"}


async def test_ask_that_keeps_being_refused_is_given_up_for_this_round() -> None:
    """The next plan sees what stands."""
    stage = owned(6)
    refused = []

    def race(call: Any) -> bool:
        if isinstance(call.verb, Ask):
            refused.append(call)
            stage.ask("a:1", f"p{len(refused) - 1}", 1, by="c:1")
        return False

    stage.disturb(race)
    async with asking(stage) as it:
        added = await it.ask(*(stage.lease(f"p{n}") for n in range(6)))

        assert (added, len(refused), set(it.asker.pending)) == (0, 2, {"p0@1"})


async def test_ask_sends_nothing_for_what_stands_in_the_item_it_was_given() -> None:
    """It waits for it, and may take it by force in its own time."""
    stage = owned()
    stage.ask("a:1", "p0", 1, by="c:1")
    async with asking(stage) as it:
        assert await it.ask() == 0
        assert (stage.sent(Ask), set(it.asker.pending)) == ([], {"p0@1"})


async def test_ask_sends_nothing_for_what_it_waits_for_already() -> None:
    """Each round plans the same again."""
    stage = owned()
    async with asking(stage) as it:
        seen = it.owner
        results = [await it.ask(owner=seen), await it.ask(owner=seen)]

        assert (results, len(stage.sent(Ask))) == ([1, 0], 1)


async def test_ask_leaves_room_for_others_in_a_crowded_item() -> None:
    """No more than 64 stand in one item, which every host reads."""
    stage = owned(70)
    for n in range(60):
        stage.ask("a:1", f"q{n}", 1, by="c:1")
    async with asking(stage) as it:
        added = await it.ask(*(stage.lease(f"p{n}") for n in range(70)))
        again = await it.ask(*(stage.lease(f"p{n}") for n in range(70)))

        assert (added, again, len(stage.asks("a:1")), len(stage.sent(Ask))) == (4, 0, ASKS_MAX, 1)


async def test_ask_of_an_owner_that_is_gone_brings_nothing() -> None:
    """Its leases are free; the plan takes them."""
    stage = owned()
    async with asking(stage) as it:
        seen = it.owner
        stage.apply(Leave(session_id="a:1"))

        assert (await it.ask(owner=seen), it.asker.pending, len(stage.sent(Ask))) == (0, frozenset(), 1)


async def test_ask_is_not_sent_without_a_valid_session() -> None:
    """Nobody would wait for what it asks for."""
    stage = owned()
    async with asking(stage) as it:
        it.session.end("test")

        assert (await it.ask(), stage.sent(Ask)) == (0, [])


async def test_ask_that_is_not_answered_raises_and_is_not_waited_for() -> None:
    """The next read shows whether it stands; the wait before force must not begin with a guess."""
    stage = owned()
    stage.disturb(verb_of(Ask), lose_answer=True, times=1)
    async with asking(stage) as it:
        with pytest.raises(StoreUnavailable):
            await it.ask()

        assert it.asker.pending == frozenset()


# --- Taking what was released ---------------------------------------------------------------------------------------


async def test_released_lease_is_taken_within_a_look() -> None:
    """What a hand-over may rest without an owner; it goes on from the last checkpoint."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        await passes(5)
        release(stage, position="70", seq=3)
        released_s = stage.now_s
        while not it.began:
            await passes(0.01)

        assert stage.now_s - released_s <= LOOKS_S
        assert stage.lease() == a_lease("p0", owner="b:1", token=2, position="70", last_host="b")
        assert (it.session.held, it.asker.pending) == ({"p0": it.began[0]}, frozenset())
        assert [event.reason for event in stage.events_of(LeaseAcquired)] == ["asked"]
        assert it.overs == []


async def test_asker_reads_only_what_it_asked_for_and_only_while_it_waits() -> None:
    """A small read several times a second; none in a group at rest."""
    stage = owned(5)
    async with asking(stage) as it:
        await passes(10)
        idle = len(reads(stage))
        await it.ask(stage.lease("p3"))
        await passes(2)
        while_waiting = len(reads(stage)) - idle
        release(stage, "p3")
        await anyio.sleep(LOOKS_S)
        before = len(reads(stage))
        await passes(10)

        assert (idle, len(reads(stage)) - before) == (0, 0)
        assert 6 <= while_waiting <= 8
        assert [operation for operation in _operations(stage) if operation.startswith("read_")] == [
            "read_some_leases"
        ] * len(reads(stage))


def _operations(stage: Stage) -> list[str]:
    return [call.operation for _, call in stage.network.calls]


async def test_asker_waits_for_many_leases_in_reads_of_a_hundred() -> None:
    """The contract of the store allows no more in one."""
    stage = owned(130)
    for n in range(3):
        stage.register(f"x:{n}")
    async with asking(stage) as it:
        it.asker.follow([stage.lease(f"p{n}") for n in range(130)], it.owner)
        await passes(1)
        for n in range(130):
            release(stage, f"p{n}")
        await passes(1)

        assert (len(it.began), it.asker.pending) == (130, frozenset())


@pytest.mark.parametrize("what", ["taken by a third", "paused", "finished", "gone"])
async def test_asker_waits_no_longer_when_there_is_nothing_to_wait_for(what: str) -> None:
    """The plan finds out what is to be done instead."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        if what == "taken by a third":
            stage.take("p0", by="c:1")
        elif what == "paused":
            stage.apply(Pause(partition="p0", seen_token=1))
            release(stage)
        elif what == "finished":
            stage.apply(Complete(partition="p0", owner="a:1", token=1))
        else:
            stage.apply(Complete(partition="p0", owner="a:1", token=1))
            stage.apply(Delete(partition="p0", seen_token=1))
        await anyio.sleep(LOOKS_S)

        assert (it.asker.pending, it.began, stage.sent(Acquire)) == (frozenset(), [], [])
        # Its balancer must read anew, or it would ask for the lease as it was once more.
        assert len(it.overs) == 1


async def test_asker_that_loses_the_race_for_a_released_lease_waits_no_longer() -> None:
    """A conditional write settles it."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        stage.disturb(verb_of(Acquire), before_s=0.5)
        release(stage)
        await anyio.sleep(LOOKS_S)
        stage.take("p0", by="c:1")
        await passes(1)

        assert (it.asker.pending, it.began, it.session.held) == (frozenset(), [], {})
        assert stage.lease().owner == "c:1"


async def test_acquire_whose_answer_was_lost_is_left_to_the_plan() -> None:
    """Rule 8: the asker must not adopt it, nor keep waiting for a token that is past."""
    stage = owned()
    stage.disturb(verb_of(Acquire), lose_answer=True, times=1)
    async with asking(stage) as it:
        await it.ask()
        release(stage)
        await anyio.sleep(PACE.call_timeout_s + 2 * LOOKS_S)

        assert (it.asker.pending, it.began, it.session.held, it.session.is_busy("p0")) == (frozenset(), [], {}, False)
        assert (stage.lease().owner, stage.lease().token, len(stage.sent(Acquire))) == ("b:1", 2, 1)


@pytest.mark.parametrize("error", [StoreUnavailable("throttled"), ValueError("a bug of the store")])
async def test_acquire_that_fails_is_tried_again_at_a_later_look(error: Exception) -> None:
    """It was not applied; somebody waits for the partition. Whatever is odd about one lease ends nothing else."""
    stage = owned(2)
    stage.disturb(verb_of(Acquire, partition="p0"), raises=error, times=3)
    async with asking(stage) as it:
        await it.ask(stage.lease("p0"), stage.lease("p1"))
        release(stage, "p0")
        release(stage, "p1")
        await passes(3)

        assert sorted(lease.partition for lease in it.began) == ["p0", "p1"]


async def test_look_that_fails_is_followed_by_the_next() -> None:
    """An outage of a second costs a second."""
    stage = owned()
    stage.disturb(lambda call: call.operation == "read_some_leases", fail_before=True, times=3)
    async with asking(stage) as it:
        await it.ask()
        release(stage)
        await passes(2)

        assert len(it.began) == 1


async def test_draining_asker_takes_nothing() -> None:
    """It gives everything away; whoever may take the lease counts on that."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        it.session.drain()
        release(stage)
        await anyio.sleep(LOOKS_S)

        assert (it.asker.pending, it.began, stage.sent(Acquire)) == (frozenset(), [], [])


# --- Force ----------------------------------------------------------------------------------------------------------


async def forced_s(it: Asking, since_s: float) -> float:
    """Wait until the lease is sent for, and return how long that took since a moment of the loop's clock."""
    while not it.stage.sent(Acquire):
        await passes(0.01)
    return it.stage.sent_at_s(Acquire)[0] - since_s


@pytest.mark.parametrize("handoff_s", [PACE.handoff_s, 7.0])
async def test_force_comes_after_the_owners_whole_handoff_since_the_ask_was_answered(handoff_s: float) -> None:
    """Rule 14: the owner's own time, not the asker's; the ask may have been applied right before the answer."""
    stage = Stage()
    stage.register("a:1", handoff_s=handoff_s)
    stage.take("p0", by="a:1")
    stage.disturb(verb_of(Ask), before_s=0.3, after_s=0.6)
    async with asking(stage) as it:
        await it.ask()
        wait_s = await forced_s(it, stage.now_s)
        await anyio.sleep(LATENCY_S)

        assert handoff_s * (1 + CLOCK_DRIFT) <= wait_s <= handoff_s * (1 + CLOCK_DRIFT) + LOOKS_S
        assert (stage.lease().owner, stage.lease().token) == ("b:1", 2)
        assert [event.reason for event in stage.events_of(LeaseAcquired)] == ["forced"]


async def test_force_for_an_ask_that_stood_already_counts_from_when_it_was_seen() -> None:
    """Rule 14: how long it had stood nobody here knows."""
    stage = owned()
    stage.ask("a:1", "p0", 1, by="c:1")
    async with asking(stage) as it:
        await passes(10)
        it.asker.follow([stage.lease()], it.owner)
        seen_s = stage.now_s
        await passes(5)
        # Every round sees it again; that does not begin the wait anew.
        it.asker.follow([stage.lease()], it.owner)
        wait_s = await forced_s(it, seen_s)

        assert FORCE_S <= wait_s <= FORCE_S + LOOKS_S


async def test_force_names_the_owner_and_the_token_of_the_ask() -> None:
    """Rule 14: whatever happened meanwhile makes the condition fail."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        await forced_s(it, 0.0)

        (acquire,) = stage.sent(Acquire)
        assert (acquire.seen_owner, acquire.seen_token) == ("a:1", 1)


async def test_force_is_not_used_against_a_term_that_began_since() -> None:
    """Rule 14: the ask named another one."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        await passes(5)
        stage.take("p0", by="a:1")
        await anyio.sleep(2 * FORCE_S)

        assert (stage.sent(Acquire), it.asker.pending) == ([], frozenset())


async def test_force_needs_a_valid_session_of_ones_own() -> None:
    """Rule 14: checked right before sending; a host that was suspended may have been fenced."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        await anyio.sleep(FORCE_S - ASK_LOOK_S)
        # The session is over by the clock; nothing has noticed yet.
        stage.disturb(verb_of(Beat), lose_request=True)
        stage.clock.jump(100)
        await anyio.sleep(2 * FORCE_S)

        assert (stage.sent(Acquire), stage.lease().owner, it.asker.pending) == ([], "a:1", frozenset())


async def test_force_checks_its_session_after_the_read_that_comes_before() -> None:
    """Rule 14: the read may have taken long enough for the session to end."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        await anyio.sleep(FORCE_S - 3 * ASK_LOOK_S)
        stage.disturb(lambda call: call.operation == "read_some_leases", after_s=0.9)
        while stage.now_s - reads(stage)[-1] > 0.01:
            await passes(0.005)
        stage.clock.jump(100)
        await anyio.sleep(2 * FORCE_S)

        assert stage.sent(Acquire) == []


BEAT_FAULTS: list[dict[str, Any]] = [
    {},
    {"before_s": 0.8},
    {"after_s": 0.8},
    {"fail_after": True, "times": 3},
    {"lose_answer": True, "times": 2},
]


@pytest.mark.parametrize("asked_s", [0.1, 1.99, 2.005, 2.3, 3.9])
@pytest.mark.parametrize("fault", BEAT_FAULTS)
async def test_force_never_overlaps_a_term_whose_owner_ignores_the_ask(fault: dict[str, Any], asked_s: float) -> None:
    """
    Rules 10 and 14 together: the owner's clock is slow and the asker's is fast, by all that is allowed.

    The owner drains nothing; its term ends by itself before the lease is taken.
    """
    stage = Stage()
    slow, fast = PlaceClock(rate=1 - CLOCK_DRIFT / 2), PlaceClock(rate=1 + CLOCK_DRIFT / 2, offset_s=900.0)
    owner = stage.session("a:1", clock=slow)
    async with stage.living(owner):
        if fault:
            stage.disturb(verb_of(Beat, session_id="a:1"), **{"times": 1, **fault})
        lease = await stage.acquired(owner)
        began_s = stage.now_s
        async with asking(stage, clock=fast) as it:
            await anyio.sleep(max(0.0, began_s + asked_s - stage.now_s))
            await it.ask()
            while not it.began:
                await passes(0.05)

            ended_s = stage.at_s(LeaseEnded)[0]
            (taken_s,) = [
                write.at_s for write in stage.network.applied(Acquire) if write.verb.session_id == "b:1"
            ]
            assert ended_s < taken_s
            assert (lease.is_held(), owner.is_valid, it.began[0].token) == (False, True, 2)
            # Nor does it wait for ever.
            assert taken_s - began_s < asked_s + FORCE_S + PACE.duration_s


async def test_lease_of_a_dead_owner_that_others_have_freed_is_not_forced() -> None:
    """Its session was fenced and a third host took the lease: nothing to wait for."""
    stage = owned()
    async with asking(stage) as it:
        await it.ask()
        await passes(3)
        stage.fence("a:1")
        stage.take("p0", by="c:1")
        await anyio.sleep(2 * FORCE_S)

        assert (stage.sent(Acquire), stage.lease().owner) == ([], "c:1")


async def test_key_of_an_ask_names_the_term_that_was_seen() -> None:
    """A lease that was taken again since the plan's read gets no ask for its new term."""
    stage = owned()
    async with asking(stage) as it:
        seen = stage.lease()
        stage.take("p0", by="a:1")
        await it.ask(seen)

        assert stage.asks("a:1") == {ask_key("p0", 1): "b:1"}
        await anyio.sleep(LOOKS_S)
        assert (it.asker.pending, stage.sent(Acquire)) == (frozenset(), [])
