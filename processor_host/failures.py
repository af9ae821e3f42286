"""
What becomes of a record that fails: the policies that a user chooses from, and the one decision they lead to.

Knows no pump, no clock and no sink beyond its contract. `what_next` is a pure function of a policy and a failure;
whoever calls it does what it says, and counts.

- A failure is of some records that were handed on together (all of one batch, or a single one), or of none where
  `open` or `close` raised. Where no record is to blame, none is ever passed over: only `Stop` acts at its limit.
- `attempts` counts the calls that failed in a row at the same records, this one included. Progress starts it anew.
- An error that names one of several records (`partition` and `position`, as a decode failure does) sets that record
  apart at once, so that those before it are done first and those after it are not blamed.
- With `bisect`, a batch that has used up its attempts is cut in halves, and each part that fails again too, until
  single records are left. Only those are given up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from partitions.sources.base import Record
from partitions.transactions import TransactionsUnsupported
from processor_host.errors import SettingsError
from processor_host.letters.base import LetterSink

__all__ = [
    "Again",
    "Bury",
    "DeadLetter",
    "Failure",
    "HostDied",
    "PassOver",
    "Policy",
    "Retry",
    "Skip",
    "SplitUp",
    "Stage",
    "Step",
    "Stop",
    "StopPartition",
    "check_policy",
    "died",
    "what_next",
]

ATTEMPTS: Final = 5
"""With the default pauses of 1, 2, 4 and 8 s, a fault that passes within a quarter of a minute costs no record."""
REASON_CHARS_MAX: Final = 500
"""Of the reason beside `paused`, which every host reads with the lease item."""

Stage = Literal["open", "decode", "process", "close"]
"""What was called when a failure happened."""


# --- Policies -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """
    Try again for as long as the lease lives, with growing pauses. The default: nothing is passed over, ever.

    Raises:
        SettingsError: at construction; the text names the value and what was expected. So do the other policies.
    """

    pause_s: float | None = None
    """The first pause, seconds; doubled with each further failure. None: the host's `restart_pause_s`."""
    pause_max_s: float | None = None
    """Where the doubling ends, seconds; at least `pause_s`. None: the host's `restart_pause_max_s`."""

    def __post_init__(self) -> None:
        _check_pauses(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """After `attempts`, pause the partition in the store as an operator would, with the reason beside it."""

    attempts: int = ATTEMPTS
    """Calls at the same records, at least 1; the last failure acts."""
    bisect: bool = False
    """Whether a failing batch is cut up first, so that everything before the bad record is done."""
    pause_s: float | None = None
    pause_max_s: float | None = None

    def __post_init__(self) -> None:
        _check_limited(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """
    After `attempts`, write the records to `sink`, then go on behind them.

    The letter is written before the checkpoint moves, so a crash between the two writes it again: at least once, one
    for each term. A sink that fails is a failure like any other; nothing is passed over without its letter.
    """

    sink: LetterSink = field(kw_only=False)
    attempts: int = ATTEMPTS
    """As `Stop.attempts`."""
    bisect: bool = False
    """Whether a failing batch is cut up first; without it, every record of the batch gets a letter."""
    pause_s: float | None = None
    pause_max_s: float | None = None

    def __post_init__(self) -> None:
        _check_limited(self)
        if not callable(getattr(self.sink, "write", None)):
            raise SettingsError(
                f"on_failure=DeadLetter({self.sink!r}): not a sink for dead letters; give one of "
                "processor_host.letters, or an object with its methods open, write and close"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """After `attempts`, go on behind the records; they are counted and logged, and lost to this group."""

    attempts: int = ATTEMPTS
    """As `Stop.attempts`."""
    bisect: bool = False
    """Whether a failing batch is cut up first; without it, the whole batch is passed over."""
    pause_s: float | None = None
    pause_max_s: float | None = None

    def __post_init__(self) -> None:
        _check_limited(self)


Policy = Retry | Stop | DeadLetter | Skip
"""What a host's `on_failure` is, and what a processor's own method returns for one failure."""


# --- What happened --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One call of user code that failed."""

    partition: str
    token: int
    stage: Stage
    error: BaseException
    attempts: int
    """Calls that failed in a row at these very records, this one included: at least 1."""
    records: tuple[Record, ...] = ()
    """What was handed on together, in order; empty where `open` or `close` raised."""
    is_part: bool = False
    """Whether the records are a part of a batch that was cut up: it failed as a whole before."""


class HostDied(Exception):
    """A record was at work each time that a host of its partition died; told where it reaches its limit that way."""

    def __init__(self, partition: str, position: str, attempts: int) -> None:
        self.partition = partition
        self.position = position
        self.attempts = attempts
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(
            f"partition {partition!r}: the host died {times} while the record at {position!r} was at work; "
            "look for a crash, an exit or a lack of memory at this record"
        )


# --- What to do -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Close the processor, wait for the pause that belongs to `attempt`, open it and hand on the same records."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitUp:
    """Hand the same records on in several parts, one after the other."""

    at: tuple[int, ...]
    """Where each further part begins: indices that rise, none of them 0 or the number of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPartition:
    """Pause the partition in the store and give it up."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """Write a letter for each of the records; once all are written, they are done."""

    sink: LetterSink


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOver:
    """The records are done; count them."""


Step = Again | SplitUp | StopPartition | Bury | PassOver


def what_next(policy: Policy, failure: Failure) -> Step:
    """
    Decide what becomes of the records of a failure.

    Args:
        policy: The host's, or what the processor's own method returned for this failure.
        failure: What happened, with the attempts so far.

    Returns:
        The one thing to do now.
    """
    if isinstance(failure.error, TransactionsUnsupported):
        # No retry makes the store another one, and the records are not to blame.
        return StopPartition(reason=_reason(failure))
    if cut := _cut_around(_blamed(failure), len(failure.records)):
        return SplitUp(at=cut)
    if isinstance(policy, Retry):
        return Again(attempt=failure.attempts)
    several = len(failure.records) > 1
    if several and policy.bisect and (failure.is_part or failure.attempts >= policy.attempts):
        return SplitUp(at=(len(failure.records) // 2,))
    if failure.attempts < policy.attempts:
        return Again(attempt=failure.attempts)
    if isinstance(policy, Stop):
        return StopPartition(reason=_reason(failure))
    if not failure.records:
        # What `open` or `close` raised is no record's fault, so no record is given up for it.
        return Again(attempt=failure.attempts)
    return Bury(sink=policy.sink) if isinstance(policy, DeadLetter) else PassOver()


def died(record: Record, *, token: int, attempts: int) -> Failure:
    """
    Return the failure of a record during whose every attempt the host died.

    Args:
        record: The one that is to be handed on next.
        token: The present term's.
        attempts: How often it was begun and not ended, as the lease item says; at least 1.
    """
    return Failure(
        partition=record.partition,
        token=token,
        stage="process",
        error=HostDied(record.partition, record.position, attempts),
        attempts=attempts,
        records=(record,),
        is_part=True,
    )


def check_policy(value: object) -> Policy:
    """
    Return what a user gave as `on_failure`, or what the processor's own method returned.

    Raises:
        SettingsError: it is no policy.
    """
    if isinstance(value, Retry | Stop | DeadLetter | Skip):
        return value
    hint = f"; write {value.__name__}() with brackets" if value in (Retry, Stop, Skip) else ""
    raise SettingsError(f"on_failure={value!r} is no policy; use Retry, Stop, DeadLetter or Skip{hint}")


def _blamed(failure: Failure) -> int | None:
    """The index of the record that the error names, if it is one of these."""
    partition, position = getattr(failure.error, "partition", None), getattr(failure.error, "position", None)
    return next(
        (at for at, each in enumerate(failure.records) if (each.partition, each.position) == (partition, position)),
        None,
    )


def _cut_around(index: int | None, count: int) -> tuple[int, ...]:
    """Where to cut so that one record is alone; nothing where it is alone already."""
    return () if index is None else tuple(at for at in (index, index + 1) if 0 < at < count)


def _reason(failure: Failure) -> str:
    where = ""
    if failure.records:
        first, last = failure.records[0].position, failure.records[-1].position
        where = f" at position {first}" if first == last else f" at positions {first} to {last}"
    times = "once" if failure.attempts == 1 else f"{failure.attempts} times"
    # What a user's `__str__` does is not known here; the type's name always works.
    try:
        error = f"{type(failure.error).__name__}: {failure.error}"
    except Exception:  # Containment: to tell of a failure must not be another one.
        error = type(failure.error).__name__
    return f"{failure.stage} failed {times}{where}: {error}"[:REASON_CHARS_MAX]


def _check_limited(policy: Stop | DeadLetter | Skip) -> None:
    _check_pauses(policy)
    name = type(policy).__name__
    # What a user gave, whatever the annotation says.
    attempts: object = policy.attempts
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise SettingsError(f"on_failure={name}(attempts={attempts!r}): expected a whole number, at least 1")


def _check_pauses(policy: Policy) -> None:
    name = type(policy).__name__
    given: Sequence[tuple[str, object]] = (("pause_s", policy.pause_s), ("pause_max_s", policy.pause_max_s))
    for field_name, value in given:
        if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
            raise SettingsError(f"on_failure={name}({field_name}={value!r}): expected seconds, more than 0")
    if policy.pause_s is not None and policy.pause_max_s is not None and policy.pause_max_s < policy.pause_s:
        raise SettingsError(
            f"on_failure={name}: pause_max_s={policy.pause_max_s:g} is less than pause_s={policy.pause_s:g}; "
            "the pauses grow up to it"
        )
