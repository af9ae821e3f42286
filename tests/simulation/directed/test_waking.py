"""Hosts that wake or fail in the middle of something: rules 5, 6 and 15."""

from __future__ import annotations

from partitions.events import LeaseEnded, SessionEnded
from partitions.verbs import Acquire
from processor_host.events import ProcessorFailed
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of
from tests.world.loop import in_world
from tests.world.processors import Handled
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0


def freeze_at(world: World, place: str, position: str, frozen: list[Handled]) -> None:
    """Let a host stop in the middle of a record, as where a processor blocks it."""

    async def freeze() -> None:
        world.freeze(place)

    async def on_record(handled: Handled) -> None:
        if handled.place == place and handled.position == position and not frozen:
            frozen.append(handled)
            await in_world(freeze)

    world.on_record = on_record


@schedule(
    partitions=4,
    cases={
        "when all is taken": {"sleeps_s": 3 * D, "stubborn": False},
        "when its session has just run out": {"sleeps_s": D + 0.2, "stubborn": False},
        "stubborn": {"sleeps_s": 3 * D, "stubborn": True},
    },
)
async def test_host_wakes_in_the_middle_of_a_batch(stage: Stage, sleeps_s: float, stubborn: bool) -> None:
    """Before the next record it must look whether its lease still stands; nobody has told it yet."""
    world = stage.world
    frozen: list[Handled] = []
    for name in "ab":
        stage.host(name, record_s=0.02, batch_records_max=100, stubborn=stubborn)
    await world.until(lambda: world.shares() == [2, 2], within_s=3 * D)
    await world.wait(D)
    freeze_at(world, "a", "10", frozen)
    world.put(100)
    await world.until(lambda: bool(frozen), within_s=D)
    await world.wait(sleeps_s)
    world.thaw("a")
    await world.wait(D)

    assert world.events(SessionEnded, place="a")
    assert not [entry for entry in world.handled(frozen[0].partition) if entry.place == "a" and not entry.held]


@schedule(partitions=2)
async def test_record_is_in_hand_when_its_session_ends(stage: Stage) -> None:
    """What takes longer than the lease lasts is cancelled; the next owner begins it anew, alone."""
    world = stage.world

    async def on_record(handled: Handled) -> None:
        if handled.place == "a" and is_slow:
            await world.wait(40.0)

    is_slow = True
    world.on_record = on_record
    for name in "ab":
        stage.host(name)
    await world.until(lambda: world.shares() == [1, 1], within_s=3 * D)
    await world.wait(D)
    world.put(20)
    await world.until(lambda: bool([entry for entry in world.handled() if entry.place == "a"]), within_s=D)
    is_slow = False
    world.network.cut_off.add("a")
    await world.wait(3 * D)
    [in_hand] = [entry for entry in world.handled() if entry.end_s is None]
    assert in_hand.place == "a"
    assert [entry for entry in world.handled(in_hand.partition) if entry.place == "b"]


@schedule(partitions=2)
async def test_host_wakes_whose_clock_stood_still_and_cannot_beat(stage: Stage) -> None:
    """It goes on in good faith; the next read of the leases shows what became of them, and ends what it held."""
    world = stage.world
    for name in "ab":
        stage.host(name, checkpoint_interval_s=1000.0, batch_records_max=1)
    await world.until(lambda: world.shares() == [1, 1], within_s=3 * D)
    await world.wait(D)
    world.put(200)
    world.freeze("a", clock_stops=True)
    await world.wait(3 * D)
    assert world.shares() == [2]
    stage.disturb(of("a", "Beat"), fail_before=True)
    world.thaw("a")
    await demand_in_time(
        world, "a read ends what it shows as over", lambda: bool(world.events(LeaseEnded, place="a")), within_s=B + 0.5
    )


@schedule(
    partitions=2,
    cases={
        operation: {"operation": operation}
        for operation in ("Acquire", "SaveCheckpoint", "Release", "Ask", "read_some_leases", "read_leases", "Beat")
    },
)
async def test_host_sleeps_while_a_call_is_on_its_way(stage: Stage, operation: str) -> None:
    """The answer is the first thing it sees when it wakes, and it is too old to act on."""
    world = stage.world
    world.put(100)
    stage.host("b", record_s=0.2)
    await world.wait(4.0)
    place = "b" if operation in ("SaveCheckpoint", "Release") else "a"
    slow = stage.disturb(of(place, operation), before_s=0.1, after_s=0.3, times=1)
    stage.host("a", record_s=0.2)
    await world.until(lambda: slow.hits == 1, within_s=3 * D, every_s=0.01)
    await world.wait(0.15)
    world.freeze(place)
    frozen_s = world.now_s
    [sent_s, *_] = [at_s for at_s, call in reversed(world.network.calls) if of(place, operation)(call)]
    assert sent_s + 0.1 < frozen_s < sent_s + 0.4
    await world.wait(2 * D)
    world.thaw(place)
    await world.wait(2 * D)


@schedule(
    partitions=3,
    cases={
        operation: {"operation": operation} for operation in ("Acquire", "SaveCheckpoint", "Release", "source.read")
    },
)
async def test_call_for_one_partition_fails_oddly(stage: Stage, operation: str) -> None:
    """One bad lease or reader stops neither the host nor its neighbours."""
    world = stage.world
    world.put(100)
    odd = stage.disturb(
        lambda call: call.operation == operation and call.partition == "p1", raises=KeyError("odd"), times=1
    )
    stage.host("a")
    await world.wait(4.0)
    if operation == "Release":
        await stage.write_ask("p1", asker="")
    await world.wait(2 * D)

    assert odd.hits == 1
    demand(
        "one running processor each",
        sorted(world.running()) == ["p0", "p1", "p2"] and world.shares() == [3],
        world.running(),
    )


@schedule(partitions=4)
async def test_processor_of_one_partition_fails_for_a_minute(stage: Stage) -> None:
    """Its host keeps the lease and tries again: given away, it would fail there too, and move for ever."""
    world = stage.world
    world.put(20)
    is_broken = True

    async def on_record(handled: Handled) -> None:
        if is_broken and handled.partition == "p1":
            raise ValueError("broken")

    world.on_record = on_record
    for name in "ab":
        stage.host(name, restart_pause_max_s=4.0)
    await world.until(lambda: world.shares() == [2, 2], within_s=3 * D)
    await world.wait(D)
    since_s = world.now_s
    await world.wait(60.0)
    assert len(world.events(ProcessorFailed)) > 5
    moves = [write for write in world.network.applied(Acquire) if write.at_s > since_s]
    demand("no step in a balanced group", not moves, moves)
    is_broken = False
