"""
What a host tells beside the library's events: plan rounds, pumps and processors. One frozen event each.

Knows nothing of logs or metrics, which are made from these. Those of records and their handling are defined in
`processor_host.record_events`, and passed on here.
"""

from __future__ import annotations

from dataclasses import dataclass

from partitions.events import Event
from processor_host.record_events import (
    BatchCut,
    BatchHandled,
    BatchSplit,
    CheckpointMissing,
    LetterFailed,
    LetterWritten,
    OneAtATime,
    PartitionDone,
    PartitionPausedFor,
    PartitionStopped,
    ProcessorFailed,
    RecordsGivenUp,
    RecordsMarked,
    ReplayDone,
)
from processor_host.singleton_events import SingletonEnded, SingletonFailed, SingletonStarted

__all__ = [
    "BalanceKept",
    "BatchCut",
    "BatchHandled",
    "BatchSplit",
    "BeatsNotApart",
    "BeatsHeld",
    "CheckpointMissing",
    "GroupAdopted",
    "GroupSeen",
    "HostDraining",
    "HostReady",
    "HostResting",
    "HostStopped",
    "HttpStarted",
    "LagSeen",
    "LeasesCreated",
    "LetterFailed",
    "LetterWritten",
    "LoopBlocked",
    "LoopStalled",
    "OneAtATime",
    "PartitionDone",
    "PartitionGap",
    "PartitionMoved",
    "PartitionPausedFor",
    "PartitionStopped",
    "PartitionStuck",
    "PlanRound",
    "ProcessorFailed",
    "PumpEnded",
    "PumpStarted",
    "ReadFailed",
    "RecordsGivenUp",
    "RecordsMarked",
    "ReplayDone",
    "RoundFailed",
    "SameHostId",
    "SingletonEnded",
    "SingletonFailed",
    "SingletonStarted",
    "StartKept",
    "StoreCalled",
    "StoreSlow",
    "WaitingForSession",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReady(Event):
    """The host registered and its first plan round is done; it may hold no lease."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDraining(Event):
    """The host gives everything away. `reason`: "stop asked", "operator" or "sick"."""

    reason: str
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResting(Event):
    """Everything failed on this host while another was well: it has given everything away, and keeps away so long."""

    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStopped(Event):
    """The host has left the group. `still_running` names the partitions whose processor has not ended."""

    still_running: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpStarted(Event):
    """Metrics and health are served; the only way to learn the port where the system picked it."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRound(Event):
    """One round of the balancer that did something, or read the leases."""

    leases: int
    hosts: int
    acquired: int
    asked: int
    full_read: str | None
    """Why all leases were read; None where only the sessions were."""
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFailed(Event):
    """A round could not finish, as when the store is away; the next one tries again."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen(Event):
    """The partitions as this host last saw the group; told by every round that was finished."""

    owned: int
    free: int
    paused: int
    ended: int
    unowned_s: float = 0.0
    """For how long the longest of those without an owner has had none; paused, ended and waiting ones do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesCreated(Event):
    """Lease items were made for partitions that had none."""

    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForSession(Event):
    """Leases belong to a session that may be dead; this host must watch it for its whole duration first."""

    session_id: str
    host_id: str
    leases: int
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SameHostId(Event):
    """Two living sessions have this host's id. They are kept apart by their session ids; it is rarely meant so."""

    host_id: str
    session_ids: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpStarted(Event):
    """The processor of a partition starts, from this position."""

    partition: str
    token: int
    position: str
    since_acquired_s: float
    carried: int = 0
    """Records that its last run has read and left, and that are handed on first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpEnded(Event):
    """The processor of a partition has ended and will not start again in this term."""

    partition: str
    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailed(Event):
    """The source did not answer; the reader tries again after `pause_s`."""

    partition: str
    error: str
    attempt: int
    pause_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionGap(Event):
    """The source had dropped records after the checkpoint; reading goes on at the oldest one left."""

    partition: str
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdopted(Event):
    """The group goes on with another stream, because this host was told to; the stored positions stay."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceKept(Event):
    """The group is there already, so what this host was told to share out, and by what weight, was not asked for."""

    balance: str
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartKept(Event):
    """The group is there already, so where this host was told to start was not asked for."""

    start: str
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSeen(Event):
    """A read was answered and showed how far the partition is behind, also where it brought no records."""

    partition: str
    lag_s: float | None
    """None where the source cannot say."""
    records: int = 0
    """How many it brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStuck(Event):
    """Records of a partition have waited for `stall_limit_s` and nothing was done; told once until it moves."""

    partition: str
    token: int
    stuck_s: float
    """For how long by now."""
    stage: str
    """What it waits in: "open", "read" or "process", or the stage of user code that fails."""
    is_failing: bool
    """Whether that fails again and again, rather than hangs."""
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMoved(Event):
    """A partition that was stuck goes on; `stuck_s` is for how long it was."""

    partition: str
    token: int
    stuck_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStalled(Event):
    """Something blocked the event loop of this host for `stall_s`; nothing else but its beats ran meanwhile."""

    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """Something blocks the event loop of this host at this moment. Told once a stall, in a thread of its own."""

    stall_s: float
    """For how long by now."""
    stack: str
    """What the thread of the loop is at, as Python prints stacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatsHeld(Event):
    """
    The event loop has been blocked for longer than the limit, and the host beats no more until it goes on.

    Told once a stall, in a thread of its own.
    """

    stall_s: float
    limit_s: float
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatsNotApart(Event):
    """The store serves one event loop only, so the beats run on that of the processors and stop with it."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSlow(Event):
    """The store's first answer took longer than a beat may take: no lease could be kept with these timings."""

    lease_duration_s: float
    call_timeout_s: float
    latency_s: float
    smallest_duration_s: float
    """The smallest lease duration that would do with this latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCalled(Event):
    """One call of the store was answered. `outcome`: "applied", "refused", "read", "failed" or "abandoned"."""

    operation: str
    outcome: str
    duration_s: float
