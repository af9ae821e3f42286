"""Rules 12, 13 and 15: who may be fenced, in which order to read, and what stays single."""

from __future__ import annotations

import pytest

from partitions.events import EndReason, LeaseEnded, SessionFenced
from partitions.liveness import CLOCK_DRIFT
from partitions.verbs import Acquire, Beat, Create, Fence
from processor_host import Batch, CloseReason, PartitionProcessor, ProcessorContext
from processor_host.events import ProcessorFailed
from tests.cases.lone import begun
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.loop import result_of
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
B = 2.0


@virtual
async def test_rule_12_beat_that_arrives_right_before_a_fence_refuses_it() -> None:
    """A fence names the beat that was seen; who has beaten since gets a whole duration more."""
    world = World(partitions=4)
    a = await begun(world, "a")
    lease = await a.acquire("p0")
    await world.wait(5.0)
    world.start("b")
    await world.wait(5.0)
    world.network.cut_off.add("a")
    lingering = world.network.applied(Beat)[-1].verb
    fencing = world.network.disturb(lambda call: call.operation == "Fence", before_s=0.5, times=1)
    await world.until(lambda: fencing.hits == 1, within_s=D + 2 * B)
    # A beat of A's that was sent in time and has lingered on the way since.
    world.store.apply_now(GROUP, lingering)
    await world.until(lambda: len(world.network.applied(Fence)) == 1, within_s=2 * D + B)

    fences = [write for write in world.network.history if isinstance(write.verb, Fence)]
    assert [type(write.result).__name__ for write in fences] == ["Refused", "Applied"]
    assert fences[1].at_s - fences[0].at_s >= D * (1 + CLOCK_DRIFT)
    assert lease.end_reason is EndReason.SESSION_ENDED
    check_safety(world)


@virtual
async def test_rule_12_stale_reads_fence_nobody() -> None:
    """A replica that lags for minutes shows no beats; the condition on the very beat is checked where it is true."""
    world = World(partitions=4)
    for name in "ab":
        world.start(name)
    await world.until(lambda: world.is_balanced(2), within_s=10)
    await world.wait(5.0)
    tokens = {name: lease.token for name, lease in world.leases().items()}
    stale = tuple(world.store.sessions_now(GROUP))
    world.network.disturb(lambda call: call.operation == "look_at_sessions", changes=lambda _: stale)
    await world.wait(60.0)

    assert [write for write in world.network.history if isinstance(write.verb, Fence)] != []
    assert world.events(SessionFenced) == []
    assert {name: lease.token for name, lease in world.leases().items()} == tokens
    assert world.events(LeaseEnded) == []


@virtual
async def test_rule_12_session_is_fenced_after_its_own_duration_and_not_the_observers() -> None:
    """Hosts of one group may be set differently; how long a session lives stands in its item."""
    world = World(partitions=4)
    world.start("a", lease_duration_s=20.0)
    await world.wait(3.0)
    world.start("b")
    await world.until(lambda: world.is_balanced(2), within_s=80)
    # Between two beats of A, of which each is 6.7 s after the last.
    await world.wait(30.0)
    assert world.events(SessionFenced) == []
    world.kill("a")
    killed_s = world.now_s
    await world.until(lambda: set(world.owners().values()) == {"b"}, within_s=30)

    assert killed_s + 20.0 * (1 + CLOCK_DRIFT) - 20.0 / 3 - 0.1 <= world.now_s
    assert world.now_s <= killed_s + 20.0 * (1 + CLOCK_DRIFT) + B


@virtual
async def test_rule_12_time_counts_from_the_answer_that_showed_the_beat() -> None:
    """A slow answer shows a beat that is old by then; counted from the question, the session had less than its due."""
    world = World(partitions=4)
    await begun(world, "a")
    world.network.disturb(lambda call: call.place == "b" and call.operation == "read_sessions", after_s=3.0, times=1)
    world.start("b")
    world.network.cut_off.add("a")
    await world.until(lambda: bool(world.events(SessionFenced)), within_s=2 * D + B)

    [fenced] = world.events(SessionFenced)
    [shown_s] = [at for at, call in world.network.calls if call.place == "b" and call.operation == "read_sessions"][:1]
    assert world.now_s >= shown_s + 3.0 + D * (1 + CLOCK_DRIFT)
    assert fenced.unchanged_s >= D * (1 + CLOCK_DRIFT)


