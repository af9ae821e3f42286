"""
The backlog: which records are still to be handled, by a history alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tests.simulation.facts import Facts
from tests.world.checks import position_order

__all__ = ["backlog_of"]


def backlog_of(facts: Facts) -> dict[str, list[int]]:
    """
    Return by partition the numbers of the records that are still to be handled, in order.

    Those are the ones that nobody has handled with all in front of them, and those behind the last reset that nobody
    has handled since.
    """
    backlog = {
        name: [number for number, at_s in enumerate(done_s) if at_s == math.inf]
        for name, done_s in facts.done_s.items()
    }
    resets = {write.verb.partition: (write.at_s, int(position_order(write.verb.position))) for write in facts.resets}
    if not resets:
        return backlog
    ends = [(e.partition, int(e.position), e.end_s) for e in facts.world.journal if e.end_s is not None]
    again = {(name, number) for name, number, at_s in [*ends, *facts.given_up] if at_s >= _since_s(resets, name)}
    for name, (_, to) in resets.items():
        behind = [number for number in range(to + 1, len(facts.done_s[name])) if (name, number) not in again]
        backlog[name] = sorted({*backlog[name], *behind})
    return backlog


def _since_s(resets: Mapping[str, tuple[float, int]], partition: str) -> float:
    return resets[partition][0] if partition in resets else math.inf
