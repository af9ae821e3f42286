"""
Splits and merges while records flow, with real hosts: children after their parents, keys in order, nothing lost.
"""

from __future__ import annotations

import time
from collections import Counter
from hashlib import md5
from itertools import chain, cycle, islice
from typing import Any

import pytest

from partitions.positions import END
from tests.processes.harness import Host
from tests.processes.histories import overlaps, stale_starts
from tests.processes.kinesis.judging import begun_below, early_children, lost, order_at, out_of_order
from tests.processes.kinesis.streams import StreamGroup
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

D_S = 3.0
KEYS = [f"key-{number}" for number in range(48)]
ROUNDS = 8
"""Records of each key in each quarter of the run."""
BALANCE_S = 1.0


def is_low(key: str) -> bool:
    """Say whether a key goes to the lower half of the hashes, as Kinesis' documentation says."""
    return int(md5(key.encode(), usedforsecurity=False).hexdigest(), 16) < 1 << 127


LOW, HIGH = (sorted(KEYS, key=lambda key: is_low(key) is not low)[:5] for low in (True, False))
"""Five keys of each half."""


def check_history(group: StreamGroup) -> None:
    """Nothing lost, no two owners, every key in order, children after parents, repeats above the checkpoints alone."""
    entries = group.journals.read()
    assert lost(group.written, entries) == []
    assert overlaps(group.intervals()) == []
    assert stale_starts(entries) == []
    assert out_of_order(group.written, entries) == []
    assert early_children(group.parents, group.intervals()) == []
    assert begun_below(checkpoints(group.hosts), entries) == []


def checkpoints(hosts: list[Host]) -> list[tuple[str, int, int]]:
    """Shard, token and order of each checkpoint that a host was told is stored, also with a release."""
    return [
        (line["partition"], line["fencing_token"], order_at(line["position"]))
        for host in hosts
        for event in ("checkpoint.saved", "lease.released")
        for line in host.named(event)
        if line.get("position")
    ]


def each_key(times: int) -> list[tuple[str, bytes]]:
    """Records of all keys in turn."""
    return [(key, b"record") for _ in range(times) for key in KEYS]


def done(group: StreamGroup) -> int:
    """How many records were handled, each counted once."""
    return len({(entry.partition, entry.value) for entry in group.journals.ended()})


def wait_done(group: StreamGroup, within_s: float) -> None:
    group.wait_until("all records are handled", lambda: done(group) >= len(group.written), within_s, every_s=0.1)


def test_keys_keep_their_order_over_a_split_and_a_merge_when_a_host_is_killed(table_group: StreamGroup) -> None:
    """
    Three hosts, leases in DynamoDB. The owner of the shard that is split is killed before it has come to its end; the
    merge is of shards of different hosts, one of them a child of the split.
    """
    group = table_group
    group.create(3)
    group.write(each_key(ROUNDS))
    hosts = [start(group, name) for name in "abc"]
    group.wait_shared(hosts)
    group.wait_until("every host is at work", lambda: len({each.host for each in group.journals.ended()}) == 3, 15)

    held = group.leases.held()
    parent = group.open_shards()[0]
    victim = next(host for host in hosts if host.name == held[parent].host)
    lost_leases = group.leases.held_by(victim.name)
    # What waits in the parent when it is split takes its owner seconds.
    group.write(each_key(ROUNDS))
    children = group.split(parent)
    killed_s = victim.kill()
    unread = [each for each in lost(group.written, group.journals.read()) if each.shard == parent]
    group.write(each_key(ROUNDS))
    rest = [host for host in hosts if host is not victim]
    first_s = group.wait_until(
        "what the killed host had is handled again", lambda: after(group, lost_leases, killed_s), 4 * D_S
    )
    assert first_s

    group.wait_until("the children are at work", lambda: set(children) <= handled_shards(group), 40)
    group.wait_shared(rest)
    held = group.leases.held()
    pairs = list(zip(shards := group.open_shards(), shards[1:], strict=False))
    merged = next(pair for pair in pairs if len({held[each].host for each in pair}) == 2 and set(pair) & set(children))
    (child,) = group.merge(*merged)
    group.write(each_key(ROUNDS))
    wait_done(group, 60)
    took_s = now_s() - killed_s
    for host in rest:
        host.terminate()
    statuses = [host.wait(20) for host in rest]

    repeats = len(group.journals.ended()) - done(group)
    figure(
        f"{len(group.written)} records of {len(KEYS)} keys; killed with {len(unread)} unread in the split shard; "
        f"handled again after {max(first_s.values()):.2f} s, all after {took_s:.1f} s, {repeats} again; "
        f"merged {' and '.join(merged)} of two hosts"
    )
    assert unread
    assert statuses == [0, 0]
    assert child in handled_shards(group)
    assert {each.key for each in group.written if each.shard == parent} & {
        each.key for each in group.written if each.shard == child
    }
    assert checkpoints(group.hosts)
    check_history(group)


def start(group: StreamGroup, name: str) -> Host:
    # Children are seen long before their parents are done.
    flags = ("--batch-records-max", "10", "--checkpoint-interval-s", "0.5", "--discovery-interval-s", "1")
    return group.start(name, *flags, lease_duration_s=D_S, record_s=0.02, log_level="debug")


def handled_shards(group: StreamGroup) -> set[str]:
    return {entry.partition for entry in group.journals.started()}


