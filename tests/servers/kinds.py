"""
What each server is: how it is started, what it speaks, and what has to be installed for it.

It starts nothing. Every server binds to loopback alone and ends when its standard input does, so that none
outlives the tests that started it, also where those were killed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOST", "KINDS", "Kind", "ServerNotInstalled"]

HOST = "127.0.0.1"

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
NODE = HERE / "node"
MODULES = NODE / "node_modules"
MINISTACK = ROOT / ".venv-ministack"

# Above this a server is ended: the tests' streams and tables are small, and CI has little memory.
HEAP_MB_MAX = 1024


class ServerNotInstalled(RuntimeError):
    """Raised before a start; the reader runs the command that the message names."""

    def __init__(self, name: str, missing: str) -> None:
        super().__init__(f"{name} is not installed: there is no {missing}; run 'make servers'")
        self.name = name
        self.missing = missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of server."""

    name: str
    speaks: str
    """The service that is asked whether it answers: `dynamodb` or `kinesis`."""
    command: Callable[[int], list[str]]
    """From the port, and for kinesis-local the one after it, to the command."""
    environment: Callable[[int], Mapping[str, str]] = lambda _: {}
    folder: Path = ROOT
    """The current folder of the process."""
    stamp: Path | None = None
    """A file that is there once `make servers` has installed it; None if it comes with `make venv`."""
    ports: int = 1
    """How many successive ports it takes."""

    def check_installed(self) -> None:
        """Raise `ServerNotInstalled` unless the server can be started."""
        if self.stamp is not None and not self.stamp.is_file():
            raise ServerNotInstalled(self.name, str(self.stamp.relative_to(ROOT)))
        if MODULES in self.folder.parents and shutil.which("node") is None:
            raise ServerNotInstalled(self.name, "command 'node'")


def node(*arguments: str) -> list[str]:
    return ["node", f"--max-old-space-size={HEAP_MB_MAX}", "--require", str(NODE / "lifeline.js"), *arguments]


def moto(port: int) -> list[str]:
    return [sys.executable, "-m", "tests.servers.moto", "--port", str(port)]


def ministack(_: int) -> list[str]:
    # -P: this folder has a module of the name of another server, which must not come first on the path.
    return [str(MINISTACK / "bin" / "python"), "-P", str(HERE / "lifeline.py"), "ministack.app"]


def dynalite(port: int) -> list[str]:
    times = [f"--{verb}TableMs=5" for verb in ("create", "delete", "update")]
    return node("cli.js", "--host", HOST, "--port", str(port), *times)


def kinesis_local(_: int) -> list[str]:
    return node("main.js")


def kinesalite(port: int) -> list[str]:
    return node(str(NODE / "kinesalite.js"), str(port))


KINDS = {
    kind.name: kind
    for kind in [
        Kind(name="moto", speaks="dynamodb", command=moto),
        Kind(
            name="ministack",
            speaks="dynamodb",
            command=ministack,
            environment=lambda port: {"GATEWAY_PORT": str(port), "BIND_HOST": HOST, "LOG_LEVEL": "WARNING"},
            stamp=MINISTACK / ".installed",
        ),
        Kind(
            name="dynalite",
            speaks="dynamodb",
            command=dynalite,
            folder=MODULES / "dynalite",
            stamp=MODULES / ".installed",
        ),
        Kind(
            name="kinesis-local",
            speaks="kinesis",
            command=kinesis_local,
            environment=lambda port: {
                "KINESIS_MOCK_PLAIN_PORT": str(port),
                "KINESIS_MOCK_TLS_PORT": str(port + 1),
                "SHARD_LIMIT": "1000",
                "LOG_LEVEL": "WARN",
                **{f"{verb}_DURATION": "5ms" for verb in ("CREATE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS")},
            },
            # It reads `server.json` from the current folder.
            folder=MODULES / "kinesis-local",
            stamp=MODULES / ".installed",
            ports=2,
        ),
        Kind(
            name="kinesalite",
            speaks="kinesis",
            command=kinesalite,
            folder=MODULES / "kinesalite",
            stamp=MODULES / ".installed",
        ),
    ]
}
"""The servers by name."""
