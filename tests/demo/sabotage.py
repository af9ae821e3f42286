"""
Processors that fail on purpose, to see the demo fail: `--processor tests.demo.sabotage:Skipping`.
"""

from __future__ import annotations

import json
import os

from partitions.sources.base import Record
from processor_host.demo.journal import Journalled

__all__ = ["SKIPPED", "SKIPPED_NUMBER", "Falling", "Skipping", "SkippingNumber"]

SKIPPED = ("p1", "7")
"""Partition and position of the record that `Skipping` leaves out."""

SKIPPED_NUMBER = 77
"""The number of the record that `SkippingNumber` leaves out."""


class Skipping(Journalled):
    """Passes over one record, as a host would that stores a checkpoint behind what it has not done."""

    async def handle(self, record: Record) -> None:
        """See `Journalled.handle`."""
        if (record.partition, record.position) != SKIPPED:
            await super().handle(record)


class Falling(Journalled):
    """Ends its process at the tenth record of a partition."""

    async def handle(self, record: Record) -> None:
        """See `Journalled.handle`."""
        if record.position == "10":
            os._exit(7)
        await super().handle(record)


class SkippingNumber(Journalled):
    """Passes over one record of the demo on Kinesis, where nobody knows a position beforehand."""

    async def handle(self, record: Record) -> None:
        """See `Journalled.handle`."""
        if json.loads(record.data)["number"] != SKIPPED_NUMBER:
            await super().handle(record)
