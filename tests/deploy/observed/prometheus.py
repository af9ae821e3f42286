"""
A real Prometheus, started on a copy of deploy/prometheus in which only times and targets differ.

The copy is made by the substitution that the head of alerts.rules.yaml documents: no alert waits, and everything is
looked at twice a second. Expressions stay as they are shipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.deploy.observed.shipped import FOLDER
from tests.servers.processes import free_port

__all__ = ["Prometheus", "Series", "shortened"]

RATE_INTERVAL: Final = "1m"
"""What Grafana gives for `$__rate_interval` where scrapes are 15 s apart; here it covers all that a test has done."""
START_S: Final = 30.0
STOP_S: Final = 10.0
ANSWER_S: Final = 10.0
POLL_S: Final = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of an answer: its labels, and its samples as (seconds since 1970, value)."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


def shortened(text: str) -> str:
    """Return a file of deploy/prometheus with every wait and every interval cut short."""
    text = re.sub(r"^( *)for: .*", r"\1for: 0s", text, flags=re.MULTILINE)
    return re.sub(r"^( *)([a-z]+_interval): .*", r"\1\2: 500ms", text, flags=re.MULTILINE)


class Prometheus:
    """One that runs; `started` starts it."""

    def __init__(self, port: int, log: Path) -> None:
        self._url = f"http://127.0.0.1:{port}/"
        self._log = log
        # Without the proxies of the environment: loopback is never behind one.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **parameters: str) -> Any:
        """Return the `data` of an answer of the API."""
        url = f"{self._url}api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with self._opener.open(url, timeout=ANSWER_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def ask(self, expr: str) -> list[Series]:
        """Return what a query finds now; each series has one sample, or, of a range, all that are stored."""
        return [
            Series(
                labels={name: value for name, value in each["metric"].items() if name not in ("job", "__name__")},
                samples=tuple((float(at), float(value)) for at, value in each.get("values") or [each["value"]]),
            )
            for each in self.get("query", query=expr)["result"]
        ]

    def values(self, expr: str) -> dict[tuple[str, ...], float]:
        """Return what a query finds now: the values of its labels, in the order of their names, and its value."""
        return {tuple(value for _, value in sorted(each.labels.items())): each.samples[0][1] for each in self.ask(expr)}

    def grafana(self, expr: str, *, group: str) -> list[Series]:
        """Ask a query of the dashboard, with its variables filled in as Grafana does."""
        return self.ask(expr.replace("$__rate_interval", RATE_INTERVAL).replace("$group", group))

    def firing(self, alert: str) -> list[Mapping[str, str]]:
        """Return the labels with which an alert fires now."""
        return [
            each["labels"]
            for each in self.get("alerts")["alerts"]
            if each["labels"]["alertname"] == alert and each["state"] == "firing"
        ]

    def wait_until(self, what: str, condition: Callable[[], T], within_s: float) -> T:
        """Poll until `condition` is true and return what it returned; fail after `within_s`."""
        until_s = time.monotonic() + within_s
        while True:
            if result := condition():
                return result
            if time.monotonic() >= until_s:
                up = self.values("up")
                firing = sorted({each["labels"]["alertname"] for each in self.get("alerts")["alerts"]})
                raise AssertionError(f"not within {within_s} s: {what}; scraped: {up}; alerts: {firing}")
            time.sleep(POLL_S)

    def is_ready(self) -> bool:
        """Say whether it serves queries."""
        try:
            with self._opener.open(f"{self._url}-/ready", timeout=ANSWER_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def started(folder: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """
    Run a Prometheus for the length of the block.

    Args:
        folder: A new folder for its configuration, its data and its log.
        targets: Instance → port of each host to scrape; one that is not there yet is scraped once it is.
    """
    shutil.copytree(FOLDER, folder)
    for name in ("alerts.rules.yaml", "prometheus.yaml"):
        (folder / name).write_text(shortened((folder / name).read_text()))
    entries = [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}} for name, port in targets.items()]
    # JSON is YAML.
    (folder / "targets.yaml").write_text(json.dumps(entries))
    port, log = free_port(1), folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []),
                "prometheus",
                "--config.file=prometheus.yaml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        made = Prometheus(port, log)
        until_s = time.monotonic() + START_S
        while not made.is_ready():
            if process.poll() is not None or time.monotonic() >= until_s:
                raise AssertionError(f"Prometheus does not start; its log:\n{log.read_text()[-3000:]}")
            time.sleep(POLL_S)
        yield made
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)
