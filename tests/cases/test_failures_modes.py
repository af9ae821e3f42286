"""C24, C25 and C27 for every way to handle records: batches, records, bisection, side by side, and each policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from partitions.verbs import Attempt, Release, SaveCheckpoint
from processor_host import CloseReason, DeadLetter, ProcessorContext, Record, RecordProcessor, Retry, Skip, Stop
from processor_host.events import ProcessorFailed, PumpStarted, RecordsGivenUp
from tests.cases.virtual import virtual
from tests.processor_host.pumping import Kept
from tests.world.checks import check_safety, lost, position_order
from tests.world.loop import running_loop
from tests.world.processors import Handled, WorldProcessor
from tests.world.world import World

__all__: list[str] = []

B = 2.0

MODES: dict[str, dict[str, Any]] = {
    "batches": {},
    "records": {},
    "every record": {"checkpoint": "every-record"},
    "side by side": {"concurrency": 3},
}


class ByRecord(RecordProcessor):
    """A world's processor that is handed single records."""

    def __init__(self, world: World, record_s: float) -> None:
        self._world = world
        self._inner = WorldProcessor(world, "a", record_s)
        self._token = 0

    async def open(self, context: ProcessorContext) -> None:
        """Note the term."""
        self._token = context.lease.token
        await self._inner.open(context)

    async def handle(self, record: Record) -> None:
        """Handle it, in the journal."""
        await self._inner.handle(
            Handled(
                place="a",
                partition=record.partition,
                token=self._token,
                position=record.position,
                data=record.data,
                start_s=running_loop().time(),
            )
        )

    async def close(self, reason: CloseReason) -> None:
        """Note the reason."""
        await self._inner.close(reason)


def start(world: World, mode: str, *, record_s: float, policy: object = None, **more: Any) -> None:
    """Start host "a" in a mode."""
    kinds: dict[str, Callable[[], Any]] = {
        "records": lambda: ByRecord(world, record_s),
        "side by side": lambda: ByRecord(world, record_s),
    }
    handling = {} if policy is None else {"on_failure": policy}
    made = kinds.get(mode, lambda: WorldProcessor(world, "a", record_s))
    world.start("a", processor=made, handling=handling, **MODES[mode], **more)


def put(world: World, count: int, *, keys: int = 5) -> None:
    """Write records with keys that come round."""
    for partition in world.source.list_now():
        for number in range(count):
            world.source.put(partition.partition, b"x", key=f"k{number % keys}")


def failing(times: int, matches: Callable[[Handled], bool]) -> Callable[[Handled], Any]:
    left = [times]

    async def on_record(handled: Handled) -> None:
        if matches(handled) and left[0]:
            left[0] -= 1
            raise RuntimeError(f"{handled.partition}: {handled.position}")

    return on_record


def done(world: World, partition: str) -> list[int]:
    """Positions that were handled to their end, in the order in which they ended."""
    ended = [(entry.end_s, int(entry.position)) for entry in world.handled(partition) if entry.end_s is not None]
    return [position for _, position in sorted(ended)]


@pytest.mark.parametrize("mode", MODES)
@virtual
async def test_c24_error_in_one_partition_leaves_the_others_alone_in_every_mode(mode: str) -> None:
    """Its neighbours handle all once, without a restart; it comes back from its checkpoint after growing pauses."""
    world = World(partitions=4)
    world.on_record = failing(3, lambda handled: (handled.partition, handled.position) == ("p2", "5"))
    put(world, 1000)
    start(world, mode, record_s=0.02)
    await world.until(
        lambda: len(world.leases()) == 4 and all(lease.position == "1000" for lease in world.leases().values()),
        within_s=120,
    )

    for name in ("p0", "p1", "p3"):
        assert sorted(done(world, name)) == list(range(1, 1001))
    starts = Counter(event.partition for event in world.events(PumpStarted))
    assert (starts["p0"], starts["p1"], starts["p3"]) == (1, 1, 1)
    tries = [event for event in world.events(ProcessorFailed) if event.partition == "p2"]
    assert [event.attempt for event in tries] == [1, 2, 3]
    assert all(later.pause_s > earlier.pause_s * 0.9 for earlier, later in pairwise(tries))
    assert set(done(world, "p2")) == set(range(1, 1001))
    check_safety(world)


@pytest.mark.parametrize("mode", MODES)
@virtual
async def test_c25_what_follows_a_failed_record_waits_and_the_checkpoint_does_too_in_every_mode(mode: str) -> None:
    """A failed record that is passed by is lost with the next checkpoint."""
    world = World(partitions=1)
    world.on_record = failing(2, lambda handled: handled.position == "40")
    put(world, 100)
    start(world, mode, record_s=0.02, checkpoint_interval_s=0.05)
    await world.until(lambda: world.leases().keys() >= {"p0"} and world.leases()["p0"].position == "100", within_s=60)

    (succeeded_s,) = (entry.end_s for entry in world.handled() if entry.position == "40" and entry.end_s is not None)
    behind = [entry for entry in world.handled() if int(entry.position) > 40 and entry.start_s < succeeded_s]
    if mode == "side by side":
        # Records of other keys may go on; those of its own wait for it.
        assert {int(entry.position) % 5 for entry in behind} <= {1, 2, 3, 4}
    else:
        assert behind == []
    stored = world.network.applied(SaveCheckpoint, Release, Attempt)
    assert [
        write
        for write in stored
        if position_order(write.result.item.position) >= 40 and write.at_s < succeeded_s
    ] == []
    assert set(done(world, "p0")) == set(range(1, 101))
    check_safety(world)
    assert lost(world) == []


