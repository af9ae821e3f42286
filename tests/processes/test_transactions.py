"""
Users' transactions in real processes: hosts are killed in the middle, again and again, and the sums are exact.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from tests.processes.harness import Group, Host
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = 2.0
PARTITIONS = 6
RECORDS = 600
KILLS = 4


def start(group: Group, name: str) -> Host:
    return group.start(
        name, "--batch-records-max", "10", lease_duration_s=D_S, processor="tests.processes.summing:Summing"
    )


def sums(group: Group) -> dict[str, int]:
    with closing(sqlite3.connect(group.folder / "leases.db")) as file:
        try:
            return dict(file.execute("SELECT partition, n FROM sums").fetchall())
        except sqlite3.OperationalError:
            # The first transaction makes the table.
            return {}


def runs(group: Group) -> list[str]:
    return [line for file in group.folder.glob("runs-*") for line in file.read_text().splitlines()]


def test_sums_are_exact_although_hosts_are_killed_in_the_middle(group: Group) -> None:
    """kill -9 strikes before, in and after transactions; what runs again writes nothing a second time."""
    names = group.create(PARTITIONS)
    group.put(RECORDS)
    hosts = [start(group, name) for name in ("h0", "h1")]
    for number in range(KILLS):
        # A victim that is at work: it has handled something, and something of its own is left.
        victim = hosts.pop(0)
        group.wait_until("the victim works", lambda v=victim: list(group.folder.glob(f"runs-{v.pid}")), 30)  # type: ignore[misc]
        time.sleep(0.1 * number)
        victim.kill()
        hosts.append(start(group, f"h{number + 2}"))

    done = dict.fromkeys(names, RECORDS)
    group.wait_until("every record is counted", lambda: sum(sums(group).values()) >= PARTITIONS * RECORDS, 120)

    handled = runs(group)
    with closing(sqlite3.connect(group.folder / "leases.db")) as file:
        counts = file.execute("SELECT count(*), count(DISTINCT partition || '/' || position) FROM counts").fetchone()
    figure(f"{KILLS} kills: {len(handled) - len(set(handled))} of {len(handled)} runs of a record were repeats")
    assert (sums(group), counts) == (done, (PARTITIONS * RECORDS, PARTITIONS * RECORDS))
    # Else the kills hit nothing, and the sums show nothing.
    assert len(handled) > len(set(handled)) == PARTITIONS * RECORDS
