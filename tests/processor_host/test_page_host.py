"""The status page of a host in this process: what it shows comes from the host, and costs the store nothing."""

from __future__ import annotations

import json
import time

import aiohttp
import anyio

from partitions.events import Event
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from processor_host import Batch, HostSettings, ProcessorHost
from processor_host.events import GroupSeen, HttpStarted, StoreCalled

__all__: list[str] = []

VIEWERS = 10


async def test_ten_viewers_see_the_group_and_cost_the_store_nothing() -> None:
    """An incident brings everybody to the page, when the store may be what suffers."""
    events: list[Event] = []
    settled = anyio.Event()
    found: list[tuple[str, str, int]] = []

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, GroupSeen) and event.owned == 3:
            settled.set()

    async def handle(batch: Batch) -> None:
        """Nothing."""

    async def view(client: aiohttp.ClientSession, port: int) -> None:
        for path in ("", "status.json", "healthz?verbose"):
            async with client.get(f"http://127.0.0.1:{port}/{path}") as answer:
                text = await answer.text()
                if path == "status.json":
                    shown = json.loads(text)
                    found.append((shown["group"], shown["hosts"][0]["url"], shown["counts"]["owned"]))
                elif path == "healthz?verbose":
                    assert json.loads(text)["without_progress"] == []

    store = MemoryStore()
    host = ProcessorHost(
        group="g",
        source=MemorySource(time.monotonic, partitions=3),
        store=store,
        processor=handle,
        # Beats and looks lie so far apart that none falls among the views.
        settings=HostSettings(host_id="a", lease_duration_s=600, drain_timeout_s=100, metrics_port=0),
        on_event=on_event,
    )
    async with host:
        with anyio.fail_after(10):
            await settled.wait()
        (started,) = [event for event in events if isinstance(event, HttpStarted)]
        before = len([event for event in events if isinstance(event, StoreCalled)])
        async with aiohttp.ClientSession() as client, anyio.create_task_group() as tasks:
            for n in range(VIEWERS):
                tasks.start_soon(view, client, started.port, name=f"view {n}")
        after = len([event for event in events if isinstance(event, StoreCalled)])
        (session,) = store.sessions_now("g")

    url = f"http://127.0.0.1:{started.port}/"
    assert found == [("g", url, 3)] * VIEWERS
    assert (before > 0, after - before) == (True, 0)
    assert dict(session.extra) == {"status_url": url}
