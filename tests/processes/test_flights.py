"""
Three processes count real flights, one is killed half-way and another started: the sums are those of the file.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FLIGHTS, FLIGHTS_WHOLE_YEAR
from tests.processes import carriers
from tests.processes.carriers import Sums
from tests.processes.harness import Group, Host, command_line, environment
from tests.processes.histories import order_of
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

PARTITIONS = 16
D_S = 3.0


@pytest.mark.essential
def test_flights_are_each_counted_once_when_a_host_is_killed_half_way(group: Group, flights_file: Path) -> None:
    """The first 27,004 flights, which every clone has."""
    count(group, flights_file, FLIGHTS, batch_records_max=50, within_s=60)


@pytest.mark.whole_year
def test_flights_of_the_whole_year_are_each_counted_once_when_a_host_is_killed_half_way(
    group: Group, whole_year_file: Path
) -> None:
    """All 336,776."""
    count(group, whole_year_file, FLIGHTS_WHOLE_YEAR, batch_records_max=500, within_s=240)


def count(group: Group, file: Path, flights: int, *, batch_records_max: int, within_s: float) -> None:
    """Run the group over the flights and compare; nobody counts by the product's own code but the hosts."""
    stream(group.folder, "create", "local:s.db", "--partitions", str(PARTITIONS))
    group.records = dict.fromkeys((f"p{number}" for number in range(PARTITIONS)), 0)
    hosts = [start(group, name, batch_records_max) for name in "abc"]
    group.wait_balanced(hosts)
    sums = Sums(group.folder / "carriers.db")
    began_s = now_s()
    stream(group.folder, "import", "local:s.db", str(file.resolve()), "--key", "tailnum")

    group.wait_until("half of the flights are counted", lambda: done(sums) >= flights / 2, within_s)
    at_kill = done(sums)
    hosts[0].kill()
    hosts.append(start(group, "d", batch_records_max))
    group.wait_until("all flights are counted", lambda: done(sums) >= flights, within_s, every_s=0.1)
    took_s = now_s() - began_s
    # Both the hosts of the first hour and the one that came later take part in the end.
    group.wait_balanced(hosts[1:])
    for host in hosts[1:]:
        host.terminate()
    assert [host.wait(10) for host in hosts[1:]] == [0, 0, 0]

    handled = rows(sums)
    again = len(handled) - flights
    by_host = Counter(row.host for row in handled)
    figure(f"{flights} flights in {took_s:.1f} s, killed at {at_kill}, {again} handled again, by host {dict(by_host)}")
    assert {carrier: (n, miles) for carrier, n, miles in sums.rows("SELECT * FROM carriers")} == sums_of(file)
    assert at_kill < flights
    assert by_host["a"] > 0
    check_order(handled)
    check_repeats(handled, hosts)
    sums.close()


class Row:
    """One handling of one flight."""

    __slots__ = ("flight", "host", "order", "partition", "token")

    def __init__(self, partition: str, token: int, position: str, flight: int, host: str) -> None:
        self.partition = partition
        self.token = token
        self.order = order_of(position)
        self.flight = flight
        self.host = host


def rows(sums: Sums) -> list[Row]:
    return [
        Row(*values) for values in sums.rows("SELECT partition, token, position, flight, host FROM handled ORDER BY n")
    ]


def done(sums: Sums) -> int:
    ((count,),) = sums.rows("SELECT count(*) FROM done")
    return int(count)


def start(group: Group, name: str, batch_records_max: int) -> Host:
    return group.start(
        name,
        *("--lifespan", "tests.processes.carriers:lifespan", "--checkpoint-interval-s", "0.25"),
        *("--batch-records-max", str(batch_records_max)),
        lease_duration_s=D_S,
        processor="tests.processes.carriers:Carriers",
        log_level="debug",
        env={carriers.FILE: "carriers.db", carriers.PAUSE_S: "0.2"},
    )


def stream(folder: Path, *arguments: str) -> None:
    subprocess.run(
        command_line("stream", *arguments),
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )


def sums_of(file: Path) -> dict[str, tuple[int, int]]:
    """Carrier → flights and miles, straight from the file."""
    flights: Counter[str] = Counter()
    miles: Counter[str] = Counter()
    with gzip.open(file) as lines:
        for line in lines:
            values = json.loads(line)
            flights[values["carrier"]] += 1
            miles[values["carrier"]] += values["distance"]
    return {carrier: (flights[carrier], miles[carrier]) for carrier in flights}


def check_order(handled: list[Row]) -> None:
    """Each term goes on without a gap, after a record that was handled before it; flights come in the file's order."""
    last: dict[str, Row] = {}
    furthest: dict[str, int] = defaultdict(int)
    for row in handled:
        before = last.get(row.partition)
        if before is None or row.token != before.token:
            assert before is None or row.token > before.token, f"{row.partition}: token went back to {row.token}"
            assert row.order <= furthest[row.partition] + 1, f"{row.partition}: {row.order} leaves a gap"
        else:
            assert row.order == before.order + 1, f"{row.partition}: {row.order} after {before.order}"
            assert row.flight > before.flight, f"{row.partition}: flight {row.flight} after {before.flight}"
        last[row.partition] = row
        furthest[row.partition] = max(furthest[row.partition], row.order)


def check_repeats(handled: list[Row], hosts: list[Host]) -> None:
    """No record is handled after a checkpoint at or behind it was known as stored in an older term."""
    stored = list(checkpoints(hosts))
    began: dict[tuple[str, int], int] = {}
    for row in handled:
        began.setdefault((row.partition, row.token), row.order)
    assert stored
    for partition, token, order in stored:
        for (name, later), first in began.items():
            if name == partition and later > token:
                assert first > order, f"{partition}: term {later} began at {first}, term {token} had stored {order}"


def checkpoints(hosts: list[Host]) -> Iterator[tuple[str, int, int]]:
    """Partition, token and position of each checkpoint that a host was told is stored, also with a release."""
    for host in hosts:
        for event in ("checkpoint.saved", "lease.released"):
            for line in host.named(event):
                if "position" in line:
                    yield line["partition"], line["fencing_token"], order_of(line["position"])
