"""Many writers on one lease file."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.processes import journal
from tests.processes.dynamodb.tables import repeated
from tests.processes.harness import Group, Host
from tests.processes.histories import order_of, overlaps, repeats
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

PARTITIONS = 40
RUN_S = repeated(60.0, 15.0)
SAVE_S = 0.25
SETTLE_S = 20.0


def test_c57_four_processes_on_one_file_lose_no_lease_and_store_every_checkpoint(group: Group) -> None:
    """160 checkpoints a second beside the beats, unscaled: nobody may stumble over another one's lock."""
    group.create(PARTITIONS)
    # Before the first host starts: appending so much keeps a slow disk busy for a moment.
    group.put(int((RUN_S + SETTLE_S) / SAVE_S))
    # A record each SAVE_S, and a checkpoint asked for after each. Small batches, so that the stop is short.
    flags, env = ("--batch-records-max", "10"), {journal.SAVES: "each"}
    hosts = [
        group.start(name, *flags, lease_duration_s=3.0, record_s=SAVE_S, log_level="debug", env=env) for name in "abcd"
    ]
    group.wait_balanced(hosts, within_s=SETTLE_S)
    time.sleep(RUN_S)
    for host in hosts:
        host.terminate()
    statuses = [host.wait(15) for host in hosts]

    lines = [line for host in hosts for line in host.lines()]
    events = Counter(line["event"] for line in lines)
    saved = events["checkpoint.saved"]
    slowest_s = max(line["duration_s"] for line in lines if line["event"] == "checkpoint.saved")
    figure(f"{saved} checkpoints in {RUN_S:.0f} s by {len(hosts)} processes, the slowest {slowest_s} s")
    stumbles = {name: events[name] for name in ("checkpoint.failed", "beat.failed", "balance.failed", "release.failed")}
    figure(f"calls that stumbled and were tried again: {stumbles}")
    assert saved > PARTITIONS * RUN_S / SAVE_S * 0.8
    assert sum(stumbles.values()) <= saved / 100
    assert statuses == [0] * 4
    assert [line for line in lines if line["event"] == "session.ended" and line["lost"]] == []
    assert [line for line in lines if line["event"] == "lease.ended" and line["reason"] != "released"] == []
    assert events["session.began"] == 4
    assert [line for line in lines if line["level"] == "error" or "exception" in line] == []
    assert events["checkpoint.refused"] == 0
    check_last_checkpoints(group, hosts)
    assert repeats(group.journals.read()) == {}
    assert overlaps(group.intervals()) == []


def check_last_checkpoints(group: Group, hosts: list[Host]) -> None:
    """The stored positions are the last records done, and the last that each host was told is stored."""
    done: dict[str, int] = {}
    for entry in group.journals.ended():
        done[entry.partition] = order_of(entry.value)
    told: dict[str, int] = {}
    for host in hosts:
        for line in host.lines():
            if line["event"] in ("checkpoint.saved", "lease.released") and "position" in line:
                told[line["partition"]] = max(told.get(line["partition"], 0), order_of(line["position"]))
    leases = group.leases.leases()
    stored = {name: order_of(item.position) for name, item in leases.items()}
    assert stored == done
    assert stored == told
    assert [item.owner for item in leases.values()] == [None] * PARTITIONS
