"""Field faults that are about a store that answers badly or not at all: C08, C11, C13 and the store's half of C36."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.events import LeaseEnded
from partitions.verbs import Acquire, Ask, Beat, Release, SaveCheckpoint
from tests.simulation.directed.checks import demand, demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage
from tests.simulation.facts import Facts
from tests.world.network import Call
from tests.world.world import World

__all__: list[str] = []

D = 6.0
B = 2.0


def every(number: int, matches: Callable[[Call], bool], struck: Counter[str]) -> Callable[[Call], bool]:
    """Match every so-manieth call of each operation that something matches, and count those in `struck`."""
    seen: Counter[str] = Counter()

    def is_hit(call: Call) -> bool:
        if not matches(call):
            return False
        seen[call.operation] += 1
        if seen[call.operation] % number:
            return False
        struck[call.operation] += 1
        return True

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
    struck: Counter[str] = Counter()
    fault = stage.disturb(every(10, lambda call: call.operation in ("Beat", "SaveCheckpoint"), struck), **what)
    for _ in range(18):
        world.put(40)
        await world.wait(10.0)

    assert sum(struck.values()) == fault.hits
    # A beat every two seconds for three minutes, and up to four checkpoints every second.
    assert struck["Beat"] >= 8
    assert struck["SaveCheckpoint"] >= 20
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
    struck: list[tuple[float, Call]] = []

    def is_struck(call: Call) -> bool:
        is_hit = not call.operation.startswith("source.") and world.random.random() < 0.05
        if is_hit:
            struck.append((world.now_s, call))
        return is_hit

    stage.disturb(is_struck, raises=StoreUnavailable("slow down"))
    for _ in range(300):
        world.put(1)
        await world.wait(1.0)
    # So that what was struck last is tried again as well.
    world.network.faults.clear()
    await world.wait(D)

    demand("throttling changes no owner", not changes(world, since_s), changes(world, since_s))
    lives = Facts(world).lives
    sent_s = sent_of_each(world)
    retries = [
        (at_s, lives[sender[0]].valid_until_s(at_s), sent_s[sender][bisect_right(sent_s[sender], at_s)])
        for at_s, call in struck
        if (sender := sender_of(call)) is not None
    ]
    # One in twenty of 30 checkpoints a second.
    assert len(retries) > 300
    late = [retry for retry in retries if not retry[2] < retry[1]]
    demand("retries stay inside the remaining lease time", not late, late[:3])


def sender_of(call: Call) -> tuple[str, str | None] | None:
    """Return the session of a beat or checkpoint, and the partition of a checkpoint; None for other calls."""
    if isinstance(call.verb, Beat):
        return call.verb.session_id, None
    return (call.verb.owner, call.verb.partition) if isinstance(call.verb, SaveCheckpoint) else None


def sent_of_each(world: World) -> dict[tuple[str, str | None], list[float]]:
    """Return when each sender of beats or checkpoints sent one, and at last infinity: never again."""
    sent_s: dict[tuple[str, str | None], list[float]] = {}
    for at_s, call in world.network.calls:
        if (sender := sender_of(call)) is not None:
            sent_s.setdefault(sender, []).append(at_s)
    return {sender: [*times_s, math.inf] for sender, times_s in sent_s.items()}


OUTAGES: dict[str, dict[str, Any]] = {
    "calls fail": {"fail_before": True},
    "calls are never answered": {"lose_request": True},
    "answers are lost": {"lose_answer": True},
    "answers are faults": {"fail_after": True},
}


@schedule(partitions=12, cases={kind: {"what": what} for kind, what in OUTAGES.items()})
async def test_c13_after_an_outage_of_the_store_every_partition_runs_again(stage: Stage, what: dict[str, Any]) -> None:
    """No loop may die of it and no flag stick: the same hosts go on from what is stored, without a restart."""
    world = stage.world
    for name in "abc":
        stage.host(name, record_s=0.2)
    await world.until(lambda: world.is_balanced(3), within_s=10 * B)
    world.put(300)
    await world.wait(20.0)
    tasks = {name: running.task for name, running in world.hosts.items()}
    outage = stage.disturb(lambda call: not call.operation.startswith("source."), **what)
    await world.wait(30.0)
    assert outage.hits > 30
    assert world.running() == {}
    world.network.faults.remove(outage)
    recovered_s = world.now_s

    def all_run() -> bool:
        owned = {name: [(world.owners()[name], lease.token)] for name, lease in world.leases().items()}
        return len(owned) == 12 and world.running() == owned

    took_s = await demand_in_time(world, "all run after an outage", all_run, within_s=D + 3 * B)
    print(f"all run {took_s:.2f} s after the outage")
    await world.wait(20.0)
    stored = {
        (write.verb.partition, write.result.item.token): write.result.item.position
        for write in world.network.applied(Acquire)
    }
    opens = [note for at_s, _, note in world.notes if at_s >= recovered_s and note[0] == "open"]
    wrong = [note for note in opens if stored[note[1], note[2]] != note[3]]
    assert {partition for _, partition, _, _ in opens} == world.leases().keys()
    assert any(position != "0" for _, _, _, position in opens)
    demand("a processor starts from the stored checkpoint", not wrong, wrong)
    demand("no host restarts", {name: running.task for name, running in world.hosts.items()} == tasks, tasks)


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
