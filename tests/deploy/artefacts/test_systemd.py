"""The systemd unit: accepted by systemd itself, and with time to drain. No service manager starts it here."""

from __future__ import annotations

import fnmatch
import shlex
from pathlib import Path

import pytest

from tests.deploy.artefacts.conftest import Packages
from tests.deploy.artefacts.tools import DEPLOY, called, settings_of

__all__: list[str] = []

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("installed")]

UNIT = DEPLOY / "systemd" / "processor-host@.service"
PREFIX = "/opt/processor-host/"


def values_of(name: str) -> list[str]:
    """What the unit gives a directive, each time."""
    lines = UNIT.read_text("utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def test_unit_is_accepted_by_systemd_where_the_command_is_installed(installed: Path, tmp_path: Path) -> None:
    """A directive that systemd does not know is ignored with a line in the journal, and so would be its protection."""
    text = UNIT.read_text("utf-8")
    assert text.count(f"{PREFIX}bin/") == 1
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace(f"{PREFIX}bin/", f"{installed}/bin/"))

    assert called(["systemd-analyze", "verify", "--man=no", str(unit)]) == (0, "")


def test_unit_waits_for_longer_than_its_host_may_take_to_drain() -> None:
    """After that time systemd kills, and the leases wait to expire."""
    example = {"PROCESSOR": "orders:Orders", "GROUP": "orders", "SOURCE": "local:s.db", "STORE": "sqlite:l.db"}
    (line,) = values_of("ExecStart")
    for name, value in example.items():
        assert f"${{{name}}}" in line
        line = line.replace(f"${{{name}}}", value)
    program, *arguments = shlex.split(line)
    name, _, host_id = values_of("Environment")[0].partition("=")
    settings = settings_of(arguments, {name: host_id.replace("%H", "machine").replace("%i", "1")})

    assert program == f"{PREFIX}bin/processor-host"
    assert settings.host_id == "machine-1"
    (stop_s,) = values_of("TimeoutStopSec")
    assert float(stop_s) > settings.drain_timeout_s + settings.lease_duration_s
    assert (values_of("KillSignal"), values_of("KillMode")) == (["SIGTERM"], ["mixed"])


def test_readme_installs_the_wheel_that_it_has_made(packages: Packages) -> None:
    """The package is on no index, and an install by its name would find nothing, or somebody else's."""
    section = (DEPLOY / "README.md").read_text("utf-8").partition("## systemd")[2]
    wheel, install = [shlex.split(line) for line in section.splitlines() if line.startswith(f"{PREFIX}bin/pip ")]

    assert (wheel[1], wheel[-1]) == ("wheel", ".")
    assert (install[1], wheel[wheel.index("--wheel-dir") + 1]) == ("install", str(Path(install[-1]).parent))
    assert fnmatch.fnmatch(packages.wheel.name, Path(install[-1]).name)


def test_comment_of_the_unit_names_every_variable_that_it_needs() -> None:
    """An unset variable is an empty argument, and the host ends with a message about something else."""
    head = UNIT.read_text("utf-8").partition("[Unit]")[0]
    (line,) = values_of("ExecStart")
    needed = [word.strip("${}") for word in shlex.split(line) if word.startswith("${")]

    assert needed == ["PROCESSOR", "GROUP", "SOURCE", "STORE"]
    assert [name for name in needed if f"#     {name}=" not in head] == []
