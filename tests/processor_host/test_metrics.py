"""
Metrics: what each event moves, that a partition's series go with it, and that the page lists what there is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

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
from partitions.locks import LockAcquired, LockEnd, LockEnded, LockReleased, LockReleaseFailed
from processor_host.errors import UserError
from processor_host.events import (
    BatchHandled,
    GroupSeen,
    HostDraining,
    HostReady,
    HostStopped,
    LagSeen,
    LeasesCreated,
    LoopStalled,
    PartitionGap,
    PartitionMoved,
    PartitionStuck,
    PlanRound,
    ProcessorFailed,
    PumpStarted,
    ReadFailed,
    RoundFailed,
    SingletonEnded,
    SingletonFailed,
    SingletonStarted,
    StoreCalled,
)
from processor_host.metrics import ASKED_MAX, HostMetrics
from processor_host.settings import HostSettings

__all__: list[str] = []

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"

GROUP_SEEN = GroupSeen(owned=3, free=2, paused=1, ended=4, unowned_s=9.0)

SETTINGS = HostSettings(lease_duration_s=9.0, checkpoint_interval_s=2.0)


class SetClock:
    """A clock that shows what the test says."""

    def __init__(self) -> None:
        self.shown_s = 100.0

    def __call__(self) -> float:
        return self.shown_s


class Host:
    """Metrics on a clock that the test sets."""

    def __init__(self, group: str = "orders") -> None:
        self.clock = SetClock()
        self.metrics = HostMetrics(None, group, SETTINGS, ("nightly",), clock=self.clock)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.metrics.on_event(event)

    def series(self) -> dict[str, float]:
        """Every sample by its name and labels but `group`, as in `name{a=b}`; times of making left out."""
        found: dict[str, float] = {}
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    labels = ",".join(f"{key}={value}" for key, value in sample.labels.items() if key != "group")
                    found[sample.name.removeprefix("processor_host_") + (f"{{{labels}}}" if labels else "")] = (
                        sample.value
                    )
        return found

    def moved_by(self, *events: Event) -> dict[str, float]:
        """The series that `events` made or changed, without the buckets of histograms."""
        before = self.series()
        self.tell(*events)
        after = self.series()
        return {name: value for name, value in after.items() if before.get(name) != value and "_bucket{" not in name}


def acquired(partition: str = "p-0", token: int = 1, reason: str = "free") -> LeaseAcquired:
    return LeaseAcquired(
        partition=partition, token=token, reason=reason, previous_owner=None, position="0", duration_s=0.01
    )


def ended(partition: str = "p-0", token: int = 1, reason: EndReason = EndReason.RELEASED) -> LeaseEnded:
    return LeaseEnded(partition=partition, token=token, reason=reason)


def released(partition: str = "p-0", token: int = 1) -> LeaseReleased:
    return LeaseReleased(partition=partition, token=token, position="9", duration_s=0.01)


def handled(partition: str = "p-0", records: int = 10) -> BatchHandled:
    return BatchHandled(partition=partition, records=records, bytes=1000, duration_s=0.5, lag_s=2.0)


def saved(duration_s: float = 0.25) -> CheckpointSaved:
    return CheckpointSaved(partition="p-0", token=1, position="9", duration_s=duration_s)


def asked(held: bool = True, token: int = 1) -> Asked:
    return Asked(partition="p-0", token=token, asker="b:1", left_s=30.0, held=held)


def test_acquired_lease_has_all_its_series_from_the_start() -> None:
    """A rate can be taken of a counter's first step only if it was there at zero."""
    assert Host().moved_by(acquired("p-0", 7, "expired")) == {
        "leases_held{partition=p-0}": 1.0,
        "lease_fencing_token{partition=p-0}": 7.0,
        "records_processed_total{partition=p-0}": 0.0,
        "bytes_processed_total{partition=p-0}": 0.0,
        "batches_processed_total{partition=p-0}": 0.0,
        "handler_seconds_total{partition=p-0}": 0.0,
        "partition_lag_seconds{partition=p-0}": 0.0,
        "checkpoint_age_seconds{partition=p-0}": 0.0,
        "partition_stuck_seconds{partition=p-0}": 0.0,
        "lease_changes_total{verb=acquire,outcome=applied}": 1.0,
        "leases_acquired_total{reason=expired}": 1.0,
    }


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            AcquireRefused(partition="p-0", seen_token=1, found_token=2, found_owner="b:1"),
            {"lease_changes_total{verb=acquire,outcome=refused}": 1.0},
        ),
        (released(), {"lease_changes_total{verb=release,outcome=applied}": 1.0}),
        (
            ReleaseFailed(partition="p-0", token=1, error="x"),
            {"lease_changes_total{verb=release,outcome=failed}": 1.0},
        ),
        (LeasesCreated(partitions=("a", "b")), {"lease_changes_total{verb=create,outcome=applied}": 2.0}),
        (
            ended(reason=EndReason.COMPLETED),
            {"leases_ended_total{reason=completed}": 1.0, "lease_changes_total{verb=complete,outcome=applied}": 1.0},
        ),
        (ended(reason=EndReason.ASK_DEADLINE), {"leases_ended_total{reason=ask_deadline}": 1.0}),
        (asked(), {"asks_received_total": 1.0}),
        (
            saved(),
            {
                "checkpoints_total{outcome=applied}": 1.0,
                "checkpoint_duration_seconds_count": 1.0,
                "checkpoint_duration_seconds_sum": 0.25,
            },
        ),
        (
            CheckpointRefused(partition="p-0", token=1, position="9", found_token=2),
            {"checkpoints_total{outcome=refused}": 1.0},
        ),
        (
            CheckpointFailed(partition="p-0", token=1, error="x", attempt=1),
            {"checkpoints_total{outcome=failed}": 1.0},
        ),
        (
            BeatAnswered(session_id="a:1", beat=1, latency_s=0.25, attempt=1),
            {"beats_total": 1.0},
        ),
        (BeatFailed(session_id="a:1", error="x", attempt=1, left_s=5.0), {"beat_failures_total": 1.0}),
        (SessionBegan(session_id="a:1"), {"sessions_began_total": 1.0}),
        (SessionEnded(session_id="a:1", reason="x", lost=True), {"sessions_lost_total": 1.0}),
        (SessionEnded(session_id="a:1", reason="x", lost=False), {}),
        (SessionFenced(session_id="b:1", host_id="b", unchanged_s=11.0), {"sessions_fenced_total": 1.0}),
        (
            GROUP_SEEN,
            {
                "partitions{state=owned}": 3.0,
                "partitions{state=free}": 2.0,
                "partitions{state=paused}": 1.0,
                "partitions{state=ended}": 4.0,
                "partition_unowned_seconds": 9.0,
            },
        ),
        (
            PlanRound(leases=9, hosts=3, acquired=1, asked=2, full_read="audit", duration_s=0.25),
            {
                "plan_rounds_total": 1.0,
                "plan_round_duration_seconds_count": 1.0,
                "plan_round_duration_seconds_sum": 0.25,
                "hosts": 3.0,
                "full_reads_total": 1.0,
                "lease_changes_total{verb=ask,outcome=applied}": 2.0,
            },
        ),
        (RoundFailed(error="x"), {"plan_round_failures_total": 1.0}),
        (
            StoreCalled(operation="beat", outcome="applied", duration_s=0.25),
            {
                "store_request_duration_seconds_count{operation=beat}": 1.0,
                "store_request_duration_seconds_sum{operation=beat}": 0.25,
                "beat_duration_seconds_count": 1.0,
                "beat_duration_seconds_sum": 0.25,
            },
        ),
        (
            StoreCalled(operation="read_leases", outcome="abandoned", duration_s=0.25),
            {
                "store_request_duration_seconds_count{operation=read_leases}": 1.0,
                "store_request_duration_seconds_sum{operation=read_leases}": 0.25,
                "store_request_failures_total{operation=read_leases}": 1.0,
            },
        ),
        (
            ProcessorFailed(partition="p-0", token=1, stage="pump", error="x", traceback="x", attempt=1, pause_s=1.0),
            {"processor_failures_total{stage=pump}": 1.0},
        ),
        (ReadFailed(partition="p-0", error="x", attempt=1, pause_s=1.0), {"read_failures_total": 1.0}),
        (PartitionGap(partition="p-0", position="9"), {"partition_gaps_total": 1.0}),
        (LoopStalled(stall_s=0.5), {"loop_stall_seconds_count": 1.0, "loop_stall_seconds_sum": 0.5}),
        (HostReady(session_id="a:1"), {"ready": 1.0}),
        (HostDraining(reason="stop asked", held=2), {"draining": 1.0}),
    ],
)
def test_event_moves_its_metrics_and_no_other(event: Event, expected: dict[str, float]) -> None:
    """A figure that moves for two reasons says nothing about either."""
    assert Host().moved_by(event) == expected


