"""
When all leases are read: for each sign that they have changed, and ever less often for one that a read does not mend.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.items import Known
from processor_host.reads import (
    ODD_ROUNDS,
    Evidence,
    ReadState,
    due,
    is_news,
    note_round,
    read_done,
    signature_of,
)
from tests.builders import a_lease, a_session

__all__: list[str] = []

INTERVAL_S = 2.0
AUDIT_S = 60.0
KNOWN, OTHER = Known(count=4, checksum=9), Known(count=5, checksum=1)
QUIET = Evidence(
    signature=signature_of([a_session("a:1"), a_session("b:1")]),
    is_settled=True,
    planned=4,
    owned=4,
    known=KNOWN,
    others_known=frozenset({KNOWN}),
)
ODD: dict[str, dict[str, Any]] = {
    "steps are left": {"is_settled": False},
    "sums differ": {"owned": 3},
    "others know more": {"others_known": frozenset({KNOWN, OTHER})},
    "loads differ": {"loads_differ": True},
}
"""What a read may fail to mend, by trigger."""


class Reader:
    """One host's rounds, an interval apart; each reads where it is due, and `reads` says when and why."""

    def __init__(self, *, mended: bool = False, read_s: float = 0.0) -> None:
        self.state = ReadState()
        self.now_s = 500.0
        self.reads: list[tuple[float, str]] = []
        self._mended = mended
        self._read_s = read_s

    def round(self, evidence: Evidence, after_read: Evidence | None = None) -> str | None:
        """One round that shows `evidence`, and after a read `after_read`, the same unless told otherwise."""
        self.state = note_round(self.state, evidence)
        reason = due(self.state, evidence, self.now_s, audit_s=AUDIT_S)
        if reason is not None:
            self.reads.append((self.now_s, reason))
            self.state = read_done(
                self.state,
                after_read or evidence,
                self.now_s + self._read_s,
                mended=self._mended,
                interval_s=INTERVAL_S,
                audit_s=AUDIT_S,
            )
        self.now_s += INTERVAL_S
        return reason

    def rounds(self, count: int, evidence: Evidence) -> list[str | None]:
        return [self.round(evidence) for _ in range(count)]


def test_signature_is_what_of_the_sessions_enters_a_plan() -> None:
    """What else moves, as the beat does at every beat, must not make everybody read."""
    session = a_session("a:1", capacity=2.0, max_leases=7)
    signature = signature_of([session])

    assert signature == {("a:1", False, 2.0, 7)}
    same = [replace(session, beat=9), replace(session, owned=3, load=1.0), replace(session, asks={"p@1": "b:1"})]
    assert {signature_of([other]) for other in same} == {signature}
    others = [
        [replace(session, draining=True)],
        [replace(session, drain_asked=True)],
        [replace(session, capacity=1.0)],
        [replace(session, max_leases=None)],
        [session, a_session("b:1")],
        [],
    ]
    assert signature not in {signature_of(other) for other in others}


def test_leases_are_read_first_of_all() -> None:
    """Nothing is known yet."""
    assert due(ReadState(), None, 500.0, audit_s=AUDIT_S) == "first"
    assert due(ReadState(), QUIET, 500.0, audit_s=AUDIT_S) == "first"


def test_leases_are_not_read_while_nothing_changes_but_for_the_audit() -> None:
    """A group at rest costs the same however many partitions it has."""
    reader = Reader()

    reader.rounds(91, QUIET)

    assert reader.reads == [(500.0, "first"), (560.0, "audit"), (620.0, "audit"), (680.0, "audit")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"signature": signature_of([a_session("a:1")])}, "sessions changed"),
        ({"is_settled": False}, "steps are left"),
        ({"others_known": frozenset({OTHER})}, "others know more"),
        ({"loads_differ": True}, "loads differ"),
        ({"others_known": frozenset()}, None),
        ({"known": OTHER, "others_known": frozenset({OTHER})}, None),
        ({"owned": 5, "planned": 5}, None),
    ],
)
def test_leases_are_read_at_the_first_sign_of_a_change(change: dict[str, Any], expected: str | None) -> None:
    """Each sign of DESIGN section 6 alone; a session that publishes no `known` is not compared."""
    reader = Reader()
    reader.round(QUIET)

    assert reader.round(replace(QUIET, **change)) == expected


@pytest.mark.parametrize("owned", [3, 5])
def test_sums_must_differ_for_two_rounds(owned: int) -> None:
    """A session publishes what it took one beat later."""
    reader = Reader()
    reader.round(QUIET)
    odd = replace(QUIET, owned=owned)

    assert reader.rounds(ODD_ROUNDS, odd) == [None, "sums differ"]


def test_sums_that_agree_in_between_begin_anew() -> None:
    """Two moves of one beat each are no standing oddity."""
    reader = Reader()
    reader.round(QUIET)
    odd = replace(QUIET, owned=3)

    assert [reader.round(evidence) for evidence in (odd, QUIET, odd, QUIET, odd)] == [None] * 5


