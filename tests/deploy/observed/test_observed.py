"""
Prometheus watches three hosts through a kill and a drain, and the shipped alerts fire at real faults.

The tests share what runs, and go on from where the one before has left it: the last one ends every host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import pytest

from tests.deploy.observed.conftest import PARTITIONS, RECORDS, Observed, start_moved
from tests.deploy.observed.scrapes import Term, most_owned, owned_twice, terms_of
from tests.deploy.observed.shipped import ALERTS, DASHBOARD, DOCS, alerts, names_in, queries
from tests.processes.scaling import figure

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.deploy]

PATIENCE_S: Final = 60.0
OWNERS: Final = 'sum by (partition) (processor_host_leases_held{group="moved"})'
HELD: Final = 'sum by (instance) (processor_host_leases_held{group="moved"})'
OFTEN: Final = (
    'min(count_over_time(processor_host_leases_held{group="moved"}[10m]) and processor_host_leases_held{group="moved"})'
)
"""How often the lease that was seen the least was seen, of those that are held now."""
OF_A_BUSY_MACHINE: Final = {"ProcessorHostLoopStalled", "ProcessorHostBeatSlow", "ProcessorHostSessionLost"}
"""Which need no fault of ours where other processes take the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """What was seen while a third host joined two, one was killed and another one drained."""

    owners: tuple[dict[str, float], ...]
    """Partition → number of hosts that hold it: with two hosts, with three, with two, with one."""
    firing: frozenset[str]
    """The alerts that fired for the group both times it was looked at while nothing had happened to it."""
    terms: tuple[Term, ...]


@pytest.fixture(scope="module")
def journey(observed: Observed) -> Journey:
    """Host c joins a and b and is killed, then b drains; a goes on with everything."""
    group, prometheus = observed.moved, observed.prometheus
    owners = []

    def settled(*names: str) -> dict[str, float] | None:
        """Return who owns what once these hosts share it evenly, and have been seen to more than once."""
        even = {(name,): PARTITIONS / len(names) for name in names}
        if prometheus.values(HELD) != even or prometheus.values(OFTEN)[()] < 2:
            return None
        return {name: count for (name,), count in prometheus.values(OWNERS).items()}

    def speaking() -> set[str]:
        return {name for name in alerts() if any(each.get("group") == "moved" for each in prometheus.firing(name))}

    owners.append(prometheus.wait_until("two share", lambda: settled("a", "b"), PATIENCE_S))
    firing = speaking()
    b, c = group.hosts[1], start_moved(group, "c")
    owners.append(prometheus.wait_until("three share", lambda: settled("a", "b", "c"), PATIENCE_S))
    # Here no alert waits, and a move may look like two owners for the one scrape that such a wait is for.
    firing &= speaking()
    c.kill()
    owners.append(prometheus.wait_until("two share again", lambda: settled("a", "b"), PATIENCE_S))
    group.command("drain", "b", "--yes")
    assert b.wait(PATIENCE_S) == 0
    owners.append(prometheus.wait_until("one has all", lambda: settled("a"), PATIENCE_S))
    tokens = prometheus.ask('processor_host_lease_fencing_token{group="moved"}[10m]')
    return Journey(
        owners=tuple(each or {} for each in owners),
        firing=frozenset(firing),
        terms=tuple(terms_of(tokens, prometheus.ask('scrape_duration_seconds{instance=~"[abc]"}[10m]'))),
    )


def test_each_partition_is_owned_exactly_once_after_a_join_a_kill_and_a_drain(
    journey: Journey, observed: Observed
) -> None:
    """The promise, as whoever watches a group sees it."""
    assert list(journey.owners) == [dict.fromkeys(observed.moved.records, 1.0)] * 4


def test_no_scrape_shows_a_partition_owned_twice_or_more_leases_than_partitions(journey: Journey) -> None:
    """Also in the moments of a hand-off, a fail-over and a drain."""
    seen = [term for term in journey.terms if term.from_s < term.until_s]

    figure(f"{len(journey.terms)} terms in scrapes, {len(seen)} in more than one, {most_owned(seen)} held at most")
    assert owned_twice(journey.terms) == []
    assert most_owned(journey.terms) == PARTITIONS
    # At least one more for each partition that c asked for, that it had at its kill, and that b had at its drain.
    assert len(journey.terms) >= PARTITIONS + 2 * PARTITIONS // 3 + PARTITIONS // 2
    assert {term.instance for term in seen} == {"a", "b", "c"}


def test_no_alert_speaks_of_a_group_that_is_well(journey: Journey) -> None:
    """One that always speaks is switched off, and then says nothing when it matters."""
    assert journey.firing - OF_A_BUSY_MACHINE == set()


