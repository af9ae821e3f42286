"""Rules 1 to 9 of the protocol: what a holder may believe. Each test is one schedule that a looser rule gets wrong."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from partitions.clocks import BootClock
from partitions.errors import StoreUnavailable
from partitions.events import (
    BeatAnswered,
    CheckpointSaved,
    EndReason,
    LeaseAcquired,
    LeaseEnded,
    LeaseReleased,
    ReleaseFailed,
    SessionEnded,
)
from partitions.items import LeaseItem
from partitions.leases import Lease
from partitions.liveness import CLOCK_DRIFT
from partitions.verbs import Acquire, Beat, Fence, Leave, Register, Release, SaveCheckpoint
from tests.cases.lone import Lone, begun, write_ask
from tests.cases.virtual import seeded, virtual
from tests.world.checks import check_no_overlap, check_safety, lost
from tests.world.clocks import PlaceClock
from tests.world.loop import result_of, run_virtual
from tests.world.network import Call
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
VALID_S = D * (1 - CLOCK_DRIFT)


def sent_s(world: World, operation: str, *, place: str = "a") -> list[float]:
    """When each such call was sent, world's time."""
    return [at for at, call in world.network.calls if call.place == place and call.operation == operation]


def left_s(lone: Lone) -> float:
    """How long the session still lives by its own clock, seconds."""
    return lone.session.table.valid_until_s - lone.clock.now_s()


def results_of(world: World, verb: type) -> list[str]:
    """What became of each such write that reached the store."""
    return [type(write.result).__name__ for write in world.network.history if isinstance(write.verb, verb)]


class SeenHeld:
    """Matches one operation, disturbs nothing, and notes whether the lease was held as it was sent."""

    def __init__(self, operation: str, lease: Lease) -> None:
        self.held: list[bool] = []
        self._operation = operation
        self._lease = lease

    def __call__(self, call: Call) -> bool:
        if call.operation == self._operation:
            self.held.append(self._lease.is_held())
        return False


@virtual
async def test_rule_1_register_that_was_answered_on_the_third_try_dates_from_the_first() -> None:
    """Any of the tries may be the one that was applied, and the others' clocks run from that one."""
    world = World()
    world.network.disturb(lambda call: call.operation == "Register", lose_answer=True, times=1)
    world.network.disturb(lambda call: call.operation == "Register", fail_before=True, times=1)
    a = await begun(world, "a")

    tries = sent_s(world, "Register")
    assert results_of(world, Register) == ["Applied", "Refused"]
    assert len(tries) == 3
    assert tries[2] > tries[0] + 1
    assert left_s(a) == pytest.approx(tries[0] + VALID_S - world.now_s)


@virtual
async def test_rule_1_session_whose_register_was_never_answered_gives_its_id_up() -> None:
    """It may or may not be in the store; only a new id is certain to be dated by its own register."""
    world = World()
    world.network.disturb(lambda call: call.operation == "Register" and world.now_s < 1000 + D, lose_answer=True)
    world.start("a")
    await world.until(lambda: set(world.owners().values()) == {"a"}, within_s=2 * D)

    registered = [write.verb.session_id for write in world.network.applied(Register)]
    assert len(set(registered)) == len(registered) == 2
    assert [write.verb.session_id for write in world.network.applied(Leave)] == registered[:1]
    assert {lease.owner for lease in world.leases().values()} == {registered[1]}


@virtual
async def test_rule_1_validity_counts_from_before_the_beat_was_sent() -> None:
    """The store may have applied it at that moment; a slow answer must not lengthen a session."""
    world = World(latency_s=1.0)
    a = await begun(world, "a", call_timeout_s=2.0)
    await world.wait(2.6)

    assert sent_s(world, "Beat")[-1] < world.now_s - 1.0
    assert left_s(a) == pytest.approx(sent_s(world, "Beat")[-1] + VALID_S - world.now_s)


def test_rules_1_and_12_no_term_goes_on_at_the_end_of_a_silent_session_wherever_its_last_beat_falls() -> None:
    """Holder and observer err to opposite sides, by more than their clocks may differ."""
    for phase in range(40):
        with seeded(phase):
            run_virtual(lambda phase=phase: silence_at(phase * 0.05))  # type: ignore[misc]


async def silence_at(phase_s: float) -> None:
    world = World(partitions=2, latency_s=0.001)
    # Half the difference that is allowed each, to the unsafe side.
    world.start("a", clock=PlaceClock(rate=0.995, offset_s=5.0))
    await world.wait(phase_s)
    world.start("b", clock=PlaceClock(rate=1.005, offset_s=9.0))
    await world.until(lambda: world.shares() == [1, 1], within_s=20)
    await world.wait(2.0)
    world.network.cut_off.add("a")
    await world.until(lambda: set(world.owners().values()) == {"b"}, within_s=2 * D)

    assert world.overlaps == []


