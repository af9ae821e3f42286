"""What arrives when nobody waits for it any more: rules 3, 7, 8 and 9."""

from __future__ import annotations

import math

import anyio
import pytest

from partitions.errors import StoreUnavailable
from partitions.events import LeaseAcquired, ReleaseFailed
from partitions.leases import Lease
from partitions.verbs import Acquire, Ask, Fence, Register, Release, SaveCheckpoint
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.checks import repeats

__all__: list[str] = []

D = 6.0
B = 2.0


@schedule(partitions=2)
async def test_release_is_applied_long_after_it_was_given_up(stage: Stage) -> None:
    """By then the host has acquired again, under the next token: the old release frees nothing."""
    world = stage.world
    world.put(400)
    stage.host("a")
    stage.host("b")
    await world.until(lambda: world.shares() == [1, 1], within_s=3 * D)
    [mine] = [name for name, owner in world.owners().items() if owner == "a"]
    token = world.leases()[mine].token
    stage.disturb(of("a", "Release"), before_s=3 * D, times=1)
    stage.disturb(of("a", "Release"), lose_request=True, times=2)
    await stage.write_ask(mine, asker="")
    await world.until(lambda: bool(world.events(ReleaseFailed)), within_s=2 * D)
    await world.until(lambda: mine in world.hosts["a"].held, within_s=2 * D)
    # While the late release is on its way.
    assert not [write for write in world.network.history if isinstance(write.verb, Release)]
    await world.wait(4 * D)

    [late] = [write for write in world.network.history if isinstance(write.verb, Release) and write.verb.token == token]
    assert late.at_s - late.sent_s >= 3 * D


@schedule(
    partitions=1,
    cases={
        "the lease has moved on": {"waits_s": 5.0, "is_taken": True},
        "the lease is as it was": {"waits_s": 3.5, "is_taken": False},
    },
)
async def test_acquire_is_applied_long_after_it_was_given_up(stage: Stage, waits_s: float, is_taken: bool) -> None:
    """It is refused where the lease has changed; else its host finds a lease that it does not hold, and resolves it."""
    world = stage.world
    world.put(200)
    stage.disturb(of("a", "Acquire"), before_s=waits_s, times=1)
    if not is_taken:
        stage.disturb(of("a", "Acquire"), fail_before=True, times=2)
    stage.host("a")
    await world.wait(waits_s + 3 * D)

    acquires = [write for write in world.network.history if isinstance(write.verb, Acquire)]
    late = [write for write in acquires if write.at_s - write.sent_s > 1.0]
    assert len(late) == 1
    assert [event.reason for event in world.events(LeaseAcquired)] == ["free" if is_taken else "resolved"]


@schedule(partitions=1)
async def test_answer_of_an_acquire_is_lost(stage: Stage) -> None:
    """What the store has as one's own and nobody holds is acquired again, under the next token, never adopted."""
    world = stage.world
    world.put(100)
    lost = stage.disturb(of("a", "Acquire"), lose_answer=True, times=1)
    stage.host("a")
    await world.wait(2 * D)

    assert lost.hits == 1
    assert [write.result.item.token for write in world.network.applied(Acquire)] == [1, 2]


@schedule(partitions=1)
async def test_acquire_that_was_given_up_is_released_by_a_late_call(stage: Stage) -> None:
    """The lease was to be given back, that was late, and the plan changed: the late release names an older token."""
    world = stage.world
    stage.make_leases()
    world.put(200)
    a = await stage.puppet("a")
    b = await stage.puppet("b")
    stage.disturb(of("a", "Acquire"), lose_answer=True, times=1)
    with pytest.raises(StoreUnavailable):
        await a.take("p0")
    stage.disturb(of("a", "Release"), before_s=4.0, times=1)
    giving_back = a.start(a.session.give_back, world.leases()["p0"])
    await world.wait(1.1)
    assert isinstance(giving_back.exception(), StoreUnavailable)
    assert await a.take("p0", reason="resolved") is not None
    await world.wait(4.0)
    # It sees the lease as it is stored: free, if the late release had freed it.
    if world.leases()["p0"].owner is None:
        await b.take("p0")
    await world.wait(D)

    assert world.leases()["p0"].owner == "a:1"


