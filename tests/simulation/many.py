"""
Many seeds on all cores: what failed, by checker, and how often each rare event happened.

Each process plays some seeds and is replaced, because what a killed host leaves stays in memory until its process ends.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Final

from tests.simulation import rare
from tests.simulation.directed.schedules import load_all
from tests.simulation.play import Outcome, play
from tests.simulation.storm import STRUCK, WAYS

__all__ = ["BASE", "Summary", "directed", "fresh_base", "play_many", "pool"]

BASE: Final = "SIMULATION_BASE"
"""The environment variable that names the first of the fresh seeds, to repeat a run of them."""
SEEDS_PER_PROCESS: Final = 25
SILENCE_S: Final = 600.0
"""How long no process may come to an end with a seed, on the real clock: one that died takes its seed with it."""
SHOWN_MAX: Final = 20


@dataclass(slots=True)
class Summary:
    """What came of many seeds."""

    seeds: int = 0
    failed: dict[int, Outcome] = field(default_factory=dict)
    """By seed."""
    rare: Counter[str] = field(default_factory=Counter)
    """How often each rare event happened."""
    met: Counter[str] = field(default_factory=Counter)
    """In how many schedules."""
    struck: Counter[str] = field(default_factory=Counter)
    """How often calls were struck, by operation and way."""
    virtual_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Take in one more."""
        self.seeds += 1
        self.add_rare(outcome.rare)
        self.struck.update(outcome.struck)
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        if outcome.failures:
            self.failed[outcome.seed] = outcome

    def add_rare(self, counts: Mapping[str, int]) -> None:
        """Take in what happened in a schedule, drawn or directed."""
        self.rare.update(counts)
        self.met.update({name: int(number > 0) for name, number in counts.items()})

    def by_checker(self) -> dict[str, list[int]]:
        """Return the seeds that each checker found."""
        found: dict[str, list[int]] = {}
        for seed, outcome in sorted(self.failed.items()):
            for name in dict.fromkeys(failure.checker for failure in outcome.failures):
                found.setdefault(name, []).append(seed)
        return found

    def show(self) -> str:
        """Return the summary: seeds, failures by checker, rare events."""
        lines = [
            f"{self.seeds} seeds, {self.virtual_s:.0f} virtual seconds, {len(self.failed)} failed, "
            f"{self.cpu_s / max(1, self.seeds):.2f} s of a core each"
        ]
        for name, seeds in self.by_checker().items():
            shown = " ".join(map(str, seeds[:SHOWN_MAX]))
            lines.append(f"  {name}: {len(seeds)} ({shown}{' …' if len(seeds) > SHOWN_MAX else ''})")
        return "\n".join([*lines, rare.table(self.rare, self.met), self.show_struck()])

    def show_struck(self) -> str:
        """Return how often each operation was struck in each way, a line each."""
        rows = [f"{'struck':>20}" + "".join(f"{way:>10}" for way in WAYS)]
        for operation in STRUCK:
            rows.append(f"{operation:>20}" + "".join(f"{self.struck[f'{operation} {way}']:10d}" for way in WAYS))
        return "\n".join(rows)

    def never_struck(self) -> list[str]:
        """Return the operations and ways that no seed has met."""
        return [name for name in (f"{one} {way}" for one in STRUCK for way in WAYS) if not self.struck[name]]


def fresh_base() -> int:
    """Return the first of the fresh seeds: another one in every run, unless the environment names it."""
    named = os.environ.get(BASE)
    return random.SystemRandom().randrange(10**9) if named is None else int(named)


def pool(processes: int | None = None) -> Pool:
    """Return processes in which seeds are played: one for each core unless said otherwise."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.play"])
    return context.Pool(processes, maxtasksperchild=SEEDS_PER_PROCESS)


def directed() -> list[dict[str, int]]:
    """Play every directed schedule, side by side, and return how often each rare event happened in each."""
    with pool() as processes:
        return processes.map(_rare_of_schedule, load_all())


def play_many(
    seeds: Iterable[int], *, processes: int | None = None, on_outcome: Callable[[Outcome], None] = lambda _: None
) -> Summary:
    """
    Play seeds side by side.

    Args:
        seeds: Which; in any order.
        processes: How many at once, one for each core unless said otherwise.
        on_outcome: Called with each as it is done, in whatever order that is.

    Raises:
        TimeoutError: a process died, or one seed holds everything up.
    """
    summary = Summary()
    waiting = list(seeds)
    with pool(processes) as processes_of_seeds:
        outcomes = processes_of_seeds.imap_unordered(play, waiting)
        for _ in waiting:
            outcome = outcomes.next(SILENCE_S)
            summary.add(outcome)
            on_outcome(outcome)
    return summary


def _rare_of_schedule(name: str) -> dict[str, int]:
    verdict = load_all()[name].play()
    return rare.count(verdict.world, verdict.seen)
