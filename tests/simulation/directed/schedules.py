"""
The register of directed schedules, and how one is played and judged.

`schedule` makes a test of a coroutine and enters it here under its name, so that the same schedule is played by pytest
and against each mutation of the product (`tests.simulation.mutants`).

A schedule that did not reach the moment it is about fails with an ordinary error: that is no checker's finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.simulation.checkers import Failure, check
from tests.simulation.directed.checks import Unmet
from tests.simulation.directed.stage import Stage
from tests.world.loop import run_virtual
from tests.world.world import World

__all__ = ["SCHEDULES", "Schedule", "Verdict", "load_all", "schedule"]

Body = Callable[..., Awaitable[None]]

REAL_TIME_LIMIT_S: Final = 240.0
"""For one play on the real clock; on a machine with much else to do a second of a core may take a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one play."""

    failures: tuple[Failure, ...]
    """What checkers and demands found, by name."""
    crash: BaseException | None
    """What ended the schedule beside those: a moment that was not reached, or an exception that nobody expected."""
    world: World
    seen: Counter[str]
    """Rare events that leave no trace in the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One directed schedule."""

    name: str
    body: Body
    case: Mapping[str, Any]
    """What the body gets beside the stage."""
    world: Mapping[str, Any]
    ends_calm: bool
    """Whether the group is asked afterwards for what it is asked after a storm."""

    def play(self) -> Verdict:
        """Play it once in a world of its own, and judge the history."""
        failures: list[Failure] = []
        crash: BaseException | None = None
        stage: Stage | None = None
        world: World | None = None

        async def main() -> None:
            nonlocal stage, world
            world = World(**self.world)
            async with anyio.create_task_group() as tasks:
                stage = Stage(world, tasks)
                await self.body(stage, **self.case)
                failures.extend(await stage.calm() if self.ends_calm else stage.exits())
                tasks.cancel_scope.cancel()

        try:
            run_virtual(main, real_time_limit_s=REAL_TIME_LIMIT_S)
        except Exception as error:  # Containment: whatever ended the schedule, its history is judged.
            unmet, others = _sorted(error)
            failures.extend(found.failure for found in unmet)
            crash = others[0] if others else None
        assert world is not None
        return Verdict(
            failures=(*check(world), *failures),
            crash=crash,
            world=world,
            seen=Counter() if stage is None else stage.seen,
        )


SCHEDULES: dict[str, Schedule] = {}
"""By the name of the test, with its case in brackets."""


def schedule(
    *, cases: Mapping[str, Mapping[str, Any]] | None = None, ends_calm: bool = True, **world: Any
) -> Callable[[Body], Callable[..., None]]:
    """
    Make a test of a coroutine that gets a `Stage`.

    Args:
        cases: What it gets beside it, by the name of the case; played once for each.
        ends_calm: Whether the calm comes after it.
        world: For the `World`.
    """

    def register(body: Body) -> Callable[..., None]:
        name: str = body.__name__
        if cases is None:
            only = _enter(Schedule(name=name, body=body, case={}, world=world, ends_calm=ends_calm))

            def alone() -> None:
                _judge(only)

            made: Callable[..., None] = alone
        else:
            entered = {
                case: _enter(Schedule(name=f"{name}[{case}]", body=body, case=values, world=world, ends_calm=ends_calm))
                for case, values in cases.items()
            }

            @pytest.mark.parametrize("case", entered)
            def each(case: str) -> None:
                _judge(entered[case])

            made = each
        made.__name__ = made.__qualname__ = name
        made.__doc__ = body.__doc__
        made.__module__ = body.__module__
        return made

    return register


def load_all() -> dict[str, Schedule]:
    """Import every module of schedules and return the register."""
    for module in sorted(Path(__file__).parent.glob("test_*.py")):
        import_module(f"{__package__}.{module.stem}")
    return SCHEDULES


def _enter(entered: Schedule) -> Schedule:
    # pytest imports a module of tests under a name of its own; a second import of the same one is no other schedule.
    SCHEDULES[entered.name] = entered
    return entered


def _judge(played: Schedule) -> None:
    verdict = played.play()
    if verdict.crash is not None:
        for failure in verdict.failures:
            verdict.crash.add_note(f"{failure.checker}: {failure.text}")
        raise verdict.crash
    if verdict.failures:
        pytest.fail("\n".join(f"{failure.checker}: {failure.text}" for failure in verdict.failures), pytrace=False)


def _sorted(error: BaseException) -> tuple[list[Unmet], list[BaseException]]:
    """Tell unmet demands from other errors, also in groups."""
    if isinstance(error, Unmet):
        return [error], []
    if not isinstance(error, BaseExceptionGroup):
        return [], [error]
    unmet: list[Unmet] = []
    others: list[BaseException] = []
    for inner in error.exceptions:
        found, rest = _sorted(inner)
        unmet += found
        others += rest
    return unmet, others
