"""Rules 10, 11 and 14: asks. A hand-over is safe because the asked counts less time than the asker waits."""

from __future__ import annotations

import pytest

from partitions.events import Asked, EndReason, LeaseAcquired, LeaseEnded
from partitions.items import ask_key
from partitions.liveness import CLOCK_DRIFT
from partitions.verbs import Acquire, Applied, Ask, Beat, Release
from tests.cases.lone import begun, write_ask
from tests.cases.virtual import seeded, virtual
from tests.world.checks import check_no_overlap, check_safety, lost, repeats
from tests.world.clocks import PlaceClock
from tests.world.loop import result_of, run_virtual
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
B = 2.0
HANDOFF_S = 3 * D
GRANTED_S = HANDOFF_S * (1 - CLOCK_DRIFT)


def asks_of(world: World, session_id: str = "a:1") -> dict[str, str]:
    return dict(world.sessions()[session_id].asks)


@virtual
async def test_rule_10_ask_that_meets_an_acquire_whose_answer_is_on_its_way_is_honoured() -> None:
    """It is shown before the term is known here; forgotten, the term would go on while the asker takes it."""
    world = World()
    a = await begun(world, "a")
    registered_s = world.now_s - world.latency_s
    world.network.disturb(lambda call: call.operation == "Acquire", after_s=0.9)
    acquiring = a.start(a.session.acquire, world.leases()["p0"], reason="free")
    await world.wait(0.1)
    key = ask_key("p0", 1)
    world.store.apply_now(GROUP, Ask(session_id="a:1", keys=(key,), asker="b:1"))
    # Two beats: one is shown the ask, and one could remove it.
    assert await a.do(a.session.renew)
    assert await a.do(a.session.renew)
    assert not acquiring.done()
    assert asks_of(world) == {key: "b:1"}
    lease = await result_of(acquiring)

    assert lease is not None
    assert (lease.is_held(), lease.asked.is_set()) == (True, True)
    granted_until_s = lease.ask_deadline_s() - a.clock.now_s() + world.now_s
    assert granted_until_s == pytest.approx(registered_s + GRANTED_S)
    assert await a.do(lease.release, "7")
    assert await a.do(a.session.renew)
    assert asks_of(world) == {}


@virtual
async def test_rule_10_late_answer_of_an_acquire_lengthens_no_deadline() -> None:
    """A term that was asked for before it was known here has what is left of its time, however little."""
    world = World()
    a = await begun(world, "a", handoff_s=D, call_timeout_s=20.0)
    world.network.disturb(lambda call: call.operation == "Acquire", after_s=5.8)
    acquiring = a.start(a.session.acquire, world.leases()["p0"], reason="free")
    await world.wait(0.01)
    world.store.apply_now(GROUP, Ask(session_id="a:1", keys=(ask_key("p0", 1),), asker="b:1"))
    await world.wait(5.75)
    assert not acquiring.done()
    lease = await result_of(acquiring)

    assert lease is not None
    assert lease.ask_deadline_s() < a.clock.now_s() + 0.2
    await world.wait(0.2)
    assert (lease.is_held(), lease.end_reason) == (False, EndReason.ASK_DEADLINE)


