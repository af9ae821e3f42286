"""
One run: a storm, then calm, then the judgement of its whole history. Equal seeds give equal runs.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import anyio

from processor_host.wellness import REST_TIMES_MAX
from tests.simulation import rare
from tests.simulation.checkers import Failure, check
from tests.simulation.contenders import Contenders
from tests.simulation.liveness import Calm, judge_exits
from tests.simulation.modes import PLAIN, STOP, Modes
from tests.simulation.outcomes import judge_commands
from tests.simulation.parameters import Parameters
from tests.simulation.sharing import EVEN, Sharing
from tests.simulation.storm import Storm
from tests.simulation.troubles import Troubles
from tests.world.loop import run_virtual, running_loop
from tests.world.world import World

__all__ = ["CRASHED", "Draws", "Outcome", "play"]

CRASHED = "no exception"
"""The name under which an exception is told that no checker expected; it is no checker's finding."""
STOPS_MAX: Final = 20
"""Durations in which whatever a failure policy stops is resumed again, once nothing fails any more, at most."""
STOPS_REST: Final = 3
"""Durations in a row without anything stopped, or about to be, after which nothing more will be."""
DRAIN_S: Final = 60.0
LOOK_S: Final = 1.0
REAL_TIME_LIMIT_S: Final = 240.0
"""For one seed on the real clock, which takes half a second of a core: only what hangs takes so long."""


class Draws(StrEnum):
    """How much of a run is drawn: what there was to be drawn once, and what there is now."""

    PLAIN = "plain"
    """Parameters alone: batches, tried again for ever, shared by number."""
    MODES = "modes"
    """Also how records are handled."""
    ALL = "all"
    """Also how partitions are shared, and the commands of operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one seed."""

    seed: int
    failures: tuple[Failure, ...]
    rare: Mapping[str, int]
    """How often each rare event happened."""
    struck: Mapping[str, int]
    """How often calls were struck, by operation and way."""
    digest: str
    """SHA-256 over the history; of a traced run also over every step of its loop. Empty unless it was asked for."""
    virtual_s: float
    cpu_s: float
    """Of one core, with the judgement."""
    chronicle: tuple[str, ...]
    """All that happened, a line each, where a chronicle was asked for."""
    draws: Draws
    """What was drawn."""
    drawn: str
    """Every drawn parameter, of the run and of each host."""

    def report(self) -> str:
        """Tell what failed and how to see it again; for a clean run, that it was one."""
        if not self.failures:
            return f"seed {self.seed}: clean, {self.virtual_s:.0f} virtual seconds in {self.cpu_s:.2f} s"
        found = "\n".join(f"{failure.checker}: {failure.text}" for failure in self.failures)
        draws = "" if self.draws is Draws.ALL else f" --draws {self.draws}"
        repeat = f"python -m tests.simulation {self.seed}{draws} --trace"
        return f"seed {self.seed} failed: {repeat}\n{found}\n{self.drawn}"


class _Run:
    """One run and what is left of it, also after a failure."""

    def __init__(self, seed: int, draws: Draws) -> None:
        self.parameters = Parameters.draw(seed)
        self.modes = PLAIN if draws is Draws.PLAIN else Modes.draw(seed)
        self.sharing = Sharing.draw(seed, self.parameters.duration_s) if draws is Draws.ALL else EVEN
        self.world: World | None = None
        self.troubles: Troubles | None = None
        self.storm: Storm | None = None
        self.failures: list[Failure] = []
        self.steps = ""

    async def main(self) -> None:
        """Storm and calm."""
        drawn = self.parameters
        self.world = world = World(
            partitions=drawn.partitions,
            seed=drawn.seed,
            duration_s=drawn.duration_s,
            latency_s=drawn.latency_s,
        )
        self.storm = storm = Storm(world, drawn)
        async with anyio.create_task_group() as tasks:
            self.troubles = troubles = Troubles(world, storm, drawn, tasks, self.modes, self.sharing)
            contenders = Contenders(world, drawn, locks=self.modes.locks)
            troubles.on_start = contenders.join
            async with anyio.create_task_group() as producing:
                producing.start_soon(troubles.produce, name="producer")
                producing.start_soon(troubles.operator.pause_now_and_then, name="operator")
                producing.start_soon(troubles.fall_ill_now_and_then, name="illnesses")
                producing.start_soon(troubles.resume_now_and_then, name="resumer")
                producing.start_soon(troubles.commands.give_now_and_then, name="commands")
                await troubles.run()
                producing.cancel_scope.cancel()
            storm.end(lose_late=drawn.late_at_heal == "lost")
            troubles.heal()
            self.failures += await contenders.end()
            late_s = world.now_s if drawn.late_at_heal == "lost" else storm.last_late_s
            await self._recover(troubles)
            await troubles.operator.resume_all(max(late_s, world.now_s))
            self.failures += await Calm(world, troubles, drawn, max(late_s, troubles.stuck_until_s)).run()
            tasks.cancel_scope.cancel()
        troubles.look_after()
        self.failures += judge_exits(world, troubles.exits)
        self.failures += judge_commands(world, troubles.commands.given)

    async def _recover(self, troubles: Troubles) -> None:
        """Wait until what hosts do of themselves about failures is over; plain runs have nothing of it."""
        if self.modes.policy == STOP:
            # A count that stands, or a pause on its way, may stop a partition once more: when its next owner begins.
            at_rest = 0
            for _ in range(STOPS_MAX):
                troubles.make_room()
                await anyio.sleep(self.parameters.duration_s)
                at_rest = at_rest + 1 if troubles.operator.has_nothing_stopped() else 0
                if at_rest == STOPS_REST:
                    break
                await troubles.operator.resume_some()
        if self.modes.ill_every_s:
            # What failed last may make a host sick only now.
            await anyio.sleep(self.modes.sick_after_s)
            # At most so long, and a drain, a rest keeps a host away.
            until_s = troubles.world.now_s + REST_TIMES_MAX * self.modes.sick_after_s + DRAIN_S
            while troubles.are_resting() and troubles.world.now_s < until_s:
                await anyio.sleep(LOOK_S)

    def drawn(self) -> str:
        """Return every drawn parameter."""
        hosts = [] if self.troubles is None else [host.show() for host in self.troubles.drawn_hosts]
        modes = [] if self.modes is PLAIN else [self.modes.show()]
        sharing = [] if self.sharing is EVEN else [self.sharing.show()]
        return "\n".join([self.parameters.show(), *modes, *sharing, *(f"  {host}" for host in hosts)])


