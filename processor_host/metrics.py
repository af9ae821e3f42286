"""
The metrics of a host, made from events. docs/metrics.md lists them; `processor_host.metrics_list` defines them.

Knows no host. Every series has the label `group`; every label has a known, small set of values. Series with the label
`partition` are there exactly while this host holds the lease: what is told of a partition before or after is counted
only where no partition is named. So sums over hosts count nothing twice, and no host shows figures of what it lost.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from partitions.clocks import BootClock
from partitions.events import (
    AcquireRefused,
    Asked,
    BeatAnswered,
    BeatFailed,
    CheckpointFailed,
    CheckpointRefused,
    CheckpointSaved,
    EndReason,
    Event,
    LeaseAcquired,
    LeaseEnded,
    LeaseReleased,
    ReleaseFailed,
    SessionBegan,
    SessionEnded,
    SessionFenced,
)
from processor_host.errors import UserError
from processor_host.events import (
    BatchHandled,
    GroupSeen,
    HostDraining,
    HostReady,
    HostStopped,
    LagSeen,
    LeasesCreated,
    LetterFailed,
    LetterWritten,
    LoopStalled,
    PartitionGap,
    PartitionMoved,
    PartitionStopped,
    PartitionStuck,
    PlanRound,
    ProcessorFailed,
    PumpStarted,
    ReadFailed,
    RecordsGivenUp,
    RoundFailed,
    StoreCalled,
)
from processor_host.lock_metrics import count_lock, fill_locks
from processor_host.metrics_list import Families, label_of, word_of
from processor_host.settings import HostSettings

__all__ = ["HostMetrics"]

ASKED_MAX: Final = 4096
"""Hand-offs that are timed at once; the oldest gives way, so that asks that are never answered do not pile up."""


@dataclass(slots=True)
class _Held:
    """What is known of a partition while its lease is held here."""

    token: int
    unsaved_since_s: float | None = None
    """When the oldest batch was handled that no checkpoint covers; None where all is stored."""
    handled_at_s: float = -math.inf
    """When the newest batch was handled."""
    started: bool = False
    """Its processor was open once."""
    stuck_since_s: float | None = None
    """Since when it is stuck; None where it is not."""


class HostMetrics:
    """
    Counts what a host tells.

    Args:
        registry: Where the series are; None for one of its own, so that several hosts in one process do not mix.
        group: The value of the label `group`.
        settings: Of the host; alerts compare what is measured with some of them.
        clock: Shows seconds, for ages and the time of hand-offs; the machine's own by default.

    Raises:
        UserError: another host's metrics are in `registry` already.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None,
        group: str,
        settings: HostSettings,
        singletons: Iterable[str] = (),
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._clock = BootClock().now_s if clock is None else clock
        try:
            of = self._families = Families(self.registry, group, lease_duration_s=settings.lease_duration_s)
        except ValueError as error:
            raise UserError(
                f"registry={self.registry!r} has the metrics of another host already ({error}); "
                "give each host of a process a registry of its own"
            ) from error
        fill_locks(of, singletons)
        of.lease_duration.set(settings.lease_duration_s)
        of.checkpoint_interval.set(settings.checkpoint_interval_s)
        self._round_s = self._clock()
        of.plan_round_age.set_function(lambda: max(0.0, self._clock() - self._round_s))
        self._held: dict[str, _Held] = {}
        self._asked_at_s: dict[tuple[str, int], float] = {}
        # A session may beat on a thread of its own.
        self._lock = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Count `event`; one that means nothing here is ignored."""
        with self._lock:
            for count in (self._count_host, self._count_work, self._count_leases, self._count_session):
                if count(event):
                    return
            count_lock(self._families, event)

    def close(self) -> None:
        """Take the metrics out of the registry, so that another host may use it; twice does nothing."""
        self._families.close()

    # --- Records, batches, lag: what a processor does -------------------------------------------------------------

    def _count_work(self, event: Event) -> bool:
        of, group = self._families, self._families.group
        match event:
            case BatchHandled():
                self._count_batch(event)
            case LagSeen(partition=partition, lag_s=lag_s):
                if lag_s is not None and partition in self._held:
                    of.partition_lag.labels(group, label_of(partition)).set(lag_s)
            case ProcessorFailed(stage=stage):
                of.processor_failures.labels(group, word_of(stage)).inc()
            case RecordsGivenUp(policy=policy, records=records):
                of.records_given_up.labels(group, word_of(policy)).inc(records)
            case LetterWritten():
                of.letters.labels(group, "written").inc()
            case LetterFailed():
                of.letters.labels(group, "failed").inc()
            case PartitionStopped():
                of.partitions_stopped.inc()
            case ReadFailed():
                of.read_failures.inc()
            case PartitionStuck(partition=partition, stuck_s=stuck_s):
                if held := self._held.get(partition):
                    held.stuck_since_s = self._clock() - stuck_s
            case PartitionMoved(partition=partition):
                if held := self._held.get(partition):
                    held.stuck_since_s = None
            case PartitionGap():
                of.partition_gaps.inc()
            case PumpStarted(partition=partition, since_acquired_s=since_acquired_s):
                # A processor that starts again after a failure is not slow to start.
                if (held := self._held.get(partition)) and not held.started:
                    held.started = True
                    of.pump_start.observe(since_acquired_s)
            case _:
                return False
        return True

    def _count_batch(self, event: BatchHandled) -> None:
        of, group = self._families, self._families.group
        of.handler_duration.observe(event.duration_s)
        held = self._held.get(event.partition)
        if held is None:
            return
        partition = label_of(event.partition)
        of.records_processed.labels(group, partition).inc(event.records)
        of.bytes_processed.labels(group, partition).inc(event.bytes)
        of.batches_processed.labels(group, partition).inc()
        of.handler_seconds.labels(group, partition).inc(event.duration_s)
        if event.lag_s is not None:
            of.partition_lag.labels(group, partition).set(event.lag_s)
        held.handled_at_s = self._clock()
        if held.unsaved_since_s is None:
            held.unsaved_since_s = held.handled_at_s

    # --- Leases and checkpoints -----------------------------------------------------------------------------------

    def _count_leases(self, event: Event) -> bool:
        of, group = self._families, self._families.group
        match event:
            case LeaseAcquired(reason=reason):
                of.lease_changes.labels(group, "acquire", "applied").inc()
                of.leases_acquired.labels(group, word_of(reason)).inc()
                self._begin(event.partition, event.token)
            case AcquireRefused():
                of.lease_changes.labels(group, "acquire", "refused").inc()
            case LeaseEnded(partition=partition, token=token, reason=reason):
                of.leases_ended.labels(group, word_of(reason.value)).inc()
                if reason is EndReason.COMPLETED:
                    of.lease_changes.labels(group, "complete", "applied").inc()
                if reason is not EndReason.RELEASED:
                    self._asked_at_s.pop((partition, token), None)
                self._end(partition, token)
            case LeaseReleased(partition=partition, token=token):
                of.lease_changes.labels(group, "release", "applied").inc()
                if (asked_at_s := self._asked_at_s.pop((partition, token), None)) is not None:
                    of.handoff.observe(self._clock() - asked_at_s)
            case ReleaseFailed():
                of.lease_changes.labels(group, "release", "failed").inc()
            case Asked(partition=partition, token=token, held=held):
                of.asks_received.inc()
                if held:
                    self._note_ask(partition, token)
            case CheckpointSaved(partition=partition, duration_s=duration_s):
                of.checkpoints.labels(group, "applied").inc()
                of.checkpoint_duration.observe(duration_s)
                self._note_checkpoint(partition, duration_s)
            case CheckpointRefused():
                of.checkpoints.labels(group, "refused").inc()
            case CheckpointFailed():
                of.checkpoints.labels(group, "failed").inc()
            case LeasesCreated(partitions=partitions):
                of.lease_changes.labels(group, "create", "applied").inc(len(partitions))
            case _:
                return False
        return True

    def _begin(self, partition: str, token: int) -> None:
        of, group, label = self._families, self._families.group, label_of(partition)
        held = self._held[partition] = _Held(token=token)
        of.enter(label)
        of.leases_held.labels(group, label).set(1)
        of.fencing_token.labels(group, label).set(token)
        of.checkpoint_age.labels(group, label).set_function(lambda: self._age_s(held.unsaved_since_s))
        of.stuck.labels(group, label).set_function(lambda: self._age_s(held.stuck_since_s))

    def _end(self, partition: str, token: int) -> None:
        """Drop the series, unless a later term has begun."""
        held = self._held.get(partition)
        if held is not None and held.token == token:
            del self._held[partition]
            self._families.drop(label_of(partition))

    def _age_s(self, since_s: float | None) -> float:
        """Called at a scrape, maybe on another thread."""
        return 0.0 if since_s is None else max(0.0, self._clock() - since_s)

    def _note_checkpoint(self, partition: str, duration_s: float) -> None:
        if held := self._held.get(partition):
            sent_at_s = self._clock() - duration_s
            # What was handled while the write was on its way is not in it.
            held.unsaved_since_s = sent_at_s if held.handled_at_s > sent_at_s else None

    def _note_ask(self, partition: str, token: int) -> None:
        self._asked_at_s.setdefault((partition, token), self._clock())
        if len(self._asked_at_s) > ASKED_MAX:
            del self._asked_at_s[next(iter(self._asked_at_s))]

    # --- Sessions, the group, this host ---------------------------------------------------------------------------

    def _count_session(self, event: Event) -> bool:
        of = self._families
        match event:
            case BeatAnswered():
                of.beats.inc()
            case BeatFailed():
                of.beat_failures.inc()
            case SessionBegan():
                of.sessions_began.inc()
            case SessionEnded(lost=lost):
                self._asked_at_s.clear()
                if lost:
                    of.sessions_lost.inc()
            case SessionFenced():
                of.sessions_fenced.inc()
            case _:
                return False
        return True

    def _count_host(self, event: Event) -> bool:
        of, group = self._families, self._families.group
        match event:
            case StoreCalled(operation=operation, outcome=outcome, duration_s=duration_s):
                of.store_request_duration.labels(group, operation).observe(duration_s)
                if operation == "beat":
                    of.beat_duration.observe(duration_s)
                if outcome in ("failed", "abandoned"):
                    of.store_request_failures.labels(group, operation).inc()
            case PlanRound():
                of.plan_rounds.inc()
                of.plan_round_duration.observe(event.duration_s)
                of.hosts.set(event.hosts)
                of.lease_changes.labels(group, "ask", "applied").inc(event.asked)
                if event.full_read is not None:
                    of.full_reads.inc()
            case RoundFailed():
                of.plan_round_failures.inc()
            case GroupSeen():
                self._round_s = self._clock()
                of.unowned.set(event.unowned_s)
                for state in ("owned", "free", "paused", "ended"):
                    of.partitions.labels(group, state).set(getattr(event, state))
            case LoopStalled(stall_s=stall_s):
                of.loop_stall.observe(stall_s)
            case HostReady():
                of.ready.set(1)
                of.draining.set(0)
            case HostDraining():
                of.ready.set(0)
                of.draining.set(1)
            case HostStopped():
                of.ready.set(0)
                of.draining.set(0)
            case _:
                return False
        return True
