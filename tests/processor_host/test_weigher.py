"""The weight of a partition: a moving average of a rate."""

from __future__ import annotations

import math

import pytest

from processor_host.weigher import BYTES, LEAST, MEMORY_S, Scales, Weigher

__all__: list[str] = []


def weighed(weigher: Weigher, rates: list[float], *, every_s: float = 5.0, from_s: float = 100.0) -> float:
    """Add up each rate for a while and return the last average."""
    weight = 0.0
    for n, rate in enumerate(rates, 1):
        weigher.add(rate * every_s)
        weight = weigher.weight(from_s + n * every_s)
    return weight


def test_weight_of_a_steady_rate_is_that_rate_from_the_first_checkpoint_on() -> None:
    """A partition must not seem light because it has just been found."""
    assert weighed(Weigher(0.0, 100.0), [10.0]) == pytest.approx(10.0)
    assert weighed(Weigher(0.0, 100.0), [10.0] * 100) == pytest.approx(10.0)


def test_weight_is_the_plain_mean_until_it_was_measured_for_longer_than_its_memory() -> None:
    """A first second that was idle, or a burst, must not count for minutes."""
    assert weighed(Weigher(0.0, 100.0), [0.0, 30.0, 0.0, 10.0]) == pytest.approx(10.0)


def test_weight_goes_on_from_that_of_the_last_owner() -> None:
    """A hand-over must not make a partition look new."""
    weight = weighed(Weigher(100.0, 100.0), [0.0], every_s=MEMORY_S)

    assert weight == pytest.approx(100.0 / math.e)


def test_weight_does_not_depend_on_how_often_it_is_published() -> None:
    """Hosts checkpoint at different intervals; what a partition weighs is a matter of its load alone."""
    seldom = weighed(Weigher(50.0, 100.0), [10.0] * 4, every_s=20.0)
    often = weighed(Weigher(50.0, 100.0), [10.0] * 80, every_s=1.0)

    assert often == pytest.approx(seldom)


def test_weight_hardly_moves_in_a_burst_of_some_seconds() -> None:
    """Ten seconds at five times the load raise it by a third."""
    weight = weighed(Weigher(10.0, 100.0), [50.0], every_s=10.0)

    assert 13.0 < weight < 13.5


def test_idle_partition_has_a_weight() -> None:
    """0 means that nobody has measured it, and would count as the average."""
    assert weighed(Weigher(0.0, 100.0), [0.0]) == LEAST


@pytest.mark.parametrize("stored", [0.0, -1.0, math.nan, math.inf])
def test_weight_is_0_as_long_as_nothing_was_measured(stored: float) -> None:
    """A checkpoint in the moment a term begins says nothing; what is stored may be nonsense."""
    assert Weigher(stored, 100.0).weight(100.0) == 0.0


def test_weight_stays_when_no_time_has_passed() -> None:
    """Two checkpoints in one moment, as at a stop; what came in between counts for the next one."""
    weigher = Weigher(0.0, 100.0)
    weigher.add(50.0)
    first = weigher.weight(105.0)
    weigher.add(50.0)

    assert (first, weigher.weight(105.0)) == (10.0, 10.0)
    assert weigher.weight(110.0) == pytest.approx(10.0)


def test_scales_weigh_nothing_in_a_group_that_does_not() -> None:
    """In count mode no checkpoint carries a weight."""
    assert Scales().begin("p", 1.0, 0.0, is_held=lambda: True) is None


def test_scales_add_up_what_is_held() -> None:
    """The load that a host publishes; a partition that has gone counts elsewhere."""
    scales = Scales()
    scales.weighed_by = BYTES
    held = {"p", "q"}
    for name in ("p", "q"):
        weigher = scales.begin(name, 0.0, 0.0, is_held=lambda name=name: name in held)  # type: ignore[misc]
        assert weigher is not None
        weigher.add(100.0)

    assert scales.total(10.0) == pytest.approx(20.0)
    held.remove("p")
    assert scales.total(10.0) == pytest.approx(10.0)
