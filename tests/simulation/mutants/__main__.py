"""
Judge every mutation, on all cores, and print the table: `python -m tests.simulation.mutants [words of a name …]`.

A mutation counts as caught only if a named checker failed on it in a schedule or seed which the unmutated product
passes. Exits with 1 where one survives for which no reason is given, where one is caught that was not
to be, where a text is no longer there, or where the product itself fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.simulation.mutants.copies import check_applies, copy_product
from tests.simulation.mutants.judge import Catch, Task, seeds_in
from tests.simulation.mutants.mutation import Mutation
from tests.simulation.mutants.table import MUTATIONS

__all__ = ["main"]

SEEDS: Final = 200
"""How many seeds of the swarm a mutation may need that no schedule catches."""
SEEDS_AT_ONCE: Final = 20
LIMIT_S: Final = 1800.0
"""Real seconds for one process; what takes longer was not caught."""


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations with one of these in their name, or of these rules")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of the swarm where no schedule catches")
    given = parser.parse_args(arguments)
    chosen = [
        mutation
        for mutation in MUTATIONS
        if not given.words or any(word in mutation.name or word == mutation.rule for word in given.words)
    ]
    for mutation in chosen:
        check_applies(mutation)
    began_s = time.monotonic()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        found = list(pool.map(partial(judged, seeds=given.seeds), chosen))
    by = sorted({catches[0].by for catches in found if catches})
    wrong = judge(None, Task(schedules=by, seeds=seeds_in(by), stops=False)) if by else []
    lines = [row(mutation, catches) for mutation, catches in zip(chosen, found, strict=True)]
    print("\n".join(lines))
    expected = [mutation for mutation in chosen if not mutation.needless]
    caught = [mutation for mutation, catches in zip(chosen, found, strict=True) if catches]
    print(f"\n{len(caught)} of {len(expected)} caught, in {time.monotonic() - began_s:.0f} s")
    for mutation in chosen:
        if mutation.needless:
            print(f"not needed: {mutation.name}. {mutation.needless}")
    for catch in wrong:
        print(f"the product itself fails {catch.by}: {catch.checker}: {catch.text}")
    return 1 if caught != expected or wrong else 0


def judged(mutation: Mutation, seeds: int) -> list[Catch]:
    """Judge one mutation by every schedule and then by seeds until something catches it, and tell that it is done."""
    catches = judge(mutation, Task(likely=mutation.likely))
    # Few seeds to a process, since a world in which hosts were killed stays in memory.
    for first in range(1, seeds + 1, SEEDS_AT_ONCE):
        if catches:
            break
        some = range(first, min(first + SEEDS_AT_ONCE, seeds + 1))
        catches = judge(mutation, Task(schedules=(), seeds=tuple(some)))
    print(f"  {mutation.name}: {catches[0].by if catches else 'NOT CAUGHT'}", file=sys.stderr, flush=True)
    return catches


def judge(mutation: Mutation | None, task: Task) -> list[Catch]:
    """Make a copy and judge it in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name).resolve()
        copy_product(folder, mutation)
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "tests.simulation.mutants.judge"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                input=json.dumps(asdict(replace(task, folder=str(folder)))),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return []
        if done.returncode != 0:
            title = "the product" if mutation is None else repr(mutation.name)
            raise RuntimeError(f"judging {title} ended with {done.returncode}: {done.stderr[-2000:]}")
        # What schedules print comes before it.
        return [Catch(**catch) for catch in json.loads(done.stdout.splitlines()[-1])]


def row(mutation: Mutation, catches: Sequence[Catch]) -> str:
    """Return a line of the table."""
    missed = "not needed" if mutation.needless else "NOT CAUGHT"
    caught = f"{catches[0].checker}  <-  {catches[0].by}" if catches else missed
    return f"{mutation.rule:>9}  {mutation.name:<62}  {caught}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
