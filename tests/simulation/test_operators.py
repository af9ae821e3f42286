"""
The operator's commands in a storm: calls lost, slow, doubled and faulty, hosts killed, and the operator killed in the
middle of a command. Whatever a command did or did not do, the group is whole afterwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from partitions.errors import StoreUnavailable
from partitions.verbs import Acquire
from processor_host.errors import UserError
from processor_host.operating.carrying import export_leases, import_leases
from processor_host.operating.draining import drain, forget_host
from processor_host.operating.pausing import pause, resume
from processor_host.operating.resetting import release, reset
from processor_host.operating.restoring import RAISED_BY, note_restored
from tests.cases.virtual import seeded, virtual
from tests.simulation.operators import OperatorAt
from tests.world.checks import check_no_overlap, lost
from tests.world.loop import Killed, result_of, running_loop
from tests.world.network import Call, Fault
from tests.world.world import World

__all__: list[str] = []

D = 6.0
HANDOFF_S = 3 * D
PARTITIONS = 4
SEEDS = range(12)
LATE_S = 4.0
"""How late a doubled request arrives."""

BAD: tuple[dict[str, Any], ...] = (
    {"lose_request": True},
    {"lose_answer": True},
    {"fail_before": True},
    {"fail_after": True},
    {"before_s": 0.7},
    {"after_s": 0.7},
    {"repeat_after_s": LATE_S},
)


def storm(random: Random, share: float) -> Callable[[Call], Fault | None]:
    """Disturb so many of the calls of the store, each in one of the ways there are."""

    def weather(call: Call) -> Fault | None:
        if call.operation.startswith("source.") or random.random() >= share:
            return None
        return Fault(matches=lambda _: True, **random.choice(BAD))

    return weather


class Play:
    """One run: hosts at work in a storm, and one command after the other."""

    def __init__(self, seed: int) -> None:
        self.world = World(partitions=PARTITIONS, seed=seed)
        self.random = Random(f"operators of {seed}")
        self.outcomes: Counter[str] = Counter()
        self._hosts = 0
        self._operators = 0

    async def run(self) -> None:
        world = self.world
        world.put(60)
        for _ in range(3):
            self._start()
        # Whatever a reset goes back to has been handled before, so that what it skips is none.
        await world.until(self._is_whole, within_s=6 * D)
        world.network.weather = storm(self.random, 0.08)
        for _ in range(6):
            name, command, *args = self.random.choice(self._commands())
            await self._do(name, command, *args)
            world.put(3)
            if self.random.random() < 0.3:
                world.kill(self.random.choice(sorted(world.hosts)))
            self._look_after()
        world.network.weather = lambda _: None
        world.network.loses_late = True
        await world.wait(2.0)
        await self._calm()

    def _commands(self) -> list[tuple[Any, ...]]:
        names = self.random.sample(sorted(self.world.leases()), k=2)
        host = self.random.choice(sorted(self.world.hosts))
        return [
            ("pause", pause, names),
            ("resume", resume, names),
            ("drain", drain, host, 2 * D),
            ("forget", forget_host, host),
            ("release", release, names),
            ("reset", reset, names, self.random.choice(["earliest", "5"])),
            ("reset", reset, names[:1], "5"),
        ]

    async def _do(self, name: str, command: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Do a command as an operator of its own, who may be killed in the middle of it."""
        self._operators += 1
        operator = OperatorAt(self.world, f"operator{self._operators}")
        named = {"wait_s": args[1]} if name == "drain" else {}
        given = args[:1] if name == "drain" else args
        if name == "reset":
            given = (operator.source, *given)
        doing = operator.start(command, *given, **named)
        dies_s = self.random.choice([0.2, 1.0, 3.0, 1e9, 1e9, 1e9])
        began_s = self.world.now_s
        while not doing.done() and self.world.now_s - began_s < dies_s:
            await self.world.wait(0.05)
            self._look_after()
        if not doing.done():
            running_loop().kill(operator.place)
            self.world.kills[operator.place] = self.world.now_s
        try:
            await result_of(doing)
            self.outcomes[f"{name} done"] += 1
        except (UserError, StoreUnavailable, Killed) as error:
            self.outcomes[f"{name} {type(error).__name__}"] += 1

    def _start(self) -> None:
        self.world.start(f"h{self._hosts}", audit_interval_s=30.0, record_s=0.05, batch_records_max=5)
        self._hosts += 1

    def _look_after(self) -> None:
        """Keep three hosts: who was drained has ended, who was killed is gone, who found no store gave up."""
        for place, running in list(self.world.hosts.items()):
            if running.task.done():
                error = running.task.exception()
                assert isinstance(error, StoreUnavailable) or running.task.result() == 0
                del self.world.hosts[place]
        while len(self.world.hosts) < 3:
            self._start()

    async def _calm(self) -> None:
        world = self.world
        operator = OperatorAt(world, "calm")
        await operator.do(resume, sorted(world.leases()))
        began_s = world.now_s
        while not self._is_whole():
            assert world.now_s - began_s < HANDOFF_S + 6 * D, (world.owners(), world.sessions(), world.leases())
            await world.wait(0.25)
            self._look_after()

    def _is_whole(self) -> bool:
        leases = self.world.leases().values()
        ends = {
            lease.partition: len(self.world.source.fetch_now(lease.partition, "0", 10**6, 10**9).records)
            for lease in leases
        }
        return self.world.is_balanced(3) and all(lease.position == str(ends[lease.partition]) for lease in leases)


