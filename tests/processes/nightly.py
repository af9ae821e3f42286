"""
The singleton of these tests: notes again and again that it runs, each time after a look at its lease.

Beside the journals, one file for each process; a line is the token and when, and is written only while the lease holds.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from partitions.clocks import BootClock
from partitions.locks import LockLease
from tests.processes.journal import FOLDER

__all__ = ["NIGHTLY", "Term", "nightly", "terms"]

NIGHTLY: Final = "tests.processes.nightly:nightly"
NAME: Final = "nightly-{}"
EVERY_S: Final = 0.02

_clock = BootClock()


@dataclass(frozen=True, slots=True)
class Term:
    """What was noted under one token."""

    token: int
    pid: int
    first_s: float
    last_s: float


async def nightly(lease: LockLease) -> None:
    """Run until it is cancelled."""
    notes = os.open(Path(os.environ[FOLDER], NAME.format(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            # Nothing is awaited between the look and the line.
            if lease.is_held():
                os.write(notes, f"{lease.token} {_clock.now_s()}\n".encode())
            await anyio.sleep(EVERY_S)
    finally:
        os.close(notes)


def terms(folder: Path) -> list[Term]:
    """Return what was noted so far, by token; a token that two processes had is there twice."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for path in folder.glob(NAME.format("*")):
        pid = int(path.name.rpartition("-")[2])
        # A process that is killed may leave the beginning of a line.
        for line in path.read_text().rpartition("\n")[0].splitlines():
            token, at_s = line.split()
            found[int(token), pid].append(float(at_s))
    return [Term(token, pid, min(times), max(times)) for (token, pid), times in sorted(found.items())]
