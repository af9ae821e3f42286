"""
Register, beat and leave: what their answers mean, and from when on time is counted.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest

from partitions.beating import SameLoop
from partitions.beats import DRAIN_BEAT_S, LEAVES_MAX, Beats, Pace
from partitions.errors import StoreMisconfigured
from partitions.events import BeatAnswered, BeatFailed
from partitions.items import Known, SessionItem
from partitions.table import SessionTable
from partitions.verbs import Beat, Drain, Leave, Register
from tests.builders import a_session
from tests.cuts import Cut, at_every_point
from tests.stage import GROUP, HANDOFF_S, LATENCY_S, PACE, VALIDITY_S, VIRTUAL_TIME, Stage, about, beside, verb_of
from tests.world.diary import passes

__all__: list[str] = []

BEAT_S = PACE.beat_interval_s
OUTAGE = "its duration ran out before a beat was answered"


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Beating:
    """The beats of the session "a:1" on a stage; what is around them is in the hands of the test."""

    def __init__(self, stage: Stage, pace: Pace = PACE) -> None:
        self.stage = stage
        self.began_s = stage.now_s
        self.table = SessionTable(stage.clock)
        self.open: set[str] = set()
        """The terms that go on here, as ask keys."""
        self.owned = 0
        self.seen: list[tuple[str, str, float, float]] = []
        """Each ask that was passed on, with its deadline and the session's end as they stood in the table then."""
        self.reasons: list[str] = []
        """Why `run` ended."""
        store = stage.store_of_a_host()
        self.beats = Beats(
            Register(session_id="a:1", host_id="a", duration_s=pace.duration_s, handoff_s=pace.handoff_s),
            store=store,
            place=SameLoop(store),
            group=GROUP,
            clock=stage.clock,
            random=stage.random,
            pace=pace,
            table=self.table,
            is_open=lambda partition, token: f"{partition}@{token}" in self.open,
            on_ask=lambda key, asker: self.seen.append((key, asker, self.deadline_s(key), self.valid_s)),
            owned=lambda: self.owned,
            on_event=stage.tell,
        )

    @property
    def valid_s(self) -> float:
        """Until when the session holds, counted from the first sending of its register."""
        return self.since_began_s(self.table.valid_until_s)

    def deadline_s(self, key: str) -> float:
        """The deadline of an ask, counted in the same way."""
        return self.since_began_s(self.table.ask_deadline_s(key))

    def since_began_s(self, at_s: float) -> float:
        return at_s - self.stage.clock.now_s() + (self.stage.now_s - self.began_s)

    async def until_s(self, since_began_s: float) -> None:
        await anyio.sleep(self.began_s + since_began_s - self.stage.now_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.began_s = self.stage.now_s
        assert await self.beats.register()
        async with beside(self._run):
            yield

    async def _run(self) -> None:
        self.reasons.append(await self.beats.run())


# --- Register -------------------------------------------------------------------------------------------------------


async def test_register_makes_the_item_and_counts_from_before_it_was_sent() -> None:
    """Rule 1: another host may have seen the item from the moment it was sent."""
    stage = Stage()
    stage.disturb(verb_of(Register), before_s=0.4, after_s=0.4)
    beating = Beating(stage)

    assert await beating.beats.register()

    assert beating.valid_s == about(VALIDITY_S)
    assert stage.item() == a_session("a:1", duration_s=6.0, handoff_s=18.0)


async def test_register_counts_from_its_first_sending_when_tries_fail() -> None:
    """Rule 1: any of the tries may be the one that was applied."""
    stage = Stage()
    stage.disturb(verb_of(Register), fail_before=True, times=2)
    beating = Beating(stage)

    assert await beating.beats.register()

    assert beating.valid_s == about(VALIDITY_S)
    assert len(stage.sent(Register)) == 3


async def test_register_takes_its_own_earlier_try_for_success_when_the_answer_was_lost() -> None:
    """Rule 9: a session id is never used twice, so what is stored under it is one's own."""
    stage = Stage()
    stage.disturb(verb_of(Register), lose_answer=True, times=1)
    beating = Beating(stage)

    assert await beating.beats.register()

    assert beating.valid_s == about(VALIDITY_S)
    assert len(stage.sent(Register)) == 2


async def test_register_gives_up_when_no_answer_could_be_of_use() -> None:
    """An item that was made long ago may have been fenced meanwhile; a new id is certain."""
    stage = Stage()
    stage.disturb(verb_of(Register), lose_answer=True)
    beating = Beating(stage)

    registered = await beating.beats.register()

    assert (registered, beating.table.valid_until_s) == (False, -math.inf)
    assert stage.now_s - beating.began_s == about(VALIDITY_S)
    assert len(stage.sent(Register)) >= 3


async def test_register_gives_up_when_its_answer_comes_after_its_end() -> None:
    """A machine that was suspended meanwhile must not begin a life that is over."""
    stage = Stage()
    stage.disturb(verb_of(Register), before_s=0.5)
    beating = Beating(stage)
    results: list[bool] = []

    async def register() -> None:
        results.append(await beating.beats.register())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(register)
        await passes(0.2)
        stage.clock.jump(VALIDITY_S)

    assert (results, beating.table.valid_until_s) == ([False], -math.inf)


async def test_register_raises_at_once_where_no_retry_helps() -> None:
    """A user with a typing error in the table's name waits for nothing."""
    stage = Stage()
    error = StoreMisconfigured("no such table")
    stage.disturb(verb_of(Register), raises=error)

    with pytest.raises(StoreMisconfigured) as caught:
        await Beating(stage).beats.register()

    assert (caught.value, len(stage.sent(Register))) == (error, 1)


async def test_ask_that_the_answer_of_a_register_shows_is_dated_from_its_first_sending() -> None:
    """A try that was applied and not answered makes an item that others can ask already."""
    stage = Stage()
    stage.disturb(verb_of(Register), lose_answer=True, times=1)
    beating = Beating(stage)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beating.beats.register)
        await passes(0.5)
        key = stage.ask("a:1", "p0", 1)

    assert beating.deadline_s(key) == about(HANDOFF_S)


