"""A host stands still, frozen from outside or blocked by its own processor, and wakes up after others took over."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.processes import journal
from tests.processes.dynamodb.tables import losses
from tests.processes.harness import Group, Host, at_s
from tests.processes.histories import order_of, repeats, stale_starts
from tests.processes.lease_file import Held, Timeline, now_s
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = pytest.mark.processes

BLOCKED_AT = 10
"""The position whose record blocks."""


def test_frozen_host_starts_no_record_and_stores_no_checkpoint_under_an_old_token(group: Group) -> None:
    """SIGSTOP for three durations: the middle of a batch is where it wakes up, with records in its hand."""
    d_s = 2.0
    group.create(6)
    group.put(2000)
    frozen, _ = hosts = [start(group, name, d_s) for name in "ab"]
    group.wait_balanced(hosts)
    group.wait_until("every term has a checkpoint", lambda: is_saved(group, frozen), 10)
    with group.leases.watch() as timeline:
        old = group.leases.held_by(frozen.name)
        frozen.send(signal.SIGSTOP)
        time.sleep(3 * d_s)
        taken = group.leases.held()
        woken_s = frozen.send(signal.SIGCONT)
        group.wait_until("the host that was frozen has its share again", lambda: is_back(group, frozen, old), 20)
        # Long enough for a checkpoint under the new tokens, and for a late one under an old token.
        time.sleep(1.5)

    first_s = min(each.at_s for each in group.journals.started() if each.pid == frozen.pid and each.at_s > woken_s)
    figure(f"frozen for {3 * d_s} s with {len(old)} leases; first record {first_s - woken_s:.2f} s after it went on")
    assert {name for name in old if taken[name].token > old[name].token} == old.keys()
    check_fence(group, frozen, old, woken_s, timeline)


def test_c01_host_that_was_blocked_beyond_the_limit_hands_out_and_stores_nothing_under_its_old_token(
    any_group: Group,
) -> None:
    """It stops beating, the other one takes over, and it must not go on as owner when the call returns."""
    group, sleep_s = any_group, scaled(15.0)
    group.create(4)
    # A checkpoint is asked for after the record that blocked, and the batch goes on whatever becomes of it.
    limit = ("--loop-stall-limit-s", repr(scaled(2.0)))
    hosts = [start(group, name, scaled(6.0), *limit, env={journal.SAVES: "blocked"}) for name in "ab"]
    group.wait_balanced(hosts)
    blocked, other = hosts
    old = group.leases.held_by(blocked.name)
    with group.leases.watch() as timeline:
        name, blocked_s = block(group, old, sleep_s)
        group.wait_until("the other host has taken over", lambda: is_taken(group, other, old), sleep_s - 0.5)
        taken_s = now_s() - blocked_s
        stall_s = stall_told(group, blocked, sleep_s)
        group.wait_until("it has closed what it lost", lambda: is_closed(group, blocked, old), 10)

    tell_factor()
    figure(f"blocked for {sleep_s:.1f} s; taken over after {taken_s:.2f} s; a stall of {stall_s} s was told")
    assert stall_s >= sleep_s * 13 / 15
    assert len(blocked.named("beats.held")) == 1
    term = blocked.pid, name, old[name].token
    woken = [each for each in group.journals.read() if each.at_s > blocked_s]
    acts = [each.act for each in woken if (each.pid, each.partition, each.token) == term]
    figure(f"what its processor did under its old token then: {acts}")
    check_fence(group, blocked, old, blocked_s, timeline)


def test_c01_host_that_was_blocked_within_the_limit_keeps_its_leases_and_tells_of_it(any_group: Group) -> None:
    """With the default limit its beats outlive the call, from a thread of their own: nobody takes over."""
    group, sleep_s = any_group, scaled(15.0)
    group.create(4)
    hosts = [start(group, name, scaled(6.0)) for name in "ab"]
    group.wait_balanced(hosts)
    blocked, _ = hosts
    before = {name: (held.host, held.token) for name, held in group.leases.held().items()}
    name, blocked_s = block(group, group.leases.held_by(blocked.name), sleep_s)
    stall_s = stall_told(group, blocked, sleep_s)
    group.wait_until("it goes on", lambda: is_past(group, blocked, name, BLOCKED_AT + 1), 10)

    tell_factor()
    figure(f"blocked for {sleep_s:.1f} s with leases of {scaled(6.0):.1f} s; a stall of {stall_s} s was told")
    assert stall_s >= sleep_s * 13 / 15
    assert {name: (held.host, held.token) for name, held in group.leases.held().items()} == before
    assert [losses(host) for host in hosts] == [[], []]
    assert repeats(group.journals.read()) == {}
    # While it lasts, and once: somebody has to find what blocks.
    [told] = blocked.named("loop.blocked")
    assert (at_s(told) < blocked_s + sleep_s, "time.sleep(seconds)" in told["stack"]) == (True, True)


def test_processor_that_keeps_the_interpreter_to_itself_loses_its_leases_safely_and_is_told_of(group: Group) -> None:
    """A call of C that does not let go, as a backtracking pattern, stops every thread: no beat outlives it."""
    d_s = 2.0
    group.create(4)
    hosts = [start(group, name, d_s, env={journal.SAVES: "blocked"}) for name in "ab"]
    group.wait_balanced(hosts)
    blocked, other = hosts
    old = group.leases.held_by(blocked.name)
    with group.leases.watch() as timeline:
        # Longer than a duration and what the other needs to see it; the calls before the last take as long once more.
        _, blocked_s = block(group, old, 3 * d_s, by="regex")
        group.wait_until("the other host has taken over", lambda: is_taken(group, other, old), 12 * d_s)
        taken_s = now_s() - blocked_s
        stall_s = stall_told(group, blocked, 12 * d_s)
        group.wait_until("it has closed what it lost", lambda: is_closed(group, blocked, old), 10)

    figure(f"a pattern kept the interpreter for {stall_s} s; taken over after {taken_s:.2f} s")
    assert stall_s >= 3 * d_s
    assert [line["lost"] for line in blocked.named("session.ended")] == [True]
    check_fence(group, blocked, old, blocked_s, timeline)


def block(group: Group, old: Mapping[str, Held], sleep_s: float, *, by: str = "sleep") -> tuple[str, float]:
    """Let the processor of one of these partitions block its process; return which, and when it was seen to."""
    name = min(old)
    journal.order_block(group.folder, name, str(BLOCKED_AT), sleep_s, by=by)
    group.put(400)
    group.wait_until("the record blocks", lambda: not (group.folder / journal.BLOCK).exists(), 10)
    return name, now_s()


def stall_told(group: Group, host: Host, sleep_s: float) -> float:
    """Return the longest stall that a host tells of, once it does."""
    stalls = group.wait_until("the stall is told", lambda: host.named("loop.stalled"), sleep_s + 10, every_s=0.1)
    return float(max(line["stall_s"] for line in stalls))


def is_past(group: Group, host: Host, name: str, position: int) -> bool:
    """Say whether a host has handled a record of a partition, or a later one."""
    mine = (each for each in group.journals.ended() if (each.pid, each.partition) == (host.pid, name))
    return any(order_of(each.value) >= position for each in mine)


def is_closed(group: Group, host: Host, old: Mapping[str, Held]) -> bool:
    """Say whether a host's processors under these terms are closed."""
    closed = {
        (each.partition, each.token) for each in group.journals.read() if (each.pid, each.act) == (host.pid, "closed")
    }
    return closed >= {(name, held.token) for name, held in old.items()}


