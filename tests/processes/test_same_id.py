"""Two processes of one host id, or with nothing to make a host id from."""

from __future__ import annotations

import time

import pytest

from tests.processes.dynamodb.tables import repeated
from tests.processes.harness import Group
from tests.processes.histories import overlaps, stale_starts, unhandled
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(("name", "env"), [("worker", {}), ("", {"HOSTNAME": ""})], ids=["worker", "empty-HOSTNAME"])
def test_c05_two_processes_of_one_host_id_never_process_a_partition_at_once(
    name: str, env: dict[str, str], any_group: Group
) -> None:
    """Ownership must tell the two apart, whatever they are called."""
    group = any_group
    d_s, run_s = scaled(6.0), scaled(repeated(60.0, 18.0))
    partitions = group.create(4)
    hosts = [
        group.start(name, "--batch-records-max", "5", lease_duration_s=d_s, record_s=0.02, env=env) for _ in range(2)
    ]
    for host in hosts:
        group.wait_ready(host)
    group.put(int(run_s / 0.02))
    group.wait_until(
        "both are at work",
        lambda: len({(each.pid, each.partition) for each in group.journals.ended()}) >= 4,
        group.ready_s,
    )
    time.sleep(run_s)
    for host in hosts:
        host.terminate()
    statuses = [host.wait(10) for host in hosts]

    entries = group.journals.read()
    by_process = {host.pid: {each.partition for each in entries if each.pid == host.pid} for host in hosts}
    ids = sorted({line["host_id"] for host in hosts for line in host.named("host.ready")})
    records = sum(each.act == "ended" for each in entries)
    tell_factor()
    figure(f"{run_s:.0f} s as {ids}: {records} records, {[len(each) for each in by_process.values()]} partitions each")
    assert statuses == [0, 0]
    assert set.union(*by_process.values()) == set(partitions)
    assert all(by_process.values())
    assert overlaps(group.intervals()) == []
    assert stale_starts(entries) == []
    assert lost_records(group) == []
    if name:
        assert any(host.named("host_id.shared") for host in hosts)


def lost_records(group: Group) -> list[tuple[str, str]]:
    """Return what was not handled of the records up to the stored positions."""
    stored = {name: int(item.position) for name, item in group.leases.leases().items()}
    return unhandled(group.journals.read(), stored)