@schedule(partitions=1)
async def test_acquire_by_force_is_applied_long_after_it_was_given_up(stage: Stage) -> None:
    """The owner has acquired again since: its new term was asked for by nobody, and must not be taken."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    a = await stage.puppet("a", handoff_s=D, record_s=0.2, stubborn=True, batch_records_max=1000)
    b = await stage.puppet("b")
    await a.take("p0")
    assert await b.ask("p0") == 1
    stage.disturb(of("a", "Release"), lose_request=True, times=3)
    stage.disturb(of("b", "Acquire"), before_s=4.0, times=1)
    await world.until(lambda: not a.session.is_busy("p0"), within_s=2 * D)
    await world.until(lambda: b.session.is_busy("p0"), within_s=2 * D, every_s=0.01)
    assert await a.take("p0", reason="resolved") is not None
    await world.wait(D)

    late = [write for write in world.network.history if isinstance(write.verb, Acquire) and write.place == "b"]
    assert [write.at_s - write.sent_s > 1.0 for write in late] == [True]
    assert world.leases()["p0"].owner == "a:1"


@schedule(partitions=2)
async def test_register_is_applied_long_after_it_was_given_up(stage: Stage) -> None:
    """It makes an item that nobody beats for: the others fence it after its duration, and it owns nothing."""
    world = stage.world
    world.put(200)
    stage.host("b")
    await world.until(lambda: world.shares() == [2], within_s=D)
    stage.disturb(of("a", "Register"), before_s=2.5 * D, times=1)
    stage.disturb(of("a", "Register"), lose_request=True, times=5)
    stage.host("a")
    await world.wait(8 * D)

    registers = [write for write in world.network.applied(Register) if write.place == "a"]
    assert len(registers) == 2
    late = max(registers, key=lambda write: write.at_s - write.sent_s)
    assert late.at_s - late.sent_s >= 2.5 * D
    assert late.verb.session_id in {write.verb.session_id for write in world.network.applied(Fence)}


@schedule(partitions=1)
async def test_register_arrives_again_after_its_session_was_fenced(stage: Stage) -> None:
    """The host has gone on under another id; the old one's item is made once more and fenced once more."""
    world = stage.world
    world.put(200)
    stage.disturb(of("a", "Register"), repeat_after_s=20.0, times=1)
    stage.host("a")
    await world.wait(4.0)
    world.network.cut_off.add("a")
    stage.host("b")
    await world.wait(8.0)
    world.network.cut_off.clear()
    await world.wait(4 * D)

    [again] = [write for write in world.network.applied(Register) if write.is_repeat]
    fences_s = [w.at_s for w in world.network.applied(Fence) if w.verb.session_id == again.verb.session_id]
    assert fences_s[0] < again.at_s < fences_s[1]


@schedule(partitions=2, latency_s=0.02)
async def test_checkpoint_arrives_again_after_a_later_one(stage: Stage) -> None:
    """A duplicate that the network delivers late must not move the position back."""
    world = stage.world
    world.put(400)
    stage.disturb(of("a", "SaveCheckpoint"), repeat_after_s=2.7)
    stage.host("a")
    await world.wait(3 * D)
    world.network.faults.clear()

    again = [write for write in world.network.history if isinstance(write.verb, SaveCheckpoint) and write.is_repeat]
    assert len(again) > 5
    # The one in front had been stored and a later one too.
    saves = [write for write in world.network.history if isinstance(write.verb, SaveCheckpoint)]
    stored = {(w.verb.partition, w.verb.seq): w.at_s for w in saves if not w.is_repeat}
    assert [w for w in again if stored.get((w.verb.partition, w.verb.seq + 1), math.inf) < w.at_s]


