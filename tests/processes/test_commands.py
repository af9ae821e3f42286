"""The operator's commands beside hosts at work: what becomes of the partitions, the records and the processes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from partitions.stores.sqlite import SqliteStore
from processor_host.cli import main
from tests.processes.harness import GROUP, Group, Host
from tests.processes.histories import overlaps, stale_starts
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = 4.0
LOOK_S = 0.7
"""Between beats, and between looks at the group: what the commands ask for is seen then."""
PARTITIONS = ("p0", "p1", "p2", "p3")


def run(group: Group, command: str, *options: str, store: str = "") -> Result:
    """Run a command on the group, as it would be typed."""
    named = ("--group", GROUP, "--store", store or group.store_url)
    return CliRunner(env=dict(group.env)).invoke(main, [*command.split(), *options, *named])


def told(group: Group, command: str, *options: str, store: str = "") -> Any:
    """Run one that does what it is asked, and return what it tells."""
    result = run(group, command, *options, "--json", store=store)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def at_work(group: Group) -> tuple[Host, Host]:
    """Two hosts that share four partitions, and have handled ten records of each."""
    group.create(len(PARTITIONS))
    group.put(10)
    flags = ("--checkpoint-interval-s", "0.2", "--beat-interval-s", repr(LOOK_S), "--balance-interval-s", repr(LOOK_S))
    hosts = group.start("a", *flags, lease_duration_s=D_S), group.start("b", *flags, lease_duration_s=D_S)
    group.wait_balanced(hosts)
    wait_handled(group, dict.fromkeys(PARTITIONS, 10))
    return hosts


def handled(group: Group) -> dict[str, int]:
    """Partition → how often a record of it was handled."""
    return dict(Counter(each.partition for each in group.journals.ended()))


def wait_handled(group: Group, expected: dict[str, int]) -> None:
    group.wait_until(f"handled are {expected}", lambda: handled(group) == expected, 20)


def test_partitions_are_paused_resumed_reset_and_released_beside_hosts_at_work(any_group: Group) -> None:
    """Each command goes through the protocol of the hosts: nothing is lost, and repeated only where it is asked for."""
    group = any_group
    hosts = at_work(group)
    tokens = {name: held.token for name, held in group.leases.held().items()}

    paused = told(group, "pause p0", "--yes", "--reason", "poison")
    group.put(5)
    wait_handled(group, {"p0": 10, "p1": 15, "p2": 15, "p3": 15})
    resting = told(group, "plan")
    resumed = told(group, "resume p0")
    wait_handled(group, dict.fromkeys(PARTITIONS, 15))
    reset = told(group, "reset p1", "--yes", "--to", "9", "--source", group.source_url)
    wait_handled(group, {"p0": 15, "p1": 21, "p2": 15, "p3": 15})
    released = told(group, "release p2", "--yes")
    group.wait_balanced(hosts)
    status, sessions, plan = (told(group, command) for command in ("status", "hosts", "plan"))

    after = group.leases.held()
    figure(f"paused {paused}, resumed {resumed}, reset {reset}, released {released}")
    assert paused == [{"partition": "p0", "was_paused": False, "owner": None}]
    assert [(each["partition"], each["why"]) for each in resting["resting"]] == [("p0", "it is paused: poison")]
    assert [(each["was_paused"], each["owner"] in "ab") for each in resumed] == [(True, True)]
    assert [(each["done"], each["position"]) for each in reset] == [(True, "9")]
    assert [(each["done"], each["was_owned_by"] in "ab") for each in released] == [(True, True)]
    # One of those of a reset and of a release is the operator's own.
    assert {name: held.token - tokens[name] for name, held in after.items()} == {"p0": 1, "p1": 2, "p2": 2, "p3": 0}
    assert {each["partition"]: each["position"] for each in status["partitions"]} == dict.fromkeys(PARTITIONS, "15")
    assert [(each["host_id"], each["state"], each["owned"]) for each in sessions] == [
        ("a", "works", 2),
        ("b", "works", 2),
    ]
    assert plan["settled"]
    again = Counter((each.partition, each.value) for each in group.journals.ended())
    assert {record for record, count in again.items() if count > 1} == {("p1", str(n)) for n in range(10, 16)}
    assert overlaps(group.intervals()) == []
    assert stale_starts(group.journals.read()) == []


def test_hosts_are_drained_and_forgotten_and_their_leases_carried_to_another_store(any_group: Group) -> None:
    """An operator reaches a host wherever it runs, and a group goes on elsewhere where it was."""
    group = any_group
    other = group.folder / "elsewhere.db"
    anyio.run(SqliteStore(other).create)
    elsewhere = f"sqlite://{other}"
    leaving, staying = at_work(group)

    drained = told(group, "drain a", "--yes")
    status = leaving.wait(10)
    group.wait_balanced([staying])
    refused = run(group, "forget-host b", "--yes")
    told(group, "pause p3", "--yes")
    staying.kill()
    forgotten = told(group, "forget-host b", "--yes")
    freed = group.leases.held()
    file = group.folder / "exported.json"
    file.write_text(json.dumps(told(group, "leases export")))
    told(group, f"leases import {file}", "--yes", store=elsewhere)
    group.put(1)
    successor = group.start("c", "--store", elsewhere, lease_duration_s=D_S)
    wait_handled(group, {"p0": 11, "p1": 11, "p2": 11, "p3": 10})

    began = {
        each.partition: (each.value, each.token)
        for each in group.journals.read()
        if each.pid == successor.pid and each.act == "opened"
    }
    assert [(each["host_id"], each["has_left"], each["owned"]) for each in drained] == [("a", True, 0)]
    assert status == 0
    assert (refused.exit_code, "is alive" in refused.stderr) == (2, True), refused.stderr
    assert [(each["fenced"], each["freed"]) for each in forgotten] == [(True, ["p0", "p1", "p2"])]
    assert {held.host for held in freed.values()} == {None}
    # Where the paused one rests, too, and under tokens that go on rising.
    assert {name: value for name, (value, _) in began.items()} == {"p0": "10", "p1": "10", "p2": "10"}
    assert all(token > freed[name].token for name, (_, token) in began.items())
