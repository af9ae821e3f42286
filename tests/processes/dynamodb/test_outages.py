"""The whole store throttles, or is gone: C11, C13."""

from __future__ import annotations

import time

import pytest

from partitions.positions import EARLIEST
from tests.processes.dynamodb.tables import TableGroup, losses, open_terms, repeated
from tests.processes.histories import order_of, overlaps, stale_starts
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure, scaled, tell_factor
from tests.proxy import Effect, Fault

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

D_S = scaled(6.0)
BALANCE_S = scaled(2.0)
RECORD_S = scaled(0.5)
CHECKPOINTS = ("--checkpoint-interval-s", repr(scaled(1.0)), "--batch-records-max", "5")


def test_c11_throttled_calls_move_no_lease(table_group: TableGroup) -> None:
    """Each move of a lease repeats records and writes more, which is throttled more."""
    group = table_group
    run_s = scaled(repeated(300.0, 90.0))
    group.create(30)
    group.put(450)
    # A record for each checkpoint: what is tested is the table.
    hosts = [
        group.start(name, *CHECKPOINTS, lease_duration_s=D_S, record_s=scaled(1.0), log_level="debug") for name in "abc"
    ]
    group.wait_balanced(hosts)
    group.wait_until("all are at work", lambda: len({e.partition for e in group.journals.ended()}) == 30, 20)
    before = state_of(group)
    throttled = Fault(effect=Effect.THROTTLE, probability=0.05)
    group.proxy.forget()
    with group.proxy.rules.applied(throttled):
        time.sleep(run_s)
        calls, hits = group.proxy.count(), group.proxy.rules.hits(throttled)
        after = state_of(group)

    failed = [line for host in hosts for line in host.named("beat.failed")]
    tell_factor()
    figure(
        f"{hits} of {calls} calls throttled in {run_s:.0f} s, {len(failed)} beats failed beyond the store's own tries"
    )
    assert after == before
    assert 0.02 <= hits / calls <= 0.1
    # A try that begins after the end of the lease could be applied under somebody else's.
    assert [line for line in failed if line["left_s"] <= 0.0] == []


def state_of(group: TableGroup) -> tuple[object, ...]:
    """Return all that must not change: who owns what, what was lost, and which processors began and ended."""
    owners = {name: (held.host, held.token) for name, held in group.leases.held().items()}
    terms = [each for each in group.journals.read() if each.act in ("opened", "closed")]
    # A start beside others on a busy machine may lose a session; what counts is what is lost from then on.
    return owners, [losses(host) for host in group.hosts], terms


@pytest.mark.parametrize("how", ["faults", "silence"])
def test_c13_after_an_outage_of_the_store_every_partition_runs_again(how: str, table_group: TableGroup) -> None:
    """No loop may die of an outage and no flag stick, or only a restart would help."""
    group = table_group
    group.create(12)
    group.put(int(120.0 / 0.5))
    hosts = [group.start(name, *CHECKPOINTS, lease_duration_s=D_S, record_s=RECORD_S) for name in "abc"]
    group.wait_balanced(hosts)
    group.wait_until("all are at work", lambda: len({e.partition for e in group.journals.ended()}) == 12, 20)
    time.sleep(scaled(3.0))
    # What is stored cannot change while no write gets through.
    cut = (
        group.proxy.cut(silent=True)
        if how == "silence"
        else group.proxy.rules.applied(Fault(effect=Effect.FAIL_BEFORE))
    )
    with cut:
        time.sleep(scaled(30.0))
        stored = group.leases.leases()
        assert [name for name in stored if open_terms(group, name)] == []
    recovered_s = now_s()

    def is_all_running() -> bool:
        held = group.leases.held()
        pids = {host.name: host.pid for host in hosts}
        return all(
            [(each.pid, each.token) for each in open_terms(group, name)] == [(pids.get(str(lease.host)), lease.token)]
            for name, lease in held.items()
        )

    group.wait_until("all 12 run again", is_all_running, D_S + 3 * BALANCE_S + 10)
    opened = [each for each in group.journals.read() if each.act == "opened" and each.at_s >= recovered_s]
    first = {each.partition: each for each in reversed(opened)}
    took_s = max(each.at_s for each in first.values()) - recovered_s

    tell_factor()
    figure(f"{how}: all 12 ran again {took_s:.2f} s after the recovery (bound {D_S + 3 * BALANCE_S:.2f} s)")
    assert len(stored) == 12
    assert max(order_of(item.position) for item in stored.values()) > order_of(EARLIEST)
    assert {name: each.value for name, each in first.items()} == {name: item.position for name, item in stored.items()}
    assert all(each.token > stored[name].token for name, each in first.items())
    assert took_s <= D_S + 3 * BALANCE_S
    assert group.living() == hosts == group.hosts
    assert overlaps(group.intervals()) == []
    assert stale_starts(group.journals.read()) == []
