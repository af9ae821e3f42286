"""Enhanced fan-out with real hosts: records are pushed, a host is killed, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.processes.histories import overlaps, stale_starts
from tests.processes.kinesis.judging import lost, out_of_order
from tests.processes.kinesis.streams import StreamGroup
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

RECORDS = 20_000
SHARDS = 4
D_S = 3.0
SUBSCRIBE_AGAIN_S = 5.0
"""A second subscription to a shard is refused for so long, and its first one dies with its host unseen."""


def test_pushed_records_are_all_handled_when_a_host_is_killed(pushed_group: StreamGroup) -> None:
    """Its subscriptions die with it; the next owners subscribe anew, from the last checkpoints."""
    group = pushed_group
    group.query = "&mode=fanout&consumer=billing"
    group.create(SHARDS)
    hosts = [
        group.start(name, "--checkpoint-interval-s", "0.5", lease_duration_s=D_S, record_s=0.001) for name in "abc"
    ]
    group.wait_shared(hosts)
    began_s = now_s()
    group.write([(f"key-{number % 100}", b"x" * 100) for number in range(RECORDS)])
    group.wait_until("a quarter is handled", lambda: len(group.journals.ended()) >= RECORDS / 4, 30, every_s=0.1)

    victim = hosts[0]
    held = group.leases.held_by(victim.name)
    killed_s = victim.kill()
    at_kill = len(group.journals.ended())
    group.wait_until("all records are handled", lambda: done(group) >= RECORDS, 60, every_s=0.2)
    took_s = now_s() - began_s
    for host in hosts[1:]:
        host.terminate()
    statuses = [host.wait(20) for host in hosts[1:]]

    entries = group.journals.read()
    again_s = {
        shard: min(each.at_s - killed_s for each in entries if each.partition == shard and each.token > lease.token)
        for shard, lease in held.items()
    }
    again = len(group.journals.ended()) - RECORDS
    figure(
        f"{RECORDS} pushed records in {took_s:.1f} s, killed at {at_kill}, {again} again; "
        f"the killed host's shards went on after {', '.join(f'{each:.2f}' for each in again_s.values())} s"
    )
    assert held
    assert at_kill < RECORDS / 2
    assert statuses == [0, 0]
    assert max(again_s.values()) <= 2 * D_S + SUBSCRIBE_AGAIN_S
    assert lost(group.written, entries) == []
    assert overlaps(group.intervals()) == []
    assert stale_starts(entries) == []
    assert out_of_order(group.written, entries) == []


def done(group: StreamGroup) -> int:
    return len({(entry.partition, entry.value) for entry in group.journals.ended()})
