"""
A host that is cancelled at each await of a write's way, as by a second signal: rules 3, 4, 6 and 8.

The unit tests cut one call at each of its scheduling points (`tests.cuts`); here it is a whole host, and the others and
its own next life have to live with what it left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel

from tests.simulation.directed.checks import demand_in_time
from tests.simulation.directed.schedules import schedule
from tests.simulation.directed.stage import Stage, of

__all__: list[str] = []

D = 6.0
SLOW_S = 0.3
"""What the way there takes, and the way back."""
WRITES = ("Acquire", "Ask", "Beat", "Complete", "Create", "Fence", "Leave", "Register", "Release", "SaveCheckpoint")
REPEATED = ("Beat", "Complete", "Leave", "Register", "Release", "SaveCheckpoint")
"""Those that are tried again at once; the others are left to the next round."""
STEPS = 4
"""How many steps of the loop an answer takes from the network to whoever sent the write, at most."""


async def begin(stage: Stage, operation: str, arrange: Callable[[], object]) -> None:
    """Bring host "b" to where it is about to send a write of this kind, and arrange what happens to it then."""
    world = stage.world
    world.put(100)
    if operation in ("Create", "Register"):
        arrange()
        stage.host("b", record_s=0.2)
        return
    if operation == "Ask":
        stage.host("a", record_s=0.02)
        await world.wait(4.0)
        arrange()
        stage.host("b", record_s=0.2)
        return
    stage.host("b", record_s=0.2)
    if operation == "Fence":
        stage.host("a", record_s=0.02)
        await world.until(lambda: world.shares() == [2, 1], within_s=3 * D)
        stage.kill("a")
    # All that it has is handled by then, so that a split ends its parent at once.
    await world.wait(24.0 if operation in ("Complete", "Acquire") else 4.0)
    arrange()
    if operation in ("Complete", "Acquire"):
        world.source.split("p0")
    elif operation == "Release":
        stage.host("a", record_s=0.02)
    elif operation == "Leave":
        stage.stop("b")


async def cancelled(stage: Stage) -> None:
    """Cancel "b", which ends soon, and see what becomes of what it had."""
    stage.cancel("b")
    task = stage.world.hosts["b"].task
    await demand_in_time(stage.world, "all stop", task.done, within_s=2.0)
    await stage.world.wait(2 * D)


@schedule(
    partitions=3,
    cases={
        f"{operation}, {moment}": {"operation": operation, "after_s": after_s}
        for operation in WRITES
        for moment, after_s in {"before it is applied": 0.15, "before it is answered": 0.45}.items()
    },
)
async def test_host_is_cancelled_while_a_write_is_on_its_way(stage: Stage, operation: str, after_s: float) -> None:
    """A release is shielded; of the others nobody knows what became, and the session's end makes it good."""
    world = stage.world
    slow: list[Any] = []
    await begin(
        stage,
        operation,
        lambda: slow.append(stage.disturb(of("b", operation), before_s=SLOW_S, after_s=SLOW_S, times=1)),
    )
    await world.until(lambda: slow[0].hits == 1, within_s=60.0, every_s=0.01)
    await world.wait(after_s)
    cancelled_s = world.now_s
    await cancelled(stage)

    [write] = [w for w in world.network.history if w.place == "b" and w.at_s - w.sent_s >= SLOW_S - 0.001]
    assert type(write.verb).__name__ == operation
    assert write.sent_s < cancelled_s < write.answered_s
    assert (cancelled_s < write.at_s) == (after_s < SLOW_S)


@schedule(
    partitions=3,
    cases={
        f"{operation}, {steps} steps after": {"operation": operation, "steps": steps}
        for operation in WRITES
        for steps in range(STEPS)
    },
)
async def test_host_is_cancelled_as_a_write_is_answered(stage: Stage, operation: str, steps: int) -> None:
    """The answer is there and its sender has not yet noted it, or has just done so."""
    world = stage.world
    answered = anyio.Event()

    async def count() -> None:
        await world.wait(SLOW_S)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        answered.set()
        stage.cancel("b")

    def on_applied(answer: Any) -> Any:
        stage.start(count)
        return answer

    await begin(
        stage, operation, lambda: stage.disturb(of("b", operation), after_s=SLOW_S, changes=on_applied, times=1)
    )
    with anyio.fail_after(60.0):
        await answered.wait()
    cancelled_s = world.now_s
    await demand_in_time(world, "all stop", world.hosts["b"].task.done, within_s=2.0)
    await world.wait(2 * D)

    answers_s = [w.answered_s for w in world.network.history if w.place == "b" and type(w.verb).__name__ == operation]
    assert min(abs(at_s - cancelled_s) for at_s in answers_s) < 1e-9


@schedule(
    partitions=3,
    cases={
        f"{operation}, {moment}": {"operation": operation, "tries": tries}
        for operation in REPEATED
        for moment, tries in {"in between": 1, "the second on its way": 2}.items()
    },
)
async def test_host_is_cancelled_between_two_tries_of_a_write(stage: Stage, operation: str, tries: int) -> None:
    """The first has been applied and answered with a fault, so that the second finds it done."""
    world = stage.world
    # One that each partition sends at that moment is disturbed for one of them.
    writes = of("b", operation, partition="p0" if operation == "SaveCheckpoint" else None)
    faults: list[Any] = []

    def arrange() -> None:
        faults.append(stage.disturb(writes, fail_after=True, times=1))
        faults.append(stage.disturb(writes, before_s=SLOW_S, times=1))

    await begin(stage, operation, arrange)
    await world.until(lambda: faults[tries - 1].hits == 1, within_s=60.0, every_s=0.001)
    # In a millisecond the first has not failed, and in a hundredth the next has not begun.
    await world.wait(0.01)
    assert [fault.hits for fault in faults] == [1, tries - 1]
    await cancelled(stage)
