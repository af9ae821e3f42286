"""
What the tests of `deploy/` share: where things are, the tools in `.venv-deploy`, and what a command line means.

Knows no artefact.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # It has no types.

from processor_host.cli.flags import given_settings
from processor_host.cli.run import run
from processor_host.settings import HostSettings
from processor_host.settings_text import read_settings, unknown_variables

__all__ = ["DEPLOY", "ROOT", "TOOLS", "called", "command_of", "documents_of", "settings_of", "tool"]

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".venv-deploy" / "bin"

TOOL_S_MAX = 120.0


def tool(name: str, *arguments: str | Path) -> list[str]:
    """The command of a tool that `make test-deploy` installs; one that is not there fails the test."""
    path = TOOLS / name
    assert path.exists(), f"{path} is not there; run 'make test-deploy'"
    return [str(path), *map(str, arguments)]


def called(command: Iterable[str], *, folder: Path = ROOT, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit status of a command, and all that it says."""
    result = subprocess.run(
        list(command),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_S_MAX,
        check=False,
    )
    return result.returncode, result.stdout


def documents_of(text: str) -> list[dict[str, Any]]:
    """The documents of a text of YAML."""
    return [document for document in yaml.safe_load_all(text) if document is not None]


def settings_of(arguments: Iterable[str], environ: Mapping[str, str]) -> HostSettings:
    """What `processor-host` with these arguments, the first of them `run`, and these variables would run with."""
    name, *rest = arguments
    assert name == "run", f"not a host: {name}"
    assert unknown_variables(environ) == {}
    context = run.make_context("run", rest)
    return read_settings(given_settings(context.params), environ)


def command_of(arguments: Iterable[str]) -> list[str]:
    """The command `processor-host …` of this tree."""
    return [sys.executable, "-m", "processor_host", *arguments]
