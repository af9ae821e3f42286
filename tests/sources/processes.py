"""
What the processes of `test_local_processes` run: `python -m tests.sources.processes write|read FILE …`.

Each prints what it did as JSON, one array a line.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import anyio

from partitions.sources.base import Record
from partitions.sources.local import Entry, LocalSource, LocalStream
from processor_host.cli.tail import tail

__all__: list[str] = []

KEYS = 20
WAIT_S = 30.0


def write(path: Path, writer: int, number: int, partitions: int) -> None:
    """
    Append `number` records in batches of any size; a record says its writer, key and number within both.

    In the middle it waits until the stream has `partitions`, so that some are written before and some after.
    """
    chosen = random.Random(writer)
    counts = dict.fromkeys(range(KEYS), 0)
    with LocalStream.open(path) as stream:
        left = number
        while left:
            if left < number / 2:
                wait_for(stream, partitions)
            batch = []
            for _ in range(min(left, chosen.randint(1, 20))):
                key = chosen.randrange(KEYS)
                counts[key] += 1
                batch.append(Entry(data=f"{writer} {key} {counts[key]}".encode(), key=f"key {key}"))
            left -= len(batch)
            for entry, (partition, position) in zip(batch, stream.append(batch), strict=True):
                print(json.dumps([partition, position, entry.data.decode()]))


def wait_for(stream: LocalStream, partitions: int) -> None:
    until_s = time.monotonic() + WAIT_S
    while len(stream.describe().partitions) < partitions:
        if time.monotonic() > until_s:
            raise TimeoutError(f"fewer than {partitions} partitions after {WAIT_S} s")
        time.sleep(0.005)


async def read(path: Path, number: int) -> None:
    """Read the stream as it grows, children after their parents, until `number` records were seen."""

    def show(record: Record) -> None:
        print(json.dumps([record.partition, record.position, record.data.decode()]))

    source = LocalSource(path)
    await source.open()
    await tail(source, show, start="earliest", limit=number)
    await source.close()


if __name__ == "__main__":
    what, file, *numbers = sys.argv[1:]
    if what == "write":
        write(Path(file), *map(int, numbers))
    else:
        anyio.run(read, Path(file), int(numbers[0]))
