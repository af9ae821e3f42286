"""Stops: of an idle host, of one whose work others take, of one in a container, and those that somebody is tired of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from processor_host import HostSettings
from processor_host.lives import LAST_S
from tests.processes import journal
from tests.processes.harness import Group, Host, at_s
from tests.processes.histories import order_of, repeats
from tests.processes.lease_file import now_s
from tests.processes.scaling import figure, scaled, tell_factor

__all__: list[str] = []

pytestmark = pytest.mark.processes

POD_GRACE_S = 30.0  # Kubernetes' terminationGracePeriodSeconds, unless a pod sets another.


def test_c18_lone_idle_host_stops_within_two_seconds(any_group: Group) -> None:
    """Its reads wait for up to a minute for records that do not come; a stop must not."""
    group = any_group
    d_s = scaled(6.0)
    group.create(8)
    host = group.start("a", "--read-wait-s", "60", lease_duration_s=d_s)
    group.wait_balanced([host])
    group.wait_until("every processor is open", lambda: len(group.journals.read()) == 8, group.ready_s)
    time.sleep(scaled(5.0))
    told_s = host.terminate()
    status = host.wait(70)
    gone_s = now_s() - told_s
    stopped_s = at_s(host.named("host.stopped")[0]) - told_s

    tell_factor()
    figure(f"an idle host stopped after {stopped_s:.2f} s (bound 2 s), its process was gone after {gone_s:.2f} s")
    assert status == 0
    assert stopped_s <= 2.0
    assert [item.owner for item in group.leases.leases().values()] == [None] * 8
    assert group.leases.sessions() == {}


def test_c17_successor_of_a_clean_stop_starts_at_once_where_the_old_host_ended(any_group: Group) -> None:
    """With D = 30 s a lease that is left behind would rest for half a minute."""
    group = any_group
    balance_s = 2.0
    group.create(4)
    group.put(100)
    flags = ("--balance-interval-s", repr(balance_s), "--batch-records-max", "5")
    first = group.start("a", *flags, lease_duration_s=30.0, record_s=0.05, log_level="debug")
    group.wait_until(
        "every partition is handled", lambda: len({e.partition for e in group.journals.ended()}) == 4, group.ready_s
    )
    time.sleep(1.0)
    first.terminate()
    assert first.wait(10) == 0
    left = group.leases.leases()
    done = {each.partition: each.value for each in group.journals.ended()}

    second = group.start("b", *flags, lease_duration_s=30.0, record_s=0.05, log_level="debug")
    group.wait_until("the successor runs all partitions", lambda: len(opened(group, second)) == 4, 40)
    ran_s = max(when_s for when_s, _, _ in opened(group, second).values())
    # Loading Python and the SDK takes a busy machine seconds; what is bounded begins with the first call of the store.
    took_s = ran_s - at_s(second.lines()[0])

    figure(f"a successor ran all partitions {took_s:.2f} s after its start (bound {2 * balance_s + 2} s)")
    figure(f"and {ran_s - second.started_s:.2f} s after that of its process")
    assert took_s <= 2 * balance_s + 2
    assert {name: position for name, (_, _, position) in opened(group, second).items()} == done
    assert {name: item.position for name, item in left.items()} == done
    assert all(token > left[name].token for name, (_, token, _) in opened(group, second).items())


def opened(group: Group, host: Host) -> dict[str, tuple[float, int, str]]:
    """Partition → when the host's processor was opened, its token and where it starts."""
    return {
        each.partition: (each.at_s, each.token, each.value)
        for each in group.journals.read()
        if each.pid == host.pid and each.act == "opened"
    }


def test_c31_survivors_share_what_a_host_leaves_behind(any_group: Group) -> None:
    """A host that has gone must not be counted any more, nor a dead one."""
    group = any_group
    d_s, balance_s = scaled(6.0), scaled(2.0)
    group.create(6)
    stopped, killed, other = [group.start(name, lease_duration_s=d_s) for name in "abc"]
    group.wait_balanced([stopped, killed, other])
    told_s = stopped.terminate()
    status = stopped.wait(10)
    gone_s = now_s()
    after_stop = group.wait_balanced([killed, other])
    # The bound is from its end on: until then the host hands over.
    stop_s = last_acquired_s(killed, other) - gone_s

    late = group.start("d", lease_duration_s=d_s)
    group.wait_balanced([killed, other, late])
    killed_s = killed.kill()
    after_kill = group.wait_balanced([other, late])
    kill_s = last_acquired_s(other, late) - killed_s

    tell_factor()
    figure(
        f"clean stop: 3 each {stop_s:+.2f} s after its end (bound {2 * balance_s:.2f} s), {gone_s - told_s:.2f} s long"
    )
    figure(f"kill: 3 each {kill_s:.2f} s after it (bound {d_s + 3 * balance_s:.2f} s)")
    assert (status, after_stop, after_kill) == (0, {"b": 3, "c": 3}, {"c": 3, "d": 3})
    assert stop_s <= 2 * balance_s
    assert kill_s <= d_s + 3 * balance_s


