"""Puts some orders a second into a stream of Kinesis, until SIGTERM: `python producer.py URL --rate 5`."""

import argparse
import json
import random
import signal

import anyio

from partitions.errors import SourceUnavailable
from partitions.sources.kinesis import KinesisStream, parse_url
from partitions.sources.local import Entry

CUSTOMERS = 50


async def produce(url: str, rate: float) -> None:
    """Put an order each 1/rate seconds; one that the stream refuses is left out."""
    async with anyio.create_task_group() as tasks, KinesisStream(parse_url(url)) as stream:

        async def put() -> None:
            number = 0
            while True:
                order = {"number": number, "cents": random.randint(100, 9999)}
                customer = f"customer-{random.randrange(CUSTOMERS)}"
                try:
                    await stream.put([Entry(data=json.dumps(order).encode(), key=customer)])
                except SourceUnavailable as error:
                    print(f"order {number} was refused: {error}", flush=True)
                number += 1
                await anyio.sleep(1 / rate)

        tasks.start_soon(put, name="put")
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url")
    arguments.add_argument("--rate", type=float, default=5.0, help="orders a second")
    chosen = arguments.parse_args()
    anyio.run(produce, chosen.url, chosen.rate)
