"""A host is told to stop: it hands everything over without a rest, and is gone soon."""

from __future__ import annotations

import pytest

from tests.processes.harness import Group
from tests.processes.histories import overlaps, repeats, stale_starts, unhandled
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = 3.0
UNOWNED_S = 1.0
GONE_S = 5.0
PARTITIONS = 12
RECORDS = 120


@pytest.mark.essential
def test_partitions_of_a_stopping_host_rest_for_less_than_a_second_and_nothing_is_repeated(group: Group) -> None:
    """SIGTERM is every deployment: it must cost neither time nor work."""
    group.create(PARTITIONS)
    hosts = [group.start(name, "--batch-records-max", "5", lease_duration_s=D_S, record_s=0.05) for name in "abc"]
    group.wait_balanced(hosts)
    group.put(RECORDS)
    group.wait_until("every partition is handled", lambda: is_all_busy(group), 5)

    with group.leases.watch() as timeline:
        told_s = hosts[0].terminate()
        status = hosts[0].wait(3 * GONE_S)
        gone_s = now_s() - told_s
        group.wait_balanced(hosts[1:])
    unowned_s = max(timeline.unowned_s().values())
    group.wait_until("all is handled", lambda: not unhandled(group.journals.read(), group.records), 30, every_s=0.1)

    figure(f"SIGTERM: unowned for {unowned_s:.2f} s at most (bound {UNOWNED_S} s), gone after {gone_s:.2f} s")
    assert status == 0
    assert gone_s <= GONE_S
    assert unowned_s <= UNOWNED_S
    assert repeats(group.journals.read()) == {}
    assert overlaps(group.intervals()) == []
    assert stale_starts(group.journals.read()) == []


def is_all_busy(group: Group) -> bool:
    return len({each.partition for each in group.journals.started()}) == PARTITIONS
