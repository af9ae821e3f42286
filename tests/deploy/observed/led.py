"""
A program of one's own with a host in it, since the command line has no singletons: one works, one fails at once.

Takes the flags of `processor-host run` that the tests give it, and logs as that does.
"""

from __future__ import annotations

import argparse

import anyio

from partitions.stores.sqlite import SqliteStore
from processor_host import Batch, HostSettings, ProcessorHost
from processor_host.logs import EventLog, configure

__all__ = ["main"]


async def handle(batch: Batch) -> None:
    """Leave every record alone."""


async def work() -> None:
    """Do a singleton's work."""
    await anyio.sleep_forever()


async def fail() -> None:
    """Have a slip."""
    raise RuntimeError("a slip")


async def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--group")
    parser.add_argument("--metrics-port", type=int)
    given, _ = parser.parse_known_args()
    configure("json")
    await SqliteStore("leases.db").create()
    host = ProcessorHost(
        group=given.group,
        source="local:s.db",
        store="sqlite:leases.db",
        processor=handle,
        settings=HostSettings(host_id="led", metrics_port=given.metrics_port),
        singletons={"works": work, "fails": fail},
        on_event=EventLog(group=given.group, host_id="led").on_event,
    )
    await host.run()


if __name__ == "__main__":
    anyio.run(main)
