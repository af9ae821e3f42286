"""A host stands still, frozen from outside or blocked by its own processor, and wakes up after others took over."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.processes import journal
from tests.processes.harness import Group, Host
from tests.processes.histories import order_of, stale_starts
from tests.processes.lease_file import Held, Timeline, now_s
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = pytest.mark.processes


def test_frozen_host_starts_no_record_and_stores_no_checkpoint_under_an_old_token(group: Group) -> None:
    """SIGSTOP for three durations: the middle of a batch is where it wakes up, with records in its hand."""
    d_s = 3.0
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
        time.sleep(3.0)

    first_s = min(each.at_s for each in group.journals.started() if each.pid == frozen.pid and each.at_s > woken_s)
    figure(f"frozen for {3 * d_s} s with {len(old)} leases; first record {first_s - woken_s:.2f} s after it went on")
    assert {name for name in old if taken[name].token > old[name].token} == old.keys()
    check_fence(group, frozen, old, woken_s, timeline)


def test_c01_host_that_was_blocked_by_a_processor_hands_out_and_stores_nothing_under_its_old_token(
    group: Group,
) -> None:
    """A synchronous call silences every beat; the host must not wake up still acting as owner, and must tell of it."""
    d_s, sleep_s = scaled(6.0), scaled(15.0)
    group.create(4)
    # A checkpoint is asked for after the record that blocked, and the batch goes on whatever becomes of it.
    hosts = [start(group, name, d_s, env={journal.SAVES: "blocked"}) for name in "ab"]
    group.wait_balanced(hosts)
    blocked, other = hosts
    old = group.leases.held_by(blocked.name)
    name = min(old)
    journal.order_block(group.folder, name, "10", sleep_s)
    with group.leases.watch() as timeline:
        group.put(400)
        group.wait_until("record 10 blocks", lambda: not (group.folder / journal.BLOCK).exists(), 10)
        blocked_s = now_s()
        group.wait_until("the other host has taken over", lambda: is_taken(group, other, old), sleep_s - 0.5)
        taken_s = now_s() - blocked_s
        stalls = group.wait_until(
            "the stall is told", lambda: blocked.named("loop.stalled"), sleep_s + 5 - taken_s, every_s=0.1
        )
        time.sleep(1.0)

    tell_factor()
    stall_s = max(line["stall_s"] for line in stalls)
    figure(f"blocked for {sleep_s:.1f} s; taken over after {taken_s:.2f} s; a stall of {stall_s} s was told")
    assert stall_s >= sleep_s * 13 / 15
    term = blocked.pid, name, old[name].token
    woken = [each for each in group.journals.read() if each.at_s > blocked_s]
    acts = [each.act for each in woken if (each.pid, each.partition, each.token) == term]
    figure(f"what its processor did under its old token then: {acts}")
    check_fence(group, blocked, old, blocked_s, timeline)


def start(group: Group, name: str, d_s: float, env: Mapping[str, str] | None = None) -> Host:
    return group.start(
        name,
        *("--checkpoint-interval-s", "0.5", "--batch-records-max", "20"),
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
