"""
The compose file, without a container engine: valid, and each of its commands that is ours runs as a process.

The stand-ins for DynamoDB and Kinesis are those of these tests; the images, the network between the containers and the
order of their start are not shown here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.artefacts.tools import DEPLOY, called, documents_of, settings_of, tool

__all__: list[str] = []

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("installed")]

FILE = DEPLOY / "compose.yaml"
IMAGE = "processor-host"
APP = DEPLOY / "compose"
HOSTS = ("host-a", "host-b", "host-c")
PORT = 9400
POLL_S = 0.2
SHARE_S_MAX = 120.0
# Where no file can be made, as in a container that is `read_only`; the process stays the same up to the command.
AS_ROOT = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
SEALED = 'mount -o remount,bind,ro / && ! touch probe 2>/dev/null && exec "$@"'
READ_ONLY = ["unshare", *AS_ROOT, "--mount", "sh", "-c", SEALED, "sh"]


def services() -> dict[str, dict[str, Any]]:
    """The services by name, their anchors resolved."""
    (document,) = documents_of(FILE.read_text("utf-8"))
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def grace_s(service: Mapping[str, Any]) -> float:
    """How long compose waits for a service before it kills."""
    found = re.fullmatch(r"(\d+)s", service["stop_grace_period"])
    assert found is not None
    return float(found[1])


def test_compose_file_is_valid_by_the_published_schema() -> None:
    """A misspelt key is refused by an engine, or worse, ignored."""
    status, said = called(tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FILE))

    assert (status, said.strip()) == (0, "ok -- validation done")


def test_three_hosts_share_one_group_and_are_given_time_to_drain() -> None:
    """One that is killed while it drains leaves its leases behind; two groups would each handle every record."""
    found = {name: service for name, service in services().items() if "host" in name}
    settings = {name: settings_of(service["command"], service["environment"]) for name, service in found.items()}

    assert tuple(found) == HOSTS
    assert [each.host_id for each in settings.values()] == list(HOSTS)
    assert len({tuple(service["command"]) for service in found.values()}) == 1
    for name, each in settings.items():
        assert grace_s(found[name]) > each.drain_timeout_s + each.lease_duration_s


def test_services_name_what_is_there() -> None:
    """A volume that is not there is made by the engine, as an empty folder that belongs to root."""
    all_ = services()

    for service in all_.values():
        for name in service.get("depends_on", []):
            assert name in all_
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            assert (DEPLOY / source).exists(), f"{source} is not there"
            assert rest.endswith(":ro")
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{port} is open to other machines"
        if "build" in service:
            assert (FILE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        else:
            assert re.fullmatch(r"[a-z./-]+:v?\d+\.\d+\.\d+", service["image"])


def test_prometheus_and_grafana_find_the_hosts_the_rules_and_the_dashboard(tmp_path: Path) -> None:
    """Each path stands in two files, as mounted and as read: one that is wrong shows as an empty page."""
    mounted = {
        name: {rest.removesuffix(":ro"): source for source, _, rest in map(split, services()[name]["volumes"])}
        for name in ("prometheus", "grafana")
    }
    config = (APP / "prometheus.yaml").read_text("utf-8")
    (scrape,) = documents_of(config)[0]["scrape_configs"]
    (dashboards,) = documents_of((APP / "grafana" / "dashboards" / "files.yaml").read_text("utf-8"))
    (provider,) = dashboards["providers"]
    # As Prometheus reads it, with the folder that is mounted where it looks for the rules.
    (rules,) = [there for there in mounted["prometheus"] if there.endswith("/rules")]
    here = tmp_path / "prometheus.yaml"
    here.write_text(config.replace(rules, str(DEPLOY / mounted["prometheus"][rules])))

    status, said = called(["promtool", "check", "config", str(here)])

    assert (status, said.count("rules found")) == (0, 1), said
    assert scrape["static_configs"] == [{"targets": [f"{name}:{PORT}" for name in HOSTS]}]
    assert f"--config.file={next(iter(mounted['prometheus']))}/prometheus.yaml" in services()["prometheus"]["command"]
    assert list((DEPLOY / mounted["grafana"][provider["options"]["path"]]).glob("*.json")) != []
    assert mounted["grafana"]["/etc/grafana/provisioning"] == "./compose/grafana"


def split(volume: str) -> tuple[str, str, str]:
    """A volume as source, colon and the rest."""
    return volume.partition(":")


class Running:
    """The commands of the services as processes, in the folder that the containers have at /app."""

    def __init__(self, installed: Path, dynamodb_url: str, kinesis_url: str, logs: Path) -> None:
        self._bin = installed / "bin"
        self._addresses = {"http://dynamodb:8000": dynamodb_url, "http://kinesis:4568": kinesis_url}
        self._logs = logs
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def command(self, name: str) -> list[str]:
        """What the container of a service runs, with the addresses of this machine."""
        service = services()[name]
        assert service["image"] == IMAGE
        given: list[str] = [*service.get("entrypoint", ["processor-host"]), *service["command"]]
        return [str(self._bin / given[0]), *map(self._here, given[1:])]

    def environment(self, name: str) -> dict[str, str]:
        """The variables of a service, and nothing of this process."""
        given: dict[str, str] = services()[name]["environment"]
        return {"PATH": f"{self._bin}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **given}

    def is_healthy(self, name: str) -> bool:
        """Whether the check of a host's health passes, at the port that the host has here."""
        kind, program, *rest = services()[name]["healthcheck"]["test"]
        assert kind == "CMD"
        (started,) = lines_of(self.log(name), "http.started")
        words = [word.replace(f":{PORT}/", f":{started['port']}/") for word in rest]
        return called([str(self._bin / program), *words], env=self.environment(name))[0] == 0

    def run(self, name: str) -> tuple[int, str]:
        """Run a service that ends by itself."""
        return called(self.command(name), folder=APP, env=self.environment(name))

    def start(self, name: str) -> None:
        """Start a service that goes on."""
        with self.log(name).open("wb") as log:
            command = [*(READ_ONLY if services()[name].get("read_only") else []), *self.command(name)]
            self.processes[name] = subprocess.Popen(
                command, cwd=APP, env=self.environment(name), stdout=log, stderr=log
            )

    def log(self, name: str) -> Path:
        """Where a service writes."""
        return self._logs / f"{name}.log"

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _here(self, word: str) -> str:
        for there, here in self._addresses.items():
            word = word.replace(there, here)
        # The containers have an address each; on this machine the system picks the ports, of loopback alone.
        return {f"--metrics-port={PORT}": "--metrics-port=0", "--metrics-host=0.0.0.0": "--metrics-host=127.0.0.1"}.get(
            word, word
        )


