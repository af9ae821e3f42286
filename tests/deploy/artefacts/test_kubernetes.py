"""
The kustomization: each overlay renders, is valid by published schemas, and fits together and to what the product does.

What an API server makes of it is not shown here.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.artefacts.tools import DEPLOY, ROOT, called, documents_of, settings_of, tool

__all__: list[str] = []

pytestmark = pytest.mark.deploy

OVERLAYS = sorted(path.parent for path in (DEPLOY / "kubernetes" / "overlays").glob("*/kustomization.yaml"))
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=[path.name for path in OVERLAYS])
HERE = Path(__file__).parent
BYTES = {"Mi": 1 << 20, "Gi": 1 << 30}
OPERATORS = {"keda.sh", "monitoring.coreos.com"}


@cache
def rendered(overlay: Path) -> str:
    """What `kubectl apply -k` would send."""
    status, said = called(tool("kubectl", "kustomize", overlay))
    assert status == 0, said
    return said


def resources(overlay: Path) -> list[dict[str, Any]]:
    """All resources of an overlay."""
    return documents_of(rendered(overlay))


def only(kind: str, overlay: Path) -> dict[str, Any]:
    """The only resource of a kind."""
    (found,) = [each for each in resources(overlay) if each["kind"] == kind]
    return found


def pod(overlay: Path) -> dict[str, Any]:
    """What the Deployment's pods are made of."""
    found: dict[str, Any] = only("Deployment", overlay)["spec"]["template"]["spec"]
    return found


def host(overlay: Path) -> tuple[list[str], dict[str, str]]:
    """The arguments and the variables of the container, as the kubelet fills them in."""
    (container,) = pod(overlay)["containers"]
    (source,) = container["envFrom"]
    config = only("ConfigMap", overlay)
    assert source == {"configMapRef": {"name": config["metadata"]["name"]}}
    # The only variable that comes from a field is the pod's own name.
    named = {each["name"]: each.get("value", "orders-7d4b9c-x2x9z") for each in container["env"]}
    environ = {**config["data"], **named}
    arguments = [re.sub(r"\$\((\w+)\)", lambda found: environ[found[1]], each) for each in container["args"]]
    return arguments, environ


def test_there_is_an_overlay_with_operators_and_one_without() -> None:
    """The tests below look at each overlay that there is."""
    kinds = {overlay.name: {each["kind"] for each in resources(overlay)} for overlay in OVERLAYS}
    plain = {"ServiceAccount", "ConfigMap", "Deployment", "PodDisruptionBudget"}

    assert kinds == {"production": plain | {"PodMonitor", "ScaledObject"}, "trial": plain}


@each_overlay
def test_overlay_is_valid_by_the_published_schemas_of_kubernetes(overlay: Path, tmp_path: Path) -> None:
    """A misspelt field is dropped by the API server with a warning that nobody reads."""
    own = [each for each in resources(overlay) if each["apiVersion"].partition("/")[0] not in OPERATORS]
    file = tmp_path / "rendered.json"
    names = []
    for each in own:
        file = tmp_path / f"{each['kind']}.json"
        file.write_text(json.dumps(each))
        names.append(file)

    status, said = called(tool("kubernetes-validate", "--strict", *names))

    assert (status, said.count(" passed "), said.count("WARN")) == (0, len(own), 0), said


def test_resources_of_operators_are_valid_by_their_published_definitions() -> None:
    """The same of those that Kubernetes itself does not know."""
    found = [
        each for overlay in OVERLAYS for each in resources(overlay) if each["apiVersion"].partition("/")[0] in OPERATORS
    ]
    # One that is wrong beside them, since a judge that finds nothing anywhere would look content.
    misspelt = json.loads(json.dumps(found[0]))
    misspelt["spec"]["jobLabels"] = "x"

    assert judged([*found, misspelt]) == f"{misspelt['kind']} .spec.jobLabels: is not in the definition"


def judged(found: Iterable[dict[str, Any]]) -> str:
    """The faults of some resources of operators."""
    command = tool("python", HERE / "custom_resources.py")
    given = json.dumps(list(found))
    result = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    return result.stdout.strip()


