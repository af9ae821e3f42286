"""Swarms of the simulation: old failures, fresh seeds with every rare event, and runs that repeat exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.many import BASE, directed, fresh_base, play_many
from tests.simulation.parameters import CUT_DURATIONS, FOCUS, FREEZE_DURATIONS, TROUBLES, Parameters
from tests.simulation.play import Draws, play
from tests.simulation.regressions import REGRESSIONS

__all__: list[str] = []

ROOT = Path(__file__).parents[2]
FRESH = 60
REPEATED = 20

DIGESTS = """
import sys
from tests.simulation.play import play

for seed in range(int(sys.argv[1])):
    print(seed, play(seed, trace=True).digest)
"""


@pytest.mark.parametrize(("seed", "draws"), [(seed, draws) for seed, draws, _ in REGRESSIONS])
def test_seed_that_failed_once_is_clean(seed: int, draws: Draws) -> None:
    """What was found once must not come back."""
    outcome = play(seed, draws=draws)

    assert not outcome.failures, outcome.report()


def test_fresh_seeds_are_clean_and_meet_every_rare_event_and_fault() -> None:
    """Other schedules in every run; a fault that never strikes is not tested, whatever its name."""
    base = fresh_base()
    print(f"\nfresh seeds {base} to {base + FRESH - 1}; {BASE}={base} repeats them")
    summary = play_many(range(base, base + FRESH))
    for counts in directed():
        summary.add_rare(counts)
    print(summary.show())

    assert summary.failed == {}, "\n\n".join(outcome.report() for outcome in summary.failed.values())
    assert [name for name, number in summary.rare.items() if not number] == [], f"{BASE}={base}\n{summary.show()}"
    assert summary.never_struck() == [], f"{BASE}={base}\n{summary.show_struck()}"


def test_equal_seeds_give_equal_histories_in_two_processes() -> None:
    """A failure that cannot be repeated cannot be mended; two processes differ in their hash seeds and addresses."""
    command = [sys.executable, "-W", "error", "-c", DIGESTS, str(REPEATED)]
    running = [
        subprocess.Popen(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for seed in ("1", "2")
    ]
    first, second = [process.communicate()[0].splitlines() for process in running]

    assert [process.returncode for process in running] == [0, 0]
    assert first == second
    assert len({line.split()[1] for line in first}) == REPEATED


def test_every_parameter_is_drawn_within_its_bounds() -> None:
    """A swarm that draws less than it should tests less; one that draws more demands what nobody promised."""
    drawn = [Parameters.draw(seed) for seed in range(400)]

    assert {of.hosts for of in drawn} == set(range(1, 7))
    assert {of.partitions for of in drawn} == set(range(1, 13))
    assert {of.hosts_max for of in drawn} == set(range(3, 7))
    assert (CUT_DURATIONS, FREEZE_DURATIONS) == ((0.3, 3.0), (0.1, 3.0))
    for name, most in {"loss": 0.2, "slow": 0.4, "late": 0.2, "source_loss": 0.2}.items():
        shares = [getattr(of, name) for of in drawn]
        assert (min(shares), max(shares)) == (0.0, most)
    assert max(of.slow_max_s / of.duration_s for of in drawn) == 1.5
    assert {of.pause_every_s for of in drawn} == {0.0, 20.0, 60.0}
    assert {kind for of in drawn for kind in of.troubles} == set(TROUBLES)
    assert {operation for of in drawn for operation in of.focus} == set(FOCUS)
