"""
Liveness: what an observer concludes from beats, and never from anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions import clocks, liveness
from partitions.items import SessionItem
from partitions.liveness import (
    CLOCK_DRIFT,
    LiveView,
    Seen,
    expired,
    expires_at_s,
    forget,
    is_silent,
    may_have_died,
    observe,
    observe_one,
)
from tests.builders import a_session

__all__: list[str] = []

D = 10.0
D_OBSERVED = D * (1 + CLOCK_DRIFT)


def seen(beat: int, since_s: float, duration_s: float = D) -> Seen:
    return Seen(beat=beat, duration_s=duration_s, since_s=since_s)


def view(at_s: float, **sessions: Seen) -> LiveView:
    return LiveView(at_s=at_s, seen=sessions)


def test_clock_drift_is_one_number_for_holders_and_observers() -> None:
    """Two numbers would let a holder count longer than its observer waits."""
    assert clocks.CLOCK_DRIFT is liveness.CLOCK_DRIFT


def test_observe_gives_a_newcomer_a_whole_duration() -> None:
    """How old a beat is that was there before the first look, nobody can tell."""
    first = observe(LiveView.empty(), [a_session("a", beat=41)], 100.0)

    assert first == view(100.0, a=seen(41, 100.0))
    assert expired(first, 100.0 + D_OBSERVED - 0.001) == ()


def test_observe_dates_a_change_from_the_answer_that_showed_it() -> None:
    """The time between two looks counts for the session: it may have beaten at any moment of it."""
    later = observe(view(100.0, a=seen(41, 100.0)), [a_session("a", beat=42)], 104.0)

    assert later == view(104.0, a=seen(42, 104.0))


@pytest.mark.parametrize("beat", [41, 40, 0], ids=["the same beat", "the beat before", "the first beat"])
def test_observe_keeps_the_time_when_a_read_shows_no_later_beat(beat: int) -> None:
    """A read may be stale: two replicas that answer in turn must not keep a dead session alive."""
    later = observe(view(100.0, a=seen(41, 100.0)), [a_session("a", beat=beat)], 104.0)

    assert later == view(104.0, a=seen(41, 100.0))


def test_observe_drops_those_gone_and_takes_them_for_newcomers_when_they_return() -> None:
    """A register that arrives late makes a fenced session again, with beat 0: it is a new item, to be fenced anew."""
    without = observe(view(100.0, a=seen(41, 100.0), b=seen(7, 99.0)), [a_session("b", beat=7)], 104.0)
    back = observe(without, [a_session("a", beat=0), a_session("b", beat=7)], 108.0)

    assert without == view(104.0, b=seen(7, 99.0))
    assert back == view(108.0, a=seen(0, 108.0), b=seen(7, 99.0))


def test_observe_takes_each_sessions_own_duration() -> None:
    """Hosts with different settings may share a group, for instance in a rolling change."""
    both = observe(LiveView.empty(), [a_session("a", duration_s=3.0), a_session("b", duration_s=30.0)], 0.0)

    assert {name: expires_at_s(one) for name, one in both.seen.items()} == {
        "a": 3.0 * (1 + CLOCK_DRIFT),
        "b": 30.0 * (1 + CLOCK_DRIFT),
    }


def test_observe_refuses_a_clock_that_runs_backwards() -> None:
    """Mixed up clocks would stretch or shrink a duration unnoticed."""
    refusal = r"now_s=99\.0 is before the last look at 100\.0"

    with pytest.raises(ValueError, match=refusal):
        observe(view(100.0), [a_session("a")], 99.0)
    with pytest.raises(ValueError, match=refusal):
        observe_one(view(100.0), a_session("a"), 99.0)


def test_observe_one_revives_a_session_whose_fence_was_refused() -> None:
    """The answer to the fence shows that it has beaten; the others are left as they were."""
    after = observe_one(view(120.0, a=seen(41, 100.0), b=seen(7, 119.0)), a_session("a", beat=43), 121.0)

    assert after == view(121.0, a=seen(43, 121.0), b=seen(7, 119.0))


def test_observe_one_takes_a_lower_beat_for_a_session_that_was_made_again() -> None:
    """Else it would be fenced on its old beat for ever, always refused, and its leases would stay without a holder."""
    after = observe_one(view(120.0, a=seen(41, 100.0)), a_session("a", beat=0), 121.0)

    assert after == view(121.0, a=seen(0, 121.0))
    assert expired(after, 121.0 + D_OBSERVED) == (("a", 0),)


def test_observe_one_keeps_the_time_when_the_beat_is_the_one_seen() -> None:
    """Looking at a dead session twice must not make it live longer."""
    after = observe_one(view(104.0, a=seen(41, 100.0)), a_session("a", beat=41), 105.0)

    assert after == view(105.0, a=seen(41, 100.0))


def test_observe_one_takes_up_a_session_that_was_not_seen_before() -> None:
    """It is a newcomer like any other."""
    assert observe_one(view(100.0), a_session("a", beat=3), 101.0) == view(101.0, a=seen(3, 101.0))


def test_forget_drops_one_session_and_no_other() -> None:
    """A session whose item was deleted must not be fenced again until the next read shows that it is gone."""
    before = view(100.0, a=seen(41, 80.0), b=seen(7, 99.0))

    assert forget(before, "a") == view(100.0, b=seen(7, 99.0))
    assert forget(before, "c") == before


def test_expired_begins_a_duration_and_the_drift_after_the_last_change() -> None:
    """One moment earlier the session may still be valid on a clock that runs slower by the drift."""
    one = view(100.0, a=seen(41, 100.0))
    end_s = 100.0 + D_OBSERVED

    assert expired(one, math.nextafter(end_s, 0.0)) == ()
    assert expired(one, end_s) == (("a", 41),)


def test_expired_names_the_longest_expired_first_and_never_oneself() -> None:
    """Its leases have waited longest; and a host that is late itself registers anew instead of fencing itself."""
    three = view(100.0, me=seen(1, 1.0), b=seen(2, 80.0), c=seen(3, 70.0), d=seen(4, 99.0))

    assert expired(three, 100.0, besides="me") == (("c", 3), ("b", 2))
    assert expired(three, 100.0) == (("me", 1), ("c", 3), ("b", 2))


def test_session_is_silent_once_it_must_have_missed_a_beat() -> None:
    """Beats come three times in a duration; one that is late by a little is no reason to look more often."""
    session = seen(1, 10.0, duration_s=4.0)

    assert not is_silent(session, 11.9)
    assert is_silent(session, 12.0)


# --- Properties -----------------------------------------------------------------------------------------------------

SKEWED = st.floats(min_value=1 - CLOCK_DRIFT, max_value=1 + CLOCK_DRIFT)
"""Seconds that one host's clock counts in a true second."""


