"""
A program for C40: one host that takes each partition, handles a record, gives the lease back, and takes it again.

`python -m tests.processes.dynamodb.cycling CYCLES STORE SOURCE` prints a line of JSON at cycle 200, each 100 further
ones and the last: what the process has in memory and what it has open. Warnings go to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
from aiobotocore.client import AioBaseClient  # type: ignore[import-untyped]  # It has no types.

from processor_host import Batch, HostSettings, ProcessorHost

__all__ = ["FIRST", "Sample"]

FIRST = 200
EVERY = 100
GROUP = "cycling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the process has at one moment."""

    cycles: int
    rss_bytes: int
    clients: int
    sockets: int
    took_s: float


def sample(cycles: int, took_s: float) -> Sample:
    """Look, after whatever is garbage has gone."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        cycles=cycles,
        rss_bytes=resident * os.sysconf("SC_PAGE_SIZE"),
        clients=sum(isinstance(each, AioBaseClient) for each in gc.get_objects()),
        sockets=sum(is_socket(each) for each in Path("/proc/self/fd").iterdir()),
        took_s=took_s,
    )


def is_socket(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:
        return False


async def cycle(cycles_max: int, store: str, source: str) -> None:
    """Run the host until it has done so many cycles."""
    done = 0
    began_s = time.monotonic()
    enough = anyio.Event()

    async def handle(batch: Batch) -> None:
        nonlocal done
        await batch.checkpoint()
        await batch.lease.release()
        done += 1
        if done == cycles_max or (done >= FIRST and done % EVERY == 0):
            print(json.dumps(asdict(sample(done, time.monotonic() - began_s))), flush=True)
        if done >= cycles_max:
            enough.set()

    settings = HostSettings(lease_duration_s=6.0, balance_interval_s=0.05, batch_records_max=1)
    async with ProcessorHost(group=GROUP, source=source, store=store, processor=handle, settings=settings):
        await enough.wait()


if __name__ == "__main__":
    anyio.run(cycle, int(sys.argv[1]), sys.argv[2], sys.argv[3])
