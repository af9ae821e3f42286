"""What `.ci/run` runs: every part of the targets that people run, and none twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__: list[str] = []

ROOT = Path(__file__).parents[1]
TARGETS = ("test", "test-processes", "test-servers", "test-deploy")
SET_UP = frozenset({"venv", "servers", "policy"})
"""Parts of `.ci/run` that run no tests."""
RULE = re.compile(r"^([a-z-]+):(?!=)([^#\n]*)(?:#.*)?\n((?:[\t#].*\n)*)", re.MULTILINE)


def parts_of(target: str, rules: dict[str, tuple[list[str], str]]) -> Iterator[str]:
    """Yield the targets below one, itself included, whose own commands check something."""
    needs, commands = rules[target]
    for need in needs:
        if need in rules:
            yield from parts_of(need, rules)
    if "pytest" in commands or "ruff" in commands:
        yield target


def test_ci_runs_each_part_of_every_test_target_once() -> None:
    """It runs them in an order of its own, side by side, so a new part could be left out and nobody would see it."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    rules = {name: (needs.split(), commands) for name, needs, commands in RULE.findall(makefile)}
    wanted = sorted(part for target in TARGETS for part in parts_of(target, rules))

    run = re.findall(r'^ *part "make ([a-z-]+)"', (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)

    assert sorted(set(run) - SET_UP) == wanted
    assert len(run) == len(set(run))
