"""
Every metric of a host: its name, type, labels, buckets and help text. docs/metrics.md says the same to people.

Knows no event; `processor_host.metrics` decides what moves them. Units are seconds, bytes and counts.
"""

from __future__ import annotations

from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from partitions.events import EndReason
from processor_host.observed import OPERATIONS

__all__ = ["Families", "label_of", "word_of"]

PREFIX: Final = "processor_host_"

CALL_BUCKETS_S: Final = (0.002, 0.01, 0.05, 0.25, 1.0, 5.0)
WORK_BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0, 120.0)
HANDOFF_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# Every series whose labels are known beforehand is there from the start: a rate can be taken of its first step, and the
# number of series says nothing but how many leases are held.
LEASE_CHANGES: Final = (
    *(("acquire", "applied"), ("acquire", "refused"), ("release", "applied"), ("release", "failed")),
    *(("complete", "applied"), ("create", "applied"), ("ask", "applied")),
)
ACQUIRE_REASONS: Final = ("free", "expired", "asked", "forced", "resolved")
CHECKPOINT_OUTCOMES: Final = ("applied", "refused", "failed")
STAGES: Final = ("open", "decode", "process", "close", "on_failure", "pump")
GIVEN_UP: Final = ("dead_letter", "skip")
LETTER_OUTCOMES: Final = ("written", "failed")

M = TypeVar("M", bound=MetricWrapperBase)