def last_acquired_s(*hosts: Host) -> float:
    """Return when the last of these hosts' leases was acquired."""
    return max(at_s(line) for host in hosts for line in host.named("lease.acquired"))


def test_c60_sigterm_to_process_one_ends_the_record_in_hand_and_frees_every_lease(any_group: Group) -> None:
    """In a container the program is process 1: the kernel passes on only the signals that it has a handler for."""
    group = any_group
    record_s = 3.0
    group.create(4)
    script = Path(sys.executable).with_name("processor-host")
    host = group.start("a", lease_duration_s=6.0, record_s=record_s, before=unshared(), command=[str(script)])
    first = process_one(group, host)
    group.wait_balanced([host])
    group.put(1, ["p2"])
    group.wait_until("the record is in hand", lambda: bool(group.journals.started()), group.ready_s)
    assert {each.pid for each in group.journals.read()} == {1}
    told_s = now_s()
    os.kill(first, signal.SIGTERM)
    status = host.wait(20)
    took_s = now_s() - told_s

    figure(f"process 1 ended {took_s:.2f} s after SIGTERM with a record of {record_s} s in hand (bound 8 s)")
    assert status == 0
    assert took_s <= 8.0
    assert [(each.partition, each.value) for each in group.journals.ended()] == [("p2", "1")]
    leases = group.leases.leases()
    assert leases["p2"].position == "1"
    assert [item.owner for item in leases.values()] == [None] * 4


def test_c60_grace_time_of_a_pod_exceeds_the_longest_stop_with_the_default_settings() -> None:
    """Else a host that drains is killed, and its leases wait to expire."""
    settings = HostSettings()

    assert settings.drain_timeout_s + settings.lease_duration_s / 2 + LAST_S < POD_GRACE_S


def unshared() -> list[str]:
    """Return what runs a command as process 1 of a namespace of its own."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    prefix = ["unshare", *as_root, "--pid", "--fork", "--mount-proc", "--kill-child"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.fail(
            f"no process can be process 1 here: {' '.join(prefix)}: {tried.stderr.strip()}; "
            "run this test as root, or where user namespaces are allowed",
            pytrace=False,
        )
    return prefix


def process_one(group: Group, host: Host) -> int:
    """Return the process id, seen from here, of the process 1 that `unshare` has started."""
    children = Path(f"/proc/{host.pid}/task/{host.pid}/children")
    (pid,) = group.wait_until("unshare has started its child", lambda: children.read_text().split(), 10)
    return int(pid)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"])
def test_second_signal_ends_a_host_at_once(number: signal.Signals, expected: int, group: Group) -> None:
    """Somebody who asks twice does not wait for the records in hand; they count as not done."""
    group.create(4)
    group.put(1)
    host = group.start("a", lease_duration_s=3.0, record_s=60.0)
    group.wait_until("a record of each partition is in hand", lambda: len(group.journals.started()) == 4, group.ready_s)
    host.send(number)
    # Within a second of the first one's arrival, which may be late on a busy machine, it would count as doubled.
    group.wait_until("the first one has arrived", lambda: host.named("host.draining"), 10)
    time.sleep(1.2)
    assert host.is_running()
    asked_s = host.send(number)
    status = host.wait(10)
    took_s = now_s() - asked_s

    figure(f"the second {number.name} ended the host after {took_s:.2f} s with status {status}")
    assert status == expected
    assert took_s <= 2.0
    assert [each.act for each in group.journals.read() if each.act in ("ended", "cut")] == ["cut"] * 4
    assert [order_of(item.position) for item in group.leases.leases().values()] == [0] * 4


def test_lease_of_a_processor_that_never_ends_is_not_released_while_it_lives(any_group: Group) -> None:
    """It may still write: only the end of the session may free the lease, and the status tells of it."""
    group = any_group
    d_s = 3.0
    group.create(2)
    group.put(1, ["p1"])
    flags = ("--drain-timeout-s", "1")
    host = group.start("a", *flags, lease_duration_s=d_s, record_s=60.0, env={journal.STUBBORN: "yes"})
    group.wait_until("the record is in hand", lambda: bool(group.journals.started()), group.ready_s)
    with group.leases.watch() as timeline:
        told_s = host.terminate()
        status = host.wait(20)
        took_s = now_s() - told_s
        time.sleep(0.1)
    ended_s = host.died_s or 0.0
    owned = [state.host for seen_s, state in timeline.of("p1") if seen_s < ended_s]
    (session_id,) = group.leases.sessions()

    figure(f"a host with a processor that never ends went after {took_s:.2f} s with status {status}")
    assert status == 4
    assert owned == ["a"]
    assert {name: item.owner for name, item in group.leases.leases().items()} == {"p0": None, "p1": session_id}
    assert host.named("host.stopped")[0]["partitions"] == ["p1"]
    assert group.journals.ended() == []

    other = group.start("b", lease_duration_s=d_s)
    group.wait_until("the next host handles the record", lambda: bool(group.journals.ended()), 4 * d_s + group.ready_s)
    assert [(each.pid, each.value) for each in group.journals.ended()] == [(other.pid, "1")]
    assert repeats(group.journals.read()) == {("p1", "1"): 1}