# --- Beat -----------------------------------------------------------------------------------------------------------


async def test_beat_counts_from_before_it_was_sent() -> None:
    """Rule 1: counting from the answer lets two hosts overlap by one request time."""
    stage = Stage()
    stage.disturb(verb_of(Beat), before_s=0.4, after_s=0.4)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(BEAT_S + 0.79)
        before_s = beating.valid_s
        await beating.until_s(BEAT_S + 0.81)

        assert (before_s, beating.valid_s) == about((VALIDITY_S, BEAT_S + VALIDITY_S))


async def test_beats_come_every_interval_counted_from_their_sending() -> None:
    """A slow store must not stretch the period: others count their patience in whole durations."""
    stage = Stage()
    stage.disturb(verb_of(Beat), before_s=0.4, after_s=0.4)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(4 * BEAT_S - 0.1)

    assert stage.sent_at_s(Beat) == about([beating.began_s + n * BEAT_S for n in (1, 2, 3)])


async def test_beats_are_sequential_and_each_has_a_timeout() -> None:
    """Rule 3: of two beats on their way nobody could say which answer counts."""
    stage = Stage()
    stage.disturb(verb_of(Beat), lose_answer=True)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(VALIDITY_S + 1)

    sent = stage.sent_at_s(Beat)
    assert len(sent) >= 3
    assert all(later - earlier > PACE.call_timeout_s for earlier, later in pairwise(sent))
    assert beating.reasons == [OUTAGE]


async def test_failed_beats_are_tried_again_with_growing_waits_until_the_session_runs_out() -> None:
    """Rule 3: a short fault costs nothing, a long one does not become a storm of calls."""
    stage = Stage()
    stage.disturb(verb_of(Beat), fail_before=True)
    beating = Beating(stage)
    ended: list[float] = []
    async with beating.running():
        await beating.until_s(VALIDITY_S - 0.01)
        assert beating.reasons == []
        await beating.until_s(VALIDITY_S + 0.01)
        ended.append(stage.now_s)

    waits = [later - earlier - LATENCY_S / 2 for earlier, later in pairwise(stage.sent_at_s(Beat))]
    full = [min(PACE.call_timeout_s, PACE.call_timeout_s / 8 * 2**n) for n in range(len(waits))]
    assert beating.reasons == [OUTAGE]
    assert len(waits) >= 4
    assert all(most / 2 <= wait_s <= most + 1e-6 for wait_s, most in zip(waits, full, strict=True))
    failed = stage.events_of(BeatFailed)
    assert [event.attempt for event in failed] == list(range(1, len(waits) + 2))
    assert failed[0] == BeatFailed(
        session_id="a:1",
        error="Beat: a fault on the way",
        attempt=1,
        left_s=about(VALIDITY_S - BEAT_S - LATENCY_S / 2),
    )


