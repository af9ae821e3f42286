"""A group that starts at the newest record keeps to the moment at which it started."""

from __future__ import annotations

import pytest

from tests.processes.harness import Group
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes


def test_latest_is_resolved_once_and_survives_a_kill_before_the_first_checkpoint(group: Group) -> None:
    """Resolved again at the next start it would skip what was written in between."""
    group.create(4)
    group.put(10)
    first = group.start("a", "--start", "latest", lease_duration_s=2.0)
    group.wait_until("every processor is open", lambda: len(group.journals.read()) == 4, 15)
    first.kill()
    assert group.journals.ended() == []
    group.put(25)
    group.start("b", "--start", "latest", lease_duration_s=2.0)
    group.wait_until("100 records are handled", lambda: len(group.journals.ended()) >= 100, 20)
    group.put(1)
    group.wait_until("the last records are handled", lambda: len(group.journals.ended()) >= 104, 10)

    handled = sorted((each.partition, int(each.value)) for each in group.journals.ended())
    figure(f"{len(handled) - 4} records that were written between the kill and the restart were handled")
    assert handled == [(f"p{number}", position) for number in range(4) for position in range(11, 37)]
