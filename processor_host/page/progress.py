"""
Progress of the partitions of one host: how far each lags, and which do not move while records wait.

Pure. Knows no clock, no pump and no page; it is told what happened and when.

Theory: records wait where more were read than done since the processor started, where the last read showed that it did
not reach the newest one, or where a failure has not been followed by a batch that was handled. A partition moves when a
batch is handled or records are given up. What counts is for how long records have waited without a move, so that one
record after an idle hour is no stall.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from partitions.events import Event, LeaseAcquired, LeaseEnded
from processor_host.events import (
    BatchHandled,
    LagSeen,
    PartitionDone,
    ProcessorFailed,
    PumpStarted,
    RecordsGivenUp,
)

__all__ = ["STALL_LIMIT_S", "Progress", "next_progress", "stalled_s"]

STALL_LIMIT_S: Final = 60.0
"""From when on a partition counts as stalled: longer than a slow batch, shorter than anybody's patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One partition while its lease is held."""

    token: int
    lag_s: float | None = None
    """As last seen by a read or with a batch, seconds; None where the source cannot say."""
    read: int = 0
    """Records read since the processor started."""
    done: int = 0
    """Records handled or given up since then."""
    failed_in: str | None = None
    """The stage of a failure that nothing good has followed."""
    waits_since_s: float | None = None
    """Since when records wait without a move, on the host's clock; None where none wait."""


def next_progress(progress: Progress | None, event: Event, now_s: float) -> Progress | None:
    """
    Return what is known of the event's partition after it; None where its lease is not held.

    Args:
        progress: What was known before; None where its lease was not held.
        event: Any event of this partition.
        now_s: The host's clock.
    """
    if isinstance(event, LeaseAcquired):
        return Progress(token=event.token)
    if progress is None:
        return None
    has_moved = False
    match event:
        case LeaseEnded(token=token):
            return None if token == progress.token else progress
        case PumpStarted():
            # Whatever was read and not done is read again.
            progress = replace(progress, read=0, done=0)
        case LagSeen(lag_s=lag_s, records=records):
            progress = replace(progress, lag_s=lag_s, read=progress.read + records)
        case BatchHandled(records=records, lag_s=lag_s):
            has_moved = True
            lag_s = progress.lag_s if lag_s is None else lag_s
            progress = replace(progress, done=progress.done + records, lag_s=lag_s, failed_in=None)
        case RecordsGivenUp(records=records):
            has_moved = True
            progress = replace(progress, done=progress.done + records, failed_in=None)
        case PartitionDone():
            progress = replace(progress, lag_s=None, read=0, done=0, failed_in=None)
        case ProcessorFailed(stage=stage):
            progress = replace(progress, failed_in=stage)
        case _:
            return progress
    if not _waits(progress):
        return replace(progress, waits_since_s=None)
    if has_moved or progress.waits_since_s is None:
        return replace(progress, waits_since_s=now_s)
    return progress


def stalled_s(progress: Progress, now_s: float, limit_s: float = STALL_LIMIT_S) -> float | None:
    """Return for how long records have waited without a move, seconds; None below `limit_s`."""
    if progress.waits_since_s is None:
        return None
    waited_s = now_s - progress.waits_since_s
    return waited_s if waited_s >= limit_s else None


def _waits(progress: Progress) -> bool:
    return progress.read > progress.done or bool(progress.lag_s) or progress.failed_in is not None
