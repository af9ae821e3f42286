"""The packages of a release: whole, described as the index wants it, and all that a user needs to see it work."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.deploy.artefacts.conftest import Packages, made_environment, pip_into
from tests.deploy.artefacts.tools import ROOT, called, tool

__all__: list[str] = []

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("installed")]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PRODUCT = ("partitions", "processor_host")
DEMO = ["-m", "processor_host.demo", "--seconds", "0", "--partitions", "4", "--hosts", "2", "--json"]
DEMO_S_MAX = 120.0
HEADING = re.compile(r"## \[(Unreleased|\d+\.\d+\.\d+)\](?: - \d{4}-\d\d-\d\d)?")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def tracked(*folders: str) -> set[str]:
    """The files of these folders that belong to the project, also those that are not committed yet."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    status, said = called(listed)
    assert status == 0, said
    return {name for name in said.splitlines() if (ROOT / name).is_file()}


def test_wheel_has_every_file_of_both_packages_and_no_other(packages: Packages) -> None:
    """A page without its style sheet, or a package without `py.typed`, is found by users alone."""
    with zipfile.ZipFile(packages.wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}

    assert names == tracked(*PRODUCT)
    assert {"partitions/py.typed", "processor_host/py.typed", "processor_host/page/page.html"} < names


def test_sdist_has_what_the_tests_and_the_docs_need(packages: Packages) -> None:
    """Whoever packages it for a distribution runs the tests from it."""
    with tarfile.open(packages.sdist) as files:
        names = {member.name.partition("/")[2] for member in files if member.isfile()}

    asked = tracked(*PRODUCT, "tests", "docs", "deploy", "*.md", "*.txt", "*.toml", "Makefile", "LICENSE")
    assert asked - names == set()
    # Beside .gitignore and .pre-commit-config.yaml only what the format itself adds.
    assert names - asked == {"PKG-INFO", ".gitignore", ".pre-commit-config.yaml"}


def test_packages_are_what_the_index_takes(packages: Packages) -> None:
    """A description that it cannot render, or a field that it does not know, is refused at the upload of a release."""
    status, said = called(tool("twine", "check", "--strict", packages.sdist, packages.wheel))

    assert (status, said.count("PASSED")) == (0, 2), said


def test_metadata_name_the_licence_the_versions_and_the_types(packages: Packages) -> None:
    """What the index shows and what installers decide by is read from here alone."""
    with zipfile.ZipFile(packages.wheel) as files:
        (folder,) = {name.partition("/")[0] for name in files.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(files.read(f"{folder}/METADATA").decode())
        licence = files.read(f"{folder}/licenses/LICENSE").decode()
        scripts = files.read(f"{folder}/entry_points.txt").decode()

    assert {field: metadata[field] for field in ("Name", "Version", "License-Expression", "Requires-Python")} == {
        "Name": "processor-host",
        "Version": PROJECT["version"],
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
    }
    classifiers = metadata.get_all("Classifier") or []
    assert classifiers == PROJECT["classifiers"]
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} < set(classifiers)
    assert [name for name in classifiers if name.startswith("License ::")] == []
    assert metadata.get_all("Provides-Extra") == ["dev", "kpl", "otel"]
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert scripts.split() == ["[console_scripts]", "processor-host", "=", "processor_host.cli:main"]


def test_demo_passes_from_the_wheel_and_from_the_sdist(packages: Packages, installed: Path, tmp_path: Path) -> None:
    """The first thing that a user sees must not depend on the clone."""
    other = made_environment(tmp_path / "from-sdist")
    status, said = called(pip_into(other, "--no-deps", packages.sdist), folder=tmp_path)
    assert status == 0, said
    # What it asks for was just installed for the wheel; the product is this environment's own.
    (own,) = other.glob("lib/*/site-packages")
    (shared,) = installed.glob("lib/*/site-packages")
    (own / "shared.pth").write_text(f"{shared}\n")
    pythons = [installed / "bin" / "python", other / "bin" / "python"]

    for python, place in zip(pythons, (shared, own), strict=True):
        origin = "import partitions, processor_host; print(partitions.__path__[0], processor_host.__path__[0])"
        said = called([str(python), "-c", origin], folder=tmp_path)[1]
        assert said.split() == [str(place / "partitions"), str(place / "processor_host")]
    demos = [
        subprocess.Popen([python, *DEMO], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for python in pythons
    ]
    try:
        told = [demo.communicate(timeout=DEMO_S_MAX) for demo in demos]
    finally:
        for demo in demos:
            demo.terminate()
            demo.wait()

    assert [demo.returncode for demo in demos] == [0, 0], told
    for verdict, _ in told:
        assert json.loads(verdict)["passed"] is True
        assert json.loads(verdict)["records_handled"] > 0


def test_command_of_the_wheel_tells_its_version(installed: Path) -> None:
    """The entry point is made by the installer from the metadata, not by this tree."""
    assert called([str(installed / "bin" / "processor-host"), "--version"], folder=installed) == (
        0,
        f"processor-host, version {PROJECT['version']}\n",
    )


def test_changelog_is_in_the_form_that_it_names() -> None:
    """Tools and people look for the headings of Keep a Changelog, with what is not released yet on top."""
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    kinds = [line.removeprefix("### ") for line in lines if line.startswith("### ")]

    assert lines[0] == "# Changelog"
    assert [line for line in versions if not HEADING.fullmatch(line)] == []
    assert versions[0] == "## [Unreleased]"
    assert set(kinds) <= KINDS
    assert kinds != []


def test_pre_commit_configuration_is_valid() -> None:
    """A mistake in it shows only to those who use pre-commit, at their first commit."""
    status, said = called(tool("pre-commit", "validate-config", ".pre-commit-config.yaml"))

    assert (status, said) == (0, "")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"])
def test_pages_that_hosting_sites_look_for_are_there(name: str, packages: Packages) -> None:
    """By these names they are linked beside an issue or a pull request."""
    with tarfile.open(packages.sdist) as files:
        (member,) = [each for each in files if each.name.partition("/")[2] == name]

    assert member.size > 200