@virtual
async def test_rule_10_deadline_counts_from_the_last_answered_beat_that_did_not_show_the_ask() -> None:
    """The ask was written after that beat was applied; the answer that shows it may be late by most of a session."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    await world.wait(2.1)
    beat_s = [at for at, call in world.network.calls if call.operation == "Beat"][-1]
    assert isinstance(write_ask(world, lease, "a:1", "b:1"), Applied)
    world.network.disturb(lambda call: call.operation == "Beat", lose_answer=True, times=3)
    await world.until(lambda: bool(world.events(Asked)), within_s=D)

    assert world.now_s > beat_s + 5.0
    granted_until_s = lease.ask_deadline_s() - a.clock.now_s() + world.now_s
    assert granted_until_s == pytest.approx(beat_s + GRANTED_S)


@pytest.mark.parametrize("asker", ["", "gone:1"])
@virtual
async def test_rule_10_ask_by_nobody_or_by_one_who_is_gone_is_honoured(asker: str) -> None:
    """Kept under the same token, the lease could not be asked for again: the key would stand already."""
    world = World(partitions=2)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.until(lambda: len(world.running()) == 2, within_s=5)
    world.put(400)
    session = world.hosts["a"].host.session
    assert session is not None
    lease = session.held["p0"]
    write_ask(world, lease, session.session_id, asker)
    await world.until(lambda: world.leases()["p0"].token == 2, within_s=10)
    await world.wait(30.0)

    assert [write.verb.token for write in world.network.applied(Release)] == [1]
    assert asks_of(world, session.session_id) == {}
    assert {name: stored.token for name, stored in world.leases().items()} == {"p0": 2, "p1": 1}
    assert repeats(world) == 0
    check_safety(world)
    check_no_overlap(world)


@virtual
async def test_rule_11_beat_that_arrives_twice_removes_no_newer_ask() -> None:
    """The key names the term, so what a late duplicate removes is what it was sent for and nothing else."""
    world = World()
    a = await begun(world, "a")
    first = await a.acquire("p0")
    write_ask(world, first, "a:1", "b:1")
    assert await a.do(a.session.renew)
    assert await a.do(first.release, "7")
    world.network.disturb(lambda call: call.operation == "Beat", repeat_after_s=1.5, times=1)
    assert await a.do(a.session.renew)
    assert asks_of(world) == {}
    second = await a.acquire("p0")
    write_ask(world, second, "a:1", "b:1")
    await world.wait(1.0)
    assert asks_of(world) == {second.key: "b:1"}
    await world.wait(1.0)

    removing = [write for write in world.network.applied(Beat) if write.verb.handled == (first.key,)]
    assert len(removing) == 2
    assert asks_of(world) == {second.key: "b:1"}
    assert second.asked.is_set()


@virtual
async def test_rule_11_beat_removes_no_ask_whose_term_goes_on() -> None:
    """Removed too early, an ask would be planned and written a second time, with a later deadline."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    write_ask(world, lease, "a:1", "b:1")
    for _ in range(3):
        assert await a.do(a.session.renew)

    assert asks_of(world) == {lease.key: "b:1"}
    assert (lease.is_held(), lease.asked.is_set()) == (True, True)


@virtual
async def test_rule_11_beat_removes_no_ask_while_the_release_is_on_its_way() -> None:
    """The store still has the term; without the ask, the plan of the others would ask for it again."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    write_ask(world, lease, "a:1", "b:1")
    assert await a.do(a.session.renew)
    world.network.disturb(lambda call: call.operation == "Release", before_s=0.5)
    releasing = a.start(lease.release, "7")
    await world.wait(0.1)
    assert await a.do(a.session.renew)
    assert asks_of(world) == {lease.key: "b:1"}
    assert await result_of(releasing)
    assert await a.do(a.session.renew)

    assert asks_of(world) == {}


def test_rule_14_forced_steal_never_overlaps_wherever_the_ask_falls() -> None:
    """The asked counts from its last beat before the ask, the asker from the answer, and each adds the drift."""
    for phase in range(20):
        with seeded(phase):
            run_virtual(lambda phase=phase: forced_at(phase * 0.1))  # type: ignore[misc]


async def forced_at(phase_s: float) -> None:
    """The owner ignores the ask: nobody can cancel its processor, and its batch outlasts the hand-off."""
    # The asker's looks, a quarter of a second and a latency apart, fall differently in each run, too.
    world = World(partitions=2, latency_s=0.001 + phase_s / 200)
    world.put(2000)
    # Half the difference that is allowed each, to the unsafe side.
    slow = PlaceClock(rate=0.995, offset_s=5.0)
    world.start("a", record_s=0.2, stubborn=True, clock=slow, batch_records_max=1000)
    world.network.disturb(lambda call: call.place == "a" and call.operation == "Release", lose_request=True)
    await world.wait(4.0 + phase_s)
    world.start("b", record_s=0.2, clock=PlaceClock(rate=1.005, offset_s=9.0))
    await world.until(lambda: bool(world.events(LeaseAcquired, place="b")), within_s=HANDOFF_S + D)
    await world.wait(5.0)

    [taken] = world.events(LeaseAcquired, place="b")
    assert taken.reason == "forced"
    assert [event.reason for event in world.events(LeaseEnded, place="a")] == [EndReason.ASK_DEADLINE]
    check_safety(world)


@virtual
async def test_rule_14_asker_waits_for_the_owners_handoff_and_not_for_its_own() -> None:
    """How long an owner may drain stands in the owner's item; hosts of one group may be set differently."""
    world = World(partitions=2)
    world.put(2000)
    world.start("a", record_s=0.2, stubborn=True, batch_records_max=1000, handoff_s=30.0)
    world.network.disturb(lambda call: call.place == "a" and call.operation == "Release", lose_request=True)
    await world.wait(5.0)
    world.start("b", record_s=0.2, handoff_s=D)
    began_s = world.now_s
    await world.until(lambda: bool(world.events(LeaseAcquired, place="b")), within_s=40)

    assert world.now_s - began_s >= 30.0
    check_safety(world)


