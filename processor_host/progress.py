"""
Progress of the partitions of one host: how far each lags, and which do not move while records wait.

Pure. Knows no clock, no pump and no page; it is told what happened and when.

Theory of operation:
- Records wait where more were read than done since the processor started, where the last read showed that it did not
  reach the newest one, or where a failure has not been followed by a batch that was handled. While the processor is
  not open, or reads fail, nobody can say that none wait.
- A partition moves when a batch is handled, when records are given up, when user code checkpoints in the middle of a
  batch, and, where nothing is in hand, when a read brings it nearer to the newest record: some sources have long
  stretches without any.
- What counts is for how long records have waited without a move, so that one record after an idle hour is no stall. A
  pause that user code asked for is none either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from partitions.events import Event, LeaseAcquired, LeaseEnded
from processor_host.events import (
    BatchHandled,
    LagSeen,
    PartitionDone,
    PartitionPausedFor,
    ProcessorFailed,
    PumpStarted,
    ReadFailed,
    RecordsGivenUp,
    RecordsMarked,
)

__all__ = ["STALL_LIMIT_S", "Progress", "is_alone", "next_progress", "stalled_s"]

STALL_LIMIT_S: Final = 60.0
"""From when on a partition counts as stuck, where no setting says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One partition while its lease is held."""

    token: int
    is_open: bool = False
    """Its processor was opened once."""
    lag_s: float | None = None
    """As last seen by a read or with a batch, seconds; None where the source cannot say."""
    is_behind: bool = False
    """The last read did not reach the newest record."""
    read: int = 0
    """Records read since the processor started, and those that an earlier run of it has left."""
    done: int = 0
    """Records handled or given up since then."""
    failed_in: str | None = None
    """The stage of a failure that nothing good has followed; "read" where the source does not answer."""
    waits_since_s: float | None = None
    """Since when records wait without a move, on the host's clock; None where none wait."""
    moved_s: float | None = None
    """When it moved last."""
    rests_until_s: float = -math.inf
    """Until when user code asked for a pause."""

    @property
    def stage(self) -> str:
        """What it waits in: "open", "read" or "process", or the stage of user code that fails."""
        if self.failed_in is not None:
            return self.failed_in
        if not self.is_open:
            return "open"
        return "process" if self.read > self.done else "read"


def next_progress(progress: Progress | None, event: Event, now_s: float) -> Progress | None:
    """
    Return what is known of the event's partition after it; None where its lease is not held.

    Args:
        progress: What was known before; None where its lease was not held.
        event: Any event of this partition.
        now_s: The host's clock.
    """
    if isinstance(event, LeaseAcquired):
        return Progress(token=event.token, waits_since_s=now_s)
    if progress is None:
        return None
    if isinstance(event, LeaseEnded):
        return None if event.token == progress.token else progress
    found = _changes(progress, event, now_s)
    if found is None:
        return progress
    changes, has_moved = found
    if has_moved:
        changes["moved_s"] = now_s
    if not _waits(progress, changes):
        changes["waits_since_s"] = None
    elif has_moved or progress.waits_since_s is None:
        changes["waits_since_s"] = max(now_s, changes.get("rests_until_s", progress.rests_until_s))
    # One copy for each event: with single records there are as many as records.
    return replace(progress, **changes)


def stalled_s(progress: Progress, now_s: float, limit_s: float = STALL_LIMIT_S) -> float | None:
    """Return for how long records have waited without a move, seconds; None below `limit_s`."""
    if progress.waits_since_s is None:
        return None
    waited_s = now_s - progress.waits_since_s
    return waited_s if waited_s >= limit_s else None


def is_alone(partition: str, of: Mapping[str, Progress]) -> bool:
    """
    Say whether a partition that is stuck is so by itself, so that neither its host nor what that calls is to blame.

    It is where another one has moved since, and where no other waits that could tell. Reads that fail are never the
    partition's own fault: they fail wherever it goes.

    Args:
        partition: The one that is stuck.
        of: All partitions of the host.
    """
    stuck = of[partition]
    if stuck.stage == "read" or stuck.waits_since_s is None:
        return False
    others = [progress for name, progress in of.items() if name != partition]
    if any(other.moved_s is not None and other.moved_s > stuck.waits_since_s for other in others):
        return True
    return not any(other.waits_since_s is not None for other in others)


def _changes(progress: Progress, event: Event, now_s: float) -> tuple[dict[str, Any], bool] | None:
    """Return what an event changes, and whether it is a move; None where it says nothing about progress."""
    match event:
        case BatchHandled(records=records, lag_s=lag_s):
            lag_s = progress.lag_s if lag_s is None else lag_s
            return {"done": progress.done + records, "lag_s": lag_s, "failed_in": _reading(progress)}, True
        case LagSeen():
            return _read(progress, event), _comes_nearer(progress, event)
        case PumpStarted(carried=carried):
            failed_in = None if progress.failed_in in ("open", "read") else progress.failed_in
            # Whatever else was read and not done is read again.
            return {"is_open": True, "read": carried, "done": 0, "failed_in": failed_in}, not progress.is_open
        case ReadFailed():
            return {"failed_in": progress.failed_in or "read"}, False
        case ProcessorFailed(stage=stage):
            return {"failed_in": stage}, False
        case RecordsGivenUp(records=records):
            return {"done": progress.done + records, "failed_in": _reading(progress)}, True
        case RecordsMarked(found_done=found_done):
            return {"done": progress.done + found_done}, True
        case PartitionPausedFor(pause_s=pause_s):
            # The last call counts.
            return {"rests_until_s": now_s + pause_s}, True
        case PartitionDone():
            return {"lag_s": None, "is_behind": False, "read": 0, "done": 0, "failed_in": None}, False
    return None


def _read(progress: Progress, seen: LagSeen) -> dict[str, Any]:
    return {
        "lag_s": progress.lag_s if seen.lag_s is None else seen.lag_s,
        "is_behind": bool(seen.lag_s),
        "read": progress.read + seen.records,
        "failed_in": None if progress.failed_in == "read" else progress.failed_in,
    }


def _comes_nearer(progress: Progress, seen: LagSeen) -> bool:
    """Whether a read that brought nothing shows that reading goes on all the same."""
    is_idle = progress.read <= progress.done and progress.failed_in in (None, "read")
    if not is_idle or seen.records or seen.lag_s is None or progress.lag_s is None:
        return False
    return seen.lag_s < progress.lag_s


def _reading(progress: Progress) -> str | None:
    """What is left of a failure once records are done: whether the source answers is another matter."""
    return "read" if progress.failed_in == "read" else None


def _waits(progress: Progress, changes: Mapping[str, Any]) -> bool:
    """Whether records wait, once these changes are made."""
    if changes.get("failed_in", progress.failed_in) is not None or changes.get("is_behind", progress.is_behind):
        return True
    return bool(changes.get("read", progress.read) > changes.get("done", progress.done))
