"""
What one seed decides about the handling of records: single ones or batches, side by side or not, and what becomes of
those that fail, that kill their host, or that a sick host is handed.

It knows no world. Drawn from a stream of its own, so that a seed draws everything else as it would without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final
from zlib import crc32

from processor_host import DeadLetter, Retry, Skip, Stop

__all__ = ["BATCHES", "GIVING_UP", "JOINED", "LETTERS", "PLAIN", "POLICIES", "RECORDS", "STOP", "Modes"]

BATCHES: Final = "batches"
RECORDS: Final = "records"
RETRY: Final = "retry"
SKIP: Final = "skip"
LETTERS: Final = "letters"
"""Dead letters to a sink of its own: at least once."""
JOINED: Final = "joined letters"
"""Dead letters in one transaction with the checkpoint."""
STOP: Final = "stop"
POLICIES: Final = (RETRY, SKIP, LETTERS, JOINED, STOP)
GIVING_UP: Final = (SKIP, LETTERS, JOINED)
"""Policies behind which a record may stay unhandled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """How one run handles records."""

    seed: int
    kind: str
    """What the processors take: batches or records."""
    concurrency: int
    checkpoint: str
    policy: str
    attempts: int
    bisect: bool
    keys: int
    """Of each partition."""
    poison_every: int
    """One of so many records raises whenever it is handled in the storm; 0: none."""
    killer_every: int
    """One of so many records kills its host in the storm; 0: none."""
    ill_every_s: float
    """Mean time between two hosts that cannot handle anything for a while; 0: none."""
    sick_after_s: float
    locks: int
    """For which a session in the place of each host contends; 0: none."""

    @classmethod
    def draw(cls, seed: int) -> Modes:
        """Draw everything from one seed."""
        random = Random(f"modes of {seed}")
        kind = random.choice([BATCHES, RECORDS, RECORDS])
        policy = random.choice(POLICIES)
        concurrency = random.choice([1, 2, 4]) if kind == RECORDS else 1
        ways = ["automatic", "automatic", "every-record"]
        if kind == BATCHES and policy == RETRY:
            ways.append("manual")
        checkpoint = random.choice(ways)
        return cls(
            seed=seed,
            kind=kind,
            concurrency=concurrency,
            checkpoint=checkpoint,
            policy=policy,
            attempts=random.choice([3, 4]),
            bisect=kind == BATCHES and policy in GIVING_UP and random.random() < 0.5,
            keys=random.choice([1, 3, 8]),
            poison_every=random.choice([0, 20, 60]),
            # With a policy that gives nothing up it would kill for ever, as it is documented.
            killer_every=0 if policy == RETRY else random.choice([0, 0, 60, 150]),
            ill_every_s=random.choice([0.0, 0.0, 40.0]),
            sick_after_s=random.choice([6.0, 12.0]),
            locks=random.choice([0, 0, 0, 0, 0, 1, 1, 2, 3]),
        )

    def is_poison(self, data: bytes) -> bool:
        """Say whether a record is one that always raises."""
        return self.poison_every > 0 and self._number(b"poison", data) % self.poison_every == 0

    def is_killer(self, data: bytes) -> bool:
        """Say whether a record is one that always kills."""
        return self.killer_every > 0 and self._number(b"killer", data) % self.killer_every == 0

    def settings(self) -> Mapping[str, Any]:
        """Return what it asks of a host's settings."""
        return {
            "concurrency": self.concurrency,
            "checkpoint": self.checkpoint,
            "sick_after_s": self.sick_after_s if self.ill_every_s else 1000.0,
        }

    def on_failure(self, sink: Any) -> Any:
        """Return the policy of a host."""
        match self.policy:
            case "skip":
                return Skip(attempts=self.attempts, bisect=self.bisect)
            case "letters" | "joined letters":
                return DeadLetter(sink, attempts=self.attempts, bisect=self.bisect)
            case "stop":
                return Stop(attempts=self.attempts)
            case _:
                return Retry()

    def show(self) -> str:
        """Return everything drawn, each on a line."""
        return "\n".join(f"  {field.name} = {getattr(self, field.name)!r}" for field in fields(self)[1:])

    def _number(self, kind: bytes, data: bytes) -> int:
        return crc32(b"%s %d %s" % (kind, self.seed, data))


PLAIN: Final = Modes(
    seed=0,
    kind=BATCHES,
    concurrency=1,
    checkpoint="automatic",
    policy=RETRY,
    attempts=3,
    bisect=False,
    keys=1,
    poison_every=0,
    killer_every=0,
    ill_every_s=0.0,
    sick_after_s=60.0,
    locks=0,
)
"""Batches, tried again for ever: what every run had before there was anything else."""
