"""
The demo's producer: a process that appends records to the stream and lists those that the stream says it has.

Knows no host. A record is listed only once the stream has answered, so that the list claims nothing that may have
failed. SIGTERM ends it between two appends: then the list is complete.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

import click

from partitions.clocks import BootClock
from partitions.errors import SourceUnavailable
from partitions.sources.local import Entry, LocalStream
from processor_host.demo.flow import Flow
from processor_host.demo.lines import LineWriter, Produced
from processor_host.demo.orphans import end_without_parent

__all__ = ["produce"]

TICK_S: Final = 0.05
"""Time between two appends. Each is one transaction, and a person sees no difference to a steady flow."""


@click.command()
@click.argument("stream", type=click.Path(path_type=Path))
@click.argument("listed", type=click.Path(path_type=Path))
@click.option("--rate", type=float, required=True, help="Records a second, of all partitions together.")
def produce(stream: Path, listed: Path, rate: float) -> None:
    """Append records to STREAM and write them to the file LISTED, until SIGTERM."""
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    end_without_parent()
    clock = BootClock()
    made = LineWriter(listed)
    count = 0
    flow = Flow(rate, clock.now_s())
    with LocalStream.open(stream) as target:
        while not stopping:
            due = flow.due(clock.now_s())
            entries = [Entry(data=f'{{"number":{count + index}}}'.encode()) for index in range(due)]
            if entries and _append(target, entries, made, clock):
                count += len(entries)
                flow.made(len(entries))
            time.sleep(TICK_S)
    made.close()


def _append(target: LocalStream, entries: list[Entry], made: LineWriter, clock: BootClock) -> bool:
    """Append and list the records; say false where the stream was busy for too long and has none of them."""
    try:
        placed = target.append(entries)
    except SourceUnavailable as error:
        print(f"tries again: {error}", file=sys.stderr)
        return False
    at_s = clock.now_s()
    made.write(*(Produced(partition=partition, position=position, at_s=at_s) for partition, position in placed))
    return True


if __name__ == "__main__":
    produce()