@virtual
async def test_rule_14_asker_that_was_frozen_past_its_session_forces_nothing() -> None:
    """Its ask counted as long as it lived; the acquire is sent under a session that is valid right then."""
    world = World(partitions=2)
    world.put(3000)
    world.start("a", record_s=0.2, stubborn=True, batch_records_max=1000)
    world.network.disturb(lambda call: call.place == "a" and call.operation == "Release", lose_request=True)
    await world.wait(5.0)
    world.start("b", record_s=0.2)
    await world.until(lambda: bool(world.network.applied(Ask)), within_s=5)
    asker = world.network.applied(Ask)[0].verb.asker
    await world.wait(5.0)
    # Right when it looks after what it has asked for, past every check but the last.
    asked_s = world.now_s
    world.network.disturb(lambda call: call.operation == "read_some_leases", after_s=0.1)
    await world.until(lambda: looks_since(world, asked_s) > 0, within_s=1, every_s=0.01)
    world.freeze("b")
    await world.wait(HANDOFF_S)
    world.thaw("b")
    await world.wait(HANDOFF_S)

    assert [write for write in world.network.history if getattr(write.verb, "session_id", "") == asker
            and isinstance(write.verb, Acquire)] == []  # fmt: skip
    check_safety(world)


def looks_since(world: World, since_s: float) -> int:
    return sum(at > since_s and call.operation == "read_some_leases" for at, call in world.network.calls)


@virtual
async def test_rule_14_owner_that_dies_after_an_ask_is_not_waited_for() -> None:
    """It is fenced after its duration, which is shorter than its hand-off, and its leases are free."""
    world = World(partitions=2)
    world.start("a")
    await world.wait(5.0)
    world.start("b")
    await world.until(lambda: bool(world.network.applied(Ask)), within_s=5)
    world.kill("a")
    took_s = await world.until(lambda: set(world.owners().values()) == {"b"}, within_s=D + 2 * B)

    print(f"both leases {took_s:.2f} s after the death of their owner")
    assert {event.reason for event in world.events(LeaseAcquired, place="b")} == {"expired"}
    check_safety(world)


@virtual
async def test_asker_that_dies_after_asking_leaves_no_orphan_and_no_repeat() -> None:
    """The released lease counts as the asker's until it is fenced, and then comes back."""
    world = World(partitions=2)
    world.put(2000)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.wait(5.0)
    world.start("b")
    await world.until(lambda: bool(world.network.applied(Ask)), within_s=5)
    world.kill("b")
    await world.until(lambda: bool(world.network.applied(Release)), within_s=10)
    took_s = await world.until(lambda: set(world.owners().values()) == {"a"}, within_s=D + 2 * B)
    await world.wait(10.0)

    print(f"taken back {took_s:.2f} s after its release")
    assert sorted(lease.token for lease in world.leases().values()) == [1, 2]
    assert repeats(world) == 0
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_rule_6_lease_is_not_freed_while_its_processor_still_runs() -> None:
    """A free lease says that nobody works on the partition any more; one that cannot be ended is taken by force."""
    world = World(partitions=2)
    world.put(10)
    world.start("a", record_s=90.0, stubborn=True)
    await world.wait(5.0)
    world.start("b", record_s=0.2)
    await world.until(lambda: bool(world.events(LeaseAcquired, place="b")), within_s=HANDOFF_S + D)
    await world.wait(3.0)

    assert [event.reason for event in world.events(LeaseAcquired, place="b")] == ["forced"]
    assert [write.verb for write in world.network.history if isinstance(write.verb, Release)] == []
