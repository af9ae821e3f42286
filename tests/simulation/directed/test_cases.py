"""Field faults that are about a store that answers badly: C08, C11 and the store's half of C36."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.events import LeaseEnded
from partitions.verbs import Acquire, Ask, Release
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage
from tests.world.network import Call
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0


def every(number: int, matches: Callable[[Call], bool]) -> Callable[[Call], bool]:
    """Match every so-manieth of the calls that something matches."""
    seen: Counter[str] = Counter()

    def is_hit(call: Call) -> bool:
        if not matches(call):
            return False
        seen[call.operation] += 1
        return seen[call.operation] % number == 0

    return is_hit


def changes(world: World, since_s: float) -> list[Any]:
    """Return every change of an owner, and every end of a term, after a time."""
    moved = [write for write in world.network.applied(Acquire, Ask, Release) if write.at_s > since_s]
    return moved + [event for at_s, _, event in world.diary if isinstance(event, LeaseEnded) and at_s > since_s]


@schedule(
    partitions=4,
    cases={
        "answered with a fault": {"what": {"fail_after": True}},
        "never answered": {"what": {"lose_answer": True}},
    },
)
async def test_c08_write_that_was_applied_and_not_answered_costs_no_lease(stage: Stage, what: dict[str, Any]) -> None:
    """The retry of a beat beats again, and that of a checkpoint finds its own number: neither is a loss."""
    world = stage.world
    stage.host("a", record_s=0.1)
    await world.until(lambda: len(world.running()) == 4, within_s=D)
    since_s = world.now_s
    fault = stage.disturb(every(10, lambda call: call.operation in ("Beat", "SaveCheckpoint")), **what)
    for _ in range(18):
        world.put(40)
        await world.wait(10.0)

    assert fault.hits > 18
    demand("a lost answer costs no lease", not changes(world, since_s), changes(world, since_s))
    demand("no processor starts again", len([note for note in world.notes if note[2][0] == "open"]) == 4, world.notes)


@schedule(partitions=30)
async def test_c11_throttled_calls_change_no_owner(stage: Stage) -> None:
    """One call in twenty is refused for five minutes; each is tried again within what is left of the session."""
    world = stage.world
    for name in "abc":
        stage.host(name, record_s=0.02)
    await world.until(lambda: world.is_balanced(3), within_s=10 * B)
    await world.wait(2 * D)
    since_s = world.now_s
    slow_down = StoreUnavailable("slow down")
    throttled = stage.disturb(
        lambda call: not call.operation.startswith("source.") and world.random.random() < 0.05, raises=slow_down
    )
    for _ in range(30):
        world.put(1)
        await world.wait(10.0)

    assert throttled.hits > 100
    demand("throttling changes no owner", not changes(world, since_s), changes(world, since_s))


DENIED = StoreMisconfigured("UpdateItem on table 'leases' in 'eu-west-1' is denied; allow it to this role")
ABSENT = StoreMisconfigured("there is no table 'leases' in 'eu-west-1'; make it, or name its region")


@schedule(
    partitions=2,
    ends_calm=False,
    cases={
        "writes are denied": {"operations": ("SetUp", "Register", "Create", "Acquire"), "error": DENIED},
        "the table is elsewhere": {"operations": ("read_group", "SetUp", "Register"), "error": ABSENT},
    },
)
async def test_c36_store_that_denies_ends_the_start_with_its_own_words(
    stage: Stage, operations: tuple[str, ...], error: StoreMisconfigured
) -> None:
    """No retry helps, so none is made: whoever started the host reads what to change."""
    world = stage.world
    stage.disturb(lambda call: call.operation in operations, raises=error)
    host = world.start("a")
    await demand_in_time(world, "a denied start ends in 15 s", host.task.done, within_s=15.0)
    told = host.task.exception()
    demand("a denied start says why", told is error, repr(told))
