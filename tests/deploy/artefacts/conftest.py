"""The packages of this tree, built once, and an environment into which the wheel was installed as a user would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.artefacts.tools import ROOT, called, tool
from tests.servers.fixtures import aws_dummies, kinesis_local_url, moto_url

__all__ = ["Packages", "aws_dummies", "installed", "kinesis_local_url", "made_environment", "moto_url", "packages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """The two packages of a release."""

    sdist: Path
    wheel: Path
    """Built from the sdist."""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """What `python -m build` makes of this tree: the sdist, and the wheel out of it."""
    folder = tmp_path_factory.mktemp("dist")
    status, said = called(tool("python", "-m", "build", "--no-isolation", "--outdir", folder, ROOT))
    assert status == 0, said
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return Packages(sdist=sdist, wheel=wheel)


@pytest.fixture(scope="session")
def installed(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what it asks for, in a folder without this tree."""
    environment = made_environment(tmp_path_factory.mktemp("opt") / "processor-host")
    install = pip_into(environment, "--constraint", ROOT / "constraints.txt", packages.wheel)
    status, said = called(install, folder=environment)
    assert status == 0, said
    return environment


def made_environment(folder: Path) -> Path:
    """A new, empty environment, of the release of Python that these tools have."""
    status, said = called(tool("python", "-m", "venv", "--without-pip", folder))
    assert status == 0, said
    return folder


def pip_into(environment: Path, *arguments: str | Path) -> list[str]:
    """The command that installs into an environment. Its modules are compiled where they are first imported."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")
    return tool("python", "-m", "pip", "--python", environment / "bin" / "python", "install", *quiet, *arguments)
