"""
When a host counts as sick, and when it gives everything away for that.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor_host.sickness import Health, Other, should_drain

__all__: list[str] = []

WELL = Other(is_alive=True, is_draining=False, is_sick=False, can_take=True)
SICK_AFTER_S = 60.0


def test_host_is_sick_once_everything_has_failed_for_long_enough() -> None:
    """Counted from the moment at which the last of its partitions began to fail."""
    health = Health().failed("p0", 100.0).failed("p1", 130.0).failed("p1", 150.0)

    assert [health.is_sick(now_s, SICK_AFTER_S) for now_s in (160.0, 189.9, 190.0)] == [False, False, True]


def test_host_with_one_partition_that_is_well_is_not_sick() -> None:
    """Then the record is bad, not the host; another host would fail at it too."""
    health = Health().failed("p0", 100.0).succeeded("p1").succeeded("p1")

    assert (health.sick_since_s(), health.is_sick(1e9, SICK_AFTER_S)) == (None, False)


def test_success_starts_the_count_anew() -> None:
    """A database that flaps is not one that is away."""
    health = Health().failed("p0", 100.0).succeeded("p0").failed("p0", 200.0)

    assert health.sick_since_s() == 200.0


def test_partition_that_left_says_nothing() -> None:
    """Neither as the one that failed nor as the one that was well; and a host that was handed nothing is not sick."""
    health = Health().failed("p0", 100.0).succeeded("p1")

    assert [health.gone("p1").sick_since_s(), health.gone("p0").sick_since_s()] == [100.0, None]
    assert Health().is_sick(1e9, 0.0) is False


@pytest.mark.parametrize(
    ("told_beats", "others", "drains"),
    [
        (2, [WELL], True),
        (1, [WELL], False),
        (0, [WELL], False),
        (9, [], False),
        (9, [Other(is_alive=False, is_draining=False, is_sick=False, can_take=True)], False),
        (9, [Other(is_alive=True, is_draining=True, is_sick=False, can_take=True)], False),
        (9, [Other(is_alive=True, is_draining=False, is_sick=True, can_take=True)], False),
        (9, [Other(is_alive=True, is_draining=False, is_sick=False, can_take=False)], False),
        (9, [Other(is_alive=True, is_draining=False, is_sick=True, can_take=True), WELL], True),
    ],
)
def test_host_drains_only_where_some_other_one_could_do_better(
    told_beats: int, others: list[Other], drains: bool
) -> None:
    """Where all are sick the cause is elsewhere, and passing partitions round would help nobody."""
    assert should_drain(told_beats=told_beats, others=others) is drains


@given(hosts=st.integers(2, 6), apart=st.lists(st.integers(0, 1), min_size=6, max_size=6))
def test_hosts_that_fall_sick_within_a_beat_of_each_other_all_stay(hosts: int, apart: list[int]) -> None:
    """Each tells the others with its next beat; nobody drains before it has seen what they told."""
    for beat in range(8):
        told = [max(0, beat - apart[host]) for host in range(hosts)]
        for host in range(hosts):
            others = [
                Other(is_alive=True, is_draining=False, is_sick=told[other] > 0, can_take=True)
                for other in range(hosts)
                if other != host
            ]
            assert not should_drain(told_beats=told[host], others=others)


@given(
    events=st.lists(
        st.tuples(st.sampled_from(["p0", "p1", "p2"]), st.sampled_from(["failed", "succeeded", "gone"])), max_size=30
    )
)
def test_sick_since_is_what_the_history_says(events: list[tuple[str, str]]) -> None:
    """Against a look at the whole history: the latest beginning of a row of failures, if all end in failures."""
    health = Health()
    history: dict[str, list[tuple[float, str]]] = {}
    for now_s, (partition, what) in enumerate(events):
        if what == "failed":
            health = health.failed(partition, float(now_s))
        elif what == "succeeded":
            health = health.succeeded(partition)
        else:
            health = health.gone(partition)
        if what == "gone":
            history.pop(partition, None)
        else:
            history.setdefault(partition, []).append((float(now_s), what))

    begins: list[float | None] = []
    for each in history.values():
        row = [at_s for at_s, what in each[len(each) - _tail(each) :]]
        begins.append(row[0] if row else None)
    known = [begin for begin in begins if begin is not None]
    assert health.sick_since_s() == (max(known) if known and len(known) == len(begins) else None)


def _tail(history: list[tuple[float, str]]) -> int:
    """How many failures the history ends with."""
    count = 0
    for _, what in reversed(history):
        if what != "failed":
            break
        count += 1
    return count