@pytest.mark.parametrize("bisect", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["skip", "dead letter", "stop", "retry"])
@virtual
async def test_c25_bad_record_is_dealt_with_as_its_policy_says_and_nothing_else_is_passed_by(
    kind: str, mode: str, bisect: bool
) -> None:
    """Only what the policy named is given up, never in silence; without one nothing ever is."""
    world = World(partitions=2)
    world.on_record = failing(10**9, lambda handled: (handled.partition, handled.position) == ("p0", "40"))
    put(world, 100)
    sink = Kept()
    policies = {
        "skip": Skip(attempts=2, bisect=bisect),
        "dead letter": DeadLetter(sink, attempts=2, bisect=bisect),
        "stop": Stop(attempts=2, bisect=bisect),
        "retry": Retry(),
    }
    start(world, mode, record_s=0.02, policy=policies[kind], batch_records_max=16)
    await world.wait(150.0)

    p0, p1 = world.leases()["p0"], world.leases()["p1"]
    assert (p1.position, sorted(done(world, "p1"))) == ("100", list(range(1, 101)))
    given_up = [
        (int(event.first), int(event.last)) for event in world.events(RecordsGivenUp) if event.partition == "p0"
    ]
    # A batch that is not cut up is given up as a whole; what it handled of it counts as given up too.
    is_whole = mode == "batches" and not bisect
    gone = range(given_up[0][0], given_up[0][1] + 1) if given_up else range(0)
    if kind in ("skip", "dead letter"):
        assert p0.position == "100"
        assert len(given_up) == 1
        assert 40 in gone if is_whole else given_up == [(40, 40)]
        assert set(done(world, "p0")) | set(gone) == set(range(1, 101))
        assert sink.positions == ([] if kind == "skip" else list(gone))
    else:
        assert given_up == []
        assert position_order(p0.position) < 40
        assert p0.position == "39" or mode == "batches"
        assert (p0.paused, p0.owner is None) == (kind == "stop", kind == "stop")
    check_safety(world)


@pytest.mark.parametrize("times", [1, 10**9])
@pytest.mark.parametrize("mode", MODES)
@virtual
async def test_c27_no_lease_is_kept_for_ten_seconds_without_a_processor_in_every_mode(mode: str, times: int) -> None:
    """A processor that raises in open, in close or at its record is tried, again and again, or its lease is free."""
    world = World(partitions=3)
    tried: dict[str, float] = {}
    left: Counter[str] = Counter(dict.fromkeys(("p0", "p2"), times))

    def trouble(partition: str) -> None:
        tried[partition] = world.now_s
        left[partition] -= 1
        if left[partition] >= 0:
            raise RuntimeError("trouble")

    class InOpen(ByRecord):
        async def open(self, context: ProcessorContext) -> None:
            if context.partition == "p0":
                trouble("p0")
            await super().open(context)

    class InOpenOfBatches(WorldProcessor):
        async def open(self, context: ProcessorContext) -> None:
            if context.partition == "p0":
                trouble("p0")
            await super().open(context)

    async def on_record(handled: Handled) -> None:
        if handled.partition == "p2" and handled.position == "7":
            trouble("p2")

    world.on_record = on_record
    put(world, 200)
    is_single = mode in ("records", "side by side")
    made = (lambda: InOpen(world, 0.02)) if is_single else lambda: InOpenOfBatches(world, "a", 0.02)
    world.start("a", processor=made, **MODES[mode])
    await world.until(lambda: len(world.owners()) == 3, within_s=3 * B)
    alive_s = dict.fromkeys(world.leases(), world.now_s)
    idle_s = dict.fromkeys(world.leases(), 0.0)
    for _ in range(600):
        await world.wait(0.1)
        for name, lease in world.leases().items():
            if name in world.running() or lease.owner is None:
                alive_s[name] = world.now_s
            alive_s[name] = max(alive_s[name], tried.get(name, 0.0))
            idle_s[name] = max(idle_s[name], world.now_s - alive_s[name])

    assert max(idle_s.values()) <= 10.0
    assert {event.stage for event in world.events(ProcessorFailed)} == {"open", "process"}
    assert set(done(world, "p1")) == set(range(1, 201))
    if times == 1:
        assert all(set(done(world, name)) == set(range(1, 201)) for name in ("p0", "p2"))
    check_safety(world)