def label_of(text: str) -> str:
    """Return a label value that can be written: a lone surrogate in one partition's name would fail every scrape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def word_of(text: str) -> str:
    """Return a reason or stage as a label value: words for people have spaces."""
    return text.replace(" ", "_")


def beat_buckets_s(lease_duration_s: float) -> tuple[float, ...]:
    """
    Return the buckets of a beat's time: with a twelfth, a sixth and a third of the duration among their bounds.

    A beat is given up after a sixth, so a quantile is above the sixth exactly where more than its share of the tries
    were, whatever the duration: estimated inside a bucket that holds quick and late ones it would be either.
    """
    return tuple(sorted({*CALL_BUCKETS_S, *(lease_duration_s / part for part in (12, 6, 3))}))


class Families:
    """
    The metrics of one group in one registry.

    Those without a further label are ready to be moved; of the others, `.labels(group, ...)` is.

    Args:
        registry: Where they are.
        group: The value of the label `group`.
        lease_duration_s: In force on this host, seconds; a sixth of it is a bound of a bucket of beats.

    Raises:
        ValueError: a metric of one of these names is in the registry already.
    """

    def __init__(self, registry: CollectorRegistry, group: str, *, lease_duration_s: float) -> None:
        self._registry = registry
        self._families: list[MetricWrapperBase] = []
        self._by_partition: list[MetricWrapperBase] = []
        self.group = group

        # --- One partition, while its lease is held here ---------------------------------------------------------
        self.leases_held = self._of_partition(Gauge, "leases_held", "1 for each lease that this host holds.")
        self.fencing_token = self._of_partition(
            Gauge, "lease_fencing_token", "Fencing token of the lease; rises by one with every owner."
        )
        self.records_processed = self._of_partition(
            Counter, "records_processed", "Records whose batch was handled; moves when process returns."
        )
        self.bytes_processed = self._of_partition(
            Counter, "bytes_processed", "Payload bytes whose batch was handled; moves when process returns."
        )
        self.batches_processed = self._of_partition(Counter, "batches_processed", "Batches that were handled.")
        self.handler_seconds = self._of_partition(
            Counter, "handler_seconds", "Seconds spent in process; its rate is the share of time that it is busy."
        )
        self.partition_lag = self._of_partition(
            Gauge, "partition_lag_seconds", "How far the last read was behind the partition's newest record."
        )
        self.checkpoint_age = self._of_partition(
            Gauge, "checkpoint_age_seconds", "How long handled records have waited for a checkpoint; 0 if none does."
        )
        self.stuck = self._of_partition(
            Gauge, "partition_stuck_seconds", "How long records have waited and none was done, where too long; else 0."
        )

        # --- Leases and checkpoints ------------------------------------------------------------------------------
        self.lease_changes = self._add(
            Counter, "lease_changes", "Writes of this host that change who owns what.", "verb", "outcome"
        )
        self.leases_acquired = self._add(
            Counter, "leases_acquired", "Terms that began here, by what made the lease free to take.", "reason"
        )
        self.leases_ended = self._add(Counter, "leases_ended", "Terms that ended here, by why.", "reason")
        self.asks_received = self._count("asks_received", "Asks by other hosts that this host was shown.")
        self.handoff = self._time(
            "handoff_seconds", "From being asked for a lease until the store had it as free.", HANDOFF_BUCKETS_S
        )
        self.checkpoints = self._add(Counter, "checkpoints", "Checkpoints that this host tried to store.", "outcome")
        self.checkpoint_duration = self._time(
            "checkpoint_duration_seconds", "How long storing a checkpoint took.", CALL_BUCKETS_S
        )

        # --- Locks and singletons --------------------------------------------------------------------------------
        self.locks_held = self._gauge("locks_held", "Locks that this host holds, those of its singletons among them.")
        self.lock_changes = self._add(
            Counter, "lock_changes", "Writes of this host that change who holds a lock.", "verb", "outcome"
        )
        self.locks_ended = self._add(Counter, "locks_ended", "Terms of locks that ended here, by why.", "reason")
        self.singleton_running = self._add(
            Gauge, "singleton_running", "1 while this singleton runs on this host.", "singleton"
        )
        self.singleton_failures = self._add(
            Counter, "singleton_failures", "Times that a singleton raised here, or its lock could not be acquired.",
            "singleton",
        )

        # --- The session -----------------------------------------------------------------------------------------
        self.beats = self._count("beats", "Beats that were answered in time.")
        self.beat_duration = self._time(
            "beat_duration_seconds",
            "How long each try of a beat took, also one that failed or was given up.",
            beat_buckets_s(lease_duration_s),
        )
        self.beat_failures = self._count("beat_failures", "Beats that failed or were not answered in time.")
        self.sessions_began = self._count("sessions_began", "Sessions of this host; more than one: some were lost.")
        self.sessions_lost = self._count("sessions_lost", "Sessions of this host that it lost.")
        self.sessions_fenced = self._count("sessions_fenced", "Dead sessions of other hosts that this host fenced.")

        # --- The group as this host sees it ----------------------------------------------------------------------
        self.partitions = self._add(Gauge, "partitions", "Partitions as this host last saw the group.", "state")
        self.unowned = self._gauge(
            "partition_unowned_seconds", "For how long the longest of the unowned partitions has had no owner."
        )
        self.hosts = self._gauge("hosts", "Hosts in the group at this host's last look.")
        self.plan_rounds = self._count("plan_rounds", "Plan rounds that read the leases or did something.")
        self.plan_round_duration = self._time(
            "plan_round_duration_seconds", "How long plan rounds took.", CALL_BUCKETS_S
        )
        self.plan_round_age = self._gauge("plan_round_age_seconds", "Since this host's last round was finished.")
        self.plan_round_failures = self._count("plan_round_failures", "Plan rounds that could not finish.")
        self.full_reads = self._count("full_reads", "Reads of all lease items.")

        # --- Processors and reads --------------------------------------------------------------------------------
        self.handler_duration = self._time("handler_duration_seconds", "How long process took.", WORK_BUCKETS_S)
        self.pump_start = self._time(
            "pump_start_seconds", "From acquiring a lease until its processor was open.", HANDOFF_BUCKETS_S
        )
        self.processor_failures = self._add(
            Counter, "processor_failures", "User code that raised, by where.", "stage"
        )
        self.records_given_up = self._add(
            Counter, "records_given_up", "Records passed over at the limit of their failure policy.", "policy"
        )
        self.letters = self._add(Counter, "dead_letters", "Tries of this host to write a dead letter.", "outcome")
        self.partitions_stopped = self._count(
            "partitions_stopped", "Partitions that this host paused in the store: by their failure policy, or stuck."
        )
        self.read_failures = self._count("read_failures", "Reads of the source that failed and were tried again.")
        self.partition_gaps = self._count("partition_gaps", "Times that the source had dropped unread records.")

        # --- This process ----------------------------------------------------------------------------------------
        self.store_request_duration = self._histogram(
            "store_request_duration_seconds", "How long calls of the store took.", CALL_BUCKETS_S, "operation"
        )
        self.store_request_failures = self._add(
            Counter, "store_request_failures", "Calls of the store that failed or were given up.", "operation"
        )
        self.loop_stall = self._time(
            "loop_stall_seconds",
            "How long something blocked the event loop, for stalls that were noticed.",
            WORK_BUCKETS_S,
        )
        self.ready = self._gauge("ready", "1 from the end of the first plan round until the host drains or stops.")
        self.draining = self._gauge("draining", "1 while the host gives everything away.")
        self.lease_duration = self._gauge("lease_duration_seconds", "The lease duration that this host was set to.")
        self.checkpoint_interval = self._gauge(
            "checkpoint_interval_seconds", "The time between two checkpoints that this host was set to."
        )

        self._fill()

    def enter(self, partition: str) -> None:
        """Make the series of a partition, all at zero."""
        for family in self._by_partition:
            family.labels(self.group, partition)

    def drop(self, partition: str) -> None:
        """Remove every series of a partition; none is no error."""
        for family in self._by_partition:
            family.remove(self.group, partition)

    def close(self) -> None:
        """Take every metric out of the registry; twice does nothing."""
        while self._families:
            self._registry.unregister(self._families.pop())

    def _fill(self) -> None:
        """Make every series whose labels are known beforehand, but those of states that were not seen yet."""
        for verb, outcome in LEASE_CHANGES:
            self.lease_changes.labels(self.group, verb, outcome)
        for reason in ACQUIRE_REASONS:
            self.leases_acquired.labels(self.group, reason)
        for ended in EndReason:
            self.leases_ended.labels(self.group, word_of(ended.value))
        for outcome in CHECKPOINT_OUTCOMES:
            self.checkpoints.labels(self.group, outcome)
        for stage in STAGES:
            self.processor_failures.labels(self.group, stage)
        for policy in GIVEN_UP:
            self.records_given_up.labels(self.group, policy)
        for outcome in LETTER_OUTCOMES:
            self.letters.labels(self.group, outcome)
        for operation in OPERATIONS:
            self.store_request_duration.labels(self.group, operation)
            self.store_request_failures.labels(self.group, operation)

    def _add(self, kind: type[M], name: str, text: str, *labels: str) -> M:
        family = kind(PREFIX + name, text, ("group", *labels), registry=self._registry)
        self._families.append(family)
        return family

    def _of_partition(self, kind: type[M], name: str, text: str) -> M:
        family = self._add(kind, name, text, "partition")
        self._by_partition.append(family)
        return family

    def _histogram(self, name: str, text: str, buckets_s: tuple[float, ...], *labels: str) -> Histogram:
        family = Histogram(PREFIX + name, text, ("group", *labels), registry=self._registry, buckets=buckets_s)
        self._families.append(family)
        return family

    def _count(self, name: str, text: str) -> Counter:
        return self._add(Counter, name, text).labels(self.group)

    def _gauge(self, name: str, text: str) -> Gauge:
        return self._add(Gauge, name, text).labels(self.group)

    def _time(self, name: str, text: str, buckets_s: tuple[float, ...]) -> Histogram:
        return self._histogram(name, text, buckets_s).labels(self.group)
