"""How much a producer of the demo makes."""

from __future__ import annotations

from processor_host.demo.flow import Flow

__all__: list[str] = []


def test_flow_keeps_its_rate_whatever_the_moments_at_which_it_is_asked() -> None:
    """Rounded down each time, a flow of 3 records a second asked ten times a second would be none."""
    flow = Flow(3.0, 100.0)
    total = 0
    for tick in range(1, 101):
        due = flow.due(100.0 + tick / 10)
        flow.made(due)
        total += due

    assert total in (29, 30)


def test_flow_makes_up_for_one_second_at_most_and_keeps_what_was_not_made() -> None:
    """A stream that was busy for a minute is not flooded, and records that were refused are due again."""
    flow = Flow(10.0, 0.0)

    assert (flow.due(60.0), flow.due(60.0)) == (10, 10)
    flow.made(4)
    assert flow.due(60.0) == 6
