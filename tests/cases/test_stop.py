"""Stops that hang, orphan or replay: C17, C18 and C22, and what a stop promises about the others."""

from __future__ import annotations

from statistics import median

import anyio
import pytest

from partitions.items import LeaseItem
from partitions.leases import Lease
from partitions.verbs import Acquire, Applied, Beat, LeaseVerb, Release
from tests.cases.lone import begun
from tests.cases.virtual import repeats_of, seeded, virtual
from tests.world.checks import check_no_overlap, check_safety, gaps_s, lost, repeats
from tests.world.loop import result_of, run_virtual
from tests.world.processors import Handled
from tests.world.world import World

__all__: list[str] = []

B = 2.0
"""Balance interval of the cases, seconds."""
H = 2.0
"""Beat period of the cases, seconds."""


@virtual
async def test_c17_clean_stop_releases_and_its_successor_goes_on_at_once() -> None:
    """Whoever has left on purpose must not be waited for, and what it has done is not done again."""
    world = World(partitions=4, duration_s=30.0, settings={"beat_interval_s": H, "balance_interval_s": B})
    world.put(500)
    world.start("a", record_s=0.05, batch_records_max=20)
    await world.wait(10.0)
    world.stop("a")
    status, _ = await world.until_ended("a", within_s=5.0)
    old = world.leases()
    done = {name: max(int(entry.position) for entry in world.handled(name) if entry.end_s) for name in old}
    started_s = world.now_s
    world.start("b", record_s=0.05)
    await world.until(lambda: len(world.running()) == 4, within_s=2 * B + 2)

    assert status == 0
    assert world.now_s - started_s <= 2 * B + 2
    opens = [note for _, place, note in world.notes if place == "b" and note[0] == "open"]
    opened = {partition: (token, position) for _, partition, token, position in opens}
    assert opened == {name: (lease.token + 1, str(done[name])) for name, lease in old.items()}
    check_safety(world)
    assert lost(world) == []


@pytest.mark.parametrize("poll", ["waits in the source", "hangs on the way"])
@virtual
async def test_c18_idle_host_stops_without_waiting_for_its_longest_poll(poll: str) -> None:
    """There is nothing to wait for in a receive call that has nothing to return."""
    world = World(partitions=8, settings={"read_wait_s": 60.0})
    if poll == "hangs on the way":
        world.network.disturb(lambda call: call.operation == "source.read", before_s=60.0)
    world.start("a")
    await world.wait(5.0)
    assert len(world.running()) == 8
    world.stop("a")

    status, _ = await world.until_ended("a", within_s=2.0)

    assert status == 0
    assert [lease.owner for lease in world.leases().values()] == [None] * 8
    assert world.sessions() == {}


def test_c22_beat_in_flight_brings_no_released_lease_back() -> None:
    """A beat is a write on the session alone, so no late one can stamp a lease that is free."""
    for seed in repeats_of(200):
        with seeded(seed):
            run_virtual(lambda seed=seed: release_between_beats(seed))  # type: ignore[misc]


async def release_between_beats(seed: int) -> None:
    world = World(partitions=1, seed=seed)
    world.network.disturb(lambda call: call.verb is not None, before_s=0.15, after_s=0.15)
    a = await begun(world, "a")
    lease = await a.acquire("p0")

    async def save_until_told(told: anyio.Event) -> None:
        # As the pump does, so that there may be a checkpoint in flight, too.
        async with anyio.create_task_group() as saving:
            saving.start_soon(save_regularly, lease, world)
            await told.wait()
            saving.cancel_scope.cancel()

    told = anyio.Event()
    saving = a.start(save_until_told, told)
    await world.wait(3 * H + world.random.uniform(0, H))
    told.set()
    await result_of(saving)
    assert await a.do(lease.release, "1000")
    released_s = world.now_s
    assert world.leases()["p0"].owner is None
    await world.wait(3 * H + 0.5)

    writes = [write for write in world.network.history if isinstance(write.verb, LeaseVerb)]
    assert [write for write in writes if write.at_s > released_s] == []
    free = LeaseItem(partition="p0", token=1, position="1000", seq=writes[-1].verb.seq, last_host="a")
    assert world.leases() == {"p0": free}
    assert a.session.is_valid


async def save_regularly(lease: Lease, world: World) -> None:
    for position in range(1, 1000):
        await lease.checkpoint(str(position))
        await world.wait(0.7)


def test_c22_beat_in_flight_brings_no_host_back_that_has_left() -> None:
    """Nor may a late beat make the session again whose leave it raced."""
    for seed in repeats_of(200):
        with seeded(seed):
            run_virtual(lambda seed=seed: stop_between_beats(seed))  # type: ignore[misc]


async def stop_between_beats(seed: int) -> None:
    world = World(partitions=1, seed=seed)
    world.network.disturb(lambda call: call.verb is not None, before_s=0.15, after_s=0.15)
    world.start("a")
    await world.until(lambda: bool(world.running()), within_s=5)
    await world.wait(H + world.random.uniform(0, H))
    world.stop("a")
    status, _ = await world.until_ended("a", within_s=5.0)
    stopped_s = world.now_s
    assert (status, world.owners()) == (0, {"p0": None})
    await world.wait(3 * H)

    assert [write for write in world.network.history if write.at_s > stopped_s] == []
    assert (world.leases()["p0"].owner, world.sessions()) == (None, {})


