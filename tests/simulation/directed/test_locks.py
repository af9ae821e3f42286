"""Locks: rules 1, 4, 5, 6, 8 and 12 again, for leases that no plan gives out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partitions.errors import StoreUnavailable
from partitions.events import SessionFenced
from partitions.lock_verbs import AcquireLock, ReleaseLock
from partitions.verbs import Beat, Fence, Refused
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.contender import Contender, contender
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import DRIFTING, Stage, of
from tests.world.clocks import PlaceClock
from tests.world.world import GROUP

__all__: list[str] = []

D = 6.0
BEAT_S = D / 3
EXPIRY_S = D * 1.01 / DRIFTING[0]
SLACK_S = 1.5
"""Looks, and the calls of a take-over."""


async def pair(stage: Stage) -> tuple[Contender, Contender]:
    """Two contenders: the one that is to hold has the slowest clock, the other the fastest."""
    slow, fast = (PlaceClock(rate=rate, offset_s=7e5 * rate) for rate in DRIFTING)
    return await contender(stage, "a", clock=slow), await contender(stage, "b", clock=fast)


@schedule(partitions=0, ends_calm=False)
async def test_lock_of_a_living_owner_is_left_to_it_and_of_one_that_left_is_free(stage: Stage) -> None:
    """However often another tries, and at once."""
    a, b = await pair(stage)
    lease = await a.take()
    working = a.work(lease)
    for _ in range(60):
        demand("a lock is left to its owner", await b.do(b.locks.try_acquire, "nightly") is None, stage.world.now_s)
        await stage.world.wait(0.5)
    demand("a lock is left to its owner", lease.is_held(), lease)
    await a.leave()
    await stage.world.wait(0.5)
    demand("work ends with its lease", working.done(), working)
    await b.take()
    await b.leave()


@schedule(
    partitions=0,
    ends_calm=False,
    cases={
        "requests": {"what": {"lose_request": True}},
        "answers": {"what": {"lose_answer": True}},
    },
)
async def test_owner_of_a_lock_is_cut_off_and_works_on_as_long_as_it_may(stage: Stage, what: dict[str, Any]) -> None:
    """With clocks that differ by all that is allowed: who waits has it soon after, and never before, it has ended."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    working = a.work(lease, step_s=0.01)
    taking = b.start(b.locks.acquire, "nightly")
    await world.wait(2 * D)
    stage.disturb(of("a"), **what)
    cut_s = world.now_s
    # Where only its answers are lost, its beats are seen until it gives up.
    most_s = EXPIRY_S + SLACK_S + (0.0 if what == {"lose_request": True} else D)
    await demand_in_time(world, "a dead owner's lock is taken over", taking.done, within_s=most_s, since_s=cut_s)
    demand("work ends with its lease", working.done() and not lease.is_held(), lease)
    stage.heal()
    await world.wait(2 * D)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_owner_of_a_lock_is_frozen_and_does_nothing_under_it_when_it_wakes(stage: Stage) -> None:
    """The first thing that runs when it wakes is its work, before its own timers tell it anything (rule 5)."""
    world = stage.world
    a, b = await pair(stage)
    working = a.work(await a.take(), step_s=0.01)
    taking = b.start(b.locks.acquire, "nightly")
    # No beat of it is on its way then.
    await world.wait(D + 0.5)
    world.freeze("a")
    await demand_in_time(world, "a dead owner's lock is taken over", taking.done, within_s=EXPIRY_S + SLACK_S)
    world.thaw("a")
    await world.wait(D)
    demand("work ends with its lease", working.done(), working)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_owner_of_a_lock_loses_beats_for_half_of_its_duration(stage: Stage) -> None:
    """Two beats of it are lost; who waits sees nothing change for longer than between two beats, and waits on."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    b.start(b.locks.acquire, "nightly")
    await world.wait(D)
    for _ in range(3):
        lost = stage.disturb(of("a", "Beat"), lose_request=True)
        await world.wait(0.45 * D)
        world.network.faults.remove(lost)
        await world.wait(D)
    demand("a lock is left to its owner", lease.is_held(), lease)
    fences = [event for _, _, event in world.diary if isinstance(event, SessionFenced)]
    demand("only the dead are fenced", fences == [], fences)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_owner_of_a_lock_beats_between_the_look_and_the_fence(stage: Stage) -> None:
    """Every time: the fence is refused, which is a look, and the contender watches it for a whole duration again."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    stage.disturb(of("b", "read_session"), changes=lambda session: replace(session, beat=0))
    taking = b.start(b.locks.acquire, "nightly")
    await world.wait(4 * D)
    refused = [write for write in world.network.history if isinstance(write.verb, Fence)]
    assert refused
    demand("a lock is left to its owner", lease.is_held() and not taking.done(), lease)
    await a.leave()
    await b.leave()


