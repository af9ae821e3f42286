"""
The layers of DESIGN section 7: the contracts in pyproject.toml hold, and a breach of each kind would be seen.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

__all__: list[str] = []

ROOT = Path(__file__).parent.parent
PACKAGES = ("partitions", "processor_host")
AWS = {"aioboto3", "aiobotocore", "boto3", "botocore"}

# The tree in the current folder goes first on the path, before the installed one.
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The code run by a Python of its own in that folder."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def broken(report: str) -> list[str]:
    """The names of the contracts that the report calls broken."""
    return [line.removesuffix(" BROKEN").strip() for line in report.splitlines() if line.endswith(" BROKEN")]


def test_layers_are_kept() -> None:
    """An upward import would let a rule depend on what runs it, and no test of the rule alone would tell."""
    result = python(LINT, ROOT)

    assert (result.returncode, broken(result.stdout)) == (0, []), result.stdout + result.stderr


def test_layers_name_every_module() -> None:
    """A module without a layer may import anything and be imported by anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    named = {
        prefix + module.strip("() ")
        for contract in contracts
        if contract["type"] == "layers"
        for prefix in [f"{container}." for container in contract.get("containers", [])] or [""]
        for layer in contract["layers"]
        for module in re.split("[|:]", layer)
    }
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for package in PACKAGES
        for file in ROOT.glob(f"{package}/**/*.py")
        if not file.name.startswith("__")
    }

    assert {module for module in modules if not any(f"{module}.".startswith(f"{name}.") for name in named)} == set()


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("partitions/positions.py", "import partitions.items", "partitions: imports go downward"),
        ("partitions/stores/sqlite.py", "import partitions.stores.memory", "partitions: imports go downward"),
        ("partitions/planner.py", "import time", "partitions: rules and decisions are pure"),
        ("partitions/clocks.py", "import structlog", "partitions: a library that neither logs"),
        ("partitions/leases.py", "import partitions.stores.memory", "partitions: sessions and leases know"),
        ("processor_host/pump.py", "import processor_host.balancer", "processor_host: imports go downward"),
        ("processor_host/steps.py", "import anyio", "processor_host: the balancer's decisions are pure"),
    ],
)
def test_layers_are_reported_as_broken_when_one_import_breaks_a_contract(
    module: str, line: str, contract: str, tmp_path: Path
) -> None:
    """A contract that names a module wrongly holds for ever; each must turn red for its own kind of breach."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{line}\n")

    result = python(LINT, tmp_path)

    assert result.returncode == 1, result.stdout + result.stderr
    assert [name for name in broken(result.stdout) if name.startswith(contract)], result.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_import_loads_no_client_of_aws(package: str) -> None:
    """Loading botocore takes longer than all the rest; a host on SQLite must not pay for it."""
    code = f"import sys, {package}; print(*sorted({AWS!r} & set(sys.modules)))"

    result = python(code, ROOT)

    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr
