"""
Run one seed, and show what it drew and what came of it; or run many on all cores.

    python -m tests.simulation SEED [--trace]
    python -m tests.simulation --many N [--base SEED] [--processes P]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.many import Summary, fresh_base, play_many
from tests.simulation.play import Draws, Outcome, play

__all__ = ["main"]

LINES = 20
"""How often progress is told where there is no terminal."""


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit status, 1 where a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("seed", nargs="?", type=int, help="the seed to run")
    what.add_argument("--many", type=int, metavar="N", help="run N seeds on all cores")
    parser.add_argument("--draws", type=Draws, choices=list(Draws), default=Draws.ALL, help="how much is drawn")
    parser.add_argument("--trace", action="store_true", help="show all that happened")
    parser.add_argument("--base", type=int, help="the first of many seeds; another one in every run if not given")
    parser.add_argument("--processes", type=int, help="processes for many seeds; one for each core if not given")
    given = parser.parse_args(arguments)
    return (
        one(given.seed, given.trace, given.draws)
        if given.many is None
        else many(given.many, given.base, given.processes)
    )


def one(seed: int, trace: bool, draws: Draws) -> int:
    """Run one seed."""
    outcome = play(seed, draws=draws, digest=True, chronicle=trace)
    for line in outcome.chronicle:
        print(line)
    print(f"seed {seed} drew:\n{outcome.drawn}\nhistory {outcome.digest}\n{outcome.report()}")
    return 1 if outcome.failures else 0


def many(count: int, base: int | None, processes: int | None) -> int:
    """Run many seeds, with a bar in a terminal and lines elsewhere."""
    first = fresh_base() if base is None else base
    print(f"seeds {first} to {first + count - 1}; --base {first} repeats them", flush=True)
    console = Console(stderr=True)
    seeds = range(first, first + count)
    summary = with_bar(seeds, processes, console) if console.is_terminal else with_lines(seeds, processes)
    print(summary.show())
    return 1 if summary.failed else 0


def with_bar(seeds: range, processes: int | None, console: Console) -> Summary:
    columns = (TextColumn("{task.fields[failed]} failed"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed = 0
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("seeds", total=len(seeds), failed=0)

        def done(outcome: Outcome) -> None:
            nonlocal failed
            failed += bool(outcome.failures)
            tell_failure(outcome, lambda text: progress.console.print(text, markup=False, highlight=False))
            progress.update(bar, advance=1, failed=failed)

        return play_many(seeds, processes=processes, on_outcome=done)


def with_lines(seeds: range, processes: int | None) -> Summary:
    number = 0

    def done(outcome: Outcome) -> None:
        nonlocal number
        number += 1
        tell_failure(outcome, print)
        if number % max(1, len(seeds) // LINES) == 0:
            print(f"{number} of {len(seeds)} seeds", flush=True)

    return play_many(seeds, processes=processes, on_outcome=done)


def tell_failure(outcome: Outcome, tell: Callable[[str], None]) -> None:
    if outcome.failures:
        tell(outcome.report())


if __name__ == "__main__":
    sys.exit(main())
