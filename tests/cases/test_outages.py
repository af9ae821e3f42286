"""Hosts that lose the store, or time: C13, frozen hosts, and hosts that are cut off."""

from __future__ import annotations

from typing import Any

import pytest

from partitions.events import EndReason, LeaseEnded
from partitions.verbs import Acquire, Release, SaveCheckpoint
from tests.cases.virtual import virtual
from tests.world.checks import check_no_overlap, check_safety, lost
from tests.world.clocks import PlaceClock
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0

OUTAGES: dict[str, dict[str, Any]] = {
    "calls fail": {"fail_before": True},
    "calls are never answered": {"lose_request": True},
    # Each write takes effect, and nobody hears of it.
    "answers are lost": {"lose_answer": True},
    "answers are faults": {"fail_after": True},
}


@pytest.mark.parametrize("kind", OUTAGES)
@virtual
async def test_c13_after_an_outage_of_the_store_every_partition_runs_again(kind: str) -> None:
    """No loop may die of an outage and no flag stick, or only a restart would help."""
    world = World(partitions=12)
    for name in "abc":
        world.start(name, record_s=0.2, batch_records_max=10)
    await world.until(lambda: world.is_balanced(3), within_s=10)
    world.put(2000)
    await world.wait(20.0)
    before = {name: world.hosts[name].host for name in "abc"}
    outage = world.network.disturb(lambda call: not call.operation.startswith("source."), **OUTAGES[kind])
    await world.wait(30.0)
    assert all(not running.held for running in world.hosts.values())
    world.network.faults.remove(outage)
    recovered_s = world.now_s

    def all_run_once() -> bool:
        running = world.running()
        owned = {name: (world.owners()[name], lease.token) for name, lease in world.leases().items()}
        return running == {name: [by] for name, by in owned.items()} and len(running) == 12

    took_s = await world.until(all_run_once, within_s=D + 3 * B)
    await world.wait(20.0)

    print(f"{kind}: all 12 run {took_s:.2f} s after the recovery")
    assert {name: world.hosts[name].host for name in "abc"} == before
    acquired = {
        (write.verb.partition, write.result.item.token): write.result.item.position
        for write in world.network.applied(Acquire)
        if write.at_s >= recovered_s
    }
    opens = [what for at, _, what in world.notes if at >= recovered_s and what[0] == "open"]
    assert [(name, token, at) for _, name, token, at in opens if acquired[name, token] != at] == []
    assert {name for _, name, _, _ in opens} == world.leases().keys()
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_thawed_host_starts_no_record_before_it_has_acquired_again() -> None:
    """A host that was stopped for three durations has lost everything, and knows it before it does anything."""
    world = await three_at_work()
    mine = {name: world.leases()[name].token for name, owner in world.owners().items() if owner == "a"}
    world.freeze("a")
    await world.wait(3 * D)
    world.thaw("a")
    thawed_s = world.now_s
    await world.until(lambda: world.is_balanced(3), within_s=40)
    await world.wait(10.0)

    acquires = [write for write in world.network.applied(Acquire) if write.place == "a" and write.at_s > thawed_s]
    new = {(write.verb.partition, write.result.item.token) for write in acquires}
    starts = [entry for entry in world.handled() if entry.place == "a" and entry.start_s >= thawed_s]
    started = {(entry.partition, entry.token) for entry in starts}
    assert len(mine) == 4
    assert started
    assert started <= new
    assert accepted_under(world, mine, since_s=thawed_s) == []
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_host_whose_clock_stood_still_stores_nothing_under_its_old_tokens() -> None:
    """Where a clock does not count a suspension, the host goes on in good faith, and the fence alone protects."""
    world = await three_at_work()
    mine = {name: world.leases()[name].token for name, owner in world.owners().items() if owner == "a"}
    world.freeze("a", clock_stops=True)
    await world.wait(3 * D)
    world.thaw("a")
    thawed_s = world.now_s
    await world.until(lambda: world.is_balanced(3), within_s=40)
    await world.wait(10.0)

    assert len(mine) == 4
    assert accepted_under(world, mine, since_s=thawed_s) == []
    tried = [write for write in world.network.history if write.place == "a" and write.at_s > thawed_s]
    assert [write for write in tried if isinstance(write.verb, SaveCheckpoint) and write.verb.token in mine.values()]
    # It found out by its next beat, which takes no longer than a beat period.
    zombies = [entry for entry in world.handled() if entry.place == "a" and entry.token == mine.get(entry.partition)]
    assert max(entry.start_s for entry in zombies) <= thawed_s + D / 3
    assert world.overlaps == []
    assert lost(world) == []


async def three_at_work() -> World:
    world = World(partitions=12)
    for name in "abc":
        # The others store less often, so that a checkpoint of A's would not be refused by its number alone.
        world.start(name, record_s=0.2, batch_records_max=10, checkpoint_interval_s=1.0 if name == "a" else 5.0)
    await world.until(lambda: world.is_balanced(3), within_s=10)
    world.put(2000)
    await world.wait(10.1)
    return world


def accepted_under(world: World, tokens: dict[str, int], *, since_s: float) -> list[object]:
    """Every write that the store accepted under one of these tokens after a time."""
    return [
        write
        for write in world.network.applied(SaveCheckpoint, Release)
        if write.at_s > since_s and write.verb.token == tokens.get(write.verb.partition)
    ]


@pytest.mark.parametrize("cut", ["requests", "answers"])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.99, 1.0), (1.0, 1.01)])
@virtual
async def test_host_that_is_cut_off_ends_its_terms_before_anyone_else_begins_them(
    cut: str, rates: tuple[float, float]
) -> None:
    """It counts from before its last beat was sent, the others from after they saw it, each with room for drift."""
    world = World(partitions=8)
    world.start("a", record_s=0.05, clock=PlaceClock(rate=rates[0], offset_s=500.0), batch_records_max=10)
    world.start("b", record_s=0.05, clock=PlaceClock(rate=rates[1]), batch_records_max=10)
    await world.until(lambda: world.is_balanced(2), within_s=10)
    world.put(2000)
    await world.wait(10.0)
    mine = {name: world.leases()[name].token for name, owner in world.owners().items() if owner == "a"}
    cut_off = world.network.cut_off if cut == "requests" else world.network.deaf
    cut_off.add("a")
    cut_s = world.now_s
    await world.until(lambda: set(world.owners().values()) == {"b"}, within_s=2 * D + 2 * B)
    await world.wait(5.0)

    ends = {
        (event.partition, event.token): at
        for at, place, event in world.diary
        if place == "a" and isinstance(event, LeaseEnded) and event.reason is EndReason.SESSION_ENDED
    }
    begins = {
        (write.verb.partition, write.result.item.token - 1): write.at_s
        for write in world.network.applied(Acquire)
        if write.place == "b" and write.at_s > cut_s
    }
    assert ends.keys() == begins.keys() == set(mine.items())
    assert all(ends[term] < begins[term] for term in ends)
    print(f"{cut} cut: ended {min(begins[term] - ends[term] for term in ends):.2f} s before the next began")
    check_safety(world)
    check_no_overlap(world)
    cut_off.clear()
    await world.until(lambda: world.is_balanced(2), within_s=D + 20)
    check_safety(world)
    assert lost(world) == []