async def test_session_ends_in_time_where_its_next_beat_would_come_later() -> None:
    """The end is a moment of its own, whatever the loop is waiting for."""
    stage = Stage()
    beating = Beating(stage, Pace(duration_s=6.0, handoff_s=18.0, beat_interval_s=100.0, call_timeout_s=1.0))
    async with beating.running():
        await beating.until_s(VALIDITY_S + 0.01)

    assert (beating.reasons, stage.sent(Beat)) == ([OUTAGE], [])


async def test_answer_of_an_abandoned_beat_is_ignored() -> None:
    """Rule 3: it was applied, and says nothing of the time between its time-out and its arrival."""
    stage = Stage()
    stage.disturb(verb_of(Beat), after_s=PACE.call_timeout_s + 0.1, times=1)
    stage.disturb(verb_of(Beat), lose_request=True)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(BEAT_S + 2)
        assert beating.valid_s == about(VALIDITY_S)
        await beating.until_s(VALIDITY_S + 0.01)

    assert beating.reasons == [OUTAGE]


async def test_beat_that_is_answered_after_the_end_does_not_bring_the_session_back() -> None:
    """Rule 3: after a suspend the answer lies there, but others may have fenced the session long ago."""
    stage = Stage()
    stage.disturb(verb_of(Beat), after_s=0.5)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(BEAT_S + 0.2)
        before_s = beating.table.valid_until_s
        stage.clock.jump(VALIDITY_S)
        await passes(1)

    assert beating.reasons == ["a beat was answered after its duration had run out"]
    assert beating.table.valid_until_s == before_s
    assert len(stage.sent(Beat)) == 1


async def test_beat_ends_the_session_when_its_item_is_gone_and_never_makes_it_again() -> None:
    """Rules 3 and 4: who was fenced stays dead."""
    stage = Stage()
    beating = Beating(stage)
    async with beating.running():
        await passes(1)
        stage.fence("a:1")
        await passes(10)

    assert beating.reasons == ["its item is gone: another host saw it dead and fenced it"]
    assert (stage.item(), len(stage.sent(Beat))) == (None, 1)


async def test_beats_go_on_when_the_store_is_misconfigured_for_a_moment() -> None:
    """Rights that are being changed must not cost every lease while the session still holds."""
    stage = Stage()
    stage.disturb(verb_of(Beat), raises=StoreMisconfigured("denied"), times=2)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(10)

        assert (beating.reasons, beating.valid_s > 10) == ([], True)


async def test_session_that_ends_because_its_beats_are_denied_says_so() -> None:
    """Who reads why it ended must not look for an outage."""
    stage = Stage()
    error = StoreMisconfigured("UpdateItem is denied; allow it")
    stage.disturb(verb_of(Beat), raises=error)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(VALIDITY_S + 0.01)

    assert beating.reasons == [f"{OUTAGE}: {error}"]
    assert (beating.beats.denied, beating.beats.has_beaten) == (error, False)


async def test_denial_is_forgotten_once_a_beat_is_answered_or_fails_of_something_else() -> None:
    """What passes by itself is no reason to end a host, and the last cause is the one to mend."""
    stage = Stage()
    stage.disturb(verb_of(Beat), raises=StoreMisconfigured("denied"), times=1)
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(4)
        answered = (beating.beats.denied, beating.beats.has_beaten)
        stage.disturb(verb_of(Beat), raises=StoreMisconfigured("denied"), times=1)
        stage.disturb(verb_of(Beat), fail_before=True)
        await beating.until_s(20)

    assert (answered, beating.beats.denied, beating.reasons) == ((None, True), None, [OUTAGE])


async def test_beat_publishes_the_state_of_the_host() -> None:
    """Others plan by it."""
    stage = Stage()
    beating = Beating(stage)
    async with beating.running():
        beating.owned, beating.beats.load = 3, 0.5
        beating.beats.known, beating.beats.draining = Known(count=4, checksum=7), True
        await anyio.sleep(BEAT_S + 0.1)

        assert stage.item() == a_session(
            "a:1",
            duration_s=6.0,
            handoff_s=18.0,
            beat=1,
            owned=3,
            load=0.5,
            known=Known(count=4, checksum=7),
            draining=True,
        )


