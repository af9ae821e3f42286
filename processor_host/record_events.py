"""
What a host tells of records: what was handled, what failed, and what became of it. One frozen event each.

Users import these from `processor_host.events`.
"""

from __future__ import annotations

from dataclasses import dataclass

from partitions.events import Event

__all__ = [
    "BatchCut",
    "BatchHandled",
    "BatchSplit",
    "CheckpointMissing",
    "LetterFailed",
    "LetterWritten",
    "OneAtATime",
    "PartitionDone",
    "PartitionPausedFor",
    "PartitionStopped",
    "ProcessorFailed",
    "RecordsGivenUp",
    "RecordsMarked",
    "ReplayDone",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHandled(Event):
    """`process` returned for a batch."""

    partition: str
    records: int
    bytes: int
    duration_s: float
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCut(Event):
    """`process` was cancelled because a hand-off or a stop took too long; its records are handled again elsewhere."""

    partition: str
    token: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSplit(Event):
    """A batch that failed is handed on in `parts`, to find the record that fails."""

    partition: str
    token: int
    records: int
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAtATime(Event):
    """Hosts died with this partition, maybe of a record: a batch of records is handed on one by one, each counted."""

    partition: str
    token: int
    suspects: int
    """Terms in a row that ended without a release, nothing done since."""
    attempts: int
    """Calls with the first record that were begun and did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorFailed(Event):
    """User code raised; it starts again from its checkpoint after `pause_s`."""

    partition: str
    token: int
    stage: str
    """
    "open", "decode", "process", "close" or "on_failure"; "pump" for a fault of this product around them.
    """
    error: str
    traceback: str
    attempt: int
    """Failures in a row at the same records, or of the same method where no record is at work."""
    pause_s: float
    """0.0 where the failure policy does something else than to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsGivenUp(Event):
    """
    Records reached the limit of their failure policy and count as done. `policy`: "dead letter" or "skip".

    At least once: a host that dies before the checkpoint is stored gives them up again, and writes their letters again;
    except where `LetterWritten.with_checkpoint` says that both are stored together.
    """

    partition: str
    token: int
    policy: str
    first: str
    """Position of the first of them."""
    last: str
    records: int
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsMarked(Event):
    """User code stored its own checkpoint in the middle of a batch."""

    partition: str
    token: int
    found_done: int = 0
    """Records of a call that failed which it had stored before, and which are not handed on again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWritten(Event):
    """A sink has the dead letter of one record. Not `is_whole`: something of the record was cut."""

    partition: str
    token: int
    position: str
    sink: str
    is_whole: bool
    with_checkpoint: bool = False
    """Stored in one transaction with the checkpoint: exactly once. Else at least once, since a crash repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFailed(Event):
    """A dead letter could not be written; the partition waits at this record and tries again after `pause_s`."""

    partition: str
    token: int
    position: str
    sink: str
    error: str
    attempt: int
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStopped(Event):
    """Its failure policy paused the partition in the store; an operator resumes it once the cause is mended."""

    partition: str
    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPausedFor(Event):
    """User code asked for a pause of its partition on this host, by `batch.pause_s`; the lease is kept."""

    partition: str
    token: int
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMissing(Event):
    """The partition was read to its end, and the user's own checkpoints have not come so far; it waits for them."""

    partition: str
    token: int
    records: int
    """Handed on and not checkpointed."""
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDone(Event):
    """A partition was handled to where `until` ends this run; its lease is kept until the host stops."""

    partition: str
    token: int
    handled: int
    """Records done or given up in this term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDone(Event):
    """Every partition of the group is where `until` ends this run, or held by another host; this one stops."""

    partitions: tuple[str, ...]
    """Those of which this host has handled something, or that are over here."""
    handled: tuple[int, ...]
    """Records done or given up here, of each of them."""
