"""Alerts, their tests, the runbook and the dashboard agree with one another, and promtool agrees with the alerts."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

from tests.deploy.observed.shipped import (
    ALERT_TESTS,
    ALERTS,
    FOLDER,
    alert_tests,
    alerts,
    headings,
    panels,
    queries,
    variables,
)

__all__: list[str] = []

pytestmark = [pytest.mark.deploy]

STEP_S = 15
"""Of the samples and the evaluations in promtool's tests."""
PARTS = ("**Meaning.**", "**First look.**", "**Causes.**", "**What not to do.**")


def seconds(text: str) -> int:
    """How long a duration of Prometheus is."""
    return sum(int(count) * {"s": 1, "m": 60, "h": 3600}[unit] for count, unit in re.findall(r"(\d+)([smh])", text))


def promtool(*arguments: str) -> None:
    run = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_promtool_accepts_rules_and_configuration() -> None:
    """A file with a slip makes Prometheus refuse to start, or to reload and go on with the old rules."""
    promtool("check", "rules", ALERTS.name)
    promtool("check", "config", "prometheus.yaml")


def test_alerts_pass_their_tests() -> None:
    """An expression that matches nothing is silent for ever, and looks like a group that is well."""
    promtool("test", "rules", ALERT_TESTS.name)


def test_each_alert_is_tested_one_step_before_it_fires_and_when_it_does() -> None:
    """A test of the firing alone passes with any lower limit, and one far before with any higher one."""
    tested: Counter[str] = Counter()
    for test in alert_tests():
        before, after = test["alert_rule_test"]
        assert before["alertname"] == after["alertname"]
        assert (before["exp_alerts"], len(after["exp_alerts"])) == ([], 1)
        assert seconds(after["eval_time"]) - seconds(before["eval_time"]) == STEP_S
        tested[after["alertname"]] += 1

    assert tested == dict.fromkeys(alerts(), 1)


def test_each_alert_has_a_heading_in_the_runbook_and_the_other_way_round() -> None:
    """Whoever is woken follows the link, and a heading without an alert is never read."""
    named = {name: rule["annotations"]["runbook"] for name, rule in alerts().items()}

    assert named == {name: f"deploy/runbook.md#{name.lower()}" for name in headings() if name.startswith("Processor")}


@pytest.mark.parametrize("name", sorted(alerts()))
def test_each_heading_says_what_it_means_where_to_look_what_causes_it_and_what_not_to_do(name: str) -> None:
    """At night nobody looks for the part that is missing."""
    text = headings()[name]

    assert [part for part in PARTS if part in text] == list(PARTS)
    assert len(text.split()) >= 60


def test_each_alert_has_a_severity_and_a_summary_with_the_group() -> None:
    """Alerts are routed by the first, and the second is all that a telephone shows."""
    for name, rule in alerts().items():
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
        # Where nothing is scraped, there is no group to name.
        assert ("{{ $labels.group }}" in rule["annotations"]["summary"]) == (name != "ProcessorHostAbsent")


def test_panels_lie_side_by_side_and_are_told_apart() -> None:
    """Grafana draws what overlaps over one another, and drops one of two with the same id."""
    places = [(panel["title"], panel["gridPos"]) for panel in panels()]
    apart = {panel["id"] for panel in panels()}, {panel["title"] for panel in panels()}

    assert [(a, b) for (a, one), (b, other) in combinations(places, 2) if overlap(one, other)] == []
    assert [title for title, place in places if place["x"] + place["w"] > 24] == []
    assert [len(each) for each in apart] == [len(places)] * 2


def test_panels_say_what_they_show_in_which_unit_and_ask_the_chosen_source_for_the_chosen_group() -> None:
    """A dashboard that was made on one machine names its data source and its group."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    shown = [panel for panel in panels() if panel["type"] != "row"]

    for panel in shown:
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert sources == [source] * len(sources)
    assert [each.get("datasource") for each in variables()] == [None, source]
    asked = [query for query in queries() if not query.panel.startswith("$")]
    assert [query for query in asked if query.expr.count("processor_host_") != query.expr.count('group="$group"')] == []


def overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h"))
    )
