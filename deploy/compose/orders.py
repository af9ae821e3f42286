"""An example of your own code: sums the orders of each customer."""

import json
from collections import Counter

from processor_host import Batch, PartitionProcessor, ProcessorContext


class Orders(PartitionProcessor):
    """Counts what each customer has spent since this host has the partition."""

    async def open(self, context: ProcessorContext) -> None:
        """Begin with nothing: what another host has counted stays there."""
        self.partition = context.partition
        self.spent: Counter[str] = Counter()

    async def process(self, batch: Batch) -> None:
        """Count a batch, and say how far it is."""
        for record in batch:
            self.spent[record.key or ""] += json.loads(record.data)["cents"]
        print(f"{self.partition}: {len(self.spent)} customers, {self.spent.total()} cents", flush=True)
