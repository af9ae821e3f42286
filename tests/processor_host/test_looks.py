"""When a host looks at its group again: usually after an interval, and more often while somebody may be fenced soon."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from partitions.liveness import CLOCK_DRIFT, LiveView, Seen, expires_at_s
from processor_host.looks import MANY, next_look_s

__all__: list[str] = []

D = 3.0
INTERVAL_S = 1.0
NOW_S = 100.0
TOOK_S = 0.1
"""The last look."""


def beaten(before_s: float, *, duration_s: float = D) -> Seen:
    """A session that was seen to beat so long ago."""
    return Seen(beat=7, duration_s=duration_s, since_s=NOW_S - before_s)


def pause_s(*others: Seen, took_s: float = TOOK_S, mine: Seen | None = None, answered_before_s: float = 0.0) -> float:
    """How long a host waits now, whose last answer came so long ago."""
    seen = {"me": mine or beaten(0.0)} | {f"other {n}": each for n, each in enumerate(others)}
    view = LiveView(at_s=NOW_S - answered_before_s, seen=MappingProxyType(seen))
    return next_look_s(view, began_s=NOW_S - took_s, now_s=NOW_S, interval_s=INTERVAL_S, besides="me") - NOW_S


def test_host_looks_after_an_interval_while_all_beat() -> None:
    """Counted between the beginnings: a look that takes long must not make the next one late."""
    assert pause_s() == pytest.approx(INTERVAL_S - TOOK_S)
    assert pause_s(beaten(0.0), beaten(1.3)) == pytest.approx(INTERVAL_S - TOOK_S)


def test_host_looks_at_the_moment_from_which_it_may_fence() -> None:
    """Whoever sleeps longer fences late; of several the first counts, and one that is due already does not."""
    soon = beaten(D - 0.1)

    assert pause_s(beaten(1.0), soon) == pytest.approx(expires_at_s(soon) - NOW_S)
    assert pause_s(beaten(2 * D), soon) == pytest.approx(expires_at_s(soon) - NOW_S)


def test_host_looks_at_once_at_what_came_due_since_the_answer_of_the_last_look() -> None:
    """At the answer it might not be fenced yet; a whole interval more would be lost."""
    due = beaten(D * (1 + CLOCK_DRIFT) + 0.01)

    assert pause_s(due, answered_before_s=0.05) <= 0
    assert pause_s(due, answered_before_s=0.0) == pytest.approx(INTERVAL_S - TOOK_S)


def test_store_that_fails_is_not_asked_at_once_whatever_came_due() -> None:
    """No answer came since the look began: the next one is as far away as after any other round."""
    due = beaten(D * (1 + CLOCK_DRIFT) + 0.01)

    assert pause_s(due, answered_before_s=TOOK_S + 1.0) == pytest.approx(INTERVAL_S - TOOK_S)


def test_host_looks_four_times_as_often_while_another_is_silent() -> None:
    """Somebody who saw the last beat earlier fences earlier, and what falls to this host is then free."""
    assert pause_s(beaten(0.0), beaten(D / 2)) == pytest.approx(INTERVAL_S / 4)


def test_host_that_is_silent_itself_changes_nothing() -> None:
    """One's own item may be read a beat late; and one's own session ends by the clock, not by a look."""
    assert pause_s(beaten(0.0), mine=beaten(D / 2)) == pytest.approx(INTERVAL_S - TOOK_S)


def test_session_that_cannot_be_fenced_costs_no_more_looks() -> None:
    """A store that refuses fences, or does not answer, is not helped by being asked more often."""
    assert pause_s(beaten(2 * D)) == pytest.approx(INTERVAL_S - TOOK_S)


def test_slow_store_is_not_asked_without_a_pause() -> None:
    """A look that took half an interval is followed by the pause all the same, but by no longer one than usual."""
    assert pause_s(beaten(D / 2), took_s=0.5) == pytest.approx(INTERVAL_S / 4)
    assert pause_s(beaten(D / 2), took_s=0.9) == pytest.approx(INTERVAL_S - 0.9)


@pytest.mark.parametrize(("others", "share"), [(25, 0.25), (50, 0.5), (MANY, 1.0), (3 * MANY, 1.0)])
def test_looks_of_many_hosts_become_no_more_frequent_than_one_key_can_bear(others: int, share: float) -> None:
    """Hosts times sessions is what a look of all costs."""
    seen = [beaten(D / 2), *(beaten(0.0) for _ in range(others - 1))]

    assert pause_s(*seen, took_s=0.0) == pytest.approx(share * INTERVAL_S)
