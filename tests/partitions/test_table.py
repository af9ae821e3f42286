"""
The session's table: how long terms may go on, by the session's end and the asks it was shown.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.table import SessionTable
from tests.stage import HandClock

__all__: list[str] = []

KEY = "p0@3"


def closed(partition: str, token: int) -> bool:
    """No term goes on and none is on its way."""
    return False


def opened(partition: str, token: int) -> bool:
    return True


def table_until(valid_until_s: float, clock: HandClock | None = None) -> SessionTable:
    table = SessionTable(clock or HandClock(100.0))
    table.extend(valid_until_s)
    return table


def test_table_holds_nothing_before_the_session_is_registered() -> None:
    """A term cannot go on under a session that nobody else can see."""
    table = SessionTable(HandClock())

    assert (table.is_valid(KEY), table.remaining_s(KEY), table.until_s(KEY)) == (False, 0.0, -math.inf)


@pytest.mark.parametrize(
    ("now_s", "valid", "remaining_s"), [(100.0, True, 10.0), (110.0, False, 0.0), (111.0, False, 0.0)]
)
def test_table_ends_every_term_at_the_sessions_end(now_s: float, valid: bool, remaining_s: float) -> None:
    """Rule 5: now < valid_until; at that very moment another host may fence the session."""
    table = table_until(110.0, HandClock(now_s))

    assert (table.is_valid(KEY), table.remaining_s(KEY), table.until_s(KEY)) == (valid, remaining_s, 110.0)


@pytest.mark.parametrize(("now_s", "valid", "remaining_s"), [(100.0, True, 5.0), (105.0, False, 0.0)])
def test_table_ends_an_asked_term_at_the_deadline_of_its_ask(now_s: float, valid: bool, remaining_s: float) -> None:
    """Rule 10: the asker takes the lease by force after that, whether or not the session lives on."""
    table = table_until(110.0, HandClock(now_s))
    table.show({KEY: "b:1"}, 105.0)

    assert (table.is_valid(KEY), table.remaining_s(KEY), table.until_s(KEY)) == (valid, remaining_s, 105.0)


def test_table_ends_an_asked_term_with_its_session_where_that_comes_first() -> None:
    """A far deadline does not keep a term alive."""
    table = table_until(110.0)
    table.show({KEY: "b:1"}, 130.0)

    assert (table.until_s(KEY), table.ask_deadline_s(KEY)) == (110.0, 130.0)


@pytest.mark.parametrize("other", ["p0@2", "p0@4", "p1@3"])
def test_table_applies_a_deadline_to_no_other_term(other: str) -> None:
    """Rule 11: the key carries the token, so that an ask never means a later term."""
    table = table_until(110.0)
    table.show({KEY: "b:1"}, 105.0)

    assert (table.until_s(other), table.ask_deadline_s(other), table.is_asked(other)) == (110.0, math.inf, False)


def test_show_returns_what_is_new_and_keeps_the_deadline_of_what_is_not() -> None:
    """Every beat's answer shows all asks again; a deadline that moved with it would never come."""
    table = table_until(110.0)

    first = table.show({KEY: "b:1"}, 105.0)
    second = table.show({KEY: "c:1", "p1@1": ""}, 120.0)

    assert (first, second) == ((KEY,), ("p1@1",))
    assert (table.ask_deadline_s(KEY), table.ask_deadline_s("p1@1")) == (105.0, 120.0)


def test_handled_names_what_stands_and_whose_term_is_over() -> None:
    """Rule 11: only asks that were shown, and only once the term they name can no longer begin."""
    table = table_until(110.0)
    table.show({"p0@3": "b:1", "p1@1": "b:1"}, 105.0)

    assert table.handled(lambda partition, token: (partition, token) == ("p0", 3)) == ("p1@1",)
    assert table.handled(closed) == ("p0@3", "p1@1")
    assert table.handled(opened) == ()


def test_handled_leaves_out_what_no_longer_stands() -> None:
    """A key that a beat has removed already must not be removed again: by then it could be a newer ask."""
    table = table_until(110.0)
    table.show({KEY: "b:1"}, 105.0)
    table.show({}, 120.0)

    assert table.handled(closed) == ()


def test_handled_clears_a_key_that_names_no_term() -> None:
    """Something that another program wrote would otherwise stand until the session ends."""
    table = table_until(110.0)
    table.show({"nonsense": "b:1"}, 105.0)

    assert table.handled(opened) == ("nonsense",)


@pytest.mark.parametrize(
    ("stands", "now_s", "is_open", "kept"),
    [
        (False, 105.0, False, False),
        (True, 105.0, False, True),
        (False, 104.9, False, True),
        (False, 105.0, True, True),
    ],
)
def test_forget_drops_an_ask_only_once_it_can_mean_nothing_any_more(
    stands: bool, now_s: float, is_open: bool, kept: bool
) -> None:
    """Rule 10: the answer of an acquire may still bring the term that an ask of long ago names."""
    clock = HandClock(100.0)
    table = table_until(110.0, clock)
    table.show({KEY: "b:1"}, 105.0)
    table.show({KEY: "b:1"} if stands else {}, 120.0)
    clock.at_s = now_s

    table.forget(opened if is_open else closed)

    assert (table.is_asked(KEY), table.ask_deadline_s(KEY)) == (kept, 105.0 if kept else math.inf)


def test_close_ends_every_term() -> None:
    """Losing a session is final, whatever its last beat had allowed."""
    table = table_until(110.0)

    table.close()

    assert (table.is_valid(KEY), table.until_s(KEY)) == (False, -math.inf)


keys = st.frozensets(st.sampled_from(["p0@1", "p0@2", "p1@1", "nonsense"]))


@given(st.frozensets(st.sampled_from(["p0@1", "p1@1"])), st.lists(st.tuples(st.floats(0, 50), keys), max_size=20))
def test_deadline_of_a_term_that_goes_on_never_moves_later(
    going_on: frozenset[str], answers: list[tuple[float, frozenset[str]]]
) -> None:
    """Whatever asks come and go in the answers, nothing gives time back to a term that was asked for."""
    clock = HandClock(0.0)
    table = table_until(math.inf, clock)
    expected: dict[str, float] = {}
    for wait_s, asks in answers:
        clock.at_s += wait_s
        deadline_s = clock.at_s + 30.0
        expected = dict.fromkeys(asks & going_on, deadline_s) | expected

        table.show(dict.fromkeys(asks, "b:1"), deadline_s)
        table.forget(lambda partition, token: f"{partition}@{token}" in going_on)

        assert {key: table.until_s(key) for key in expected} == expected
