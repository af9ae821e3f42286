"""
The demo's processor: does nothing for a few milliseconds, and keeps a journal of what it does.

A user's processor looks like this one without its notes. Each process writes a journal of its own into the folder that
the environment names; `processor_host.demo.verdict` judges from these journals what the hosts have done.
"""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path
from typing import Final

import anyio

from partitions.clocks import BootClock
from partitions.sources.base import Record
from processor_host.demo.lines import Act, Line, LineWriter
from processor_host.demo.orphans import end_without_parent
from processor_host.errors import SettingsError
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext

__all__ = ["JOURNALS", "Journalled"]

JOURNALS: Final = "PROCESSOR_HOST_DEMO_JOURNALS"
"""The environment variable that names the folder of the journals."""

WORK_S: Final = (0.002, 0.005)
"""What a record takes, seconds, from and to."""

CHECKPOINT_S: Final = 1.0
"""How often the processor asks for a checkpoint itself, so that it can note that the store has it."""

_clock = BootClock()


class Journalled(PartitionProcessor):
    """Handles a record by waiting, and notes its start and its end."""

    async def open(self, context: ProcessorContext) -> None:
        """Note where the term begins."""
        self._journal = _journal_of(context.host_id, os.getpid())
        self._partition = context.partition
        self._token = context.lease.token
        self._position = context.position
        # As if a checkpoint were some time ago, so that those of many partitions do not come all at once.
        self._saved_s = _clock.now_s() - random.uniform(0, CHECKPOINT_S)
        self._note(Act.OPENED, context.position)

    async def process(self, batch: Batch) -> None:
        """Handle each record; from time to time store how far it is, and note that once it is stored."""
        for record in batch:
            await self.handle(record)
            if _clock.now_s() >= self._saved_s + CHECKPOINT_S:
                await batch.checkpoint(record)
                self._note(Act.CHECKPOINT, record.position)
                self._saved_s = _clock.now_s()

    async def handle(self, record: Record) -> None:
        """Do the work of one record."""
        self._position = record.position
        self._note(Act.STARTED, record.position)
        try:
            await anyio.sleep(random.uniform(*WORK_S))
        except BaseException:
            # Whatever ends the work early, also a cancellation, which goes on.
            self._note(Act.CUT, record.position)
            raise
        self._note(Act.ENDED, record.position)

    async def close(self, reason: CloseReason) -> None:
        """Note why the term, or this part of it, is over."""
        self._note(Act.CLOSED, self._position, reason.name)

    def _note(self, act: Act, position: str, reason: str = "") -> None:
        self._journal.write(
            Line(
                act=act,
                partition=self._partition,
                token=self._token,
                position=position,
                pid=os.getpid(),
                at_s=_clock.now_s(),
                reason=reason,
            )
        )


@cache
def _journal_of(host_id: str, pid: int) -> LineWriter:
    """The journal of this process, which ends where nobody is left to read it."""
    if not (folder := os.environ.get(JOURNALS, "")):
        raise SettingsError(f"environment variable {JOURNALS} is not set; let it name a folder for the journals")
    end_without_parent()
    return LineWriter(Path(folder) / f"{host_id}-{pid}.jsonl")
