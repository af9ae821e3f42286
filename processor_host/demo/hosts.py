"""
The demo's child processes: started, told to stop, killed, and never left behind.

Knows no stream and no store. Each child is a session of its own, so that Ctrl-C in the terminal reaches the demo alone;
signals go to the children by their process ids. Leaving `Children` kills whoever is still there.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from partitions.clocks import BootClock
from processor_host.demo.lines import Kill

__all__ = ["Child", "Children"]

TAIL_BYTES: Final = 2000
REAP_S: Final = 10.0
"""A killed process is gone in milliseconds; one in the middle of a flush to a slow disk may take seconds."""


class Child:
    """One process; its output goes to a file."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        """Start it."""
        self.name = name
        self.log = log
        self.is_told = False
        """Whether it was told to end, or killed: until then its end is a fault."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, below zero for the signal that ended it; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Send SIGTERM: it ends in order."""
        self.is_told = True
        self._process.terminate()

    def kill(self, clock: BootClock) -> Kill:
        """Send SIGKILL to it and whatever it has started, and return when."""
        self.is_told = True
        at_s = clock.now_s()
        # Only one that was not waited for: its id cannot be another process's yet.
        if self.status is None:
            os.killpg(self.pid, signal.SIGKILL)
        return Kill(pid=self.pid, at_s=at_s)

    def reap(self) -> None:
        """Wait until the process that was killed is gone."""
        self._process.wait(REAP_S)

    def tail(self) -> str:
        """Return the end of what it wrote."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()


class Children:
    """All children, in the order of their starts."""

    def __init__(self, logs: Path, environ: Mapping[str, str]) -> None:
        """Name the folder of their output and their environment."""
        self._logs = logs
        self._environ = environ
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock = BootClock()
        running = [child for child in self if child.status is None]
        for child in running:
            child.kill(clock)
        for child in running:
            child.reap()

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def __iter__(self) -> Iterator[Child]:
        return iter(self._children.values())

    def start(self, name: str, command: Sequence[str]) -> Child:
        """Start a child under a name of its own."""
        child = Child(name, command, self._environ, self._logs / f"{name}.log")
        self._children[name] = child
        return child

    def fallen(self) -> Child | None:
        """Return a child that ended without having been told to."""
        return next((child for child in self if not child.is_told and child.status is not None), None)
