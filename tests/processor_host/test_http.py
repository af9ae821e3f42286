"""
The HTTP server: what it answers, that a taken port is named, and that it ends in time.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest
from prometheus_client import CollectorRegistry, Gauge

from processor_host.errors import UserError
from processor_host.http import Health, MetricsServer

__all__: list[str] = []

GOOD = Health(healthy=True, ready=True, detail={"held": 3})


@asynccontextmanager
async def served(
    health: Callable[[], Health] = lambda: GOOD, registry: CollectorRegistry | None = None
) -> AsyncIterator[str]:
    """The address of a server that runs meanwhile."""
    async with MetricsServer("127.0.0.1", 0, registry or CollectorRegistry(), health) as server:
        yield f"http://127.0.0.1:{server.port}"


async def get(url: str, **headers: str) -> tuple[int, str, str]:
    """The status, the content type and the text."""
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_metrics_are_served_in_the_format_of_prometheus() -> None:
    """Every scraper understands it."""
    registry = CollectorRegistry()
    Gauge("processor_host_leases_held", "Held.", ["partition"], registry=registry).labels("ñ-駅").set(1)

    async with served(registry=registry) as address:
        status, content_type, text = await get(f"{address}/metrics")

    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert 'processor_host_leases_held{partition="ñ-駅"} 1.0' in text.splitlines()


async def test_metrics_are_served_as_openmetrics_when_asked_for() -> None:
    """Prometheus itself asks for it first."""
    async with served() as address:
        status, content_type, text = await get(f"{address}/metrics", Accept="application/openmetrics-text")

    assert (status, content_type.split(";")[0], text) == (200, "application/openmetrics-text", "# EOF\n")


@pytest.mark.parametrize(
    ("health", "path", "expected"),
    [
        (GOOD, "/healthz", (200, {"healthy": True, "ready": True, "held": 3})),
        (GOOD, "/readyz", (200, {"healthy": True, "ready": True, "held": 3})),
        (Health(healthy=True, ready=False), "/healthz", (200, {"healthy": True, "ready": False})),
        (Health(healthy=True, ready=False), "/readyz", (503, {"healthy": True, "ready": False})),
        (Health(healthy=False, ready=True), "/healthz", (503, {"healthy": False, "ready": True})),
        (Health(healthy=False, ready=True), "/readyz", (200, {"healthy": False, "ready": True})),
    ],
)
async def test_health_and_readiness_are_told_by_the_status(
    health: Health, path: str, expected: tuple[int, dict[str, Any]]
) -> None:
    """A platform restarts what is not healthy and must not restart what is only not ready."""
    async with served(lambda: health) as address:
        status, _, text = await get(address + path)

    assert (status, json.loads(text)) == expected


async def test_unknown_path_is_not_found() -> None:
    """Nothing else is served from a process that holds leases."""
    async with served() as address:
        assert (await get(f"{address}/"))[0] == 404


async def test_port_zero_picks_a_port_and_tells_it() -> None:
    """Two hosts on one machine need no numbers from the user."""
    first = MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: GOOD)
    second = MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: GOOD)

    async with first, second:
        assert first.port > 0
        assert second.port > 0
        assert first.port != second.port


async def test_port_that_is_taken_is_refused_with_a_remedy_and_free_again_later() -> None:
    """It is the usual slip of who starts a second host."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = MetricsServer("127.0.0.1", port, CollectorRegistry(), lambda: GOOD)
        with pytest.raises(UserError) as caught:
            await server.start()
    await server.stop()

    assert str(caught.value) == (
        f"metrics_port={port} of 127.0.0.1 is taken; use another --metrics-port, or 0 to let the system pick one"
    )
    async with server:
        assert server.port == port


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        # An address of the range that is kept for documentation.
        (
            "192.0.2.1",
            "metrics_host='192.0.2.1' is no address of this machine; use 127.0.0.1, or 0.0.0.0 for every address",
        ),
        (
            "no such name",
            "metrics_host='no such name' is not an address or known name; use 127.0.0.1, or 0.0.0.0 for every address",
        ),
        (
            "a" * 64 + ".example",
            f"metrics_host='{'a' * 64}.example' is not an address or known name; use 127.0.0.1, "
            "or 0.0.0.0 for every address",
        ),
    ],
)
async def test_address_that_cannot_be_used_is_refused_with_a_remedy(host: str, expected: str) -> None:
    """The system's own words for it name neither the setting nor what to do."""
    with pytest.raises(UserError) as caught:
        await MetricsServer(host, 0, CollectorRegistry(), lambda: GOOD).start()

    assert str(caught.value) == expected


async def test_stop_takes_less_than_a_second_with_an_open_connection() -> None:
    """Scrapers keep their connections open, and a host that stops must be gone in time."""
    server = MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: GOOD)
    await server.start()
    async with (
        await anyio.connect_tcp("127.0.0.1", server.port) as kept,
        await anyio.connect_tcp("127.0.0.1", server.port) as half,
    ):
        await kept.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await kept.receive()).startswith(b"HTTP/1.1 200 OK\r\n")
        await half.send(b"GET /metrics HTTP/1.1\r\n")

        began_s = anyio.current_time()
        await server.stop()
        await server.stop()

        assert anyio.current_time() - began_s < 1.0
        with pytest.raises(anyio.EndOfStream):
            await kept.receive()


async def test_stop_takes_less_than_a_second_with_a_scrape_on_its_way() -> None:
    """A registry may hold the application's own slow collectors."""
    reached, go_on = anyio.Event(), threading.Event()

    class Slow:
        def collect(self) -> list[Any]:
            anyio.from_thread.run_sync(reached.set)
            go_on.wait(10)
            return []

    registry = CollectorRegistry()
    server = MetricsServer("127.0.0.1", 0, registry, lambda: GOOD)
    await server.start()
    registry.register(Slow())
    async with await anyio.connect_tcp("127.0.0.1", server.port) as scraper:
        await scraper.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        await reached.wait()

        began_s = anyio.current_time()
        await server.stop()
        took_s = anyio.current_time() - began_s
        go_on.set()

    assert took_s < 1.0
