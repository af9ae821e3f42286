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
AGREES_S = 60.0
"""For the page to show what the store says, on a machine with much else to do."""

PICTURE = """
({
  lanes: Object.fromEntries([...document.querySelectorAll("#hosts > .lane")].map((lane) => [
    lane.dataset.host || "nobody", [...lane.querySelectorAll(".chip")].map((chip) => chip.dataset.partition)])),
  table: Object.fromEntries([...document.querySelectorAll("#rows > tr")].map((row) => [
    row.dataset.partition, [row.cells[1].textContent, row.cells[2].textContent, row.cells[4].textContent]])),
  counts: Object.fromEntries([...document.querySelectorAll("#counts > div")].map((tile) => [
    tile.dataset.count, Number(tile.querySelector("dd").textContent)])),
  withLag: [...document.querySelectorAll("#rows > tr")]
    .filter((row) => row.querySelector(".amount").textContent.endsWith(" s")).map((row) => row.dataset.partition),
})
"""
CHANGES = """
[...document.querySelectorAll("#changes > li")].map((item) => [
  item.dataset.partition, item.children[1].textContent, Number(JSON.parse(item.dataset.key)[1])])
"""
LISTEN = """
window.heard = [];
new MutationObserver(() => window.heard.push(document.getElementById("news").textContent))
  .observe(document.getElementById("news"), {childList: true, characterData: true, subtree: true});
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

    async def settled(of: list[Host]) -> dict[str, list[str]]:
        """Wait until the page shows what the store says, all of it in one picture, and return that."""
        await anyio.to_thread.run_sync(group.wait_balanced, of)
        table: dict[str, list[str]] = {}

        def is_true(shown: Any) -> bool:
            # A slow machine makes hosts miss beats, and then owners change; so the truth is read anew each time.
            table.clear()
            table.update(stored())
            own = [name for name in names if table[name][1] == "b"]
            true = {"lanes": lanes(table), "table": table, "counts": counts(hosts=len(of)), "withLag": own}
            return bool(shown == true)

        await page.until(PICTURE, is_true, within_s=AGREES_S)
        return table

    async with chromium() as page:
        await page.show(address(hosts[1]))
        before = await settled(hosts)
        urls = await page.ask("[...document.querySelectorAll('.lane a')].map((link) => link.href)")
        assert urls == [address(hosts[0]), address(hosts[2])]
        await page.ask(LISTEN)
        await page.keep_screenshot("status-page-before")

        await anyio.to_thread.run_sync(hosts[0].kill)
        after = await settled(hosts[1:])
        moved = {name: int(after[name][2]) for name in names if before[name][1] == "a"}
        assert moved
        changes = {(name, token): text for name, text, token in await page.ask(CHANGES)}
        for name, token in moved.items():
            # Those that moved once more since have another last owner.
            if token == int(before[name][2]) + 1:
                assert changes[name, token] == f"a → {after[name][1]}"
        # What was said to those who cannot see it.
        heard = " ".join(await page.ask("window.heard"))
        assert "Host a is gone." in heard
        assert "Partition" in heard
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
