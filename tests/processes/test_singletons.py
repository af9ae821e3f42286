"""A singleton of three real hosts: it runs on one of them, whatever becomes of that one."""

from __future__ import annotations

import signal
from itertools import pairwise

import pytest

from tests.processes.harness import Group, Host
from tests.processes.nightly import NIGHTLY, terms
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = pytest.mark.processes

D_S = 2.0
WITHIN_S = 40.0
"""A machine that does much else besides may take long; what holds does not hang on it."""


def test_singleton_runs_on_one_host_through_a_freeze_a_kill_and_a_stop(any_group: Group) -> None:
    """Two nightly reports at once are worse than none: whoever wakes late must not go on."""
    group = any_group
    group.create(3)
    hosts = [start(group, name) for name in "abc"]
    for host in hosts:
        group.wait_ready(host)

    first = leader(group, hosts)
    frozen_s = first.send(signal.SIGSTOP)
    second = leader(group, hosts, after=first)
    figure(f"taken over {time_of(group, second) - frozen_s:.2f} s after the freeze, D = {D_S} s")
    first.send(signal.SIGCONT)
    killed_s = second.kill()
    third = leader(group, hosts, after=second)
    figure(f"taken over {time_of(group, third) - killed_s:.2f} s after the kill")
    hosts.append(start(group, "d"))
    group.wait_ready(hosts[-1])
    stopped_s = third.terminate()
    assert third.wait(WITHIN_S) == 0
    fourth = leader(group, hosts, after=third)
    figure(f"taken over {time_of(group, fourth) - stopped_s:.2f} s after the stop")
    for host in group.living():
        host.terminate()
    assert {host.wait(WITHIN_S) for host in hosts if host is not second} == {0}

    noted = terms(group.folder)
    assert [term.token for term in noted] == sorted({term.token for term in noted})
    assert [(one, next_one) for one, next_one in pairwise(noted) if one.last_s >= next_one.first_s] == []
    assert len(noted) >= 4


def start(group: Group, name: str) -> Host:
    return group.start(name, "--singleton", f"nightly={NIGHTLY}", lease_duration_s=D_S)


def leader(group: Group, hosts: list[Host], *, after: Host | None = None) -> Host:
    """Wait until the newest term is another host's, and return that one."""

    def new() -> Host | None:
        found = terms(group.folder)
        pid = found[-1].pid if found else None
        return next((host for host in hosts if host.pid == pid and host is not after), None)

    host = group.wait_until("another host runs it", new, WITHIN_S)
    assert host is not None
    return host


def time_of(group: Group, host: Host) -> float:
    """When the newest term of a host began."""
    return max(term.first_s for term in terms(group.folder) if term.pid == host.pid)