async def test_answered_beat_is_told_with_its_try() -> None:
    """Latency and retries of the one vital write are the first thing to look at."""
    stage = Stage()
    stage.disturb(verb_of(Beat), fail_before=True, times=1)
    beating = Beating(stage)
    async with beating.running():
        await passes(2 * BEAT_S + 0.5)

    assert stage.events_of(BeatAnswered) == [
        BeatAnswered(session_id="a:1", beat=1, latency_s=about(LATENCY_S), attempt=2),
        BeatAnswered(session_id="a:1", beat=2, latency_s=about(LATENCY_S), attempt=1),
    ]


async def test_beats_of_a_draining_session_come_every_second() -> None:
    """Each beat shows the asks that a drain waits for."""
    stage = Stage()
    beating = Beating(stage)
    async with beating.running():
        await beating.until_s(0.5)
        beating.beats.draining = True
        beating.beats.hurry()
        await beating.until_s(3)

    assert stage.sent_at_s(Beat) == about([beating.began_s + 0.5 + n * DRAIN_BEAT_S for n in range(3)])


async def test_closed_beats_ignore_an_answer_that_is_on_its_way() -> None:
    """Rule 4: leaving ends validity before it is sent; a late answer must not give it back."""
    stage = Stage()
    stage.disturb(verb_of(Beat), after_s=0.5)
    beating = Beating(stage)
    async with beating.running():
        await anyio.sleep(BEAT_S + 0.2)
        beating.beats.close()
        beating.table.close()
        await passes(1)

    assert (beating.reasons, beating.table.valid_until_s) == (["it was ended"], -math.inf)


# --- Asks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "asked_at_s", "dated_s"),
    [
        pytest.param(None, 1.0, 0.0, id="register is the last that did not show it"),
        pytest.param(None, 3.0, 2.0, id="beat is the last that did not show it"),
        pytest.param({"before_s": 0.8}, 2.3, 0.0, id="written before the beat arrived, which shows it"),
        pytest.param({"after_s": 0.8}, 2.3, 2.0, id="written after the beat was applied, which does not show it"),
        pytest.param({"fail_before": True, "times": 3}, 2.5, 0.0, id="beats between failed"),
        pytest.param({"fail_after": True, "times": 3}, 2.5, 0.0, id="beats between were applied, but did not answer"),
        pytest.param({"lose_answer": True, "times": 1}, 2.5, 0.0, id="beat between was applied and abandoned"),
    ],
)
async def test_deadline_of_an_ask_is_dated_from_the_last_successful_beat_that_did_not_show_it(
    fault: dict[str, Any] | None, asked_at_s: float, dated_s: float
) -> None:
    """Rule 10: the ask was written after that beat was applied, so the asker waits longer than this."""
    stage = Stage()
    if fault is not None:
        stage.disturb(verb_of(Beat), **{"times": 1, **fault})
    beating = Beating(stage)
    beating.open = {"p0@1"}
    async with beating.running():
        await beating.until_s(asked_at_s)
        key = stage.ask("a:1", "p0", 1)
        # Before the second beat after it, however the first fares.
        await beating.until_s(4.5)

        assert beating.deadline_s(key) == about(dated_s + HANDOFF_S)
        await beating.until_s(10)
        assert beating.deadline_s(key) == about(dated_s + HANDOFF_S)


async def test_ask_is_passed_on_once_and_after_the_table_holds_its_deadline() -> None:
    """Rule 16: code that was blocked must find the deadline when it looks, not only the news."""
    stage = Stage()
    beating = Beating(stage)
    beating.open = {"p0@1"}
    async with beating.running():
        key = stage.ask("a:1", "p0", 1, by="b:7")
        await passes(5 * BEAT_S)

    assert beating.seen == [(key, "b:7", about(HANDOFF_S), about(BEAT_S + VALIDITY_S))]


