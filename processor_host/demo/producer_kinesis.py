"""
The demo's producer on Kinesis: a process that puts keyed records and lists those that the stream says it has.

Knows no host. A request has one record of each key at most and one request is in flight at a time, so that the list has
the records of each key in the order of the stream, whatever becomes of a single request. SIGTERM ends it between two
requests: then the list is complete. (A request whose answer was lost is sent again, and may then be in the stream
twice, once without being listed: the verdict will say so. On a server of this machine no answer is lost.)
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

import anyio
import click

from partitions.clocks import BootClock
from partitions.errors import SourceUnavailable
from partitions.sources.kinesis import KinesisStream, parse_url
from partitions.sources.local import Entry
from processor_host.demo.flow import Flow
from processor_host.demo.lines import LineWriter, Produced
from processor_host.demo.orphans import end_without_parent

__all__ = ["produce"]

TICK_S: Final = 0.1
"""Time between two requests, each of some milliseconds."""
KEYS: Final = 64
"""As many keys as fall into every shard, and no more than are in one request."""


@click.command()
@click.argument("url")
@click.argument("listed", type=click.Path(path_type=Path))
@click.option("--rate", type=float, required=True, help="Records a second, of all partitions together.")
def produce(url: str, listed: Path, rate: float) -> None:
    """Put records into the stream at URL and write them to the file LISTED, until SIGTERM."""
    end_without_parent()
    anyio.run(_produce, url, listed, rate)


async def _produce(url: str, listed: Path, rate: float) -> None:
    stopping = anyio.Event()

    async def stop() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                stopping.set()
                return

    clock = BootClock()
    made = LineWriter(listed)
    async with anyio.create_task_group() as tasks, KinesisStream(parse_url(url)) as stream:
        tasks.start_soon(stop, name="SIGTERM")
        flow, count = Flow(rate, clock.now_s()), 0
        while not stopping.is_set():
            numbers = range(count, count + min(flow.due(clock.now_s()), KEYS))
            if numbers and await _put(stream, numbers, made, clock):
                count = numbers.stop
                flow.made(len(numbers))
            with anyio.move_on_after(TICK_S):
                await stopping.wait()
    made.close()


async def _put(stream: KinesisStream, numbers: range, made: LineWriter, clock: BootClock) -> bool:
    """Put and list the records; say false where the stream refused them for too long and has none of them."""
    keys = [f"key-{number % KEYS}" for number in numbers]
    entries = [
        Entry(data=f'{{"number":{number}}}'.encode(), key=key) for number, key in zip(numbers, keys, strict=True)
    ]
    try:
        places = await stream.put(entries)
    except SourceUnavailable as error:
        print(f"tries again: {error}", file=sys.stderr)
        return False
    at_s = clock.now_s()
    rows = [
        Produced(partition=shard, position=sequence, at_s=at_s, key=key)
        for (shard, sequence), key in zip(places, keys, strict=True)
    ]
    # One request's records have any order in a shard; the list has the shard's.
    made.write(*sorted(rows, key=lambda row: int(row.position)))
    return True


if __name__ == "__main__":
    produce()
