"""
The processor of these tests: waits for each record, and keeps a journal of what this process does.

The environment says how (`JOURNAL_…` below); a file `block` beside the journals makes it block its event loop once.
Each process writes a file of its own, every line with one unbuffered write, so that a SIGKILL loses at most the line
that is being written. Reading the journals back and judging them is the business of `tests.processes.histories`.
"""

from __future__ import annotations

import json
import os
import re
import time
from functools import cache
from pathlib import Path
from typing import Final

import anyio

from partitions.clocks import BootClock
from partitions.errors import LeaseLost
from partitions.sources.base import Record
from processor_host import Batch, CloseReason, PartitionProcessor
from processor_host.processor import ProcessorContext

__all__ = ["BLOCK", "FOLDER", "HELD", "HOLD", "RECORD_S", "SAVES", "STUBBORN", "Journal", "order_block"]

FOLDER: Final = "JOURNAL_FOLDER"
"""Where the journals go."""
RECORD_S: Final = "JOURNAL_RECORD_S"
"""How long a record takes, seconds."""
SAVES: Final = "JOURNAL_SAVES"
""""each": ask for a checkpoint after each record; "blocked": after one that blocked. Else the host's own do."""
STUBBORN: Final = "JOURNAL_STUBBORN"
"""Not empty: a record that was begun is not to be cancelled."""
HELD: Final = "JOURNAL_HELD"
"""A position: this record of each partition takes as long as there is a file `hold`, and is not to be cancelled."""
HOLD: Final = "hold"
BLOCK: Final = "block"

_clock = BootClock()


def order_block(folder: Path, partition: str, position: str, seconds: float, *, by: str = "sleep") -> None:
    """
    Let the first process that comes to this record block its event loop for so long.

    Args:
        folder: The group's.
        partition: The record's.
        position: The record's.
        seconds: For how long; with "regex" at least.
        by: "sleep" lets other threads run; "regex" is a call of C that keeps the interpreter to itself.
    """
    made = folder / "block.new"
    made.write_text(json.dumps([partition, position, seconds, by]))
    made.rename(folder / BLOCK)


class Journal(PartitionProcessor):
    """Handles a record by waiting."""

    async def open(self, context: ProcessorContext) -> None:
        """Note where the term begins, or goes on after a failure."""
        self._context = context
        self._record_s = float(os.environ.get(RECORD_S, "0"))
        self._saves = os.environ.get(SAVES, "")
        self._is_stubborn = bool(os.environ.get(STUBBORN))
        self._held = os.environ.get(HELD)
        self._note("opened", context.position)

    async def process(self, batch: Batch) -> None:
        """Note start and end of each record."""
        for record in batch:
            self._note("started", record.position)
            try:
                blocked = await self._work(record)
            except BaseException:
                # Whatever ends the work early, also a cancellation, which goes on.
                self._note("cut", record.position)
                raise
            self._note("ended", record.position)
            if self._saves == "each" or (self._saves == "blocked" and blocked):
                await self._save(batch, record)

    async def close(self, reason: CloseReason) -> None:
        """Note why."""
        self._note("closed", reason.name)

    async def _work(self, record: Record) -> bool:
        """Return whether it blocked."""
        is_held = record.position == self._held
        with anyio.CancelScope(shield=self._is_stubborn or is_held):
            await anyio.sleep(self._record_s)
            while is_held and is_ordered(HOLD):
                await anyio.sleep(0.02)
        # Last, so that nothing else of the host has run when the record is done and the next is wanted.
        return blocks(record)

    async def _save(self, batch: Batch, record: Record) -> None:
        try:
            await batch.checkpoint(record)
        except LeaseLost:
            # On purpose: whoever passes over this must still not be handed another record.
            self._note("refused", record.position)
        else:
            self._note("saved", record.position)

    def _note(self, act: str, value: str) -> None:
        lease = self._context.lease
        entry = [act, lease.partition, lease.token, value, self._context.host_id, os.getpid(), _clock.now_s()]
        os.write(_journal(), (json.dumps(entry) + "\n").encode())


def is_ordered(order: str) -> bool:
    return Path(os.environ[FOLDER], order).exists()


def blocks(record: Record) -> bool:
    """Take the order to block at this record, if there is one, and obey it; only one process gets it."""
    order = Path(os.environ[FOLDER], BLOCK)
    try:
        partition, position, seconds, by = json.loads(order.read_text())
        if (partition, position) != (record.partition, record.position):
            return False
        order.unlink()
    except FileNotFoundError:
        return False
    if by == "sleep":
        time.sleep(seconds)
    else:
        backtrack(seconds)
    return True


def backtrack(seconds: float) -> None:
    """Match a pattern that goes back and forth in one call for at least so long; each more letter doubles the time."""
    letters, took_s = 16, 0.0
    while took_s < seconds:
        letters += 1
        began_s = _clock.now_s()
        re.match(r"(a|a)+$", "a" * letters + "b")
        took_s = _clock.now_s() - began_s


@cache
def _journal() -> int:
    file = Path(os.environ[FOLDER], f"journal-{os.getpid()}-{time.time_ns()}.jsonl")
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