def test_locks_held_are_counted_without_their_names() -> None:
    """Users name locks as they like; a series for each would grow without a bound."""
    host = Host()
    begun = [LockAcquired(lock=name, token=1, previous_owner=None, duration_s=0.1) for name in "ab"]

    assert host.moved_by(*begun) == {"locks_held": 2.0, "lock_changes_total{verb=acquire,outcome=applied}": 2.0}
    assert host.moved_by(
        LockEnded(lock="a", token=1, reason=LockEnd.RELEASED),
        LockReleased(lock="a", token=1, duration_s=0.1),
        LockEnded(lock="b", token=1, reason=LockEnd.SEEN_TAKEN),
        LockReleaseFailed(lock="c", token=1, error="x"),
    ) == {
        "locks_held": 0.0,
        "locks_ended_total{reason=released}": 1.0,
        "locks_ended_total{reason=seen_taken}": 1.0,
        "lock_changes_total{verb=release,outcome=applied}": 1.0,
        "lock_changes_total{verb=release,outcome=failed}": 1.0,
    }


def test_singleton_runs_on_this_host_from_its_start_to_its_end() -> None:
    """The sum over hosts is 1, unless nobody has it; its failures are there before the first."""
    host = Host()
    failed = SingletonFailed(singleton="nightly", token=1, error="x", traceback="", attempt=1, pause_s=1.0)

    assert host.series()["singleton_failures_total{singleton=nightly}"] == 0.0
    started = SingletonStarted(singleton="nightly", token=1)
    assert host.moved_by(started) == {"singleton_running{singleton=nightly}": 1.0}
    assert host.moved_by(SingletonEnded(singleton="nightly", token=1, reason="failed"), failed) == {
        "singleton_running{singleton=nightly}": 0.0,
        "singleton_failures_total{singleton=nightly}": 1.0,
    }


