"""What a group costs while nothing happens, and how fast a thousand free partitions are taken."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from partitions.planner import plan
from partitions.verbs import Acquire
from processor_host.events import PlanRound
from tests.builders import a_lease, a_session
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.world import World

__all__: list[str] = []

D = 3.0
B = 1.0
WINDOW_S = 30.0
WRITES_PER_S_MAX = 3
HOSTS = "abc"

LEASE_READS = {"read_leases", "read_some_leases", "read_lease"}


@pytest.mark.parametrize("partitions", [64, 640])
@virtual
async def test_group_at_rest_costs_three_beats_a_second_whatever_it_holds(partitions: int) -> None:
    """One beat for all leases of a host: who renews each lease pays for every partition, all day."""
    world = World(partitions=partitions, duration_s=D, settings={"checkpoint_interval_s": 30.0})
    for name in HOSTS:
        world.start(name)
    await world.until(lambda: world.is_balanced(len(HOSTS)), within_s=30)
    # Long after the last full read that the start has caused, and so that the audit of each host is in the window.
    await world.wait(40.0)
    since_s = world.now_s
    await world.wait(WINDOW_S)

    calls = [call for at, call in world.network.calls if at >= since_s and not call.operation.startswith("source.")]
    writes = Counter(type(call.verb).__name__ for call in calls if call.verb is not None)
    by_operation = dict(Counter(call.operation for call in calls))
    print(f"{partitions} partitions: {writes.total() / WINDOW_S:.2f} writes a second, {by_operation}")
    assert writes.keys() == {"Beat"}
    assert writes.total() <= WRITES_PER_S_MAX * WINDOW_S + len(HOSTS)

    beats = Counter(call.place for call in calls if call.operation == "Beat")
    looks = Counter(call.place for call in calls if call.operation in ("look_at_sessions", "read_sessions"))
    audits = [event for at, _, event in world.diary if at >= since_s and isinstance(event, PlanRound)]
    assert {event.full_read for event in audits} <= {"audit"}
    reads = Counter(call.operation for call in calls if call.operation in LEASE_READS)
    assert reads == Counter({"read_leases": len(audits)})
    # The audit reads the sessions once more, after the leases.
    assert len(audits) == len(HOSTS)
    for name in HOSTS:
        of_audits = sum(at >= since_s and place == name for at, place, event in world.diary if event in audits)
        assert abs(looks[name] - of_audits - beats[name]) <= 1
    assert by_operation.keys() <= {"Beat", "look_at_sessions", "read_sessions", "read_leases"}
    assert [write for write in world.network.applied(Acquire) if write.at_s >= since_s] == []


@virtual
async def test_thousand_free_partitions_are_taken_by_one_host_within_three_rounds() -> None:
    """A start that takes a round for each partition takes minutes."""
    world = World(partitions=1000, duration_s=D, settings={"checkpoint_interval_s": 30.0})
    world.start("a")
    took_s = await world.until(lambda: len(world.running()) == 1000, within_s=3 * B, every_s=0.1)
    rounds = [event for event in world.events(PlanRound) if event.acquired]

    print(f"1000 partitions run after {took_s:.2f} s, taken in {len(rounds)} rounds")
    assert sum(event.acquired for event in rounds) == 1000
    assert len(rounds) <= 3
    assert set(world.owners().values()) == {"a"}
    check_safety(world)


@pytest.mark.parametrize("hosts", [1, 3, 20])
def test_planning_a_thousand_free_partitions_takes_less_real_time_than_a_call_may(hosts: int) -> None:
    """The plan holds up the loop that beats; virtual time does not see that."""
    leases = [a_lease(f"p{n}", last_host=None if n % 2 else "gone") for n in range(1000)]
    sessions = [a_session(f"h{n}:1") for n in range(hosts)]
    began_s = time.perf_counter()
    current = plan(leases, sessions)
    real_s = time.perf_counter() - began_s

    print(f"1000 free partitions, {hosts} hosts: planned in {real_s * 1000:.1f} ms of real time")
    shares = Counter(current.targets.values())
    assert shares.total() == 1000
    assert shares.keys() == {session.session_id for session in sessions}
    assert real_s < D / 6