def test_sessions_that_change_again_are_read_again_at_once() -> None:
    """That is always news, and no other trigger's wait holds it up."""
    reader = Reader()
    odd = replace(QUIET, is_settled=False)
    reader.rounds(10, odd)
    signatures = [signature_of([a_session(f"{n}:1")]) for n in range(5)]

    assert [reader.round(replace(odd, signature=each)) for each in signatures] == ["sessions changed"] * 5


@pytest.mark.parametrize("trigger", ODD)
def test_trigger_that_reads_do_not_mend_waits_twice_as_long_each_time_up_to_the_audit(trigger: str) -> None:
    """Something that stays odd must not make every host read for ever."""
    reader = Reader()

    reader.rounds(200, replace(QUIET, **ODD[trigger]))

    times = [at_s for at_s, reason in reader.reads if reason == trigger]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    rising = [gap for gap in gaps if gap < AUDIT_S]
    assert rising == [rising[0] * 2**n for n in range(len(rising))]
    assert set(gaps[len(rising) :]) == {AUDIT_S}
    assert len(gaps) > len(rising) >= 3
    assert rising[0] <= 2 * INTERVAL_S


@pytest.mark.parametrize("trigger", ODD)
def test_trigger_that_reads_mend_step_by_step_is_read_in_every_round(trigger: str) -> None:
    """A hand-over of many leases shows something new at each look, and nobody may sleep over the next step."""
    # A wait that counted from the end of a read would be over just after the next round began.
    reader = Reader(mended=True, read_s=0.3)

    reader.rounds(20, replace(QUIET, **ODD[trigger]))

    times = [at_s for at_s, reason in reader.reads if reason == trigger]
    assert {later - earlier for earlier, later in pairwise(times)} == {INTERVAL_S}


@pytest.mark.parametrize("trigger", ODD)
def test_trigger_that_goes_away_waits_no_longer_when_it_comes_back(trigger: str) -> None:
    """It is another fault then."""
    reader = Reader()
    odd = replace(QUIET, **ODD[trigger])
    reader.rounds(100, odd)
    reader.round(QUIET)

    assert trigger in reader.rounds(ODD_ROUNDS, odd)


def test_trigger_that_a_read_mends_leaves_no_wait() -> None:
    """The read itself may be what makes it go."""
    reader = Reader()
    reader.round(QUIET)
    odd = replace(QUIET, is_settled=False)

    assert [reader.round(odd, QUIET), reader.round(odd, QUIET)] == ["steps are left"] * 2


def test_trigger_is_not_held_up_by_the_wait_of_another() -> None:
    """One stubborn oddity must not hide a new one."""
    reader = Reader()
    stubborn = replace(QUIET, others_known=frozenset({OTHER}))
    reader.rounds(100, stubborn)

    assert reader.round(replace(stubborn, is_settled=False)) == "steps are left"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"position": "10", "seq": 4}, False),
        ({"weight": 0.5}, False),
        ({"owner": None}, True),
        ({"token": 3}, True),
        ({"finished": True}, True),
        ({"paused": True}, True),
    ],
)
def test_news_is_what_a_plan_depends_on(change: dict[str, Any], expected: bool) -> None:
    """Checkpoints move all the time; if they were news, no trigger would ever wait."""
    before = a_lease("p-0", owner="a:1", token=2)

    assert is_news({"p-0": before}, {"p-0": replace(before, **change)}) is expected


def test_news_is_a_lease_that_came_or_went() -> None:
    """A partition more is a partition to own."""
    assert is_news({}, {"p-0": a_lease()})
    assert is_news({"p-0": a_lease()}, {})


evidence = st.builds(
    lambda names, sessions: replace(
        QUIET,
        signature=signature_of([a_session(f"{n}:1") for n in range(sessions)]),
        **{field: value for name in names for field, value in ODD[name].items()},
    ),
    st.sets(st.sampled_from(sorted(ODD))),
    st.integers(1, 2),
)


@given(st.lists(st.tuples(evidence, st.integers(1, 20)), max_size=12), st.booleans())
def test_leases_are_never_older_than_the_audit_whatever_happens(
    phases: list[tuple[Evidence, int]], mended: bool
) -> None:
    """The audit mends what no sign shows; no wait may put it off."""
    reader = Reader(mended=mended)
    reader.round(QUIET)
    for shown, rounds in phases:
        for _ in range(rounds):
            reader.round(shown)

            assert reader.now_s - INTERVAL_S - reader.state.last_s < AUDIT_S


@given(st.sets(st.sampled_from(sorted(ODD)), min_size=1))
def test_reads_that_mend_nothing_become_rare_whatever_stays_odd(names: set[str]) -> None:
    """DESIGN section 6: whichever trigger a full read does not mend waits longer each time."""
    reader = Reader()
    odd = replace(QUIET, **{field: value for name in names for field, value in ODD[name].items()})
    hour = int(3600 / INTERVAL_S)

    reader.rounds(hour, odd)

    # Each trigger doubles its wait from one interval to the audit, and then comes once per audit.
    doublings = math.ceil(math.log2(AUDIT_S / INTERVAL_S)) + 1
    assert len(reader.reads) <= 1 + len(names) * (doublings + 3600 / AUDIT_S)