def after(group: StreamGroup, held: dict[str, Any], since_s: float) -> dict[str, float] | None:
    """When each of these leases was first handled under a higher token, from `since_s` on; None before all were."""
    first: dict[str, float] = {}
    for entry in group.journals.started():
        if entry.partition in held and entry.token > held[entry.partition].token:
            first.setdefault(entry.partition, entry.at_s - since_s)
    return first if first.keys() == held.keys() else None


def test_c41_children_wait_until_their_parent_is_done(stream_group: StreamGroup) -> None:
    """500 records of 100 ms wait in the parent; its children get 50 each of the same keys, and a host is idle."""
    group = stream_group
    (parent,) = group.create(1)
    group.write(of_both_halves(500))
    flags = ("--discovery-interval-s", "1")
    hosts = [group.start(name, *flags, lease_duration_s=D_S, record_s=scaled(0.1)) for name in "ab"]
    group.wait_until("the parent is at work", group.journals.ended, 20)
    for host in hosts:
        group.wait_ready(host)
    with group.leases.watch() as timeline:
        children = group.split(parent)
        at_split = len(group.journals.ended())
        group.write(of_both_halves(100))
        wait_done(group, scaled(50.0) + 30)
    for host in hosts:
        host.terminate()
    statuses = [host.wait(20) for host in hosts]

    begun_before_the_end = [
        sample
        for sample in timeline.samples
        if any(child in sample.leases and sample.leases[child].token for child in children)
        and sample.leases[parent].position != END
    ]
    tell_factor()
    figure(f"split with {500 - at_split} records unread in the parent; {len(timeline.samples)} states of the leases")
    assert at_split < 250
    assert statuses == [0, 0]
    assert Counter(each.shard for each in group.written) == {parent: 500, children[0]: 50, children[1]: 50}
    assert {each.partition for each in group.journals.ended()} == {parent, *children}
    assert begun_before_the_end == []
    check_history(group)


def test_c33_finished_shards_are_no_load_and_are_not_taken_again(stream_group: StreamGroup) -> None:
    """Four shards become eight; the four parents stay listed, and a fresh set of hosts must not count them."""
    group = stream_group
    parents = group.create(4)
    group.write(each_key(2))
    flags = ("--balance-interval-s", repr(BALANCE_S))
    first = [group.start(name, *flags, lease_duration_s=D_S) for name in "abcd"]
    group.wait_shared(first)
    for parent in parents:
        group.split(parent)
    group.write(each_key(2))
    wait_done(group, 30)
    shares = [group.wait_shared(first, 10 * BALANCE_S)]
    for host in first:
        host.terminate()
    assert [host.wait(20) for host in first] == [0, 0, 0, 0]
    began = len(group.journals.read())
    finished = {name: item.token for name, item in group.leases.leases().items() if item.finished}

    fresh = [group.start(name, *flags, lease_duration_s=D_S) for name in "efgh"]
    for host in fresh:
        group.wait_ready(host)
    ready_s = now_s()
    shares.append(group.wait_shared(fresh, 10 * BALANCE_S))
    took_s = now_s() - ready_s
    group.write(each_key(2))
    wait_done(group, 30)
    # As long again, in which somebody could still take a finished one.
    time.sleep(10 * BALANCE_S)

    figure(
        f"fresh hosts have two of eight each {took_s:.2f} s after the last was ready; {len(finished)} finished leases"
    )
    assert shares == [dict.fromkeys("abcd", 2), dict.fromkeys("efgh", 2)]
    assert group.leases.shares() == dict.fromkeys("efgh", 2)
    assert set(finished) == set(parents)
    assert {name: item.token for name, item in group.leases.leases().items() if item.finished} == finished
    assert {each.partition for each in group.journals.read()[began:]} & set(parents) == set()
    check_history(group)


def test_c48_latest_is_no_start_of_shards_that_are_born_later(stream_group: StreamGroup) -> None:
    """The children have their records for seconds before anybody knows of them, for the parent is still being read."""
    group = stream_group
    (parent,) = group.create(1)
    group.write(of_both_halves(60))
    before = len(group.written)
    # The servers' clock has whole seconds: what was there in the second of the start may be read.
    time.sleep(1.1)
    hosts = [group.start(name, "--start", "latest", lease_duration_s=D_S, record_s=0.05) for name in "ab"]
    group.wait_until("the processor is open", group.journals.read, 20)
    time.sleep(scaled(10.0))
    # Three seconds of work, and as long nobody looks for the children.
    group.write(of_both_halves(80))
    group.wait_until("the parent is at work", group.journals.ended, 20)
    children = group.split(parent)
    group.write(of_both_halves(100))
    written_s = now_s()
    group.wait_until("100 records of the children are handled", lambda: of_children(group, children) >= 100, 40)
    seen_s = min(each.at_s for each in group.journals.started() if each.partition in children) - written_s
    for host in hosts:
        host.terminate()
    statuses = [host.wait(20) for host in hosts]

    tell_factor()
    figure(f"the children had their records for {seen_s:.1f} s before the first of them was handled")
    assert statuses == [0, 0]
    assert seen_s >= 2.0
    old = {(each.shard, each.position) for each in group.written[:before]}
    assert {(each.partition, each.value) for each in group.journals.started()} & old == set()
    del group.written[:before]
    check_history(group)


def of_both_halves(records: int) -> list[tuple[str, bytes]]:
    """So many records, half of them of keys in the lower half of the hashes and half in the upper."""
    return [(key, b"record") for key in islice(cycle(chain.from_iterable(zip(LOW, HIGH, strict=True))), records)]


def of_children(group: StreamGroup, children: tuple[str, ...]) -> int:
    return len({(each.partition, each.value) for each in group.journals.ended() if each.partition in children})