@schedule(
    partitions=0,
    ends_calm=False,
    cases={
        "its answer is lost": {"what": {"lose_answer": True}},
        "it is answered with a fault": {"what": {"fail_after": True}},
        "it arrives after it was given up": {"what": {"before_s": 1.2}},
        "it arrives three beats later": {"what": {"before_s": 3.1 * BEAT_S}},
    },
)
async def test_try_for_a_lock_is_in_doubt_and_nobody_comes_back_to_it(stage: Stage, what: dict[str, Any]) -> None:
    """The session lives on for long; the lock must not be taken for as long."""
    world = stage.world
    a, b = await pair(stage)
    fault = stage.disturb(of("a", "AcquireLock"), times=1, **what)
    try:
        lease = await a.do(a.locks.try_acquire, "nightly")
    except StoreUnavailable:
        lease = None
    assert (lease, fault.hits) == (None, 1)
    await world.until(lambda: bool(world.network.applied(AcquireLock)), within_s=4 * BEAT_S)
    await world.wait(2 * BEAT_S)
    item = world.store.lock_now(GROUP, "nightly")
    demand("what nobody holds is freed", item is not None and item.owner is None, item)
    await b.take()
    await world.wait(4 * D)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_acquire_of_a_lock_is_in_doubt_and_is_acquired_again(stage: Stage) -> None:
    """What is found to be one's own is not adopted: a release of the term before may still be on its way."""
    world = stage.world
    a, b = await pair(stage)
    stage.disturb(of("a", "AcquireLock"), fail_after=True, times=1)
    lease = await a.do(a.locks.acquire, "nightly")
    demand("leases of locks begin with an answer", lease.token == 2, lease)
    await world.wait(D)
    demand("a lock is left to its owner", lease.is_held(), lease)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_acquire_of_a_lock_is_refused_for_its_own_first_success(stage: Stage) -> None:
    """As where a client below sends a write twice: the refusal shows the sender as owner (rule 9)."""
    a, b = await pair(stage)
    stage.disturb(of("a", "AcquireLock"), changes=lambda done: Refused(current=done.item), times=1)
    lease = await a.take()
    demand("leases of locks begin with an answer", lease.token == 2, lease)
    await stage.world.wait(D)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_two_tasks_of_one_session_want_one_lock(stage: Stage) -> None:
    """One has it, the other is told so."""
    world = stage.world
    a, b = await pair(stage)
    both = [a.start(a.locks.try_acquire, "nightly") for _ in range(2)]
    await world.until(lambda: all(task.done() for task in both), within_s=D)
    leases = [lease for lease in (task.result() for task in both) if lease is not None]
    demand("one task has a lock", len(leases) == 1, leases)
    demand("one task has a lock", await a.do(a.locks.try_acquire, "nightly") is None, leases)
    await world.wait(D)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_release_of_a_lock_is_slow_and_another_takes_it(stage: Stage) -> None:
    """It has ended at its holder before anybody can see it free."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    working = a.work(lease, step_s=0.01)
    taking = b.start(b.locks.acquire, "nightly")
    stage.disturb(of("a", "ReleaseLock"), after_s=0.9, times=1)
    await world.wait(1.0)
    await a.do(lease.release)
    demand("a released lock is taken soon", taking.done() and working.done(), taking)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_look_at_a_lock_is_overtaken_by_a_release_and_an_acquire(stage: Stage) -> None:
    """It shows the term before, and ends nothing."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    slow = stage.disturb(of("a", "read_some_locks"), after_s=0.9, times=1)
    await world.until(lambda: slow.hits == 1, within_s=D, every_s=0.01)
    await world.wait(0.05)
    await a.do(lease.release)
    again = await a.take()
    await world.wait(D)
    demand("a lock is left to its owner", again.is_held(), again)
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_lock_is_freed_by_an_operator_and_its_holder_ends_within_a_beat(stage: Stage) -> None:
    """Whatever the operator believed, the holder lives; it must not go on for longer than it takes to look."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    await world.wait(D)
    await stage.write(ReleaseLock(name="nightly", owner=lease.owner, token=lease.token))
    await demand_in_time(world, "a lost lease ends within a beat", lease.ended.is_set, within_s=BEAT_S + 0.1)
    await b.take()
    await a.leave()
    await b.leave()


@schedule(partitions=0, ends_calm=False)
async def test_session_is_lost_with_a_lock_and_another_has_it_when_it_is_back(stage: Stage) -> None:
    """A lease that ends with its session ends for good; the host goes on under a new one."""
    world = stage.world
    a, b = await pair(stage)
    lease = await a.take()
    first = a.locks.session_id
    lost = stage.disturb(of("a", "Beat"), lose_request=True)
    await world.until(lambda: a.locks.session_id != first, within_s=2 * D)
    world.network.faults.remove(lost)
    demand("a lease ends with its session", lease.ended.is_set(), lease)
    await b.take()
    await world.wait(D)
    demand("a session begins again", a.locks.session_id not in (None, first), a.locks.session_id)
    demand("a session begins again", [w for w in world.network.applied(Beat) if w.place == "a"] != [], first)
    await a.leave()
    await b.leave()
