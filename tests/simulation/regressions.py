"""Seeds that failed once, each with what it found. They run in every test run."""

from __future__ import annotations

from typing import Final

__all__ = ["REGRESSIONS"]

REGRESSIONS: Final[tuple[tuple[int, str], ...]] = (
    (21, "a stop with a release on its way ended with status 4, as if a processor had been running"),
    (20601, "a fence on its way while a stopping host read the sessions: a KeyError, and the host died"),
    (30030, "a frozen place whose host had ended was to be killed: an error of the simulation"),
    (40614, "a failed processor whose save was not answered held up a stop and a hand-off"),
    (1000947, "children that had begun a second ago were asked for their owner: an error of the simulation"),
)
"""Seed, and what it found. A line stays when the drawing of parameters changes and the seed draws something else."""