@pytest.fixture
def running(installed: Path, moto_url: str, kinesis_local_url: str, tmp_path: Path) -> Iterator[Running]:
    """The services, none of them started, and the stream as the stand-in makes it at its start."""
    made = Running(installed, moto_url, kinesis_local_url, tmp_path)
    name, _, shards = services()["kinesis"]["environment"]["INITIALIZE_STREAMS"].partition(":")
    url = f"kinesis://{name}?endpoint_url={kinesis_local_url}"
    create = [str(installed / "bin" / "processor-host"), "stream", "create", url, "--partitions", shards]
    status, said = called(create, env=made.environment("table"))
    assert status == 0, said
    try:
        yield made
    finally:
        made.close()


def lines_of(log: Path, event: str) -> list[dict[str, Any]]:
    """The lines of one event in the log of a host, whose processor prints beside it."""
    texts = [text for text in log.read_text("utf-8").splitlines() if text.startswith("{")]
    return [line for line in map(json.loads, texts) if line["event"] == event]


def handled_by(log: Path) -> set[str]:
    """The partitions of which the processor in that log has handled orders."""
    return set(re.findall(r"^(shardId-\d+): \d+ customers", log.read_text("utf-8"), re.MULTILINE))


def test_hosts_cannot_write_to_their_own_file_system() -> None:
    """Whoever breaks into a processor finds nothing to change; the test below runs them so."""
    for name in HOSTS:
        service = services()[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_commands_of_the_services_share_a_stream_and_stop_in_order(running: Running) -> None:
    """A command that is wrong ends its container at once, and the engine starts it again for ever."""
    assert running.run("table")[0] == 0
    for name in ("producer", *HOSTS):
        running.start(name)
    logs = {name: running.log(name) for name in HOSTS}
    until_s = time.monotonic() + SHARE_S_MAX
    while not (all(map(handled_by, logs.values())) and len(set.union(*map(handled_by, logs.values()))) == 4):
        assert time.monotonic() < until_s, {name: log.read_text("utf-8") for name, log in logs.items()}
        assert {name: each.poll() for name, each in running.processes.items()} == dict.fromkeys(running.processes)
        time.sleep(POLL_S)
    status, told = running.run("status")
    assert status == 0, told
    assert {name for name in HOSTS if name in told} == set(HOSTS)
    assert [running.is_healthy(name) for name in HOSTS] == [True] * 3

    for name in ("producer", *HOSTS):
        running.processes[name].send_signal(signal.SIGTERM)
    ended = {name: running.processes[name].wait(grace_s(services()[name])) for name in HOSTS}

    assert ended == dict.fromkeys(HOSTS, 0)
    assert running.processes["producer"].wait(10) == 0
    assert "refused" not in running.log("producer").read_text("utf-8")
    # They left: nothing waits to expire.
    assert ": 0 hosts; 0 owned, 4 free" in running.run("status")[1]
