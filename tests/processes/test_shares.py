"""How much each host gets, and how soon: free partitions, a newcomer, idle hosts, hosts of unlike capacity."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest

from tests.processes.dynamodb.tables import repeated
from tests.processes.harness import Group, Host, at_s
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = scaled(6.0)
BALANCE_S = scaled(2.0)
ROUNDS = int(repeated(50, 10))


def start(group: Group, name: str, *flags: str) -> Host:
    return group.start(name, "--balance-interval-s", repr(BALANCE_S), *flags, lease_duration_s=D_S)


def test_c34_lone_host_runs_all_free_partitions_within_three_rounds(any_group: Group) -> None:
    """The bound on steals is none on free leases: nobody loses anything by their being taken at once."""
    group, balance_s = any_group, 2.0
    group.create(64)
    host = group.start("a", "--balance-interval-s", repr(balance_s), lease_duration_s=6.0)
    group.wait_until("all 64 run", lambda: len(opened(group)) == 64, 60)
    [began] = host.named("session.began")
    took_s = max(opened(group).values()) - at_s(began)

    figure(f"64 free partitions ran {took_s:.2f} s after the host had joined (bound {3 * balance_s} s)")
    assert took_s <= 3 * balance_s
    assert group.leases.shares() == {"a": 64}


def opened(group: Group) -> dict[str, float]:
    """Partition → when its first processor was opened."""
    first: dict[str, float] = {}
    for each in group.journals.read():
        if each.act == "opened":
            first.setdefault(each.partition, each.at_s)
    return first


def test_c34_sixth_host_has_its_share_within_ten_rounds(any_group: Group) -> None:
    """It takes from all who have too much at once, not from one after the other."""
    group = any_group
    group.create(40)
    hosts = [start(group, f"h{number}") for number in range(5)]
    group.wait_balanced(hosts)
    late = start(group, "late")
    group.wait_until("the sixth host has 6", lambda: len(late.named("lease.acquired")) >= 6, 60)
    took_s = at_s(late.named("lease.acquired")[5]) - at_s(late.named("session.began")[0])
    shares = group.wait_balanced([*hosts, late])

    tell_factor()
    figure(f"the sixth host had 6 of 40 partitions after {took_s:.2f} s (bound {10 * BALANCE_S:.2f} s)")
    assert took_s <= 10 * BALANCE_S
    assert sorted(shares.values()) == [6, 6, 7, 7, 7, 7]
    # Nothing but its share has moved.
    assert len(late.named("lease.acquired")) == shares["late"]


def test_c35_idle_hosts_are_ready_steal_nothing_take_over_and_stop_at_once(any_group: Group) -> None:
    """To own something is no sign of health: more hosts than partitions is how one keeps a spare."""
    group = any_group
    group.create(2)
    hosts = {name: start(group, name, "--metrics-port", "0") for name in "abcde"}
    group.wait_balanced(list(hosts.values()))
    before, since_s = group.leases.held(), now_s()
    idle = hosts.keys() - {held.host for held in before.values()}
    time.sleep(ROUNDS * BALANCE_S)
    after = group.leases.held()
    asked = [line for host in hosts.values() for line in host.named("lease.asked") if at_s(line) > since_s]
    answers = {name: {answer(hosts[name], path) for path in ("readyz", "healthz")} for name in idle}

    assert len(idle) == 3
    assert answers == {name: {200} for name in idle}
    # No steal was tried, and none was made.
    assert asked == []
    assert after == before

    lost, held = min(before.items())
    killed_s = hosts[str(held.host)].kill()
    heir = group.wait_until("its partition is taken over", lambda: taken(group, lost, held.token), 4 * D_S)
    assert heir in idle
    took_s = at_s(hosts[heir].named("lease.acquired")[-1]) - killed_s

    spare = hosts[min(idle - {heir})]
    told_s = spare.terminate()
    status = spare.wait(10)
    stopped_s = at_s(spare.named("host.stopped")[0]) - told_s

    tell_factor()
    figure(
        f"{ROUNDS} rounds without a steal; a spare took over after {took_s:.2f} s (bound {D_S + 2 * BALANCE_S:.2f} s)"
    )
    figure(f"an idle host stopped in {stopped_s:.2f} s (bound 1 s)")
    assert took_s <= D_S + 2 * BALANCE_S
    assert (status, stopped_s < 1.0) == (0, True)


def answer(host: Host, path: str) -> int:
    """Return the status with which a host answers a check of its health."""
    [started] = host.named("http.started")
    try:
        with urllib.request.urlopen(f"http://{started['host']}:{started['port']}/{path}", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def taken(group: Group, partition: str, token: int) -> str:
    """Return who has a partition under a higher token; empty where nobody has."""
    held = group.leases.held()[partition]
    return held.host or "" if held.token > token else ""


def test_host_of_three_times_the_capacity_has_three_times_the_partitions(any_group: Group) -> None:
    """Machines of unlike size share the work in proportion, and come to rest at it."""
    group = any_group
    group.create(8)
    for host in [start(group, name, "--capacity", capacity) for name, capacity in (("small", "1"), ("large", "3"))]:
        group.wait_ready(host)
    group.wait_until("the shares are 2 and 6", lambda: group.leases.shares() == {"small": 2, "large": 6}, 40)
    before = group.leases.held()
    time.sleep(4 * BALANCE_S)

    assert group.leases.held() == before
