"""
Log lines: what each event is called, how loud it is, and how lines are written.

Knows no host; it is given events. An event becomes a `Line` by a pure function. Levels: debug for one call, info where
ownership moved or a host changed its state, warning for what was retried, refused, late or found to be missing, error
where a person must act, who is told what to do in `hint`. Lines never carry payloads: tracebacks come without the
values of variables.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor

from partitions import events as lease_events
from partitions.events import EndReason, Event
from partitions.locks import events as lock_events
from processor_host import events as host_events

__all__ = ["LEVELS", "EventLog", "Level", "Line", "LogFormat", "configure", "line_of"]

Level = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]

LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")

FAILURES_UNTIL_ERROR = 3
"""A processor that failed so often in a row does not mend itself."""

NAMES_MAX = 10
"""Partitions named in one line; a group may have thousands."""

# They log headers, queries and every socket below warning.
_LOUD_LIBRARIES: Final = ("aiobotocore", "aiohttp", "aioboto3", "asyncio", "boto3", "botocore", "urllib3")

_NAMES: Final[Mapping[type[Event], tuple[Level, str]]] = {
    lease_events.SessionBegan: ("info", "session.began"),
    lease_events.SessionEnded: ("info", "session.ended"),
    lease_events.SessionFenced: ("info", "session.fenced"),
    lease_events.BeatAnswered: ("debug", "beat.answered"),
    lease_events.BeatFailed: ("warning", "beat.failed"),
    lease_events.Asked: ("info", "lease.asked"),
    lease_events.LeaseAcquired: ("info", "lease.acquired"),
    # A lost race between hosts that both act as planned; the next round sees it.
    lease_events.AcquireRefused: ("debug", "acquire.refused"),
    lease_events.LeaseEnded: ("warning", "lease.ended"),
    lease_events.LeaseReleased: ("info", "lease.released"),
    lease_events.ReleaseFailed: ("warning", "release.failed"),
    lease_events.CheckpointSaved: ("debug", "checkpoint.saved"),
    lease_events.CheckpointRefused: ("warning", "checkpoint.refused"),
    lease_events.CheckpointFailed: ("warning", "checkpoint.failed"),
    lock_events.LockAcquired: ("info", "lock.acquired"),
    lock_events.LockEnded: ("warning", "lock.ended"),
    lock_events.LockReleased: ("info", "lock.released"),
    lock_events.LockReleaseFailed: ("warning", "lock_release.failed"),
    lock_events.LocksUnread: ("warning", "locks.unread"),
    host_events.HostReady: ("info", "host.ready"),
    host_events.HostDraining: ("info", "host.draining"),
    host_events.HostResting: ("warning", "host.rested"),
    host_events.HostStopped: ("info", "host.stopped"),
    host_events.HttpStarted: ("info", "http.started"),
    host_events.PlanRound: ("debug", "balance.round"),
    host_events.RoundFailed: ("warning", "balance.failed"),
    host_events.GroupSeen: ("debug", "group.seen"),
    host_events.LeasesCreated: ("info", "leases.created"),
    host_events.WaitingForSession: ("info", "session.awaited"),
    host_events.SameHostId: ("warning", "host_id.shared"),
    host_events.PumpStarted: ("debug", "pump.started"),
    host_events.PumpEnded: ("debug", "pump.ended"),
    host_events.ProcessorFailed: ("warning", "processor.failed"),
    host_events.BatchSplit: ("info", "batch.split"),
    host_events.RecordsGivenUp: ("warning", "records.given_up"),
    host_events.OneAtATime: ("warning", "records.suspected"),
    host_events.LetterWritten: ("debug", "letter.written"),
    host_events.LetterFailed: ("warning", "letter.failed"),
    host_events.PartitionStopped: ("error", "partition.stopped"),
    host_events.PartitionPausedFor: ("debug", "partition.paused"),
    host_events.RecordsMarked: ("debug", "records.marked"),
    host_events.PartitionDone: ("info", "partition.done"),
    host_events.CheckpointMissing: ("warning", "checkpoint.missing"),
    host_events.ReplayDone: ("info", "replay.done"),
    host_events.ReadFailed: ("warning", "read.failed"),
    host_events.PartitionGap: ("warning", "partition.gap"),
    host_events.PartitionStuck: ("warning", "partition.stuck"),
    host_events.PartitionMoved: ("info", "partition.moved"),
    host_events.BatchCut: ("warning", "batch.cut"),
    host_events.GroupAdopted: ("warning", "group.adopted"),
    host_events.StartKept: ("info", "start.kept"),
    host_events.BalanceKept: ("warning", "balance.kept"),
    host_events.BatchHandled: ("debug", "batch.handled"),
    host_events.LagSeen: ("debug", "lag.seen"),
    host_events.LoopBlocked: ("warning", "loop.blocked"),
    host_events.LoopStalled: ("info", "loop.stalled"),
    host_events.BeatsHeld: ("error", "beats.held"),
    host_events.BeatsNotApart: ("warning", "beats.not_apart"),
    host_events.SingletonStarted: ("info", "singleton.started"),
    host_events.SingletonEnded: ("info", "singleton.ended"),
    host_events.SingletonFailed: ("warning", "singleton.failed"),
    host_events.StoreSlow: ("warning", "store.slow"),
    host_events.StoreCalled: ("debug", "store.called"),
}

# One key for one thing, whatever the event calls it.
_KEYS: Final = {"token": "fencing_token", "latency_s": "duration_s", "traceback": "exception"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One log line: `name` is noun.past, `values` are its keys."""

    level: Level
    name: str
    values: Mapping[str, Any]