def test_beats_that_were_given_up_lie_above_a_sixth_of_the_duration_and_the_others_below() -> None:
    """An alert on slow beats compares a quantile with that sixth; a bucket across it would hide or invent them."""
    host = Host()

    for outcome, duration_s in (("applied", 1.49), ("abandoned", 1.51), ("abandoned", 1.8)):
        host.tell(StoreCalled(operation="beat", outcome=outcome, duration_s=duration_s))

    series = host.series()
    assert [series[f"beat_duration_seconds_bucket{{le={bound}}}"] for bound in (0.75, 1.5, 3.0)] == [0.0, 1.0, 3.0]


def test_settings_that_alerts_compare_with_are_shown() -> None:
    """An alert about three durations would need a copy of the number, which is forgotten at the next change."""
    series = Host().series()

    assert (series["lease_duration_seconds"], series["checkpoint_interval_seconds"]) == (9.0, 2.0)


def test_age_of_the_last_round_rises_until_a_round_is_finished() -> None:
    """A counter that stands still looks the same for a group at rest and for a balancer that hangs."""
    host = Host()
    ages: list[float] = []

    def look(at_s: float) -> None:
        host.clock.shown_s = at_s
        ages.append(host.series()["plan_round_age_seconds"])

    look(107.0)
    host.tell(RoundFailed(error="x"))
    look(108.0)
    host.tell(GROUP_SEEN)
    look(110.0)

    assert ages == [7.0, 8.0, 2.0]


def test_host_is_not_ready_once_it_drains_and_not_draining_once_it_stopped() -> None:
    """Traffic and alarms follow these two."""
    host = Host()
    host.tell(HostReady(session_id="a:1"))

    assert host.moved_by(HostDraining(reason="stop asked", held=2)) == {"ready": 0.0, "draining": 1.0}
    assert host.moved_by(HostStopped()) == {"draining": 0.0}