def test_rule_2_clock_of_a_host_counts_while_the_machine_is_suspended() -> None:
    """A monotonic clock stands still meanwhile, and the host would wake up in good faith."""
    counting = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before_s = time.clock_gettime(counting)
    now_s = BootClock().now_s()

    assert before_s <= now_s <= time.clock_gettime(counting)


@virtual
async def test_rule_3_lost_beat_answers_cost_no_lease_while_a_retry_fits_in() -> None:
    """A beat is tried again until the session runs out, and counts only from what was answered."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    await world.wait(2.1)
    last_s = sent_s(world, "Beat")[-1]
    world.network.disturb(lambda call: call.operation == "Beat", lose_answer=True, times=2)
    await world.until(lambda: world.network.faults[0].times == 0, within_s=5)
    await world.wait(0.9)
    while_lost_s = left_s(a)
    lost_until_s = world.now_s
    await world.wait(2.0)

    assert while_lost_s == pytest.approx(last_s + VALID_S - lost_until_s)
    assert lease.is_held()
    assert left_s(a) > VALID_S - 3.0
    # One at a time: each is sent after the one before it was given up.
    beats = sent_s(world, "Beat")
    assert min(later - earlier for earlier, later in pairwise(beats)) >= 1.0


@virtual
async def test_rule_3_answer_that_arrives_after_the_session_has_run_out_is_ignored() -> None:
    """By then the terms have ended, and a session that came back would hold leases that others may have."""
    world = World()
    # A clock so fast that the session runs out before the time-out of the call, which is the event loop's, does.
    a = await begun(world, "a", clock=PlaceClock(rate=1.5))
    lease = await a.acquire("p0")
    world.network.disturb(lambda call: call.operation == "Beat", lose_answer=True, times=1)
    world.network.disturb(lambda call: call.operation == "Beat", after_s=0.93)
    await world.wait(20.0)

    # Applied, answered, and too late all the same.
    assert len(world.network.applied(Beat)) == 2
    assert world.events(BeatAnswered) == []
    assert lease.end_reason is EndReason.SESSION_ENDED
    assert [event.reason for event in world.events(SessionEnded)] == [
        "a beat was answered after its duration had run out"
    ]


@virtual
async def test_rule_4_session_that_was_lost_is_never_gone_on_with() -> None:
    """Its terms end, a new id is registered, the old item is never made again, and each lease is acquired anew."""
    world = World()
    world.start("a", record_s=0.05, batch_records_max=10)
    await world.until(lambda: len(world.running()) == 4, within_s=5)
    world.put(1000)
    await world.wait(5.0)
    [old] = world.sessions().values()
    world.store.apply_now(GROUP, Fence(session_id=old.session_id, seen_beat=old.beat))
    fenced_s = world.now_s
    # By its next beat, not when its duration is over.
    await world.until(lambda: world.shares() == [4], within_s=D / 3 + 0.5)
    await world.wait(5.0)

    registered = [write.verb.session_id for write in world.network.applied(Register)]
    assert len(registered) == 2
    assert registered[0] == old.session_id != registered[1]
    assert world.sessions().keys() == {registered[1]}
    assert {lease.token for lease in world.leases().values()} == {2}
    assert {write.verb.session_id for write in world.network.applied(Beat) if write.at_s > fenced_s} == {registered[1]}
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_rule_4_terms_have_ended_before_a_leave_is_sent() -> None:
    """Once the item is gone the leases are free, so nobody here may still believe in one."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    seen = SeenHeld("Leave", lease)
    world.network.disturb(seen)
    assert await a.do(a.session.leave)

    assert seen.held == [False]
    assert (world.sessions(), lease.end_reason) == ({}, EndReason.SESSION_ENDED)


@virtual
async def test_rule_5_acquire_answered_after_the_session_ended_hands_out_a_lease_that_has_ended() -> None:
    """The session may have been fenced meanwhile, and the lease be another's by now."""
    world = World()
    a = await begun(world, "a")
    world.network.disturb(lambda call: call.operation == "Acquire", after_s=0.5)
    acquiring = a.start(a.session.acquire, world.leases()["p0"], reason="free")
    await world.wait(0.2)
    assert world.leases()["p0"].owner == "a:1"
    a.session.end("for this test")
    lease = await result_of(acquiring)

    assert lease is not None
    assert (lease.is_held(), lease.ended.is_set(), lease.end_reason) == (False, True, EndReason.SESSION_ENDED)
    assert dict(a.session.held) == {}


@virtual
async def test_rule_6_term_ends_here_before_its_release_is_sent() -> None:
    """Whoever sees the lease free may begin at once."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    seen = SeenHeld("Release", lease)
    world.network.disturb(seen)
    assert await a.do(lease.release, "7")

    assert seen.held == [False]
    assert world.leases()["p0"].position == "7"


@virtual
async def test_rule_6_release_whose_answers_are_lost_is_known_by_the_stored_item() -> None:
    """A lease that is free under one's own token was freed by oneself."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    world.network.disturb(lambda call: call.operation == "Release", lose_answer=True, times=2)

    assert await a.do(lease.release, "7")
    assert results_of(world, Release) == ["Applied", "Refused", "Refused"]
    free = LeaseItem(partition="p0", token=1, position="7", seq=1, last_host="a")
    assert world.leases()["p0"] == free
    assert [event.position for event in world.events(LeaseReleased)] == ["7"]


