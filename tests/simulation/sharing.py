"""
What one seed decides about who gets what: partitions by number or by load, what waits, and an operator's commands.

It knows no world. Drawn from a stream of its own, so that a seed draws everything else as it would without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final
from zlib import crc32

from partitions.weights import LOAD_MODE
from processor_host.weigher import BYTES, SECONDS

__all__ = ["COUNT_MODE", "EVEN", "Sharing"]

COUNT_MODE: Final = "count"
HEAVIEST: Final = 4
"""The heaviest partitions get two to this power times the records of the lightest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How one run shares its partitions out."""

    seed: int
    balance: str
    weigh_by: str
    steal_delay_s: float
    rejoin_grace_s: float
    commands_every_s: float
    """Mean time between two commands of an operator; 0: none."""

    @classmethod
    def draw(cls, seed: int, duration_s: float) -> Sharing:
        """Draw everything from one seed, waits in multiples of how long a session lives."""
        random = Random(f"sharing of {seed}")
        return cls(
            seed=seed,
            balance=random.choice([COUNT_MODE, COUNT_MODE, LOAD_MODE]),
            weigh_by=random.choice([BYTES, SECONDS]),
            steal_delay_s=random.choice([0.0, 0.0, 1.0, 3.0]) * duration_s,
            rejoin_grace_s=random.choice([0.0, 0.0, 1.0, 3.0]) * duration_s,
            commands_every_s=random.choice([0.0, 0.0, 10.0, 30.0]),
        )

    @property
    def is_by_load(self) -> bool:
        """Say whether weights are balanced, not numbers."""
        return self.balance == LOAD_MODE

    @property
    def waits_s(self) -> float:
        """How much longer than without any wait it may take until everything is where it belongs."""
        return self.steal_delay_s + self.rejoin_grace_s

    def one_of(self, partitions: Sequence[str], random: Random) -> str:
        """Choose where the next record goes: anywhere, or more often to the heavy ones where weights count."""
        if not self.is_by_load:
            return random.choice(partitions)
        weights = [2 ** (crc32(b"%d %s" % (self.seed, name.encode())) % (HEAVIEST + 1)) for name in partitions]
        return random.choices(partitions, weights)[0]

    def settings(self) -> Mapping[str, Any]:
        """Return what it asks of a host's settings."""
        return {
            "balance": self.balance,
            "weigh_by": self.weigh_by,
            "steal_delay_s": self.steal_delay_s,
            "rejoin_grace_s": self.rejoin_grace_s,
        }

    def show(self) -> str:
        """Return everything drawn, each on a line."""
        return "\n".join(f"  {field.name} = {getattr(self, field.name)!r}" for field in fields(self)[1:])


EVEN: Final = Sharing(
    seed=0, balance=COUNT_MODE, weigh_by=BYTES, steal_delay_s=0.0, rejoin_grace_s=0.0, commands_every_s=0.0
)
"""By number, at once, and nobody interferes: what every run had before there was anything else."""
