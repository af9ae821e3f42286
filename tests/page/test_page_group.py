"""The status page of a group of three real hosts, in a real browser, before and after one of them is killed."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.page.browser import chromium
from tests.processes.harness import Group, Host

__all__: list[str] = []

pytestmark = pytest.mark.servers

PARTITIONS = 12

LANES = """
Object.fromEntries([...document.querySelectorAll("#hosts > .lane")].map((lane) => [
  lane.dataset.host || "nobody", [...lane.querySelectorAll(".chip")].map((chip) => chip.dataset.partition)]))
"""
TABLE = """
Object.fromEntries([...document.querySelectorAll("#rows > tr")].map((row) => [
  row.dataset.partition, [row.cells[1].textContent, row.cells[2].textContent, row.cells[4].textContent]]))
"""
CHANGES = """
[...document.querySelectorAll("#changes > li")].map((item) => [
  item.dataset.partition, item.children[1].textContent, Number(JSON.parse(item.dataset.key)[1])])
"""
COUNTS = """
Object.fromEntries([...document.querySelectorAll("#counts > div")].map((tile) => [
  tile.dataset.count, Number(tile.querySelector("dd").textContent)]))
"""
WITH_LAG = """
[...document.querySelectorAll("#rows > tr")].filter((row) => row.querySelector(".amount").textContent.endsWith(" s"))
  .map((row) => row.dataset.partition)
"""
WIDTH = "document.documentElement.scrollWidth"


def address(host: Host) -> str:
    (started,) = host.named("http.started")
    return f"http://{started['host']}:{started['port']}/"


def test_page_shows_who_owns_what_before_and_after_a_kill(group: Group) -> None:
    """Whoever watches an incident must see the truth of the store, without touching the page."""
    names = group.create(PARTITIONS)
    hosts = [group.start(name, "--metrics-port", "0") for name in "abc"]
    group.put(5)
    group.wait_balanced(hosts)
    anyio.run(watch, group, names, hosts)


async def watch(group: Group, names: list[str], hosts: list[Host]) -> None:
    def stored() -> dict[str, list[str]]:
        """Partition → state, owner and token, by the store."""
        return {name: ["owned", str(held.host), str(held.token)] for name, held in group.leases.held().items()}

    async with chromium() as page:
        await page.show(address(hosts[1]))
        before = await anyio.to_thread.run_sync(stored)
        assert await page.until(TABLE, lambda table: table == before) == before
        assert await page.ask(LANES) == lanes(before)
        assert await page.ask(COUNTS) == counts(hosts=3)
        own = [name for name in names if before[name][1] == "b"]
        assert await page.until(WITH_LAG, lambda found: found == own) == own
        urls = await page.ask("[...document.querySelectorAll('.lane a')].map((link) => link.href)")
        assert urls == [address(hosts[0]), address(hosts[2])]
        await page.keep_screenshot("status-page-before")

        await anyio.to_thread.run_sync(hosts[0].kill)
        await anyio.to_thread.run_sync(group.wait_balanced, hosts[1:])
        after = await anyio.to_thread.run_sync(stored)
        assert await page.until(TABLE, lambda table: table == after) == after
        assert await page.ask(LANES) == lanes(after)
        assert await page.ask(COUNTS) == counts(hosts=2)
        moved = {name: int(after[name][2]) for name in names if before[name][1] == "a"}
        changes = await page.ask(CHANGES)
        assert {(name, text) for name, text, token in changes if (name, token) in moved.items()} == {
            (name, f"a → {after[name][1]}") for name in moved
        }
        # What was said last to those who cannot see it.
        assert "Partition" in await page.ask("document.getElementById('news').textContent")
        await page.keep_screenshot("status-page-after")
        for scheme in ("light", "dark"):
            await page.resize(390, 844, scheme)
            assert await page.ask(WIDTH) == 390
            await page.keep_screenshot(f"status-page-phone-{scheme}")
        assert page.told == []


def lanes(table: dict[str, list[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, (_, owner, _) in sorted(table.items(), key=lambda item: int(item[0].removeprefix("p"))):
        found.setdefault(owner, []).append(name)
    return found


def counts(*, hosts: int) -> dict[str, Any]:
    return {"hosts": hosts, "owned": PARTITIONS} | dict.fromkeys(["asked", "free", "paused", "ended", "stalled"], 0)
