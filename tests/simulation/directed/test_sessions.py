"""Sessions: rules 1, 3, 4 and 12. From when on a host counts, and when others may take it for dead."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

from partitions.clocks import BootClock
from partitions.events import SessionEnded
from partitions.verbs import Acquire, Beat, Fence, Pause, Register, Resume
from tests.simulation.directed.checks import demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import DRIFTING, Stage, of
from tests.world.clocks import PlaceClock
from tests.world.loop import running_loop
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
OFTEN: dict[str, Any] = {"balance_interval_s": 0.25}
"""An observer that sees each beat at once, so that its time runs from as early as may be."""


async def until_s(world: World, at_s: float) -> None:
    """Wait until a moment that must not have passed."""
    assert at_s >= world.now_s
    await world.wait(at_s - world.now_s)


@schedule(partitions=1, cases={"slow holder": {"rates": DRIFTING}, "fast holder": {"rates": DRIFTING[::-1]}})
async def test_beat_is_answered_just_before_the_session_runs_out_then_the_host_is_cut_off(
    stage: Stage, rates: tuple[float, float]
) -> None:
    """The others count from when they saw the beat; a session that counted from its answer would outlive that."""
    world = stage.world
    stage.make_leases()
    world.put(300)
    began_s = world.now_s
    a = await stage.puppet("a", clock=PlaceClock(rate=rates[0]))
    await a.take("p0")
    stage.host("b", clock=PlaceClock(rate=rates[1]), capacity=1e-6, **OFTEN)
    failing = stage.disturb(of("a", "Beat"), fail_before=True)
    await until_s(world, began_s + 4.95)
    failing.times = 0
    stage.disturb(of("a", "Beat"), after_s=0.93)
    beating = a.beating()
    await until_s(world, began_s + 5.93)
    assert beating.result()
    world.network.cut_off.add("a")
    await world.wait(2 * D)

    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


@schedule(partitions=1)
async def test_register_is_applied_at_once_and_answered_on_the_third_try_then_the_host_is_cut_off(
    stage: Stage,
) -> None:
    """Any of the tries may be the one that was applied, and the others' time runs from that one."""
    world = stage.world
    stage.make_leases()
    world.put(300)
    stage.disturb(of("a", "Register"), lose_answer=True, times=1)
    stage.disturb(of("a", "Register"), fail_before=True, times=1)
    # Or the observer would take it meanwhile.
    world.store.apply_now(GROUP, Pause(partition="p0", seen_token=0))
    stage.host("b", capacity=1e-6, **OFTEN)
    began_s = world.now_s
    a = await stage.puppet("a")
    assert world.now_s > began_s + 1.0
    world.store.apply_now(GROUP, Resume(partition="p0", seen_token=0))
    await a.take("p0")
    world.network.cut_off.add("a")
    await world.wait(2 * D)

    assert len([call for _, call in world.network.calls if call.operation == "Register" and call.place == "a"]) == 3
    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


@schedule(partitions=2)
async def test_session_that_ran_out_and_could_not_leave_is_followed_by_another(stage: Stage) -> None:
    """Under its old id it would take an item for its own that the others are about to fence."""
    world = stage.world
    world.put(400)
    stage.host("a")
    stage.host("b")
    await world.until(lambda: world.shares() == [1, 1], within_s=2 * D)
    await world.wait(D)
    # Between the last beat and the observer's next look.
    last_s = max(write.at_s for write in world.network.applied(Beat) if write.place == "a")
    failing = stage.disturb(of("a", "Beat", "Leave"), fail_before=True)
    await until_s(world, last_s + 10.0)
    failing.times = 0
    await world.wait(D)

    assert len([write for write in world.network.applied(Register) if write.place == "a"]) == 2


@schedule(
    partitions=1,
    cases={
        "its look was slow to be answered": {"what": {"after_s": 0.7, "times": 1}, "from_s": 5.55},
        "its looks are stale": {"what": {}, "from_s": 0.2},
    },
)
async def test_fence_races_a_beat(stage: Stage, what: dict[str, Any], from_s: float) -> None:
    """The fence names the beat that was seen; who has beaten since gets a whole duration more."""
    world = stage.world
    stage.make_leases()
    world.put(300)
    began_s = world.now_s
    a = await stage.puppet("a")
    await a.take("p0")
    stage.host("b", capacity=1e-6, **OFTEN)
    failing = stage.disturb(of("a", "Beat"), fail_before=True)
    await until_s(world, began_s + 0.2)
    stale = tuple(world.store.sessions_now(GROUP))
    stage.disturb(
        lambda call: of("b", "look_at_sessions")(call) and world.now_s >= began_s + from_s,
        **(what or {"changes": lambda _: stale}),
    )
    await until_s(world, began_s + 5.6)
    failing.times = 0
    assert await a.beat()
    await world.wait(D)

    assert [write.verb.seen_beat for write in world.network.history if isinstance(write.verb, Fence)][:1] == [0]


