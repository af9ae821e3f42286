"""Deployments and restarts of real hosts: how many partitions move, how long they rest, and who gets them back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.processes.harness import Group, Host, at_s
from tests.processes.histories import overlaps, repeats, stale_starts, unhandled
from tests.processes.lease_file import Held
from tests.processes.scaling import FACTOR, figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = 6.0
LOOK_S = 1.0
"""Between beats, and between looks at the group: the time of a roll hangs on this, and nothing on the duration."""
RESTART_D_S = 3.0
UNOWNED_S = 1.0
HOSTS, PARTITIONS = (5, 100) if FACTOR == 1.0 else (3, 24)
ROLL_S_MAX = 30.0 * HOSTS
RECORD_S = 0.2


def start(group: Group, name: str, *flags: str) -> Host:
    flags = ("--beat-interval-s", repr(LOOK_S), "--balance-interval-s", repr(LOOK_S), *flags)
    return group.start(name, "--batch-records-max", "2", *flags, lease_duration_s=D_S, record_s=RECORD_S)


def test_roll_with_a_surge_of_one_moves_each_partition_once_and_none_rests_or_is_repeated(any_group: Group) -> None:
    """Every deployment does it to every host: the empty newcomer is the fair heir of all that the leaving one has."""
    group = any_group
    group.create(PARTITIONS)
    group.put(int(ROLL_S_MAX / RECORD_S))
    # Those that are to leave came without a delay, so that the test need not wait for it before they share evenly.
    old = [start(group, f"old{number}") for number in range(HOSTS)]
    group.wait_balanced(old)
    group.wait_until("all are at work", lambda: len(at_work(group)) == PARTITIONS, group.ready_s)
    before = group.leases.held()
    new, statuses = [], []
    for number, leaving in enumerate(old):
        new.append(start(group, f"new{number}", "--steal-delay-s", "60"))
        group.wait_ready(new[-1])
        leaving.terminate()
        statuses.append(leaving.wait(20))
    # The last one may be gone a moment before the last of its partitions is acquired.
    group.wait_balanced(new)
    after = group.leases.held()
    for host in new:
        host.terminate()
    statuses += [host.wait(20) for host in new]

    moves = {name: held.token - before[name].token for name, held in after.items()}
    rests_s = rests(group.hosts, before)
    figure(f"{HOSTS} hosts replaced: {sum(moves.values())} moves of {PARTITIONS} partitions")
    figure(f"unowned for {max(rests_s.values()):.2f} s at most (bound {UNOWNED_S} s)")
    assert statuses == [0] * 2 * HOSTS
    assert moves == dict.fromkeys(before, 1)
    assert {held.host for held in after.values()} == {host.name for host in new}
    assert max(rests_s.values()) <= UNOWNED_S
    entries = group.journals.read()
    assert repeats(entries) == {}
    assert unhandled(entries, {name: int(item.position) for name, item in group.leases.leases().items()}) == []
    assert overlaps(group.intervals()) == []
    assert stale_starts(entries) == []


def rests(hosts: Sequence[Host], since: Mapping[str, Held]) -> dict[str, float]:
    """Partition → from when the owner that it had sent its release until the next one had acquired it."""
    released = {
        term_of(line): at_s(line) - line["duration_s"] for host in hosts for line in host.named("lease.released")
    }
    acquired = {term_of(line): at_s(line) for host in hosts for line in host.named("lease.acquired")}
    return {name: acquired[name, held.token + 1] - released[name, held.token] for name, held in since.items()}


def term_of(line: Mapping[str, Any]) -> tuple[str, int]:
    return line["partition"], line["fencing_token"]


def at_work(group: Group) -> set[str]:
    return {each.partition for each in group.journals.ended()}


def test_hosts_that_crashed_get_their_own_partitions_back_when_they_are_started_again_in_time(any_group: Group) -> None:
    """They find their caches and files, within the grace that the other one keeps; nothing else moves."""
    group = any_group
    group.create(12)
    crashed = start_with_grace(group, "a", "b")
    group.wait_balanced([*crashed, *start_with_grace(group, "c")])
    before = owners(group)
    for host in crashed:
        host.kill()
    group.wait_until("both are fenced", lambda: len(group.leases.sessions()) == 1, 4 * RESTART_D_S)
    # Without the grace they are taken in the round that fences them.
    time.sleep(RESTART_D_S / 3)
    meanwhile = owners(group)
    again = start_with_grace(group, "a", "b")
    group.wait_until("each has a share again", lambda: all(acquired(host) == 4 for host in again), 40)

    assert meanwhile == {name: (host if host == "c" else None, token) for name, (host, token) in before.items()}
    assert owners(group) == {name: (host, token + (host != "c")) for name, (host, token) in before.items()}


def start_with_grace(group: Group, *names: str) -> list[Host]:
    return [group.start(name, "--rejoin-grace-s", "60", lease_duration_s=RESTART_D_S) for name in names]


def owners(group: Group) -> dict[str, tuple[str | None, int]]:
    """Partition → the host that has it, and its token."""
    return {name: (held.host, held.token) for name, held in group.leases.held().items()}


def acquired(host: Host) -> int:
    return len(host.named("lease.acquired"))
