"""
What deploy/ ships for observing a group, as values: alerts, dashboard, runbook, and the metrics that texts name.

Runs nothing; the tests compare what is here with one another, with docs/ and with what a real host exports.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]  # It has no types.

__all__ = [
    "ALERTS",
    "ALERT_TESTS",
    "DASHBOARD",
    "DOCS",
    "FOLDER",
    "RUNBOOK",
    "Query",
    "alert_tests",
    "alerts",
    "headings",
    "names_in",
    "panels",
    "queries",
    "variables",
]

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "deploy" / "prometheus"
ALERTS: Final = FOLDER / "alerts.rules.yaml"
ALERT_TESTS: Final = FOLDER / "alerts.test.yaml"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "processor-host.json"
RUNBOOK: Final = ROOT / "deploy" / "runbook.md"
DOCS: Final = (*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("deploy/*.md")), ROOT / "README.md")
"""Every text for people that may name a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of one panel."""

    panel: str
    expr: str


def alerts() -> dict[str, dict[str, Any]]:
    """Return every alert by its name."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    return {rule["alert"]: rule for rule in rules}


def alert_tests() -> list[dict[str, Any]]:
    """Return every test of promtool's file."""
    tests: list[dict[str, Any]] = yaml.safe_load(ALERT_TESTS.read_text())["tests"]
    return tests


def headings() -> dict[str, str]:
    """Return each heading of the second level in the runbook, with the text below it."""
    parts = re.split(r"^## (.+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, rows among them."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def variables() -> list[dict[str, Any]]:
    """Return the variables of the dashboard: its data source, and the group."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["templating"]["list"]
    return found


def queries() -> list[Query]:
    """Return every query of the dashboard, those of its variables last."""
    found = [
        Query(panel=panel["title"], expr=target["expr"]) for panel in panels() for target in panel.get("targets", ())
    ]
    return found + [
        Query(panel=f"${each['name']}", expr=re.sub(r"label_values\((\w+), .*\)", r"\1", each["definition"]))
        for each in variables()
        if each["type"] == "query"
    ]


def names_in(text: str) -> set[str]:
    """Return every name of a metric in a text."""
    return set(re.findall(r"\bprocessor_host_[a-z_]+[a-z]\b", text))