def line_of(event: Event) -> Line:
    """Return the line that tells of `event`; one that this module does not know becomes a debug line of its type."""
    level, name = _NAMES.get(type(event), ("debug", type(event).__name__))
    values = {
        _KEYS.get(field.name, field.name): _plain(value)
        for field in fields(event)
        if (value := getattr(event, field.name)) is not None
    }
    level, more = _refined(event, level)
    return Line(level=level, name=name, values=values | more)


class EventLog:
    """Writes a line for each event: `on_event=EventLog(group=…, host_id=…).on_event` is the log of `run`."""

    def __init__(self, *, group: str, host_id: str, logger: Any = None) -> None:
        """
        Name whose events they are.

        Args:
            group: Named in each line.
            host_id: Named in each line; that of the host's settings.
            logger: One of the application's own, with structlog's methods; else structlog's "processor_host".
        """
        self._logger = structlog.get_logger("processor_host") if logger is None else logger
        self._bound = {"group": group, "host_id": host_id}

    def on_event(self, event: Event) -> None:
        """Write the line of `event`."""
        line = line_of(event)
        # The event's own keys win: a line about another host names that one.
        getattr(self._logger, line.level)(line.name, **(self._bound | dict(line.values)))


def configure(log_format: LogFormat = "console", level: Level = "info", stream: TextIO | None = None) -> None:
    """
    Set up logging for a whole process: the lines of hosts and those of `logging`, in one format, on one stream.

    For the command line and for programs that have no set-up of their own; a host never calls it.

    Args:
        log_format: "json" for one object a line, "console" for people; in colours on a terminal, unless the environment
            has NO_COLOR.
        level: The lowest level that is written.
        stream: Where to, else standard error.
    """
    stream = sys.stderr if stream is None else stream
    both: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor]
    if log_format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        last = [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty() and not os.environ.get("NO_COLOR"),
                # Keys may hold what a stream's owner chose: escaped, a name can neither forge a line nor a colour.
                repr_native_str=True,
                # The one that is used where rich is installed shows the values of variables, payloads among them.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(foreign_pre_chain=both, processors=[ProcessorFormatter.remove_processors_meta, *last])
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LOUD_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *both, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _refined(event: Event, level: Level) -> tuple[Level, dict[str, Any]]:
    """The level and the further keys of events whose values decide them."""
    match event:
        case lease_events.SessionEnded(lost=True):
            return "warning", {}
        case lease_events.LeaseEnded(reason=EndReason.RELEASED):
            return "debug", {}  # Its release is a line of its own.
        case lock_events.LockEnded(reason=lock_events.LockEnd.RELEASED):
            return "debug", {}
        case lease_events.LeaseEnded(reason=EndReason.COMPLETED):
            return "info", {}
        case lease_events.Asked(asker=""):
            return level, {"asker": "nobody"}
        case host_events.PlanRound(acquired=acquired, asked=asked) if acquired or asked:
            return "info", {}
        case host_events.LeasesCreated(partitions=partitions):
            return level, {"leases": len(partitions), "partitions": _first(partitions)}
        case host_events.HostStopped(still_running=()):
            return level, {"still_running": 0}
        case host_events.HostStopped(still_running=partitions):
            hint = "let process() and close() end sooner, or raise handoff_s and drain_timeout_s"
            return "error", {"still_running": len(partitions), "partitions": _first(partitions), "hint": hint}
        case host_events.SameHostId():
            return level, {"hint": "give each host a host_id of its own, unless two are meant to run"}
        case host_events.ProcessorFailed(attempt=attempt) if attempt >= FAILURES_UNTIL_ERROR:
            hint = "mend the processor; this partition waits at its checkpoint and nothing of it is skipped"
            return "error", {"hint": hint}
        case host_events.LetterFailed(attempt=attempt) if attempt >= FAILURES_UNTIL_ERROR:
            return "error", {"hint": "mend the sink; the partition waits, for nothing is passed over without a letter"}
        case host_events.PartitionStopped():
            return level, {"hint": "mend the cause, then resume the partition; it goes on at the record that failed"}
        case host_events.CheckpointMissing():
            return level, {"hint": "checkpoint the last batch, or use checkpoint='automatic'"}
        case host_events.ReplayDone(partitions=partitions, handled=handled):
            return level, {"handled": sum(handled), "partitions": _first(partitions)}
        case host_events.PartitionStuck(is_failing=is_failing):
            hint = "mend what fails" if is_failing else "see what it waits for, and give that a time-out"
            return level, {"hint": f"{hint}; or pause the partition, and reset it behind the record"}
        case host_events.PartitionGap():
            hint = "records are lost: keep them longer at the source, or add hosts so that the group keeps up"
            return level, {"hint": hint}
        case host_events.SingletonFailed(attempt=attempt) if attempt >= FAILURES_UNTIL_ERROR:
            return "error", {"hint": "mend what it raises; other hosts run it meanwhile, if it works there"}
        case host_events.SingletonEnded(reason="lock lost"):
            return "warning", {}
        case host_events.StoreSlow(smallest_duration_s=smallest_s):
            return level, {"hint": f"no lease can be kept; use lease_duration_s={smallest_s:g} or more"}
        case host_events.BatchCut():
            return level, {"hint": "let process() end sooner, or raise handoff_s and drain_timeout_s"}
        case host_events.GroupAdopted():
            return level, {"hint": "the stored positions stay: only a stream with the same records will do"}
        case host_events.LoopBlocked() | host_events.LoopStalled():
            return level, {"hint": "a processor blocks the event loop; run such code by anyio.to_thread.run_sync"}
        case host_events.BeatsHeld():
            return level, {"hint": "the others take over; raise loop_stall_limit_s where such code is meant to be"}
        case host_events.BeatsNotApart():
            return level, {"hint": "give the store a callable that makes its session, instead of a session or clients"}
        case _:
            return level, {}


def _first(partitions: Sequence[str]) -> list[str]:
    return [*partitions[:NAMES_MAX], *(["…"] if len(partitions) > NAMES_MAX else [])]


def _plain(value: object) -> object:
    """A value as any format can write it; digits beyond the fourth only make lines longer."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
