"""What tests of the virtual world share: a diary of what happened when, and small programs that write it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import anyio

from tests.world.loop import START_S, running_loop

__all__ = ["HOUR_S", "Diary", "answers", "fails", "notes_after", "passes", "run_python", "ticks", "until"]

ROOT = Path(__file__).parents[2]
HOUR_S = 3600.0


class Diary:
    """What happened, each entry with its seconds since the start."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        self.entries.append((round(asyncio.get_running_loop().time() - START_S, 6), what))


async def passes(time_s: float) -> None:
    """Let virtual time pass; on a loop of real time this raises, for no test may wait there."""
    running_loop()
    await anyio.sleep(time_s)


async def until(time_s: float) -> None:
    """Let virtual time pass up to a time since the start."""
    await anyio.sleep(START_S + time_s - asyncio.get_running_loop().time())


async def ticks(diary: Diary, period_s: float = 1.0) -> None:
    """Note a tick every period."""
    for number in range(1, 100):
        await passes(period_s)
        diary.note(f"tick {number}")


async def notes_after(diary: Diary, after_s: float, what: str) -> None:
    """Note something once."""
    await passes(after_s)
    diary.note(what)


async def answers(after_s: float, answer: str) -> str:
    """Return something later."""
    await passes(after_s)
    return answer


async def fails(error: BaseException) -> NoReturn:
    """Raise something at once."""
    raise error


def run_python(program: str, *, seed: str) -> subprocess.CompletedProcess[str]:
    """Run a program in another process, with warnings as errors and a hash seed of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
