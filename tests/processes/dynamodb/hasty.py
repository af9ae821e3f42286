"""The processor of C07: asks for a checkpoint after each record and does not wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from partitions.sources.base import Record
from processor_host import Batch
from tests.processes.journal import Journal

__all__ = ["Hasty", "saving"]


@asynccontextmanager
async def saving() -> AsyncIterator[TaskGroup]:
    """Hold the checkpoints that are under way; the end of the host waits for them."""
    async with anyio.create_task_group() as tasks:
        yield tasks


class Hasty(Journal):
    """Its journal has `ended` where a checkpoint was asked for, and `saved` or `refused` where it was answered."""

    async def _save(self, batch: Batch, record: Record) -> None:
        tasks: TaskGroup = self._context.resources
        tasks.start_soon(super()._save, batch, record, name=f"checkpoint {record.position}")