def test_batch_moves_the_figures_of_its_partition() -> None:
    """Records, bytes, batches, time and lag of each partition tell which one falls behind."""
    host = Host()
    host.tell(acquired("p-0"), acquired("p-1"))

    assert host.moved_by(handled("p-1")) == {
        "records_processed_total{partition=p-1}": 10.0,
        "bytes_processed_total{partition=p-1}": 1000.0,
        "batches_processed_total{partition=p-1}": 1.0,
        "handler_seconds_total{partition=p-1}": 0.5,
        "partition_lag_seconds{partition=p-1}": 2.0,
        "handler_duration_seconds_count": 1.0,
        "handler_duration_seconds_sum": 0.5,
    }
    assert host.moved_by(LagSeen(partition="p-1", lag_s=0.0)) == {"partition_lag_seconds{partition=p-1}": 0.0}
    # A source that cannot say; what was seen before is the best there is.
    assert host.moved_by(LagSeen(partition="p-1", lag_s=None, records=1)) == {}


def test_checkpoint_age_is_how_long_handled_records_wait() -> None:
    """An idle partition has nothing to store; an age that rises there would be an alarm about nothing."""
    host = Host()
    ages: list[float] = []

    def look() -> None:
        ages.append(host.series()["checkpoint_age_seconds{partition=p-0}"])

    host.tell(acquired())
    host.clock.shown_s = 150.0
    look()
    host.tell(handled())
    host.clock.shown_s = 153.0
    host.tell(handled())
    look()
    host.clock.shown_s = 155.0
    host.tell(saved(duration_s=1.0))
    host.clock.shown_s = 170.0
    look()

    assert ages == [0.0, 3.0, 0.0]


def test_stuck_seconds_grow_until_the_partition_moves() -> None:
    """An alarm on any above 0 must name the partition, last as long as the trouble does, and then clear."""
    host = Host()
    found: list[float] = []

    def look() -> None:
        found.append(host.series()["partition_stuck_seconds{partition=p-0}"])

    host.tell(acquired("p-0"), acquired("p-1"))
    host.tell(PartitionStuck(partition="p-0", token=1, stuck_s=61.0, stage="process", is_failing=False, lag_s=2.0))
    look()
    host.clock.shown_s += 100.0
    look()
    host.tell(PartitionMoved(partition="p-0", token=1, stuck_s=161.0))
    look()

    assert found == [61.0, 161.0, 0.0]
    assert host.series()["partition_stuck_seconds{partition=p-1}"] == 0.0


def test_checkpoint_age_counts_what_was_handled_while_the_checkpoint_was_written() -> None:
    """The write that was on its way does not cover it."""
    host = Host()
    host.tell(acquired(), handled())
    host.clock.shown_s = 104.0
    host.tell(handled())
    host.clock.shown_s = 105.0

    host.tell(saved(duration_s=2.0))

    assert host.series()["checkpoint_age_seconds{partition=p-0}"] == 2.0


def test_handoff_is_timed_from_the_ask_to_the_release() -> None:
    """It is the gap that the others wait for."""
    host = Host()
    host.tell(acquired(), asked())
    host.clock.shown_s = 101.0
    host.tell(asked())
    host.clock.shown_s = 103.0

    moved = host.moved_by(ended(), released())

    assert moved["handoff_seconds_sum"] == 3.0
    assert moved["handoff_seconds_count"] == 1.0


@pytest.mark.parametrize(
    "before",
    [
        [asked(held=False)],
        [asked(token=2)],
        [asked(), ended(reason=EndReason.ASK_DEADLINE)],
        [asked(), SessionEnded(session_id="a:1", reason="run out", lost=True)],
    ],
)
def test_handoff_is_not_timed_where_the_term_was_not_handed_over(before: list[Event]) -> None:
    """A release of another term, or one after the deadline, would look like a hand-off of hours."""
    host = Host()
    host.tell(acquired(), *before)

    assert "handoff_seconds_count" not in host.moved_by(released())


def test_handoffs_that_never_end_do_not_pile_up() -> None:
    """An asker that died leaves its ask; a host lives for months."""
    host = Host()
    host.tell(*(asked(token=token) for token in range(ASKED_MAX + 1)))

    assert "handoff_seconds_count" not in host.moved_by(released(token=0))
    assert "handoff_seconds_count" in host.moved_by(released(token=1))


