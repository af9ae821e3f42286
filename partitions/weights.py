"""
Weights: what each lease counts as in load mode, and the rule by which a group balances them.

Knows no session and no plan. A weight is a rate that the owner measures and publishes with its checkpoints, in whatever
unit the group has agreed on. Only the proportions enter a plan, so they are turned into whole numbers here: thousandths
of the average. Sums of those are exact, and every host gets the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from partitions.items import GroupItem, LeaseItem

__all__ = ["AVERAGE", "LIGHTEST", "LOAD_MODE", "LoadRule", "load_rule_of", "units_of"]

LOAD_MODE: Final = "load"
"""The plan mode of a group whose weights are balanced."""

AVERAGE: Final = 1000
"""What a lease of the average weight counts as, and one that nobody has measured yet."""

LIGHTEST: Final = 20
"""What even an idle partition counts as: its reads and its buffers cost something, and a host has only so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRule:
    """How the weights of a group are balanced."""

    threshold: float
    """
    What an exchange between two hosts must be able to take off the heavier one, at least, as a share of the fair load.
    """
    moves_max: int
    """Leases on their way for the sake of balance at the same time, at most."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < math.inf:
            raise ValueError(f"load_threshold={self.threshold} is not a share of the fair load; expected 0 or more")
        if self.moves_max < 1:
            raise ValueError(f"moves_max={self.moves_max} lets nothing move; expected 1 or more")


def load_rule_of(group: GroupItem | None) -> LoadRule | None:
    """
    Return the rule that all hosts of a group go by; None in count mode.

    Raises:
        ValueError: the item holds thresholds that nobody can plan with.
    """
    if group is None or group.plan_mode != LOAD_MODE:
        return None
    return LoadRule(threshold=group.load_threshold, moves_max=group.moves_max)


def units_of(leases: Iterable[LeaseItem]) -> dict[str, int]:
    """
    Return what each of these leases counts as, by partition: thousandths of their average weight.

    One that nobody has measured yet (weight 0) counts as the average; so does one whose weight is nonsense (negative,
    infinite, not a number), which must not stop the plan of all hosts. None counts as less than `LIGHTEST`.
    """
    weights = {lease.partition: lease.weight for lease in leases}
    measured = [weight for weight in weights.values() if 0 < weight < math.inf]
    # Divided before they are added up, and added without rounding: neither size nor order may change the result.
    average = math.fsum(weight / len(measured) for weight in measured)
    return {
        partition: max(LIGHTEST, round(AVERAGE * (weight / average))) if average and 0 < weight < math.inf else AVERAGE
        for partition, weight in weights.items()
    }
