"""Seeds that failed once, each with what it found. They run in every test run."""

from __future__ import annotations

from typing import Final

__all__ = ["REGRESSIONS"]

PLAIN: Final = True

REGRESSIONS: Final[tuple[tuple[int, bool, str], ...]] = (
    (21, PLAIN, "a stop with a release on its way ended with status 4, as if a processor had been running"),
    (20601, PLAIN, "a fence on its way while a stopping host read the sessions: a KeyError, and the host died"),
    (30030, PLAIN, "a frozen place whose host had ended was to be killed: an error of the simulation"),
    (40614, PLAIN, "a failed processor whose save was not answered held up a stop and a hand-off"),
    (1000947, PLAIN, "children that had begun a second ago were asked for their owner: an error of the simulation"),
    (
        582945943,
        not PLAIN,
        "a partition with no host for it was stopped once its resumer had gone: an error of the simulation",
    ),
    (32000195, not PLAIN, "a host fell sick of its last failures when all was to be calm: an error of the simulation"),
    (20000434, not PLAIN, "attempts that stood stopped a partition after the last resume: an error of the simulation"),
)
"""
Seed, whether it was plain, and what it found. One that was found before there were modes is played without, and so
repeats the very steps that it then took. A line stays when the drawing of parameters changes and the seed draws
something else.
"""