@virtual
async def test_rule_6_release_that_never_arrives_is_told_and_resolved_by_a_snapshot() -> None:
    """The host goes on; what the store still has as its own it acquires anew, under the next token."""
    world = World(partitions=2)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.until(lambda: len(world.running()) == 2, within_s=5)
    world.put(500)
    await world.wait(2.0)
    world.network.disturb(
        lambda call: call.operation == "Release" and call.partition == "p0", lose_request=True, times=3
    )
    session = world.hosts["a"].host.session
    assert session is not None
    write_ask(world, session.held["p0"], session.session_id)
    await world.until(lambda: world.leases()["p0"].token == 2, within_s=20)
    await world.wait(5.0)

    assert [(event.partition, event.token) for event in world.events(ReleaseFailed)] == [("p0", 1)]
    assert world.events(LeaseAcquired)[-1].reason == "resolved"
    assert {name: lease.token for name, lease in world.leases().items()} == {"p0": 2, "p1": 1}
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_rule_7_checkpoint_that_arrives_twice_does_not_move_the_position_back() -> None:
    """The network may deliver the first one once more, seconds after a later one was stored."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    world.network.disturb(lambda call: call.operation == "SaveCheckpoint", repeat_after_s=2.0, times=1)
    await a.do(lease.checkpoint, "100")
    await a.do(lease.checkpoint, "150")
    await world.wait(3.0)

    saves = [write for write in world.network.history if isinstance(write.verb, SaveCheckpoint)]
    assert [write.verb.position for write in saves] == ["100", "150", "100"]
    assert results_of(world, SaveCheckpoint) == ["Applied", "Applied", "Refused"]
    assert (world.leases()["p0"].position, lease.is_held()) == ("150", True)
    check_safety(world)


@virtual
async def test_rule_8_lease_whose_acquire_was_not_answered_is_acquired_again_and_never_adopted() -> None:
    """Nobody knows when the lost acquire began to hold; what is handled is handled under the next token."""
    world = World(partitions=1)
    world.put(100)
    lost_answer = world.network.disturb(lambda call: call.operation == "Acquire", lose_answer=True, times=1)
    world.start("a")
    await world.until(lambda: len(world.handled()) == 100, within_s=2 * D)

    assert lost_answer.hits == 1
    assert [write.result.item.token for write in world.network.applied(Acquire)] == [1, 2]
    assert {entry.token for entry in world.handled()} == {2}
    assert [(event.token, event.reason) for event in world.events(LeaseAcquired)] == [(2, "resolved")]
    check_safety(world)


@virtual
async def test_rule_8_own_late_release_frees_no_term_that_was_begun_meanwhile() -> None:
    """This is why a lease is not adopted: under the same token the late release would match."""
    world = World()
    a = await begun(world, "a")
    world.network.disturb(lambda call: call.operation == "Acquire", lose_answer=True, times=1)
    with pytest.raises(StoreUnavailable):
        await a.acquire("p0")
    world.network.disturb(lambda call: call.operation == "Release", before_s=3.0, times=1)
    with pytest.raises(StoreUnavailable):
        await a.do(a.session.give_back, world.leases()["p0"])
    lease = await a.acquire("p0", reason="resolved")
    await world.wait(5.0)

    assert results_of(world, Release) == ["Refused"]
    assert (lease.token, lease.is_held(), world.leases()["p0"].owner) == (2, True, "a:1")


@virtual
async def test_rule_8_two_acquires_of_one_partition_are_never_on_their_way_together() -> None:
    """The answer of the first could be taken for that of the second."""
    world = World()
    a = await begun(world, "a")
    world.network.disturb(lambda call: call.operation == "Acquire", after_s=0.5)
    first = a.start(a.session.acquire, world.leases()["p0"], reason="free")
    await world.wait(0.1)
    second = await a.do(a.session.acquire, world.leases()["p0"], reason="free")
    lease = await result_of(first)

    assert second is None
    assert len(sent_s(world, "Acquire")) == 1
    assert lease is not None
    assert lease.is_held()


@virtual
async def test_rule_9_refused_checkpoint_may_be_ones_own_earlier_success() -> None:
    """Its answer was lost and the retry finds its own number stored: nothing was lost."""
    world = World()
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    world.network.disturb(lambda call: call.operation == "SaveCheckpoint", lose_answer=True, times=1)
    await a.do(lease.checkpoint, "100")

    assert results_of(world, SaveCheckpoint) == ["Applied", "Refused"]
    assert [event.position for event in world.events(CheckpointSaved)] == ["100"]
    assert lease.is_held()
    assert world.events(LeaseEnded) == []
