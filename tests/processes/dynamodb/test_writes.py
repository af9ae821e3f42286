"""Single writes that are slow, or applied without an answer, or refused by the server: C07, C08, C10."""

from __future__ import annotations

import time

import pytest

from partitions.positions import EARLIEST
from tests.processes import journal
from tests.processes.dynamodb.tables import TableGroup, losses, open_terms, repeated
from tests.processes.harness import Host
from tests.processes.histories import overlaps, stale_starts
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure, scaled, tell_factor
from tests.proxy import Call, Effect, Fault

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

D_S = scaled(6.0)
BALANCE_S = scaled(2.0)
CHECKPOINTS = ("--checkpoint-interval-s", repr(scaled(1.0)))


def is_beat(call: Call) -> bool:
    """Say whether it is an update of a session."""
    return call.operation == "UpdateItem" and any(key.get("pk", "").endswith("#hosts") for key in call.keys)


def test_c07_checkpoints_beside_beats_are_never_taken_for_a_lost_lease(table_group: TableGroup) -> None:
    """Writes of 200 ms, asked for every 5 ms: two writes that expect the same version would refuse one another."""
    group = table_group
    records = 12_000
    group.create(1)
    group.put(records)
    slow = Fault(effect=Effect.DELAY, operation="UpdateItem", delay_s=scaled(0.2))
    with group.proxy.rules.applied(slow):
        host = group.start(
            "a",
            *("--lifespan", "tests.processes.dynamodb.hasty:saving"),
            lease_duration_s=D_S,
            processor="tests.processes.dynamodb.hasty:Hasty",
            record_s=scaled(0.005),
            env={journal.SAVES: "each"},
            log_level="debug",
        )
        began_s = group.wait_until("the first record is done", group.journals.ended, 20.0)[0].at_s
        group.wait_until("a checkpoint was asked for each record", lambda: len(group.journals.ended()) == records, 120)
        took_s = now_s() - began_s
        time.sleep(1.0)
        lease = group.leases.leases()["p0"]
        answered = [each for each in group.journals.read() if each.act == "saved"]
        host.terminate()
        status = host.wait(20)

    saved = host.named("checkpoint.saved")
    tell_factor()
    figure(f"{records} checkpoints asked for in {took_s:.1f} s beside beats, {len(saved)} writes")
    assert took_s >= scaled(60.0)
    assert status == 0
    assert (lease.token, lease.position) == (1, str(records))
    assert len(answered) == records
    assert losses(host) == []
    assert [(each.token, each.value) for each in group.journals.read() if each.act == "opened"] == [(1, EARLIEST)]
    assert 1 < len(saved) <= took_s / scaled(0.2) + 2


def test_c08_beats_that_were_applied_and_not_answered_lose_no_lease(table_group: TableGroup) -> None:
    """Every tenth beat is in the table, and its sender hears of a fault: it must know its own write again."""
    group = table_group
    group.create(4)
    run_s = scaled(repeated(180.0, 90.0))
    group.put(1200)
    host = group.start("a", *CHECKPOINTS, lease_duration_s=D_S, record_s=scaled(0.2), log_level="debug")
    group.wait_balanced([host])
    group.wait_until("every processor is at work", lambda: len({e.partition for e in group.journals.ended()}) == 4, 10)
    tokens = {name: held.token for name, held in group.leases.held().items()}
    lost = Fault(effect=Effect.FAIL_AFTER, when=is_beat, every=10)
    with group.proxy.rules.applied(lost):
        time.sleep(run_s)
        hits = group.proxy.rules.hits(lost)
    after = group.leases.held()

    beats = len(host.named("beat.answered"))
    tell_factor()
    figure(f"{hits} beats of {beats} applied without an answer")
    assert losses(host) == []
    assert {name: held.token for name, held in after.items()} == tokens
    assert {held.host for held in after.values()} == {"a"}
    assert len([each for each in group.journals.read() if each.act in ("opened", "closed")]) == 4
    # Each was tried again; else nothing was disturbed.
    assert len(host.named("beat.failed")) >= hits >= repeated(8, 4)


def test_c10_partition_whose_item_takes_no_writes_has_one_processor_again_once_it_does(table_group: TableGroup) -> None:
    """A release or an acquire that fails leaves memory, table and processor to agree again, whatever was applied."""
    group = table_group
    repeats_of_all = int(repeated(50, 10))
    flags = (*CHECKPOINTS, "--balance-interval-s", repr(scaled(0.2)), "--batch-records-max", "2")
    group.create(6)
    group.put(int(repeats_of_all * 30.0 / 0.2))
    hosts = [start_c10(group, f"h{number}", flags) for number in range(2)]
    slowest_s = 0.0
    for repeat in range(repeats_of_all):
        group.wait_balanced(hosts)
        wait_running_once(group, hosts, 10.0)
        effect = (Effect.FAIL_BEFORE, Effect.FAIL_AFTER, Effect.DROP_AFTER)[repeat % 3]
        fault = Fault(effect=effect, operation=("UpdateItem", "PutItem"), when=lambda call: call.mentions("p5"))
        with group.proxy.rules.applied(fault):
            began_s = now_s()
            if repeat % 2:
                # Its owner has to give it away, and cannot.
                owner = next(host for host in hosts if host.name == group.leases.held()["p5"].host)
                owner.terminate()
                hosts.remove(owner)
                hosts.append(start_c10(group, f"h{repeat + 2}", flags))
            time.sleep(max(0.0, scaled(8.0) - (now_s() - began_s)))
            assert group.proxy.rules.hits(fault) > 0
        slowest_s = max(slowest_s, wait_running_once(group, hosts, D_S + 2 * BALANCE_S))
    # One that has just started must have come to where it takes signals.
    group.wait_balanced(hosts)
    for host in hosts:
        host.terminate()
        assert host.wait(20) == 0

    tell_factor()
    figure(
        f"{repeats_of_all} repeats: p5 ran again {slowest_s:.2f} s after, at most (bound {D_S + 2 * BALANCE_S:.2f} s)"
    )
    assert overlaps(group.intervals()) == []
    assert stale_starts(group.journals.read()) == []


def start_c10(group: TableGroup, name: str, flags: tuple[str, ...]) -> Host:
    return group.start(name, *flags, lease_duration_s=D_S, record_s=scaled(0.2))


def wait_running_once(group: TableGroup, hosts: list[Host], within_s: float) -> float:
    """Wait until p5 is handled by that host alone which its item names, and return how long it took."""
    began_s = now_s()
    pids = {host.name: host.pid for host in group.hosts}

    def is_running() -> bool:
        held = group.leases.held()["p5"]
        running = {(each.pid, each.token) for each in open_terms(group, "p5")}
        return held.host is not None and running == {(pids[held.host], held.token)}

    group.wait_until("p5 has one processor, of the host that its item names", is_running, within_s)
    return now_s() - began_s