def test_pump_start_is_timed_once_in_a_term() -> None:
    """A processor that starts again after an hour of failures was not slow to start."""
    host = Host()
    started = [
        PumpStarted(partition="p-0", token=1, position="0", since_acquired_s=seconds) for seconds in (0.25, 3600.0)
    ]
    host.tell(acquired())

    assert host.moved_by(*started) == {"pump_start_seconds_count": 1.0, "pump_start_seconds_sum": 0.25}


@pytest.mark.parametrize("reason", list(EndReason))
def test_c58_partition_has_no_series_after_its_term_whatever_is_told_later(reason: EndReason) -> None:
    """Left at their last value they would be counted twice in sums over hosts, and lag alarms would never clear."""
    host = Host()
    host.tell(acquired("p-0"), acquired("p-1"), handled("p-0"))

    host.tell(ended("p-0", reason=reason))
    host.tell(handled("p-0"), LagSeen(partition="p-0", lag_s=9.0), saved(), released("p-0"))

    assert [name for name in host.series() if "p-0" in name] == []
    assert [name for name in host.series() if name.startswith("leases_held")] == ["leases_held{partition=p-1}"]


def test_c58_series_of_a_later_term_stay_when_an_earlier_one_is_told_to_have_ended() -> None:
    """Events of two terms may overtake one another."""
    host = Host()
    host.tell(acquired("p-0", 1), acquired("p-0", 2), ended("p-0", 1))

    assert host.series()["lease_fencing_token{partition=p-0}"] == 2.0


def test_c58_series_do_not_grow_with_generations_of_partitions() -> None:
    """A stream that is resharded daily must not fill a time series database."""
    host = Host()
    host.tell(GROUP_SEEN, *(acquired(f"p-0-{n}") for n in range(6)))
    first = len(host.series())

    for generation in range(1, 101):
        for n in range(6):
            host.tell(
                handled(f"p-{generation - 1}-{n}"),
                ended(f"p-{generation - 1}-{n}", reason=EndReason.COMPLETED),
                acquired(f"p-{generation}-{n}", 1, "asked"),
                StoreCalled(operation="complete", outcome="applied", duration_s=0.01),
                StoreCalled(operation="delete", outcome="failed", duration_s=0.01),
            )

    assert len(host.series()) == first


def test_hosts_of_one_process_do_not_mix() -> None:
    """Each has a registry of its own unless it is given one."""
    first, second = Host("orders"), Host("refunds")

    first.tell(acquired("p-0"))

    assert [name for name in second.series() if "p-0" in name] == []
    for host, group in ((first, "orders"), (second, "refunds")):
        labels = {sample.labels["group"] for family in host.metrics.registry.collect() for sample in family.samples}
        assert labels == {group}


def test_registry_of_another_host_is_refused() -> None:
    """Both would move the same series; the client library's message does not say what to do."""
    registry = CollectorRegistry()
    first = HostMetrics(registry, "orders", SETTINGS)

    with pytest.raises(UserError, match=r"has the metrics of another host already .* a registry of its own"):
        HostMetrics(registry, "refunds", SETTINGS)

    first.close()
    HostMetrics(registry, "refunds", SETTINGS)


def test_metrics_can_be_written_whatever_a_partition_is_called() -> None:
    """One partition with an odd name must not end all figures of a host."""
    host = Host()
    host.tell(acquired('a"b\\c\nd'), acquired("ñandú-駅"), acquired("lone \ud800"))

    text = generate_latest(host.metrics.registry).decode()

    assert 'processor_host_leases_held{group="orders",partition="a\\"b\\\\c\\nd"} 1.0' in text
    assert 'processor_host_leases_held{group="orders",partition="ñandú-駅"} 1.0' in text
    assert 'processor_host_leases_held{group="orders",partition="lone \\\\ud800"} 1.0' in text


def test_document_lists_every_metric_with_type_and_labels() -> None:
    """A metric that the page lacks is not found, and one that only the page has is looked for in vain."""
    host = Host()
    host.tell(GROUP_SEEN, acquired())
    there = set()
    for family in host.metrics.registry.collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"group", "le"}
        name = family.name + ("_total" if family.type == "counter" else "")
        there.add((name, family.type, frozenset(labels)))

    rows = re.findall(
        r"^\| `(processor_host_\w+)` \| (\w+) \| ([^|]*)\| (.{20,}) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE
    )

    assert {(name, kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows} == there
    assert len(rows) == len(there) > 30