@virtual
async def test_rule_13_host_that_registers_between_two_reads_is_not_taken_for_dead() -> None:
    """Leases are read first: an owner in them has registered before, and must be in the later read of the sessions."""
    world = World(partitions=4)
    for info in world.source.list_now():
        world.store.apply_now(GROUP, Create(partition=info.partition, position="0"))
    # Each of B's reads takes long enough for A to begin between any two.
    world.network.disturb(lambda call: call.place == "b" and call.operation.startswith("read_"), before_s=0.4)
    world.start("b")
    await world.until(lambda: bool({"read_sessions", "read_leases"} & sent_by(world, "b")), within_s=5, every_s=0.01)
    # Whichever of the two is first has arrived, the other has not.
    await world.wait(0.41)
    world.start("a")
    await world.wait(30.0)

    taken = [write for write in world.network.applied(Acquire) if write.verb.seen_owner is not None]
    assert taken == []
    assert world.is_balanced(2)
    check_safety(world)


def sent_by(world: World, place: str) -> set[str]:
    return {call.operation for _, call in world.network.calls if call.place == place}


@virtual
async def test_rule_13_plan_trusts_no_read_of_sessions_that_may_be_stale() -> None:
    """Right after a lease read only a consistent one shows the owner who has just registered."""
    world = World(partitions=4)
    world.start("b")
    await world.until(lambda: world.shares() == [4], within_s=5)
    await world.wait(3.0)
    stale = tuple(world.store.sessions_now(GROUP))
    world.network.disturb(
        lambda call: call.place == "b" and call.operation == "look_at_sessions", changes=lambda _: stale
    )
    world.start("a")
    await world.wait(60.0)

    assert [write for write in world.network.applied(Acquire) if write.verb.seen_owner is not None] == []
    assert world.is_balanced(2)
    check_safety(world)


class Failing(PartitionProcessor):
    """Fails in one of its methods on one partition; counts what the others handle."""

    def __init__(self, world: World, stage: str) -> None:
        self._world = world
        self._stage = stage
        self._partition = ""

    async def open(self, context: ProcessorContext) -> None:
        """Fail, if so set."""
        self._partition = context.partition
        self._fail("open")

    async def process(self, batch: Batch) -> None:
        """Count the records, or fail."""
        self._fail("process")
        for record in batch:
            self._world.note("a", "done", record.partition, record.position)

    async def close(self, reason: CloseReason) -> None:
        """Fail, if so set."""
        self._fail("close")

    def _fail(self, stage: str) -> None:
        if (self._partition, self._stage) == ("p0", stage):
            raise KeyError("odd")


@pytest.mark.parametrize("stage", ["open", "process", "read", "acquire"])
@virtual
async def test_rule_15_failure_of_one_partition_stops_neither_the_beats_nor_its_neighbours(stage: str) -> None:
    """The host keeps what the plan gives it and backs off while holding it; nobody else would do better."""
    world = World(partitions=4)
    world.put(100)
    if stage == "read":
        world.network.disturb(
            lambda call: call.operation == "source.read" and call.partition == "p0", raises=KeyError("odd")
        )
    if stage == "acquire":
        world.network.disturb(lambda call: call.operation == "Acquire" and call.partition == "p0", fail_before=True)
    world.start("a", processor=lambda: Failing(world, stage), restart_pause_max_s=60.0)
    await world.wait(60.0)

    done = [what[1:] for _, _, what in world.notes]
    assert sorted(done) == sorted((f"p{n}", str(position)) for n in (1, 2, 3) for position in range(1, 101))
    tokens = {name: lease.token for name, lease in world.leases().items()}
    assert tokens == {"p0": 0 if stage == "acquire" else 1, "p1": 1, "p2": 1, "p3": 1}
    assert world.events(LeaseEnded) == []
    assert len(world.network.applied(Beat)) >= 60 / (D / 3) - 2
    failures = [event.pause_s for event in world.events(ProcessorFailed)]
    # Twice as long each time: 1, 2, 4, … s, so few in a minute.
    assert len(failures) in (range(4, 8) if stage in ("open", "process") else range(1))


@virtual
async def test_rule_15_host_whose_beats_die_ends_every_term_and_fails() -> None:
    """Nobody keeps its leases alive any more, so nothing may go on under them, and somebody must restart it."""
    world = World(partitions=4)
    world.put(1000)
    world.start("a", record_s=0.05, batch_records_max=5)
    await world.until(lambda: len(world.running()) == 4, within_s=5)
    await world.wait(5.0)
    leases = tuple(world.hosts["a"].host.session.held.values())  # type: ignore[union-attr]
    world.network.disturb(lambda call: call.operation == "Beat", raises=KeyError("odd"))
    await world.until(world.hosts["a"].task.done, within_s=D)
    ended_s = world.now_s
    held = [lease.is_held() for lease in leases]
    with pytest.raises(KeyError, match="odd"):
        await result_of(world.hosts["a"].task)
    await world.wait(5.0)

    assert len(leases) == 4
    assert held == [False] * 4
    assert [entry for entry in world.handled() if entry.start_s > ended_s] == []
