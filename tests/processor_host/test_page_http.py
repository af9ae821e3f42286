"""The status page over HTTP: what is answered, to whom, and how little it costs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest
from prometheus_client import CollectorRegistry

from partitions.events import LeaseAcquired
from processor_host.events import LagSeen, PumpStarted
from processor_host.http import Health, MetricsServer
from processor_host.page import GroupWatch, StatusPage
from processor_host.page.answers import FRESH_S
from processor_host.page.picture import Material
from processor_host.stuck import Stuck
from tests.builders import a_lease, a_session
from tests.stage import HandClock

__all__: list[str] = []

HOSTILE = '</script><img src=x onerror="alert(1)">\u2028\u202e'


class CountingWatch(GroupWatch):
    """A watch that counts for how many pictures it was asked."""

    def __init__(self) -> None:
        self.clock = HandClock(0.0)
        self.pictures = 0
        self.stuck = Stuck(host_id="a", clock=self.clock)
        super().__init__(group="g", source="local:s.db", host_id="a", clock=self.clock.now_s, stuck=self.stuck)

    def material(self) -> Material:
        self.pictures += 1
        return super().material()


@asynccontextmanager
async def served(watch: GroupWatch | None = None, listens: str = "127.0.0.1") -> AsyncIterator[str]:
    """The address of a server with the page, that runs meanwhile."""
    page = StatusPage(watch or CountingWatch(), listens)
    health = Health(healthy=True, ready=True, detail={})
    async with MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: health, page) as server:
        yield f"http://127.0.0.1:{server.port}"


async def asked(url: str, method: str = "GET", **headers: str) -> tuple[int, str, aiohttp.ClientResponse]:
    async with aiohttp.ClientSession() as client, client.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text(), answer


@pytest.mark.parametrize(
    ("path", "kind", "begins"),
    [
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
        ("/page.js", "text/javascript; charset=utf-8", "//"),
        ("/page.css", "text/css; charset=utf-8", "/*"),
        ("/status.json", "application/json; charset=utf-8", "{"),
    ],
)
async def test_page_and_its_files_are_served_under_a_policy_that_runs_nothing_else(
    path: str, kind: str, begins: str
) -> None:
    """Should a name ever get into the page as markup, the browser still runs no script of it and asks nobody else."""
    async with served() as address:
        status, text, answer = await asked(address + path)

    policy = {part.split()[0]: part.split()[1:] for part in answer.headers["Content-Security-Policy"].split(";")}
    assert (status, answer.headers["Content-Type"], text.startswith(begins)) == (200, kind, True)
    assert policy == {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "connect-src": ["'self'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
        "require-trusted-types-for": ["'script'"],
    }
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/status.json", "/metrics", "/healthz", "/readyz"])
async def test_only_get_and_head_are_answered(path: str) -> None:
    """The page shows and does nothing: what changes a group are commands, under the store's own permissions."""
    async with served() as address:
        found = {
            method: (await asked(address + path, method))[0]
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        }

    assert found == {"GET": 200, "HEAD": 200} | dict.fromkeys(["POST", "PUT", "PATCH", "DELETE", "OPTIONS"], 405)


async def test_one_picture_serves_all_who_ask_within_a_moment() -> None:
    """Ten browsers must cost a host no more than one, and the store nothing at all."""
    watch = CountingWatch()
    texts: set[str] = set()

    async def view(address: str) -> None:
        texts.add((await asked(f"{address}/status.json"))[1])

    async with served(watch) as address:
        async with anyio.create_task_group() as tasks:
            for n in range(10):
                tasks.start_soon(view, address, name=f"view {n}")
        first = watch.pictures
        watch.clock.at_s = FRESH_S
        await view(address)

    assert (first, watch.pictures, len(texts)) == (1, 2, 1)


async def test_names_are_plain_ascii_in_the_json() -> None:
    """No text of somebody else can end a script or turn the direction of a line, whoever embeds this."""
    watch = CountingWatch()
    watch.look([a_lease(HOSTILE, owner="b:1", token=1)], [a_session("b:1", host_id=HOSTILE)])

    async with served(watch) as address:
        _, text, _ = await asked(f"{address}/status.json")

    assert text.isascii()
    assert [row["partition"] for row in json.loads(text)["partitions"]] == [HOSTILE]
    assert [row["host_id"] for row in json.loads(text)["hosts"]] == [HOSTILE]


async def test_figures_that_json_does_not_know_are_null() -> None:
    """Python writes `Infinity`, and a browser that meets it shows nothing any more."""
    watch = CountingWatch()
    watch.look([a_lease("p-0", owner="b:1", token=1)], [a_session("b:1", load=float("nan"))])

    async with served(watch) as address:
        _, text, _ = await asked(f"{address}/status.json")

    assert "NaN" not in text
    assert json.loads(text)["hosts"][0]["load"] is None


@pytest.mark.parametrize(
    ("listens", "name", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:9400", 200),
        ("127.0.0.1", "localhost:9400", 200),
        ("::1", "[::1]:9400", 200),
        ("127.0.0.1", "evil.example:9400", 421),
        ("127.0.0.1", "localhost.evil.example", 421),
        ("0.0.0.0", "metrics.example:9400", 200),
    ],
)
async def test_port_of_this_machine_answers_under_its_own_names_only(listens: str, name: str, expected: int) -> None:
    """A foreign page whose name was made to mean 127.0.0.1 is of the same origin for the browser, and could read it."""
    async with served(listens=listens) as address:
        found = {path: (await asked(address + path, Host=name))[0] for path in ("/", "/status.json")}

    assert found == {"/": expected, "/status.json": expected}


async def test_verbose_health_names_partitions_without_progress_and_stays_healthy() -> None:
    """A restart mends no record that cannot be handled, so the status stays 200; a person wants the name."""
    watch = CountingWatch()
    watch.stuck.on_event(
        LeaseAcquired(partition="p-0", token=1, reason="free", previous_owner=None, position="1", duration_s=0.1)
    )
    watch.stuck.on_event(PumpStarted(partition="p-0", token=1, position="1", since_acquired_s=0.1))
    watch.stuck.on_event(LagSeen(partition="p-0", lag_s=2.0, records=1))
    watch.clock.at_s = 61.0

    async with served(watch) as address:
        plain = await asked(f"{address}/healthz")
        verbose = await asked(f"{address}/healthz?verbose")

    assert (plain[0], json.loads(plain[1])) == (200, {"healthy": True, "ready": True})
    assert (verbose[0], json.loads(verbose[1])) == (
        200,
        {
            "healthy": True,
            "ready": True,
            "without_progress": [
                {"partition": "p-0", "stalled_s": 61.0, "lag_s": 2.0, "stage": "process", "failed_in": None}
            ],
        },
    )
