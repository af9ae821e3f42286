"""Processors with the faults that alerts are about; each record says what is to become of it."""

from __future__ import annotations

import time

from partitions.sources.base import Record
from processor_host import Batch, PartitionProcessor, RecordProcessor
from processor_host.failures import Failure, Policy, Retry, Skip, Stop

__all__ = ["BLOCK_S", "Blocking", "Faulty"]

BLOCK_S = 1.5


class Faulty(RecordProcessor):
    """Raises at every record that is not "well"."""

    async def handle(self, record: Record) -> None:
        """Raise what the record says."""
        if record.data != b"well":
            raise RuntimeError(record.data.decode())

    async def on_failure(self, failure: Failure) -> Policy | None:
        """Retry what is poisoned for ever, skip, stop, or leave it to the host's policy."""
        chosen: dict[str, Policy] = {"poison": Retry(), "skip": Skip(attempts=1), "stop": Stop(attempts=1)}
        return chosen.get(str(failure.error))


class Blocking(PartitionProcessor):
    """Blocks its event loop at a record that says so, and never checkpoints."""

    async def process(self, batch: Batch) -> None:
        """Handle each record."""
        for record in batch:
            if record.data == b"block":
                time.sleep(BLOCK_S)  # noqa: ASYNC251 (the fault that is tested)