@pytest.mark.parametrize("seed", SEEDS)
@virtual
async def test_group_is_whole_after_commands_in_a_storm(seed: int) -> None:
    """No overlap, no record that nobody handled, every token rises, and no operator's session is left."""
    with seeded(seed):
        play = Play(seed)
        await play.run()
        world = play.world
        print(dict(sorted(play.outcomes.items())))

        assert world.overlaps == []
        check_no_overlap(world)
        assert lost(world) == []
        tokens: dict[str, int] = defaultdict(int)
        for write in world.network.applied(Acquire):
            assert write.result.item.token == tokens[write.verb.partition] + 1
            tokens[write.verb.partition] += 1
        assert [each.capacity for each in world.sessions().values()] == [1.0] * 3


async def stopped(world: World) -> World:
    """A group that has worked and was stopped."""
    world.put(10)
    world.start("a")
    await world.until(lambda: [each.position for each in world.leases().values()] == ["10"] * 3, within_s=3 * D)
    world.stop("a")
    await world.until_ended("a", within_s=D)
    del world.hosts["a"]
    return world


@pytest.mark.parametrize("step", ["Raise", "NoteRestore"])
@pytest.mark.parametrize("what", BAD, ids=lambda each: next(iter(each)))
@virtual
async def test_restored_raises_each_token_once_however_its_calls_fail(step: str, what: dict[str, Any]) -> None:
    """An answer that was lost is found in what the repeat is refused with (rule 9)."""
    world = await stopped(World(partitions=3))
    before = {name: lease.token for name, lease in world.leases().items()}
    world.network.disturb(lambda call: call.operation == step, times=1, **what)

    restored = await OperatorAt(world).do(note_restored)
    await world.wait(2 * LATE_S)

    assert restored.restore_count == 1
    assert {name: lease.token for name, lease in world.leases().items()} == {
        name: token + RAISED_BY for name, token in before.items()
    }


@pytest.mark.parametrize("at", ["Create", "Raise", "Acquire", "SaveCheckpoint", "Pause", "Complete", "Release"])
@virtual
async def test_import_that_is_killed_at_a_step_is_finished_by_another(at: str) -> None:
    """Run again it goes on where it was; nothing is lowered, and a host that starts then goes on from the positions."""
    world = await stopped(World(partitions=3))
    operator = OperatorAt(world)
    await operator.do(pause, ["p2"])
    export = await operator.do(export_leases)
    leases = {each.partition: each for each in export.leases}
    leases["p1"] = replace(leases["p1"], finished=True, position="@end", token=7)
    there = World(partitions=3)
    fault = there.network.disturb(lambda call: call.place == "first" and call.operation == at, lose_answer=True)
    first = OperatorAt(there, "first")
    wanted = replace(export, leases=tuple(leases.values()))
    doing = first.start(import_leases, wanted)
    await there.until(lambda: fault.hits > 0, within_s=30.0, every_s=0.01)
    await there.wait(0.1)
    running_loop().kill("first")
    with pytest.raises(Killed):
        await result_of(doing)

    await OperatorAt(there, "second").do(import_leases, wanted)

    after = there.leases()
    assert {name: (lease.position, lease.finished, lease.paused) for name, lease in after.items()} == {
        "p0": ("10", False, False),
        "p1": ("@end", True, False),
        "p2": ("10", False, True),
    }
    assert all(after[lease.partition].token >= lease.token for lease in export.leases)
    assert there.sessions() == {}
