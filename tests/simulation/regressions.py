"""Seeds that failed once, each with what it found. They run in every test run."""

from __future__ import annotations

from typing import Final

from tests.simulation.play import Draws

__all__ = ["REGRESSIONS"]

REGRESSIONS: Final[tuple[tuple[int, Draws, str], ...]] = (
    (21, Draws.PLAIN, "a stop with a release on its way ended with status 4, as if a processor had been running"),
    (20601, Draws.PLAIN, "a fence on its way while a stopping host read the sessions: a KeyError, and the host died"),
    (30030, Draws.PLAIN, "a frozen place whose host had ended was to be killed: an error of the simulation"),
    (40614, Draws.PLAIN, "a failed processor whose save was not answered held up a stop and a hand-off"),
    (
        1000947,
        Draws.PLAIN,
        "children that had begun a second ago were asked for their owner: an error of the simulation",
    ),
    (
        582945943,
        Draws.MODES,
        "a partition with no host for it was stopped once its resumer had gone: an error of the simulation",
    ),
    (
        32000195,
        Draws.MODES,
        "a host fell sick of its last failures when all was to be calm: an error of the simulation",
    ),
    (
        20000434,
        Draws.MODES,
        "attempts that stood stopped a partition after the last resume: an error of the simulation",
    ),
    (
        7000022,
        Draws.ALL,
        "a pause that was seen while a checkpoint was stored, side by side: its partition was kept and not handled",
    ),
    (
        55000097,
        Draws.MODES,
        "the same: a drain that was asked while a checkpoint was stored, side by side, went unseen",
    ),
    (7000046, Draws.ALL, "a lease moved as its weight was stored, at rest: an error of the simulation"),
    (7000115, Draws.ALL, "loads were compared just after a weight had been stored: an error of the simulation"),
    (7100060, Draws.ALL, "a lease was on its way as the calm looked, for its weight: an error of the simulation"),
    (82000001, Draws.ALL, "the same, at the look before: an error of the simulation"),
    (81000348, Draws.ALL, "the operator of the calm left before a slow host had looked: an error of the simulation"),
)
"""
Seed, how much of it was drawn, and what it found. One that was found before there was something else to draw is played
without, and so repeats the very steps that it then took. A line stays when the drawing of parameters changes and the
seed draws something else.
"""
