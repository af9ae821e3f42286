"""
The processor of `test_transactions`: counts records in a table of the lease file, in one transaction with each batch.

Knows no test. It also keeps, outside of the transaction, how often a record was handled at all.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from processor_host import Batch, PartitionProcessor, ProcessorContext
from tests.processes.journal import FOLDER

__all__ = ["Summing"]


class Summing(PartitionProcessor):
    """Adds 1 to the count of each record, and to the sum of its partition."""

    async def open(self, context: ProcessorContext) -> None:
        """Begin a file of runs of its own."""
        self._runs = Path(os.environ[FOLDER]) / f"runs-{os.getpid()}"

    async def process(self, batch: Batch) -> None:
        """Take a moment, as a handler does, so that a kill finds it in the middle."""
        async with batch.transaction() as tx:
            tx.execute("CREATE TABLE IF NOT EXISTS counts (partition TEXT, position TEXT, n INTEGER)")
            tx.execute("CREATE TABLE IF NOT EXISTS sums (partition TEXT PRIMARY KEY, n INTEGER)")
            tx.execute("INSERT INTO sums VALUES (?, 0) ON CONFLICT DO NOTHING", (batch.partition,))
            with self._runs.open("a") as runs:
                for record in batch:
                    runs.write(f"{record.partition} {record.position}\n")
                    tx.execute("INSERT INTO counts VALUES (?, ?, 1)", (record.partition, record.position))
                    tx.execute("UPDATE sums SET n = n + 1 WHERE partition = ?", (record.partition,))
            await anyio.sleep(0.03)