async def test_ask_stands_until_its_term_has_ended_and_is_removed_by_the_next_beat() -> None:
    """Rule 11: the asker's claim keeps others from planning the lease for somebody else."""
    stage = Stage()
    beating = Beating(stage)
    beating.open = {"p0@1"}
    async with beating.running():
        key = stage.ask("a:1", "p0", 1)
        await passes(3 * BEAT_S + 0.1)
        while_open = stage.asks()
        beating.open.clear()
        await anyio.sleep(BEAT_S)

        assert (while_open, stage.asks()) == ({key: "b:1"}, {})


async def test_beat_removes_only_asks_that_it_was_shown() -> None:
    """Rule 11: an ask that arrives before a beat does was seen by nobody yet, though its term be over."""
    stage = Stage()
    beating = Beating(stage)
    async with beating.running():
        first = stage.ask("a:1", "p0", 1)
        await anyio.sleep(BEAT_S + 0.1)
        stage.disturb(verb_of(Beat), before_s=0.5, times=1)
        await beating.until_s(2 * BEAT_S + 0.2)
        second = stage.ask("a:1", "p0", 2)
        await beating.until_s(2 * BEAT_S + 0.6)
        after_one = stage.asks()
        await beating.until_s(3 * BEAT_S + 0.1)

        assert [beat.handled for beat in stage.sent(Beat)] == [(), (first,), (second,)]
        assert (after_one, stage.asks()) == ({second: "b:1"}, {})


async def test_beat_that_is_delivered_twice_removes_no_newer_ask() -> None:
    """Rule 11: exact keys, or a duplicate would take away what its sender never saw."""
    stage = Stage()
    beating = Beating(stage)
    beating.open = {"p0@2"}
    async with beating.running():
        stage.ask("a:1", "p0", 1)
        await anyio.sleep(BEAT_S + 0.1)
        stage.disturb(verb_of(Beat), repeat_after_s=1.0, times=1)
        await anyio.sleep(BEAT_S)
        newer = stage.ask("a:1", "p0", 2)
        await passes(1.5)

        assert stage.asks() == {newer: "b:1"}


async def test_ask_is_forgotten_after_its_deadline_when_its_term_is_over() -> None:
    """What is kept for ever would fill the memory of a host that lives for months."""
    stage = Stage()
    beating = Beating(stage)
    async with beating.running():
        key = stage.ask("a:1", "p0", 1)
        await beating.until_s(HANDOFF_S)
        before = beating.table.is_asked(key)
        await beating.until_s(HANDOFF_S + BEAT_S + 0.2)

        assert (before, beating.table.is_asked(key)) == (True, False)


async def test_drain_that_an_operator_asks_for_is_seen_by_the_next_beat() -> None:
    """The operator's word reaches the host by the write that it makes anyway."""
    stage = Stage()
    beating = Beating(stage)
    async with beating.running():
        stage.apply(Drain(session_id="a:1"))
        before = beating.beats.drain_asked.is_set()
        await anyio.sleep(BEAT_S + 0.1)

        assert (before, beating.beats.drain_asked.is_set()) == (False, True)


# --- Leave ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
async def test_leave_returns_true_once_the_item_is_gone(is_there: bool) -> None:
    """Refused means that somebody else has deleted it."""
    stage = Stage()
    beating = Beating(stage)
    assert await beating.beats.register()
    if not is_there:
        stage.fence("a:1")

    assert await beating.beats.leave()

    assert (stage.item(), len(stage.sent(Leave))) == (None, 1)


@pytest.mark.parametrize(("failures", "expected"), [(LEAVES_MAX - 1, True), (LEAVES_MAX, False)])
async def test_leave_is_tried_a_few_times(failures: int, expected: bool) -> None:
    """Who leaves may be killed soon; after that the others fence the session in time."""
    stage = Stage()
    stage.disturb(verb_of(Leave), fail_before=True, times=failures)
    beating = Beating(stage)
    assert await beating.beats.register()

    left = await beating.beats.leave()

    assert (left, stage.item() is None, len(stage.sent(Leave))) == (expected, expected, LEAVES_MAX)


def test_leave_is_sent_wherever_its_caller_is_cancelled() -> None:
    """Without it everybody waits for a whole duration."""
    items: list[SessionItem | None] = []

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(Leave), fail_before=True, times=1)
        beating = Beating(stage)
        assert await beating.beats.register()
        await cut.during(beating.beats.leave)
        items.append(stage.item())

    assert at_every_point(scenario) > 2
    assert set(items) == {None}