def start(group: Group, name: str, d_s: float, *flags: str, env: Mapping[str, str] | None = None) -> Host:
    return group.start(
        name,
        *("--checkpoint-interval-s", "0.5", "--batch-records-max", "20", *flags),
        lease_duration_s=d_s,
        record_s=0.05,
        log_level="debug",
        env=env,
    )


def is_saved(group: Group, host: Host) -> bool:
    saved = {token_of(line) for line in host.named("checkpoint.saved")}
    return all((name, held.token) in saved for name, held in group.leases.held_by(host.name).items())


def is_taken(group: Group, other: Host, old: Mapping[str, Held]) -> bool:
    taken = group.leases.held_by(other.name)
    return all(name in taken and taken[name].token > held.token for name, held in old.items())


def is_back(group: Group, host: Host, old: Mapping[str, Held]) -> bool:
    """It has acquired its share again, and handled a record of each."""
    mine = group.leases.held_by(host.name)
    fresh = {(each.partition, each.token) for each in group.journals.ended() if each.pid == host.pid}
    return len(mine) == len(old) and all((name, held.token) in fresh for name, held in mine.items())


def check_fence(group: Group, host: Host, old: Mapping[str, Held], since_s: float, timeline: Timeline) -> None:
    """After `since_s` the host started nothing, and the store took nothing from it, under the tokens it had before."""
    entries = group.journals.read()
    zombies = [
        each
        for each in entries
        if each.pid == host.pid
        and each.at_s > since_s
        and each.act in ("started", "saved")
        and each.partition in old
        and each.token <= old[each.partition].token
    ]
    assert zombies == []
    assert stale_starts(entries) == []
    began = {(each.partition, each.token): order_of(each.value) for each in entries if each.act == "opened"}
    saved = [line for line in host.named("checkpoint.saved") if line["partition"] in old]
    for name, held in old.items():
        # Also one that was answered late: what it stored must be where the next term began, or before.
        stored = [order_of(each["position"]) for each in saved if token_of(each) == (name, held.token)]
        assert max(stored, default=0) <= began[name, held.token + 1]
        states = [state for _, state in timeline.of(name)]
        assert states == sorted(states, key=lambda state: (state.token, order_of(state.position))), name


def token_of(line: Mapping[str, Any]) -> tuple[str, int]:
    return line["partition"], line["fencing_token"]
