"""
Many seeds on all cores: what failed, by checker, and how often each rare event happened.

Each process plays some seeds and is replaced, because what a killed host leaves stays in memory until its process ends.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from tests.simulation import rare
from tests.simulation.play import Outcome, play

__all__ = ["BASE", "Summary", "fresh_base", "play_many", "pool"]

BASE: Final = "SIMULATION_BASE"
"""The environment variable that names the first of the fresh seeds, to repeat a run of them."""
SEEDS_PER_PROCESS: Final = 25
SHOWN_MAX: Final = 20


@dataclass(slots=True)
class Summary:
    """What came of many seeds."""

    seeds: int = 0
    failed: dict[int, Outcome] = field(default_factory=dict)
    """By seed."""
    rare: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    real_s: float = 0.0
    """Of all cores together."""

    def add(self, outcome: Outcome) -> None:
        """Take in one more."""
        self.seeds += 1
        self.rare.update(outcome.rare)
        self.virtual_s += outcome.virtual_s
        self.real_s += outcome.real_s
        if outcome.failures:
            self.failed[outcome.seed] = outcome

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
            f"{self.real_s / max(1, self.seeds):.2f} s each"
        ]
        for name, seeds in self.by_checker().items():
            shown = " ".join(map(str, seeds[:SHOWN_MAX]))
            lines.append(f"  {name}: {len(seeds)} ({shown}{' …' if len(seeds) > SHOWN_MAX else ''})")
        return "\n".join([*lines, rare.table(self.rare)])


def fresh_base() -> int:
    """Return the first of the fresh seeds: another one in every run, unless the environment names it."""
    named = os.environ.get(BASE)
    return random.SystemRandom().randrange(10**9) if named is None else int(named)


def pool(processes: int | None = None) -> Executor:
    """Return processes in which seeds are played: one for each core unless said otherwise."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.play"])
    return ProcessPoolExecutor(
        processes or os.cpu_count() or 1, mp_context=context, max_tasks_per_child=SEEDS_PER_PROCESS
    )


def play_many(
    seeds: Iterable[int], *, processes: int | None = None, on_outcome: Callable[[Outcome], None] = lambda _: None
) -> Summary:
    """
    Play seeds side by side.

    Args:
        seeds: Which; in any order.
        processes: How many at once, one for each core unless said otherwise.
        on_outcome: Called with each as it is done, in whatever order that is.
    """
    summary = Summary()
    with pool(processes) as executor:
        for done in as_completed([executor.submit(play, seed) for seed in seeds]):
            outcome = done.result()
            summary.add(outcome)
            on_outcome(outcome)
    return summary
