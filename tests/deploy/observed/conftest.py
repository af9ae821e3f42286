"""
One Prometheus for all these tests, and the groups that it scrapes, each with a fault of its own.

Everything starts side by side, and the faults begin once every host has been scraped, since a counter that has moved
before nobody saw move.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest
from anyio.from_thread import start_blocking_portal

from tests.deploy.observed.groups import PortedGroup
from tests.deploy.observed.prometheus import Prometheus, started
from tests.processes.dynamodb.tables import TableGroup
from tests.processes.harness import Group, Host
from tests.proxy import Proxy
from tests.servers.fixtures import moto_url
from tests.servers.processes import free_port

__all__ = ["PARTITIONS", "RECORDS", "Observed", "moto_url", "observed", "start_moved"]

UP_S: Final = 60.0
PARTITIONS: Final = 12
RECORDS: Final = 40
MOVED_D_S: Final = 4.0
FAULTY: Final = "tests.deploy.observed.faulty:Faulty"
BLOCKING: Final = "tests.deploy.observed.faulty:Blocking"
INSTANCES: Final = ("a", "b", "c", "faulty", "blocking", "led", "cut")
AGAIN: Final = "faulty-again"
"""The instance under which one host is scraped a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """
    What runs.

    Attributes:
        prometheus: Scrapes all of it.
        moved: Hosts a and b, which share twelve partitions and are well; there is room for c.
        faulty: One host, whose records fail in all ways; it is scraped under two names.
        blocking: One host that may hold one of its two partitions, and blocks its event loop.
        led: One host with two singletons, of which one fails.
        cut: One host whose table, behind a proxy, answers nothing any more.
    """

    prometheus: Prometheus
    moved: PortedGroup
    faulty: PortedGroup
    blocking: PortedGroup
    led: PortedGroup
    cut: TableGroup

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.moved, self.faulty, self.blocking, self.led, self.cut


@pytest.fixture(scope="session")
def observed(tmp_path_factory: pytest.TempPathFactory, moto_url: str) -> Iterator[Observed]:
    """Five groups and what watches them; gone when the session of pytest is over."""
    folder = tmp_path_factory.mktemp("observed")
    ports = chosen_ports()
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        proxy = stack.enter_context(Proxy(moto_url))

        def ported(name: str) -> PortedGroup:
            group = PortedGroup(folder / name, portal, name=name, ports=ports)
            stack.callback(group.close)
            return group

        (folder / "cut").mkdir()
        cut = TableGroup(folder / "cut", portal, proxy, group="cut")
        stack.callback(cut.close)
        prometheus = stack.enter_context(
            started(folder / "prometheus", {**{name: ports[name] for name in INSTANCES}, AGAIN: ports["faulty"]})
        )
        made = Observed(
            prometheus=prometheus,
            moved=ported("moved"),
            faulty=ported("faulty"),
            blocking=ported("blocking"),
            led=ported("led"),
            cut=cut,
        )
        begin(made, ports)
        wait_for_scrapes(made)
        stack.enter_context(disturbed(made))
        yield made


def chosen_ports() -> dict[str, int]:
    """Return a free port for each instance, no two the same."""
    ports: dict[str, int] = {}
    while len(ports) < len(INSTANCES):
        port = free_port(1)
        if port not in ports.values():
            ports[INSTANCES[len(ports)]] = port
    return ports


def begin(made: Observed, ports: dict[str, int]) -> None:
    """Start every host."""
    made.cut.create(2)
    made.cut.start("cut", "--metrics-port", str(ports["cut"]), lease_duration_s=2.0)
    made.moved.create(PARTITIONS)
    made.moved.put(RECORDS)
    for name in "ab":
        start_moved(made.moved, name)
    made.faulty.create(4)
    made.faulty.start(
        "faulty",
        *made.faulty.ported("faulty"),
        *("--on-failure", "dead-letter:file:letters.jsonl", "--failure-attempts", "1"),
        *("--restart-pause-s", "0.2", "--restart-pause-max-s", "0.2", "--stall-limit-s", "2"),
        *("--checkpoint-interval-s", "0.5"),
        processor=FAULTY,
    )
    made.blocking.create(2)
    made.blocking.start(
        "blocking",
        *made.blocking.ported("blocking"),
        *("--max-leases", "1", "--checkpoint", "manual", "--checkpoint-interval-s", "0.2"),
        processor=BLOCKING,
    )
    made.led.create(1)
    made.led.start("led", *made.led.ported("led"), command=[sys.executable, "-m", "tests.deploy.observed.led"])


def start_moved(group: PortedGroup, name: str) -> Host:
    """Start one of the hosts that are well."""
    return group.start(name, *group.ported(name), lease_duration_s=MOVED_D_S, record_s=0.05)


def wait_for_scrapes(made: Observed) -> None:
    """Wait until every host was scraped after it had become ready."""
    for group in made.groups:
        for host in group.hosts:
            group.wait_ready(host, UP_S)
    count = sum(len(group.hosts) for group in made.groups) + 1
    made.prometheus.wait_until(
        "all hosts are scraped", lambda: made.prometheus.values("sum(processor_host_ready)") == {(): float(count)}, UP_S
    )


def disturbed(made: Observed) -> ExitStack:
    """Begin every fault; the end of what is returned undoes the cut."""
    partitions = sorted(made.faulty.records)
    made.faulty.put_words(dict(zip(partitions, ("poison", "skip", "stop", "letter"), strict=True)))
    made.blocking.put_words(dict.fromkeys(made.blocking.records, "block"))
    stack = ExitStack()
    stack.enter_context(made.cut.proxy.cut(silent=True))
    return stack
