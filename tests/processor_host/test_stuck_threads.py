"""A processor that hangs in a worker thread: named wherever somebody may look, and paused. In real time."""

from __future__ import annotations

import json
import threading
import time

import aiohttp
import anyio

from partitions.events import Event
from partitions.rules import PAUSE_REASON
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from processor_host import HostSettings, PartitionProcessor, ProcessorHost
from processor_host.events import HttpStarted, PartitionStuck
from processor_host.threads import SyncBatch

__all__: list[str] = []

LIMIT_S = 0.4


async def test_thread_that_hangs_is_named_everywhere_and_paused_and_keeps_its_lease_until_it_ends() -> None:
    """Nothing can cancel a thread: the host goes on, says so, and frees the lease only once the thread is over."""
    back = threading.Event()
    stuck = anyio.Event()
    events: list[Event] = []

    class Threaded(PartitionProcessor):
        def process(self, batch: SyncBatch) -> None:  # type: ignore[override]
            if batch.partition == "p1":
                back.wait()

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, PartitionStuck):
            stuck.set()

    source, store = MemorySource(time.monotonic, partitions=3), MemoryStore()
    source.put("p1", b"x")
    host = ProcessorHost(
        group="g",
        source=source,
        store=store,
        processor=Threaded,
        settings=HostSettings(
            host_id="a", lease_duration_s=6, stall_limit_s=LIMIT_S, pause_stuck=True, drain_timeout_s=1, metrics_port=0
        ),
        on_event=on_event,
    )

    def lease() -> tuple[bool, bool]:
        """Whether "p1" is paused, and whether it is owned."""
        item = store.lease_now("g", "p1")
        assert item is not None
        return item.paused, item.owner is not None

    async with host:
        try:
            with anyio.fail_after(20):
                await stuck.wait()
                (started,) = [event for event in events if isinstance(event, HttpStarted)]
                url = f"http://127.0.0.1:{started.port}"
                async with aiohttp.ClientSession() as client:
                    async with client.get(f"{url}/healthz?verbose") as answer:
                        health = (answer.status, await answer.json())
                    async with client.get(f"{url}/metrics") as answer:
                        metrics = await answer.text()
                    async with client.get(f"{url}/status.json") as answer:
                        shown = json.loads(await answer.text())
                while lease() != (True, True):
                    await anyio.sleep(0.02)
                # Beyond the drain time-out, when it was cancelled in vain.
                asked_s = time.monotonic()
                while time.monotonic() < asked_s + 1.5:
                    assert lease() == (True, True)
                    await anyio.sleep(0.02)
                back.set()
                while lease() != (True, False):
                    await anyio.sleep(0.02)
        finally:
            # Also where something above failed: the host waits for its threads.
            back.set()

    (named,) = health[1]["without_progress"]
    assert (health[0], named["partition"], named["stage"], named["failed_in"]) == (200, "p1", "process", None)
    (line,) = [
        line
        for line in metrics.splitlines()
        if line.startswith("processor_host_partition_stuck_seconds{") and "p1" in line
    ]
    assert float(line.split()[-1]) >= LIMIT_S
    stalled = {row["partition"]: row["stalled_s"] is not None for row in shown["partitions"]}
    assert (stalled, shown["counts"]["stalled"]) == ({"p0": False, "p1": True, "p2": False}, 1)
    item = store.lease_now("g", "p1")
    assert item is not None
    assert str(item.extra[PAUSE_REASON]).startswith("stuck: nothing was done for ")
