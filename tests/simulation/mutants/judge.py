"""
The judgement of one product: `python -m tests.simulation.mutants.judge`, run in the folder of a copy.

Reads what to play from standard input as JSON and writes what came of it to standard output. Only what a named checker
found counts; an exception, a time-out or a moment that was not reached proves nothing about the checkers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import partitions
from tests.simulation.directed.schedules import Schedule, load_all
from tests.simulation.play import CRASHED, Draws, play

__all__ = ["Catch", "Task", "main", "seeds_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be played: schedules, then seeds."""

    folder: str = ""
    """Where the copy is."""
    schedules: Sequence[str] | None = None
    """Names of schedules, of which those that are none are left out; None for all."""
    likely: Sequence[str] = ()
    """Beginnings of the names of schedules that come first."""
    seeds: Sequence[int] = ()
    stops: bool = True
    """At the first catch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catch:
    """One schedule or seed in which a named checker failed."""

    by: str
    checker: str
    text: str


def main() -> None:
    """Judge the product of the working directory."""
    task = Task(**json.load(sys.stdin))
    if Path(partitions.__file__).parent != Path(task.folder) / "partitions":
        sys.exit(f"{partitions.__file__} was imported; expected the copy in {task.folder}")
    catches: list[Catch] = []
    for catch in judged(task):
        catches.append(catch)
        if task.stops:
            break
    json.dump([asdict(catch) for catch in catches], sys.stdout)


def judged(task: Task) -> Iterator[Catch]:
    """Play one after the other, and yield what was caught."""
    for name, schedule in in_order(load_all(), task.likely):
        if task.schedules is None or name in task.schedules:
            for failure in schedule.play().failures[:1]:
                yield Catch(by=name, checker=failure.checker, text=failure.text)
    for seed in task.seeds:
        failures = play(seed, draws=Draws.PLAIN).failures
        for failure in [failure for failure in failures if failure.checker != CRASHED][:1]:
            yield Catch(by=f"seed {seed}", checker=failure.checker, text=failure.text)


def in_order(schedules: Mapping[str, Schedule], likely: Sequence[str]) -> list[tuple[str, Schedule]]:
    """Put the schedules whose names begin with one of `likely` first."""
    return sorted(schedules.items(), key=lambda entry: not entry[0].startswith(tuple(likely)))


def seeds_in(names: Iterable[str]) -> list[int]:
    """Return the seeds among names."""
    return [int(name.removeprefix("seed ")) for name in names if name.startswith("seed ")]


if __name__ == "__main__":
    main()