def test_every_query_of_the_dashboard_finds_numbers(journey: Journey, observed: Observed) -> None:
    """A panel that is empty for a slip in its query looks like one that has nothing to show."""
    prometheus = observed.prometheus
    found: dict[tuple[str, str], list[float]] = {}

    def empty() -> list[tuple[str, str]]:
        """Ask all queries, of hosts that have just been given work, and return those without numbers."""
        observed.moved.put(RECORDS)
        for query in queries():
            # The command line has no singletons.
            series = prometheus.grafana(query.expr, group="led" if "singleton" in query.expr else "moved")
            found[query.panel, query.expr] = [value for each in series for _, value in each.samples]
        return [at for at, values in found.items() if not values or any(math.isnan(value) for value in values)]

    missing: list[tuple[str, str]] = []

    def is_told() -> bool:
        missing[:] = empty()
        return not missing

    # A rate is no number before the work of this moment has been scraped.
    try:
        prometheus.wait_until("every query finds numbers", is_told, PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; without numbers: {missing}") from None
    assert len(found) > 50


def test_every_metric_that_is_named_is_exported_and_every_exported_one_is_documented(observed: Observed) -> None:
    """An alert on a name with a slip is silent; a metric that no text names is found by nobody."""
    exported = {name for name in observed.prometheus.get("label/__name__/values") if name.startswith("processor_host_")}
    families = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in exported}
    asked = {name for query in queries() for name in names_in(query.expr)} | {
        name for rule in alerts().values() for name in names_in(rule["expr"])
    }
    told = {name for text in DOCS for name in names_in(text.read_text())}
    listed = names_in(next(text for text in DOCS if text.name == "metrics.md").read_text())

    assert asked - exported == set()
    assert told - exported - families == set()
    assert {name for name in families if not name.endswith("_created")} - listed == set()
    assert len(asked) > 30, (ALERTS, DASHBOARD)


@pytest.mark.parametrize(
    ("alert", "group"),
    [
        ("ProcessorHostHandlerFailures", "faulty"),
        ("ProcessorHostPartitionStuck", "faulty"),
        ("ProcessorHostPartitionPaused", "faulty"),
        ("ProcessorHostDeadLetters", "faulty"),
        ("ProcessorHostRecordsSkipped", "faulty"),
        ("ProcessorHostPartitionOwnedTwice", "faulty"),
        ("ProcessorHostPartitionUnowned", "blocking"),
        ("ProcessorHostLoopStalled", "blocking"),
        ("ProcessorHostCheckpointStalled", "blocking"),
        ("ProcessorHostSingletonFailures", "led"),
        ("ProcessorHostStoreErrors", "cut"),
        ("ProcessorHostNoPlanRound", "cut"),
        ("ProcessorHostBeatSlow", "cut"),
        ("ProcessorHostSessionLost", "cut"),
    ],
)
def test_alert_fires_at_its_fault(alert: str, group: str, observed: Observed) -> None:
    """Series that were written for a test prove the expression, and not that a host ever makes such series."""
    prometheus = observed.prometheus

    def groups() -> set[str]:
        return {labels["group"] for labels in prometheus.firing(alert)}

    prometheus.wait_until(f"{alert} fires for {group}", lambda: group in groups(), PATIENCE_S)


def test_alert_speaks_of_the_singleton_that_does_not_run_and_of_no_other(observed: Observed) -> None:
    """One that is named for all of a group would not say where to look."""
    prometheus = observed.prometheus

    def speaks_of() -> list[tuple[str, str]]:
        return [(labels["group"], labels["singleton"]) for labels in prometheus.firing("ProcessorHostSingletonIdle")]

    prometheus.wait_until("one singleton is missed", lambda: speaks_of() == [("led", "fails")], PATIENCE_S)


def test_alert_fires_when_fencing_tokens_are_raised_under_a_host_at_work(observed: Observed) -> None:
    """The fence is what keeps a promise after somebody has repaired a store behind the hosts' backs."""
    observed.faulty.raise_tokens()
    observed.faulty.put_words(dict.fromkeys(observed.faulty.records, "well"))

    fired = observed.prometheus.wait_until(
        "a fenced checkpoint is told", lambda: observed.prometheus.firing("ProcessorHostCheckpointFenced"), PATIENCE_S
    )

    assert [labels["group"] for labels in fired] == ["faulty"]


def test_alert_fires_for_hosts_that_are_listed_and_do_not_answer(journey: Journey, observed: Observed) -> None:
    """The group goes on without them, and nobody would start them again."""
    fired = observed.prometheus.wait_until(
        "two hosts are missed",
        lambda: {labels["instance"] for labels in observed.prometheus.firing("ProcessorHostNotScraped")} == {"b", "c"},
        PATIENCE_S,
    )

    assert fired


def test_alert_fires_for_the_group_alone_whose_last_host_is_killed(journey: Journey, observed: Observed) -> None:
    """The hosts that are left say nothing about a group that is gone."""
    prometheus = observed.prometheus
    observed.moved.hosts[0].kill()

    fired = prometheus.wait_until(
        "the group is missed", lambda: prometheus.firing("ProcessorHostGroupAbsent"), PATIENCE_S
    )

    assert [labels["group"] for labels in fired] == ["moved"]
    assert prometheus.firing("ProcessorHostAbsent") == []


def test_alert_fires_when_no_host_is_left(observed: Observed) -> None:
    """What is not there exports nothing, so every other alert is silent then."""
    prometheus = observed.prometheus
    for group in observed.groups:
        for host in group.living():
            host.kill()

    prometheus.wait_until("all hosts are missed", lambda: prometheus.firing("ProcessorHostAbsent"), PATIENCE_S)
