"""Failures that stay where they happen, and leases that never lack a processor: C10, C23, C24, C25 and C27."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle, pairwise
from typing import Any

import anyio
import pytest

from partitions.errors import LeaseLost
from partitions.events import LeaseEnded
from partitions.items import ask_key
from partitions.positions import EARLIEST
from partitions.verbs import Ask, Beat, LeaseVerb, Release, SaveCheckpoint
from processor_host import Batch, CloseReason, ProcessorContext
from processor_host.events import ProcessorFailed
from tests.cases.virtual import repeats_of, seeded, virtual
from tests.world.checks import check_no_overlap, check_safety, lost, position_order, repeats
from tests.world.loop import result_of, run_virtual, running_loop
from tests.world.processors import Handled, WorldProcessor
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
H = 2.0
B = 2.0

# --- C10: a host's memory, the store and what runs must agree again ---------------------------------------------------

FAULTS: dict[str, dict[str, Any]] = {
    "refused": {"fail_before": True},
    "applied, answered with a fault": {"fail_after": True},
    "lost": {"lose_request": True},
    "applied, never answered": {"lose_answer": True},
}


def ask_for(world: World, partition: str, *, asker: str = "") -> bool:
    """Ask for a lease as an operator does, for nobody unless an asker is given; False where nobody owns it."""
    lease = world.leases()[partition]
    if lease.owner not in world.sessions():
        return False
    key = ask_key(partition, lease.token)
    world.store.apply_now(GROUP, Ask(session_id=lease.owner, keys=(key,), asker=asker))
    return True


def runs_once_where_it_is_owned(world: World, partition: str) -> bool:
    """Say whether exactly one processor runs for a partition: that of its present term, at the host its item names."""
    owner = world.owners()[partition]
    return owner is not None and world.running().get(partition) == [(owner, world.leases()[partition].token)]


@pytest.mark.parametrize("trouble", ["it is kept", "it is asked for", "its owner is replaced"])
def test_c10_partition_whose_writes_failed_has_one_processor_where_its_item_says(trouble: str) -> None:
    """A release or an acquire that fails half-way must leave no host believing what the store does not hold."""
    # 60 repeats in all, of which the fifth has each kind of fault once with each trouble.
    for seed, kind in zip(repeats_of(20), cycle(FAULTS), strict=False):
        with seeded(seed):
            run_virtual(lambda seed=seed, kind=kind: writes_of_p5_fail(seed, kind, trouble))  # type: ignore[misc]


async def writes_of_p5_fail(seed: int, kind: str, trouble: str) -> None:
    world = World(partitions=6, seed=seed, settings={"balance_interval_s": 0.2})
    world.start("a", record_s=0.1, batch_records_max=10)
    world.start("b", record_s=0.1, batch_records_max=10)
    await world.until(lambda: world.is_balanced(2), within_s=20)
    world.put(600)
    await world.wait(5.0 + world.random.random())
    fault = world.network.disturb(
        lambda call: isinstance(call.verb, LeaseVerb) and call.partition == "p5", **FAULTS[kind]
    )
    began_s = world.now_s
    await world.wait(world.random.uniform(0, 4))
    if trouble == "it is asked for":
        assert ask_for(world, "p5")
    elif trouble == "its owner is replaced":
        world.start("c", record_s=0.1, batch_records_max=10)
        world.stop(world.owners()["p5"] or "")
    await world.wait(began_s + 8.0 - world.now_s)
    world.network.faults.remove(fault)
    await world.wait(D + 2 * B)

    assert fault.hits > 0
    assert runs_once_where_it_is_owned(world, "p5"), (kind, world.running().get("p5"), world.leases()["p5"])
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


# --- C23: one odd error -----------------------------------------------------------------------------------------------


def check_renewed_in_every_period(world: World, partitions: list[str], since_s: float) -> None:
    """Fail unless these leases stayed with one session under one token, whose beats came every H."""
    leases = [world.leases()[name] for name in partitions]
    owners = {lease.owner for lease in leases}
    assert len(owners) == 1
    assert {lease.token for lease in leases} == {1}
    [owner] = owners
    beats_s = [write.at_s for write in world.network.applied(Beat) if write.verb.session_id == owner]
    beats_s = [since_s, *(at for at in beats_s if at >= since_s), world.now_s]
    assert max(after - before for before, after in pairwise(beats_s)) <= H + world.latency_s


def check_worked_in_every_period(world: World, partitions: list[str], since_s: float) -> None:
    """Fail unless records of each were handled in every H."""
    for name in partitions:
        ends_s = [entry.end_s for entry in world.handled(name) if entry.end_s is not None and entry.end_s >= since_s]
        steps_s = [since_s, *ends_s, world.now_s]
        assert max(after - before for before, after in pairwise(steps_s)) <= H, name


NEIGHBOURS = ["p0", "p2", "p3", "p4"]


@pytest.mark.parametrize("operation", ["Create", "Acquire", "SaveCheckpoint", "Release", "Complete", "source.read"])
@virtual
async def test_c23_odd_error_in_a_call_for_one_partition_stops_no_beat_and_no_neighbour(operation: str) -> None:
    """One odd exception, in whatever is done for one partition, must not end what is done for the others."""
    world = World(partitions=5)
    world.put(3000)
    fault = world.network.disturb(
        lambda call: call.operation == operation and call.partition == "p1", raises=KeyError("p1"), times=1
    )
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.until(lambda: world.running().keys() >= set(NEIGHBOURS), within_s=3 * B)
    since_s = world.now_s
    await world.wait(10.0)
    if operation == "Release":
        assert ask_for(world, "p1")
    if operation == "Complete":
        world.source.trim("p1", "3001")
        world.source.close_partition("p1")
    await world.until(lambda: fault.hits == 1, within_s=60)
    await world.wait(5 * H)

    check_renewed_in_every_period(world, NEIGHBOURS, since_s)
    check_worked_in_every_period(world, NEIGHBOURS, since_s)
    if operation == "Complete":
        assert world.leases()["p1"].finished
    else:
        assert runs_once_where_it_is_owned(world, "p1")
    assert not world.hosts["a"].task.done()
    check_safety(world)


@virtual
async def test_c23_odd_error_in_taking_what_was_asked_for_stops_no_beat_and_no_neighbour() -> None:
    """Nor may the one who asks for leases fall over one of them."""
    world = World(partitions=10)
    world.put(3000)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.until(lambda: len(world.running()) == 10, within_s=3 * B)
    fault = world.network.disturb(
        lambda call: call.operation == "Acquire" and call.place == "b", raises=KeyError("odd"), times=1
    )
    since_s = world.now_s
    world.start("b", record_s=0.05, batch_records_max=5)
    await world.until(lambda: world.is_balanced(2), within_s=10 * B)
    kept = [name for name, owner in world.owners().items() if owner == "a"]

    assert fault.hits == 1
    assert not world.hosts["b"].task.done()
    check_renewed_in_every_period(world, kept, since_s)
    check_worked_in_every_period(world, kept, since_s)
    check_safety(world)


@virtual
async def test_c23_partition_whose_lease_cannot_be_made_is_tried_again_with_growing_pauses() -> None:
    """One partition that fails for good must not make its host list the stream all the time."""
    world = World(partitions=5)
    world.network.disturb(lambda call: call.operation == "source.first" and call.partition == "p1", fail_before=True)
    world.start("a")
    await world.until(lambda: world.running().keys() == set(NEIGHBOURS), within_s=3 * B)
    await world.wait(60.0)

    listings_s = [at for at, call in world.network.calls if call.operation == "source.list"]
    pauses_s = [after - before for before, after in pairwise(listings_s) if after - before > 0.1]
    assert len(listings_s) <= 20
    assert max(pauses_s) >= 10.0
    assert world.owners().keys() == set(NEIGHBOURS)


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Let the garbage collector see only what the test makes, or a thousand collections would take a minute."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
@virtual
async def test_c23_partitions_that_come_and_go_all_the_time_stop_no_beat_and_no_neighbour() -> None:
    """What the beat goes through changes under it, and whatever nobody holds is collected."""
    world = World(partitions=25)
    mine = [f"p{n}" for n in range(5)]
    world.put(1400, partitions=mine)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.until(lambda: len(world.running()) == 25, within_s=3 * B)
    since_s = world.now_s
    steps = len(repeats_of(1200))
    come = gone = 0
    for step in range(steps):
        listed = {info.partition: info for info in world.source.list_now() if info.partition not in mine}
        others = [name for name, info in listed.items() if not info.closed]
        chosen = others[world.random.randrange(len(others))]
        if len(others) <= 25:
            come += len(world.source.split(chosen))
        else:
            world.source.close_partition(chosen)
        for name, lease in world.leases().items():
            if lease.finished and name in listed:
                world.source.delist(name)
                gone += 1
        # Of all generations only now and then: that takes as long as several steps.
        gc.collect() if step % 40 == 0 else gc.collect(1)
        await world.wait(0.05)

    print(f"in {world.now_s - since_s:.1f} s {come} partitions came and {gone} went")
    assert come >= 0.9 * steps
    assert gone >= 0.9 * steps
    check_renewed_in_every_period(world, mine, since_s)
    check_worked_in_every_period(world, mine, since_s)
    assert world.events(ProcessorFailed) == []
    check_safety(world)


@pytest.mark.parametrize("operation", ["Beat", "look_at_sessions"])
@virtual
async def test_c23_host_whose_loop_dies_ends_all_terms_and_fails_with_the_error(operation: str) -> None:
    """A host that no longer beats, or no longer looks at its group, must not look alive."""
    world = World(partitions=5)
    world.put(1000)
    world.start("a", record_s=0.05)
    await world.until(lambda: len(world.running()) == 5, within_s=3 * B)
    await world.wait(10.0)
    fault = world.network.disturb(lambda call: call.operation == operation, raises=KeyError("odd"))
    await world.until(lambda: fault.hits == 1, within_s=2 * H)
    failed_s = world.now_s
    with pytest.raises(KeyError, match="odd"), anyio.fail_after(D):
        await result_of(world.hosts["a"].task)

    assert world.now_s - failed_s <= D
    assert {event.partition for event in world.events(LeaseEnded)} == world.leases().keys()
    assert world.running() == {}
    ended_s = world.now_s
    await world.wait(D)
    assert [entry for entry in world.handled() if entry.start_s > ended_s] == []
    assert [write for write in world.network.history if write.at_s > ended_s + world.latency_s] == []


# --- C24, C25: an error in user code ----------------------------------------------------------------------------------


def failing(times: int, at: Callable[[Handled], bool], error: BaseException) -> Callable[[Handled], Any]:
    """Return an `on_record` that raises at some records, so many times in all."""
    left = times

    async def on_record(handled: Handled) -> None:
        nonlocal left
        await anyio.lowlevel.checkpoint()
        if at(handled) and left:
            left -= 1
            raise error

    return on_record


ERRORS = {
    "an error": RuntimeError("record 5"),
    # As where user code awaits a task of its own that somebody has cancelled.
    "a cancellation of its own": asyncio.CancelledError(),
    "the loss of another lease": LeaseLost("another", held=1, reason="refused"),
    "a group of errors": ExceptionGroup("of the user", [RuntimeError("one"), KeyError("two")]),
}


@pytest.mark.parametrize("kind", ERRORS)
@virtual
async def test_c24_error_in_one_processor_leaves_the_others_alone_and_restarts_it_with_growing_pauses(
    kind: str,
) -> None:
    """Whatever user code raises, its own partition alone starts again, from its checkpoint."""
    world = World(partitions=4, settings={"batch_records_max": 4, "prefetch_records_max": 8})
    world.on_record = failing(3, lambda handled: (handled.partition, handled.position) == ("p2", "5"), ERRORS[kind])
    world.put(1000)
    world.start("a", record_s=0.01)
    await world.until(lambda: {lease.position for lease in world.leases().values()} == {"1000"}, within_s=60)

    starts = Counter((entry.partition, entry.position) for entry in world.handled())
    assert starts == {(f"p{n}", str(at)): 1 for n in range(4) for at in range(1, 1001)} | {("p2", "5"): 4}
    opens = [(at, *what[1:]) for at, _, what in world.notes if what[0] == "open"]
    assert sorted((name, position) for _, name, _, position in opens) == [
        *[("p0", EARLIEST), ("p1", EARLIEST), ("p2", "4"), ("p2", "4"), ("p2", "4"), ("p2", EARLIEST), ("p3", EARLIEST)]
    ]
    assert {token for _, _, token, _ in opens} == {1}
    failures = [(at, event) for at, _, event in world.diary if isinstance(event, ProcessorFailed)]
    assert [(event.partition, event.stage, event.attempt) for _, event in failures] == [
        ("p2", "process", 1),
        ("p2", "process", 2),
        ("p2", "process", 3),
    ]
    again_s = [at for at, name, _, position in opens if name == "p2" and position == "4"]
    pauses_s = [after - before for (before, _), after in zip(failures, again_s, strict=True)]
    print("pauses", [f"{pause_s:.2f}" for pause_s in pauses_s])
    assert pauses_s == sorted(set(pauses_s))
    check_safety(world)


class Storing(WorldProcessor):
    """Has a checkpoint stored after each record."""

    async def process(self, batch: Batch) -> None:
        """Handle each record and store it as done."""
        for record in batch:
            await self.handle(
                Handled(
                    place=self._place,
                    partition=record.partition,
                    token=batch.lease.token,
                    position=record.position,
                    data=record.data,
                    start_s=running_loop().time(),
                )
            )
            await batch.checkpoint(record)


@pytest.mark.parametrize("checkpoints", ["by the processor", "by the host"])
@pytest.mark.parametrize("batch_records_max", [1, 7, 100])
@virtual
async def test_c25_record_that_failed_is_never_passed_over(batch_records_max: int, checkpoints: str) -> None:
    """A batch that is given up is a batch that is lost, as soon as a later checkpoint buries it."""
    world = World(partitions=1, settings={"batch_records_max": batch_records_max, "checkpoint_interval_s": 0.05})
    world.on_record = failing(2, lambda handled: handled.position == "40", RuntimeError("record 40"))
    world.put(100)
    is_stored_at_once = checkpoints == "by the processor"
    world.start("a", record_s=0.02, processor=(lambda: Storing(world, "a", 0.02)) if is_stored_at_once else None)
    await world.until(lambda: world.leases().keys() >= {"p0"} and world.leases()["p0"].position == "100", within_s=60)

    [succeeded_s] = [entry.end_s for entry in world.handled() if entry.position == "40" and entry.end_s is not None]
    assert [entry.position for entry in world.handled()].count("40") == 3
    assert [entry for entry in world.handled() if int(entry.position) > 40 and entry.start_s < succeeded_s] == []
    stored = world.network.applied(SaveCheckpoint, Release)
    early = [write for write in stored if position_order(write.result.item.position) >= 40 and write.at_s < succeeded_s]
    assert early == []
    assert {entry.position for entry in world.handled() if entry.end_s is not None} == {str(n) for n in range(1, 101)}
    if is_stored_at_once:
        assert repeats(world) == 2
    check_safety(world)
    assert lost(world) == []


# --- C27: no lease without a processor --------------------------------------------------------------------------------

NO_PROCESSOR_MAX_S = 10.0


class Troubled(WorldProcessor):
    """Raises where it is told to."""

    def __init__(self, world: World, raises: Callable[[str, str], bool]) -> None:
        super().__init__(world, "a", 0.05)
        self._raises = raises
        self._partition = ""

    async def open(self, context: ProcessorContext) -> None:
        """Open, or fail to."""
        self._partition = context.partition
        if self._raises(context.partition, "open"):
            self._keeper.note("a", "tried", context.partition, context.lease.token)
            raise RuntimeError("set-up")
        await super().open(context)

    async def process(self, batch: Batch) -> None:
        """Handle the batch, or return early."""
        if self._raises(batch.partition, "return"):
            self._keeper.note("a", "returned", batch.partition, batch.lease.token)
            return
        if self._raises(batch.partition, "process"):
            raise RuntimeError("work")
        await super().process(batch)

    async def close(self, reason: CloseReason) -> None:
        """Close, and fail."""
        await super().close(reason)
        if self._raises(self._partition, "close"):
            raise RuntimeError("clean-up")


@pytest.mark.parametrize("times", [1, 10**9])
@virtual
async def test_c27_no_lease_is_kept_for_ten_seconds_without_a_processor(times: int) -> None:
    """A lease that lives on while nothing runs for it is an orphan that no other host may take."""
    world = World(partitions=4, settings={"batch_records_max": 5})
    trouble = {("p0", "open"), ("p1", "return"), ("p2", "close")}
    left: Counter[tuple[str, str]] = Counter(dict.fromkeys(trouble, times))
    works_s = world.now_s

    def raises(partition: str, stage: str) -> bool:
        if (partition, stage) == ("p2", "process"):
            # So that there is something to clean up after, every few seconds.
            nonlocal works_s
            is_due, works_s = world.now_s > works_s + 7.0, max(works_s, world.now_s - 7.0)
            works_s = world.now_s if is_due else works_s
            return is_due
        left[partition, stage] -= 1
        return left[partition, stage] >= 0

    world.start("a", processor=lambda: Troubled(world, raises))
    await world.until(lambda: len(world.owners()) == 4, within_s=3 * B)
    running_s = dict.fromkeys(world.leases(), world.now_s)
    idle_s: dict[str, float] = dict.fromkeys(world.leases(), 0.0)
    put = 0
    for tick in range(1200):
        if tick % 10 == 0:
            world.put(1)
            put += 1
        if tick == 400:
            assert ask_for(world, "p2")
        await world.wait(0.1)
        tried = {name: at for at, _, (what, name, *_) in world.notes if what == "tried"}
        for name, lease in world.leases().items():
            if name in world.running() or lease.owner is None:
                running_s[name] = world.now_s
            running_s[name] = max(running_s[name], tried.get(name, 0.0))
            idle_s[name] = max(idle_s[name], world.now_s - running_s[name])

    print("longest without a processor", {name: f"{time_s:.2f} s" for name, time_s in sorted(idle_s.items())})
    assert max(idle_s.values()) <= NO_PROCESSOR_MAX_S
    assert {event.stage for event in world.events(ProcessorFailed)} >= {"open", "process", "close"}
    opened = Counter(what[1] for _, _, what in world.notes if what[0] == "open")
    assert opened["p3"] == 1
    if times == 1:
        assert world.running().keys() == world.leases().keys()
        assert opened["p0"] == opened["p1"] == 1
    # An early return counts its batch as done; the next batch comes all the same.
    returned_s = [at for at, _, what in world.notes if what[0] == "returned"]
    assert len(returned_s) >= min(times, 100)
    done = {name: {entry.position for entry in world.handled(name) if entry.end_s is not None} for name in ("p2", "p3")}
    assert done["p3"] == {str(n) for n in range(1, put + 1)}
    assert done["p2"] >= {str(n) for n in range(1, put - 10)}
    check_safety(world)