@schedule(partitions=1)
async def test_look_is_long_on_its_way_before_it_is_read(stage: Stage) -> None:
    """Time counts from the answer that shows the beat: from the question on, a session would have less than its due."""
    world = stage.world
    stage.make_leases()
    world.put(300)
    a = await stage.puppet("a")
    await a.take("p0")
    stage.disturb(of("b", "read_sessions"), before_s=3.5, times=1)
    stage.host("b", capacity=1e-6, **OFTEN)
    await world.until(lambda: len(world.sessions()) == 2, within_s=1.0)
    began_s = world.now_s
    await until_s(world, began_s + 3.4)
    assert await a.beat()
    world.network.cut_off.add("a")
    await world.wait(2 * D)

    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


@schedule(partitions=1)
async def test_newcomer_sees_an_owner_for_the_first_time(stage: Stage) -> None:
    """Nobody can tell how old the last beat of one is who is seen for the first time: it gets a whole duration."""
    world = stage.world
    stage.make_leases()
    world.put(300)
    a = await stage.puppet("a")
    await a.take("p0")
    await world.wait(0.5)
    stage.host("b", capacity=1e-6)
    await world.wait(2 * D)

    assert [write.place for write in world.network.applied(Acquire)] == ["a"]


@schedule(partitions=2)
async def test_beats_are_applied_and_not_answered_until_the_session_has_run_out(stage: Stage) -> None:
    """The others see it alive for another duration; it deletes the item itself as soon as it knows."""
    world = stage.world
    world.put(100)
    stage.host("a")
    stage.host("b")
    await world.until(lambda: world.shares() == [1, 1], within_s=2 * D)
    await world.wait(D)
    deaf = stage.disturb(of("a", "Beat"), lose_answer=True)
    await world.until(lambda: bool(world.events(SessionEnded)), within_s=D + 1.0, every_s=0.01)
    deaf.times = 0
    await demand_in_time(
        world,
        "a lost session is deleted at once",
        lambda: world.events(SessionEnded)[0].session_id not in world.sessions() and len(world.running()) == 2,
        within_s=2.0,
    )


@schedule(partitions=1)
async def test_beat_is_applied_to_an_item_that_a_late_register_has_made_again(stage: Stage) -> None:
    """Its answer wakes a host whose session ran out long ago, and whose leases are others' since."""
    world = stage.world
    stage.make_leases()
    world.put(400)
    began_s = world.now_s
    stage.disturb(of("a", "Register"), repeat_after_s=9.0, times=1)
    a = await stage.puppet("a")
    await a.take("p0")
    stage.host("b", capacity=1e-6, **OFTEN)
    failing = stage.disturb(of("a", "Beat"), fail_before=True)
    await until_s(world, began_s + 5.88)
    failing.times = 0
    stage.disturb(of("a", "Beat"), before_s=3.4, times=1)
    a.beating()
    await world.wait(0.02)
    world.freeze("a")
    await until_s(world, began_s + 9.5)
    late = world.network.applied(Beat)[-1]
    assert (late.place, late.sent_s) < ("a", began_s + 5.9) < (late.place, late.answered_s)
    world.thaw("a")
    await world.wait(D)

    assert [write.place for write in world.network.applied(Acquire)] == ["a", "b"]


class Machine(PlaceClock):
    """A machine whose host reads the system's clocks itself: one counts while it is suspended, the other does not."""

    def __init__(self) -> None:
        super().__init__(offset_s=50.0)
        self._boot = BootClock()
        self._slept_s = 0.0
        self._asleep_since_s: float | None = None

    def now_s(self) -> float:
        """Read the clock that the product has chosen."""
        with mock.patch.object(time, "clock_gettime", self._read):
            return self._boot.now_s()

    def suspend(self) -> None:
        """Let the monotonic clock stand still."""
        self._asleep_since_s = running_loop().time()

    def resume(self) -> None:
        """Let it go on from where it stood."""
        assert self._asleep_since_s is not None
        self._slept_s += running_loop().time() - self._asleep_since_s
        self._asleep_since_s = None

    def _read(self, clock_id: int) -> float:
        now_s = running_loop().time()
        if clock_id == time.CLOCK_BOOTTIME:
            return now_s
        return (now_s if self._asleep_since_s is None else self._asleep_since_s) - self._slept_s


@schedule(partitions=2)
async def test_machine_is_suspended_for_longer_than_its_session(stage: Stage) -> None:
    """By a clock that stood still meanwhile the host would go on in good faith."""
    world = stage.world
    machine = Machine()
    stage.host("a", clock=machine, batch_records_max=100)
    stage.host("b")
    await world.until(lambda: world.shares() == [1, 1], within_s=2 * D)
    world.put(300)
    await world.wait(D)
    machine.suspend()
    world.freeze("a")
    await world.wait(3 * D)
    assert world.shares() == [2]
    machine.resume()
    world.thaw("a")
    await world.wait(D)
    assert world.events(SessionEnded, place="a")
