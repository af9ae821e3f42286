"""The metrics of all hosts together tell the truth about the group, also after a kill."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.processes.harness import Group, Host
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

PARTITIONS = 12


def test_leases_held_of_all_hosts_add_up_to_the_partitions_also_after_a_kill(group: Group) -> None:
    """Whoever watches a group watches this sum."""
    names = group.create(PARTITIONS)
    hosts = [group.start(name, "--metrics-port", "0", lease_duration_s=3.0) for name in "abc"]
    group.wait_balanced(hosts)
    before = {host.name: held(host) for host in hosts}
    killed_s = hosts[0].kill()
    group.wait_balanced(hosts[1:])
    took_s = now_s() - killed_s
    after = {host.name: held(host) for host in hosts[1:]}

    figure(f"leases held before the kill {counts(before)}, {took_s:.2f} s after it {counts(after)}")
    tokens = {name: item.token for name, item in group.leases.leases().items()}
    assert sorted(name for each in before.values() for name in each) == sorted(names)
    assert sorted(name for each in after.values() for name in each) == sorted(names)
    assert before["a"].keys() <= after["b"].keys() | after["c"].keys()
    assert {name: token for each in after.values() for name, token in each.items()} == tokens


def held(host: Host) -> dict[str, int]:
    """Partition → fencing token of each lease that a host says it holds."""
    (started,) = host.named("http.started")
    with urllib.request.urlopen(f"http://{started['host']}:{started['port']}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    series: dict[str, dict[str, float]] = {"leases_held": {}, "lease_fencing_token": {}}
    for family in text_string_to_metric_families(text):
        values = series.get(family.name.removeprefix("processor_host_"))
        if values is not None:
            for sample in family.samples:
                assert sample.labels["group"] == "g"
                values[sample.labels["partition"]] = sample.value
    assert all(value == 1 for value in series["leases_held"].values())
    assert series["leases_held"].keys() == series["lease_fencing_token"].keys()
    return {name: int(value) for name, value in series["lease_fencing_token"].items()}


def counts(held_by: dict[str, dict[str, int]]) -> dict[str, int]:
    return {name: len(each) for name, each in held_by.items()}