@each_overlay
def test_pods_are_given_longer_than_their_host_may_take_to_drain(overlay: Path) -> None:
    """Case C60: a host that is killed while it drains leaves leases that wait to expire."""
    settings = settings_of(*host(overlay))

    assert pod(overlay)["terminationGracePeriodSeconds"] > settings.drain_timeout_s + settings.lease_duration_s


@each_overlay
def test_rollout_starts_a_new_host_before_it_stops_an_old_one(overlay: Path) -> None:
    """Else what the old one gives away overloads the others; a newcomer waits, as it gets the old one's whole share."""
    update = only("Deployment", overlay)["spec"]["strategy"]["rollingUpdate"]

    assert update == {"maxSurge": 1, "maxUnavailable": 0}
    assert settings_of(*host(overlay)).steal_delay_s > 0


@each_overlay
def test_selectors_find_the_pods_of_the_deployment_and_no_others(overlay: Path) -> None:
    """An empty selector of a budget is every pod of the namespace."""
    deployment = only("Deployment", overlay)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"],
        only("PodDisruptionBudget", overlay)["spec"]["selector"],
        *(each["labelSelector"] for each in pod(overlay)["topologySpreadConstraints"]),
        *(each["spec"]["selector"] for each in resources(overlay) if each["kind"] == "PodMonitor"),
    ]

    assert selectors == [{"matchLabels": labels}] * len(selectors)
    assert pod(overlay)["serviceAccountName"] == only("ServiceAccount", overlay)["metadata"]["name"]


@each_overlay
def test_ports_of_probes_and_of_the_monitor_are_that_of_the_host(overlay: Path) -> None:
    """A probe of another port restarts every host for ever; one of loopback alone is never reached."""
    settings = settings_of(*host(overlay))
    (container,) = pod(overlay)["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness", "startup")}
    monitors = [each for each in resources(overlay) if each["kind"] == "PodMonitor"]

    assert container["ports"] == [{"name": "metrics", "containerPort": settings.metrics_port}]
    assert settings.metrics_host == "0.0.0.0"
    assert {name: (get["path"], get["port"]) for name, get in probes.items()} == {
        "liveness": ("/healthz", "metrics"),
        "readiness": ("/readyz", "metrics"),
        "startup": ("/healthz", "metrics"),
    }
    assert {each["port"] for one in monitors for each in one["spec"]["podMetricsEndpoints"]} <= {"metrics"}


@each_overlay
def test_memory_holds_what_a_host_may_read_ahead(overlay: Path) -> None:
    """A host that is killed for its memory is a crash like any other, and the next one of the group follows."""
    (container,) = pod(overlay)["containers"]
    limit = container["resources"]["limits"]["memory"]

    assert int(limit[:-2]) * BYTES[limit[-2:]] >= 2 * settings_of(*host(overlay)).buffer_bytes_max
    assert "cpu" not in container["resources"]["limits"]


def test_scaling_asks_for_a_metric_that_hosts_export_and_leaves_the_number_alone() -> None:
    """A query of a name that is gone is an error for ever, and a number in the Deployment undoes the scaler."""
    production = DEPLOY / "kubernetes" / "overlays" / "production"
    scaler = only("ScaledObject", production)
    (trigger,) = scaler["spec"]["triggers"]
    arguments, environ = host(production)
    group = next(each.partition("=")[2] for each in arguments if each.startswith("--group="))

    # The page lists exactly what hosts export: other tests hold it to that.
    documented = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    (metric,) = re.findall(r"processor_host_\w+", trigger["metadata"]["query"])
    assert f"| `{metric}` |" in documented
    assert f'{{group="{group}"}}' in trigger["metadata"]["query"]
    assert environ["GROUP"] == group
    assert scaler["spec"]["scaleTargetRef"] == {"name": only("Deployment", production)["metadata"]["name"]}
    assert "replicas" not in only("Deployment", production)["spec"]