@schedule(partitions=2, cases={"lost": {"what": "lose_answer"}, "a fault": {"what": "fail_after"}})
async def test_answer_of_a_checkpoint_is_lost(stage: Stage, what: str) -> None:
    """The retry is refused by one's own number: nothing was lost, and no term ends of it."""
    world = stage.world
    world.put(400)
    stage.host("a")
    await world.until(lambda: world.shares() == [2], within_s=D)
    fault = stage.disturb(of("a", "SaveCheckpoint"), times=3, **{what: True})
    await world.wait(2 * D)

    assert fault.times == 0
    demand("terms end for a reason", {lease.token for lease in world.leases().values()} == {1}, world.leases())


@schedule(partitions=2)
async def test_ask_is_applied_twice(stage: Stage) -> None:
    """The second one may come when the term is over: it names a term that never comes again, and is cleared away."""
    world = stage.world
    world.put(200)
    stage.host("a")
    await world.wait(4.0)
    stage.disturb(of("b", "Ask"), repeat_after_s=D)
    stage.host("b")
    await world.wait(3 * D)

    asks = [write for write in world.network.history if isinstance(write.verb, Ask)]
    assert [type(write.result).__name__ for write in asks] == ["Applied", "Applied"]
    demand("asks are cleared away", not any(item.asks for item in world.sessions().values()), world.sessions())


@schedule(partitions=2)
async def test_snapshot_is_read_while_a_release_is_on_its_way(stage: Stage) -> None:
    """The store has the term still; it is no acquire whose answer was lost, and must not be acquired again."""
    world = stage.world
    world.put(400)
    stage.host("a", balance_interval_s=0.25, audit_interval_s=1.0)
    await world.wait(4.0)
    stage.disturb(of("a", "Release"), before_s=0.9, times=1)
    stage.host("b")
    await world.wait(3 * D)

    demand("fewest moves", len(world.network.applied(Acquire)) == 3, world.network.applied(Acquire))
    demand("an orderly hand-over repeats nothing", repeats(world) == 0, f"{repeats(world)} repeated")
    [release] = [write for write in world.network.applied(Release) if write.place == "a"]
    assert any(
        call.place == "a" and call.operation == "read_leases" and release.sent_s < at_s < release.at_s - 0.1
        for at_s, call in world.network.calls
    )


@schedule(partitions=2)
async def test_lease_is_read_as_ones_own_while_the_answer_of_its_acquire_is_on_its_way(stage: Stage) -> None:
    """It is no acquire whose answer was lost; a second one would end the term that the first is about to begin."""
    world = stage.world
    world.put(100)
    stage.host("b")
    await world.wait(4.0)
    slow = stage.disturb(of("a", "Acquire"), after_s=0.9, times=1)
    # Of its rounds none begins between the release and the look that sees it, and some do right after.
    stage.host("a", balance_interval_s=0.3, audit_interval_s=0.1)
    await world.until(lambda: slow.hits == 1, within_s=2 * D, every_s=0.01)
    sent_s = world.now_s
    await world.wait(D)
    reads_s = [at_s for at_s, call in world.network.calls if of("a", "read_leases")(call)]
    assert [at_s for at_s in reads_s if sent_s + 0.1 < at_s < sent_s + 0.8]
    demand("fewest moves", len(world.network.applied(Acquire)) == 3, world.network.applied(Acquire))


@schedule(partitions=1)
async def test_release_is_cancelled_and_its_first_try_fails(stage: Stage) -> None:
    """Whoever gives a lease back on the way out is cancelled; the store must hear of it all the same."""
    world = stage.world
    stage.make_leases()
    a = await stage.puppet("a", processes=False)
    lease = await a.take("p0")
    assert lease is not None
    failing = stage.disturb(of("a", "Release"), fail_before=True, times=1)
    a.start(in_a_hurry, lease)
    await demand_in_time(world, "a cancelled release is sent", lambda: world.leases()["p0"].owner is None, within_s=2.0)
    assert failing.hits == 1


async def in_a_hurry(lease: Lease) -> None:
    """Release, in a scope that is cancelled before the first answer."""
    with anyio.move_on_after(0.001):
        await lease.release("0")
