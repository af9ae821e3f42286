"""
Hosts are killed and stopped, with leases in DynamoDB: the bounds are those of the lease file.

The group's ways and the judgements are those of `tests.processes.test_kill`, `test_drain` and `test_flights`.
"""

from __future__ import annotations

import gzip
import statistics
import time
from pathlib import Path

import pytest

from tests.processes.dynamodb.tables import TableGroup
from tests.processes.histories import overlaps, repeats, stale_starts, unhandled
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure
from tests.processes.test_drain import GONE_S, UNOWNED_S, is_all_busy
from tests.processes.test_flights import count
from tests.processes.test_kill import BEAT_S, MEDIAN_S, PARTITIONS, WORST_S, kill, start

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

KILLS = 5
FLIGHTS = 4000


def test_partitions_of_killed_hosts_are_handled_again_within_the_bounds_on_dynamodb(table_group: TableGroup) -> None:
    """Reads of a table cost more than those of a file; the rest after a crash must not grow with them."""
    group = table_group
    group.create(PARTITIONS)
    group.put(2000)
    hosts = [start(group, f"h{number}") for number in range(3)]
    worst: list[float] = []
    for number in range(KILLS):
        group.wait_balanced(hosts)
        # So that the kills come at different moments between two beats.
        time.sleep(BEAT_S * number / KILLS)
        worst.append(kill(group, hosts.pop(0)).worst_s)
        hosts.append(start(group, f"h{number + 3}"))

    median_s = statistics.median(worst)
    shown = ", ".join(f"{each:.2f}" for each in sorted(worst))
    figure(
        f"{KILLS} kills: handled again after {shown} s (bound {WORST_S} s); median {median_s:.2f} s ({MEDIAN_S:.1f} s)"
    )
    assert max(worst) <= WORST_S
    assert median_s <= MEDIAN_S
    assert overlaps(group.intervals()) == []
    assert stale_starts(group.journals.read()) == []


def test_partitions_of_a_stopping_host_rest_for_less_than_a_second_on_dynamodb(table_group: TableGroup) -> None:
    """SIGTERM is every deployment: it must cost neither time nor work."""
    group = table_group
    group.create(PARTITIONS)
    hosts = [start(group, name) for name in "abc"]
    group.wait_balanced(hosts)
    group.put(150)
    group.wait_until("every partition is handled", lambda: is_all_busy(group), 10)

    with group.leases.watch() as timeline:
        told_s = hosts[0].terminate()
        status = hosts[0].wait(3 * GONE_S)
        gone_s = now_s() - told_s
        group.wait_balanced(hosts[1:])
    unowned_s = max(timeline.unowned_s().values())
    group.wait_until("all is handled", lambda: not unhandled(group.journals.read(), group.records), 40, every_s=0.2)

    figure(f"SIGTERM: unowned for {unowned_s:.2f} s at most (bound {UNOWNED_S} s), gone after {gone_s:.2f} s")
    assert status == 0
    assert gone_s <= GONE_S
    assert unowned_s <= UNOWNED_S
    assert repeats(group.journals.read()) == {}
    assert overlaps(group.intervals()) == []
    assert stale_starts(group.journals.read()) == []


def test_flights_are_each_counted_once_when_a_host_is_killed_half_way_on_dynamodb(
    table_group: TableGroup, flights_file: Path
) -> None:
    """Sums, order and repeats, with the checkpoints in a table."""
    some = table_group.folder / "some.jsonl.gz"
    with gzip.open(flights_file) as lines, gzip.open(some, "wb") as copy:
        copy.writelines(line for _, line in zip(range(FLIGHTS), lines, strict=False))

    count(table_group, some, FLIGHTS, batch_records_max=10, within_s=60)
