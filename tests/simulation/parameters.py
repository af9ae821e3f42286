"""
What one seed decides: the parameters of a run and those of each host in it. Everything is drawn here and printable.

It knows no world. A seed draws which kinds of fault there are at all, not only how many of each, so that some runs
have one kind alone, and much of it: a schedule that needs two beats lost in a row hides where everything fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from types import MappingProxyType
from typing import Any, Final

__all__ = [
    "CLOCK_RATES",
    "CUT_DURATIONS",
    "FOCUS",
    "FREEZE_DURATIONS",
    "HOSTS_MAX",
    "TROUBLES",
    "HostParameters",
    "Parameters",
]

HOSTS_MAX: Final = 6

TROUBLES: Final = MappingProxyType(
    {
        "kill": 2.0,
        "freeze": 3.0,
        "suspend": 2.0,
        "cut requests": 2.0,
        "cut answers": 2.0,
        "stop": 1.5,
        "operator's drain": 0.7,
        "cancel": 1.0,
        "join": 2.5,
        "namesake": 0.5,
        "split": 1.0,
        "merge": 0.7,
        "close": 0.2,
    }
)
"""What can befall hosts and stream, and how often beside each other."""

FOCUS: Final = (
    "Acquire", "Ask", "Beat", "Complete", "Create", "Fence", "Leave", "Register", "Release", "SaveCheckpoint",
    "look_at_sessions", "read_leases", "read_sessions", "read_some_leases", "source.list", "source.read",
)  # fmt: skip
"""Operations of which a run may disturb one far more than the others."""

CLOCK_RATES: Final = (0.995, 1.005)
"""The slowest and the fastest clock: together they differ by what is allowed, 1 %."""
CUT_DURATIONS: Final = (0.3, 3.0)
"""How long a host is cut off at least and at most, in durations."""
FREEZE_DURATIONS: Final = (0.1, 3.0)
"""The same of a freeze, with the clock running or with it stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """One run, as its seed draws it. Shares are probabilities, from 0 to 1."""

    seed: int
    hosts: int
    """Hosts at the start."""
    hosts_max: int
    """So many live at once: none joins beyond it."""
    partitions: int
    start: str
    storm_s: float
    """How long there are faults, virtual seconds."""
    duration_s: float
    latency_s: float
    audit_interval_s: float
    discovery_interval_s: float
    loss: float
    """Calls that fail or get lost, before or after they are applied."""
    slow: float
    slow_max_s: float
    late: float
    """Writes that arrive a second time, up to 4 durations after the first."""
    throttled: float
    """Calls that are refused at once with a passing fault."""
    stale: float
    """Looks at the sessions that are answered with an older state."""
    paged: float
    """Reads of all leases whose pages are read one after the other."""
    focus: tuple[str, ...]
    """The operations that are disturbed by `focus_loss` and `focus_slow` on top."""
    focus_loss: float
    focus_slow: float
    source_loss: float
    """As `loss`, for calls of the source."""
    source_slow: float
    trouble_every_s: float
    """Mean time between two troubles."""
    ambush: float
    """Troubles that wait for a host's next call of some operation, and strike while it is on its way."""
    troubles: Mapping[str, float]
    """The kinds of trouble that there are, and how often beside each other."""
    records_per_s: float
    """Of the whole stream."""
    record_s: float
    """What most records take, mean."""
    slow_records: float
    """Records that take up to one and a half hand-offs."""
    failing: float
    """Records at which the processor raises."""
    failing_open: float
    pause_every_s: float
    """Mean time between two pauses of a partition by an operator, who resumes it a while later; 0: none pauses."""
    late_at_heal: str
    """What becomes of late calls once the faults are off: "lost" or "delivered"."""

    @classmethod
    def draw(cls, seed: int) -> Parameters:
        """Draw everything from one seed; equal seeds give equal parameters on every machine."""
        random = Random(f"parameters of {seed}")
        duration_s = random.choice([5.0, 6.0, 6.0, 9.0])
        kinds = [kind for kind in TROUBLES if random.random() < 0.75]
        if not kinds:
            kinds = ["kill", "join"]
        return cls(
            seed=seed,
            hosts=random.randint(1, 6),
            hosts_max=min(random.randint(3, 7), HOSTS_MAX),
            partitions=random.randint(1, 12),
            start=random.choice(["earliest", "earliest", "latest"]),
            storm_s=round(random.uniform(160, 220), 1),
            duration_s=duration_s,
            latency_s=random.choice([0.005, 0.03, 0.1, 0.3]),
            audit_interval_s=random.choice([30.0, 60.0]),
            discovery_interval_s=random.choice([duration_s, 30.0]),
            loss=_share(random, 0.2),
            slow=_share(random, 0.4),
            slow_max_s=round(random.choice([0.25, 0.25, 1.5]) * duration_s, 3),
            late=_share(random, 0.2),
            throttled=_share(random, 0.2, seldom=True),
            stale=_share(random, 0.5),
            paged=_share(random, 0.5),
            focus=tuple(random.sample(FOCUS, random.randint(0, 4))),
            focus_loss=round(random.uniform(0.1, 0.5), 3),
            focus_slow=round(random.uniform(0.1, 0.5), 3),
            source_loss=_share(random, 0.2),
            source_slow=_share(random, 0.4),
            trouble_every_s=round(random.choice([2.5, 5.0, 10.0]), 3),
            ambush=random.choice([0.0, 0.4, 0.8]),
            troubles=MappingProxyType({kind: TROUBLES[kind] for kind in kinds}),
            records_per_s=random.choice([0.5, 1.0, 2.0, 5.0]),
            record_s=random.choice([0.0, 0.02, 0.1, 0.4]),
            slow_records=_share(random, 0.03),
            failing=_share(random, 0.03),
            failing_open=_share(random, 0.1, seldom=True),
            # From a number of its own, so that a seed draws the rest as it would without it.
            pause_every_s=Random(f"pauses of {seed}").choice([0.0, 0.0, 20.0, 60.0]),
            late_at_heal=random.choice(["lost", "delivered"]),
        )

    @property
    def handoff_max_s(self) -> float:
        """The longest hand-off that any host of the run may have."""
        return 3 * self.duration_s

    def show(self) -> str:
        """Return every parameter, each on a line."""
        return "\n".join(f"  {field.name} = {_shown(getattr(self, field.name))}" for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParameters:
    """One host, drawn as it starts."""

    place: str
    host_id: str
    clock_rate: float
    clock_offset_s: float
    handoff_s: float
    drain_timeout_s: float
    capacity: float
    max_leases: int | None
    stubborn: bool
    """Its processors let nobody cancel them in the middle of a record."""
    checkpoints: float
    """The share of records after which its processors store a checkpoint themselves."""
    renews: float
    """The share of records after which they renew the lease."""
    checkpoint_interval_s: float
    batch_records_max: int
    read_wait_s: float
    restart_pause_max_s: float

    @classmethod
    def draw(cls, random: Random, of: Parameters, place: str, host_id: str, **changes: Any) -> HostParameters:
        """Draw the next host of a run; `changes` are not left to chance."""
        drawn = cls(
            place=place,
            host_id=host_id,
            clock_rate=random.choice([CLOCK_RATES[0], CLOCK_RATES[1], random.uniform(*CLOCK_RATES)]),
            clock_offset_s=random.uniform(0, 1e6),
            handoff_s=random.choice([1.0, 1.5, 3.0]) * of.duration_s,
            drain_timeout_s=random.choice([0.5 * of.duration_s, of.duration_s, 20.0]),
            capacity=random.choice([1.0, 1.0, 1.0, 0.5, 2.0]),
            max_leases=random.choice([None, None, None, None, 1, 2, 4]),
            stubborn=random.random() < 0.1,
            checkpoints=random.choice([0.0, 0.0, 0.1, 0.5]),
            renews=random.choice([0.0, 0.0, 0.05]),
            checkpoint_interval_s=random.choice([0.5, 1.0, 5.0]),
            batch_records_max=random.choice([1, 5, 50]),
            read_wait_s=random.choice([1.0, 5.0, 20.0]),
            restart_pause_max_s=random.choice([1.0, 4.0]),
        )
        return replace(drawn, **changes)

    def show(self) -> str:
        """Return every parameter, on one line."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return f"host {values.pop('place')}: " + ", ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _share(random: Random, most: float, *, seldom: bool = False) -> float:
    """Draw a share: none at all in some runs, the most in some."""
    kind = random.random()
    if kind < (0.7 if seldom else 0.25):
        return 0.0
    return most if kind > 0.9 else round(random.uniform(0, most), 4)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {weight:g}" for name, weight in value.items())
    return f"{value:g}" if isinstance(value, float) else repr(value)