@virtual
async def test_c22_beat_that_arrives_after_its_session_has_left_makes_nothing_again() -> None:
    """It lingers on the way longer than the leave takes."""
    world = World(partitions=1)
    slow = world.network.disturb(lambda call: call.operation == "Beat", before_s=0.8)
    world.start("a")
    await world.until(lambda: slow.hits == 1, within_s=2 * H)
    world.stop("a")
    status, _ = await world.until_ended("a", within_s=5.0)
    stopped_s = world.now_s
    await world.wait(3 * H)

    assert status == 0
    late = [write for write in world.network.history if write.at_s > stopped_s]
    assert {type(write.verb) for write in late} == {Beat}
    assert [write for write in late if isinstance(write.result, Applied)] == []
    assert (world.leases()["p0"].owner, world.sessions()) == (None, {})


@pytest.mark.parametrize("seed", range(5))
@virtual
async def test_stop_leaves_no_partition_without_an_owner_for_more_than_a_second(seed: int) -> None:
    """A deployment must not be a pause: each partition is handed to its next owner, the host is gone in 5 s."""
    world = World(partitions=12, duration_s=3.0, seed=seed)
    for name in "abc":
        world.start(name, record_s=0.02, batch_records_max=5)
    await world.until(lambda: world.is_balanced(3), within_s=10)
    world.put(700)
    await world.wait(5.0 + world.random.uniform(0, 1))
    mine = {name for name, owner in world.owners().items() if owner == "a"}
    slow = min(mine)

    async def take_long(handled: Handled) -> None:
        if (handled.place, handled.partition) == ("a", slow):
            # It keeps the host from leaving long after its other partitions were handed over.
            await world.wait(0.7)

    world.on_record = take_long
    await world.wait(0.1)
    world.stop("a")
    stopped_s = world.now_s
    status, gone_s = await world.until_ended("a", within_s=5.0)
    await world.wait(15.0)

    gaps = gaps_s(world, stopped_s)
    print(f"seed {seed}: gone after {gone_s:.2f} s, gaps of {median(gaps.values()):.2f} to {max(gaps.values()):.2f} s")
    assert status == 0
    assert gaps.keys() == mine
    assert max(gaps.values()) <= 1.0
    assert world.is_balanced(2)
    # Every record was finished before its partition was given away.
    assert repeats(world) == 0
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []
    assert {lease.position for lease in world.leases().values()} == {"700"}


@virtual
async def test_lone_idle_host_stops_in_two_seconds() -> None:
    """With nobody to hand over to, everything is released at once."""
    world = World(partitions=12)
    world.start("a")
    await world.wait(10.0)
    world.stop("a")
    status, took_s = await world.until_ended("a", within_s=2.0)

    print(f"a lone host stopped in {took_s:.2f} s")
    assert status == 0
    assert set(world.owners().values()) == {None}
    assert len(world.network.applied(Release)) == len(world.network.applied(Acquire)) == 12


@virtual
async def test_orderly_drain_stores_the_last_checkpoint_and_repeats_nothing() -> None:
    """One host after the other is replaced, as in a rolling deployment; no record is handled twice."""
    world = World(partitions=6, settings={"checkpoint_interval_s": 1000.0})
    world.put(1500)
    for name in "abc":
        world.start(name, record_s=0.03, batch_records_max=10)
        await world.wait(5.0)
    for old, new in (("a", "d"), ("b", "e"), ("c", "f")):
        world.start(new, record_s=0.03, batch_records_max=10)
        world.stop(old)
        assert (await world.until_ended(old, within_s=20.0))[0] == 0
    await world.until(lambda: len(world.handled()) == 6 * 1500, within_s=120)
    for last in "def":
        world.stop(last)
    await world.wait(10.0)

    assert [world.hosts[name].task.result() for name in "def"] == [0, 0, 0]
    assert repeats(world) == 0
    assert {lease.position for lease in world.leases().values()} == {"1500"}
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_stop_gives_back_what_an_acquire_brings_while_it_drains() -> None:
    """An answer that was on its way as the host was told to stop must not start a partition that nobody ends."""
    world = World(partitions=2)
    world.put(1000)
    world.network.disturb(lambda call: call.operation == "Acquire" and call.partition == "p1", after_s=0.8)
    world.start("a", record_s=0.1, batch_records_max=20)
    await world.until(lambda: "p0" in world.running(), within_s=1, every_s=0.01)
    await world.wait(0.1)
    assert "p1" not in world.running()
    world.stop("a")
    # As long as the answer and one batch take.
    status, _ = await world.until_ended("a", within_s=0.8 + 2.0 + 0.2)

    assert status == 0
    assert set(world.owners().values()) == {None}
    assert world.sessions() == {}
