"""
A group in load mode for many rounds: weights that waver, and hosts that each act for themselves.

In every round each host, in an order drawn anew, measures its own leases, publishes their averages as checkpoints do,
looks at the group and takes what the plan gives it. So no two hosts of a round plan with the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from partitions.items import LeaseItem, SessionItem
from partitions.planner import plan
from partitions.weights import LoadRule
from processor_host.weigher import Weigher
from tests.builders import a_lease

__all__ = ["Move", "Weighing"]

ROUND_S = 10 / 3
"""Between two rounds of a host at the default lease duration, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One lease that went from one session to another."""

    round: int
    partition: str
    source: str
    target: str


@dataclass(slots=True, kw_only=True)
class Weighing:
    """A group with its true weights, which nobody but the test knows."""

    true: dict[str, float]
    sessions: Sequence[SessionItem]
    noise: float
    """What is measured in a round is the truth times something between 1 − noise and 1 + noise, all equally likely."""
    burst_chance: float = 0.0
    """How likely a partition without a burst begins one in a round."""
    burst_factor: float = 5.0
    burst_rounds: int = 5
    rule: LoadRule = field(default_factory=lambda: LoadRule(threshold=0.1, moves_max=10))
    random: Random
    averages: bool = True
    """Whether averages are published, or what was measured in the round alone."""
    round: int = 0
    bursts_begun: int = 0
    moves: list[Move] = field(default_factory=list)
    leases: dict[str, LeaseItem] = field(init=False)
    bursts: dict[str, int] = field(default_factory=dict)
    """The round in which each burst ends."""
    weighers: dict[str, Weigher] = field(default_factory=dict)
    """Of the present owner, by partition."""

    def __post_init__(self) -> None:
        self.leases = {name: a_lease(name) for name in self.true}

    def play(self, rounds: int) -> None:
        """Let so many rounds pass."""
        for _ in range(rounds):
            self.round += 1
            self.bursts = {name: end for name, end in self.bursts.items() if end > self.round}
            for name in self.true:
                if name not in self.bursts and self.random.random() < self.burst_chance:
                    self.bursts[name] = self.round + self.burst_rounds
                    self.bursts_begun += 1
            for session in self.random.sample(self.sessions, len(self.sessions)):
                self._publish(session.session_id)
                self._act(session)

    def _publish(self, session_id: str) -> None:
        for name, lease in self.leases.items():
            if lease.owner == session_id:
                true = self.true[name] * (self.burst_factor if name in self.bursts else 1.0)
                measured = true * self.random.uniform(1 - self.noise, 1 + self.noise)
                self.weighers[name].add(ROUND_S * measured)
                average = self.weighers[name].weight(self.round * ROUND_S)
                self.leases[name] = replace(lease, weight=average if self.averages else measured)

    def _act(self, session: SessionItem) -> None:
        targets = plan(self.leases.values(), self.sessions, load=self.rule).targets
        for name, target in targets.items():
            lease = self.leases[name]
            if target == session.session_id and lease.owner != target:
                if lease.owner is not None:
                    self.moves.append(
                        Move(round=self.round, partition=name, source=lease.owner, target=session.session_id)
                    )
                self.weighers[name] = Weigher(lease.weight, self.round * ROUND_S)
                self.leases[name] = replace(lease, owner=target, token=lease.token + 1, last_host=session.host_id)

    def levels(self) -> list[float]:
        """Return the true load of each session by its capacity, bursts left out, as shares of the fair one."""
        carried = {session.session_id: 0.0 for session in self.sessions}
        for name, lease in self.leases.items():
            if lease.owner is not None:
                carried[lease.owner] += self.true[name]
        fair = sum(self.true.values()) / sum(session.capacity for session in self.sessions)
        return sorted(carried[session.session_id] / session.capacity / fair for session in self.sessions)

    def spread_max(self) -> float:
        """Return what the true levels may differ by at rest, as a share of the fair one: the promise, and the noise."""
        fair = sum(self.true.values()) / sum(session.capacity for session in self.sessions)
        smallest = min(session.capacity for session in self.sessions)
        largest = max(session.capacity for session in self.sessions)
        lightest = max(
            min(
                (self.true[name] for name, lease in self.leases.items() if lease.owner == session.session_id), default=0
            )
            for session in self.sessions
        )
        threshold = self.rule.threshold
        # What is measured is off by half a threshold at most, at both ends.
        return max(lightest / smallest / fair + threshold, threshold * (smallest + largest) / smallest) + threshold

    def returns(self, since: int) -> list[Move]:
        """Return the moves after a round that brought a lease back to where it had been after that round."""
        been: dict[str, set[str]] = {}
        found = []
        for move in self.moves:
            if move.round <= since:
                continue
            been.setdefault(move.partition, set()).add(move.source)
            if move.target in been[move.partition]:
                found.append(move)
        return found