def play(
    seed: int, *, draws: Draws = Draws.ALL, trace: bool = False, digest: bool = False, chronicle: bool = False
) -> Outcome:
    """
    Run one seed.

    Args:
        seed: Decides everything.
        draws: How much of a run is drawn, for seeds that failed when there was less.
        trace: Also digest every step of the loop, at a third of the speed.
        digest: Digest the history.
        chronicle: Keep a line for all that happened.
    """
    run = _Run(seed, draws)
    began_s = time.process_time()
    virtual_s = 0.0

    async def main() -> None:
        nonlocal virtual_s
        loop = running_loop()
        start_s = loop.time()
        try:
            await run.main()
        finally:
            virtual_s = loop.time() - start_s
            run.steps = loop.digest if trace else ""

    try:
        run_virtual(main, real_time_limit_s=REAL_TIME_LIMIT_S, trace=trace)
    except Exception as error:  # Containment: what no checker expected is told like what one found.
        run.failures.append(Failure(checker=CRASHED, text="".join(traceback.format_exception(error))))
    world = run.world
    failures = ([] if world is None else check(world, run.modes)) + run.failures
    return Outcome(
        seed=seed,
        failures=tuple(failures),
        rare={} if world is None else rare.count(world, {} if run.storm is None else run.storm.seen),
        struck={} if run.storm is None else dict(run.storm.struck),
        digest=_digest(world, run.steps) if (trace or digest) and world is not None else "",
        virtual_s=virtual_s,
        cpu_s=time.process_time() - began_s,
        chronicle=_chronicle(world, run.troubles) if chronicle and world is not None else (),
        draws=draws,
        drawn=run.drawn(),
    )


def _digest(world: World, steps: str) -> str:
    digest = hashlib.sha256(steps.encode())
    for kept in (world.network.calls, world.network.history, world.journal, world.diary, world.notes):
        for entry in kept:
            digest.update(repr(entry).encode())
    return digest.hexdigest()


def _chronicle(world: World, troubles: Troubles | None) -> tuple[str, ...]:
    """All that happened, in order of time, and within one moment in the order of these kinds."""
    entries: list[tuple[float, int, str]] = []
    if troubles is not None:
        entries += [(at_s, 0, f"-- {what}") for at_s, what in troubles.actions]
    entries += [
        (at_s, 1, f"{call.place} sends {call.verb or call.operation} {call.partition or ''}")
        for at_s, call in world.network.calls
    ]
    entries += [
        (write.at_s, 2, f"{write.place}'s {write.verb}{' again' if write.is_repeat else ''}: {write.result}")
        for write in world.network.history
    ]
    entries += [(at_s, 3, f"{place} {event}") for at_s, place, event in world.diary]
    entries += [(entry.start_s, 4, f"{entry.place} handles {entry}") for entry in world.journal]
    entries += [(at_s, 5, f"{place} {what}") for at_s, place, what in world.notes]
    return tuple(f"{at_s:12.6f} {text}" for at_s, _, text in sorted(entries, key=lambda entry: entry[:2]))