@given(
    beats_s=st.lists(st.floats(min_value=0.0, max_value=8.0), max_size=12),
    delays_s=st.lists(st.floats(min_value=0.0, max_value=5.0), min_size=14, max_size=14),
    looks_s=st.lists(st.floats(min_value=0.0, max_value=4.0), min_size=1, max_size=60),
    holder_rate=SKEWED,
    observer_rate=SKEWED,
)
def test_session_expires_only_after_it_has_ended_on_its_own_clock(
    beats_s: Sequence[float],
    delays_s: Sequence[float],
    looks_s: Sequence[float],
    holder_rate: float,
    observer_rate: float,
) -> None:
    """The reason for observed time: whatever calls take, and however fast each clock runs, the holder ends first."""
    # True times. A beat is sent `pause` after the one before was applied, and applied `delay` after it was sent; the
    # holder is valid for a duration on its own clock from the sending on.
    applied: list[tuple[float, float]] = []
    at_s = 0.0
    for pause_s, delay_s in zip([0.0, *beats_s], delays_s, strict=False):
        sent_s = at_s + pause_s
        at_s = sent_s + delay_s
        applied.append((at_s, sent_s + D * (1 - CLOCK_DRIFT) / holder_rate))

    watched = LiveView.empty()
    now_s = applied[0][0]
    for pause_s in looks_s:
        now_s += pause_s
        beat = sum(1 for applied_s, _ in applied if applied_s <= now_s)
        watched = observe(watched, [a_session("a", beat=beat)], now_s * observer_rate)
        assert expires_at_s(watched.seen["a"]) / observer_rate >= applied[beat - 1][1] - 1e-9


@given(
    reads=st.lists(st.tuples(st.floats(min_value=0.1, max_value=3.0), st.integers(min_value=0, max_value=5))),
    rises=st.integers(min_value=0, max_value=20),
)
def test_observe_lets_a_dead_session_expire_however_stale_the_reads_are(
    reads: Sequence[tuple[float, int]], rises: int
) -> None:
    """After the last beat was seen, reads that lag behind by any number of beats must not prolong its life."""
    last = SessionItem(session_id="a", host_id="a", beat=rises, duration_s=D, handoff_s=D)
    watched = observe(LiveView.empty(), [last], 0.0)
    now_s = 0.0
    for pause_s, behind in reads:
        now_s += pause_s
        watched = observe(watched, [replace(last, beat=max(0, rises - behind))], now_s)

    assert watched.seen == {"a": seen(rises, 0.0)}


@pytest.mark.parametrize(
    ("owner", "expected"),
    [(None, False), ("a:2", False), ("a:1", False), ("a:0", True), ("b:1", True)],
    ids=["released", "this session", "an earlier one of this process", "this host before its start", "another host"],
)
def test_owner_may_have_died_of_a_record_unless_it_released_or_is_this_process(
    owner: str | None, expected: bool
) -> None:
    """A process that asks is alive; of everybody else nobody knows."""
    assert may_have_died(owner, {"a:1", "a:2"}) is expected
