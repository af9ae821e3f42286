"""The status page with names that somebody chose to do harm, and for those who have no mouse or do not see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from partitions.events import LeaseAcquired, SessionBegan
from partitions.items import LeaseItem, SessionItem
from partitions.rules import PAUSE_REASON
from processor_host.events import LagSeen
from processor_host.http import Health, MetricsServer
from processor_host.page import STATUS_URL, GroupWatch, StatusPage
from processor_host.stuck import Stuck
from tests.builders import a_lease, a_session
from tests.page.browser import Browser, chromium
from tests.stage import HandClock

__all__: list[str] = []

pytestmark = pytest.mark.servers

HARM = (
    '<img src=x onerror="window.harmed=1">',
    "</script><script>window.harmed=1</script>",
    '"><svg onload="window.harmed=1">',
    "' onmouseover='window.harmed=1",
    "${window.harmed=1}",
    "javascript:window.harmed=1",
    "\u202egnirts\u0000\u2028",
    "__proto__",
    "constructor",
    "x" * 700,
)


class Stage:
    """A page of host `a` on loopback, whose group the test makes up."""

    def __init__(self) -> None:
        self.clock = HandClock(0.0)
        self.stuck = Stuck(host_id="a", clock=self.clock)
        self.watch = GroupWatch(group="g", source="local:s.db", host_id="a", clock=self.clock.now_s, stuck=self.stuck)

    @asynccontextmanager
    async def shown(self, width: int = 1280, height: int = 900) -> AsyncIterator[Browser]:
        page = StatusPage(self.watch, "127.0.0.1")
        health = Health(healthy=True, ready=True)
        async with (
            MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: health, page) as server,
            chromium() as browser,
        ):
            await browser.show(f"http://127.0.0.1:{server.port}/", width=width, height=height)
            await browser.until("Number(document.documentElement.dataset.pictures || 0)", lambda count: count > 0)
            yield browser

    def look(self, leases: list[LeaseItem], *sessions: SessionItem) -> None:
        """What the host reads, half a second and more later."""
        self.clock.at_s += 1.0
        self.watch.look(leases, sessions)


async def drawn(page: Browser) -> None:
    """Wait for a picture that was asked for after this call."""
    count = "Number(document.documentElement.dataset.pictures || 0)"
    now = await page.ask(count)
    await page.until(count, lambda value: value > now + 1)


async def test_names_that_are_markup_or_code_are_shown_as_text_and_run_nothing() -> None:
    """Host ids, partition ids and reasons come from whoever may write to the store or to the stream's set-up."""
    stage = Stage()
    hosts = [
        a_session(f"{name}:1", host_id=name, extra={STATUS_URL: f"http://b.example/{name}", "x": name}) for name in HARM
    ]
    leases = [
        a_lease(name, owner=f"{name}:1", token=1, last_host=name, paused=True, extra={PAUSE_REASON: name})
        for name in HARM
    ]
    stage.look([], *hosts)
    stage.look(leases, *hosts)
    async with stage.shown(width=390, height=844) as page:
        names = sorted(HARM)
        lanes = "[...document.querySelectorAll('#hosts h3')].map((node) => node.textContent).sort()"
        rows = "[...document.querySelectorAll('#rows th')].map((node) => node.textContent).sort()"
        changes = "[...document.querySelectorAll('#changes strong')].map((node) => node.textContent).sort()"
        assert [sorted(await page.ask(each)) for each in (lanes, rows, changes)] == [names, names, names]
        made = (
            "[...document.querySelectorAll('img, svg, iframe, script, object, embed, style')].map((n) => n.outerHTML)"
        )
        assert await page.ask(made) == ['<script src="page.js" defer=""></script>']
        # Not with a mouse over everything either.
        await page.ask(
            "document.querySelectorAll('*').forEach((node) => node.dispatchEvent(new MouseEvent('mouseover')))"
        )
        await drawn(page)
        assert await page.ask("typeof window.harmed") == "undefined"
        links = "[...document.querySelectorAll('.lane a')].every((link) => link.protocol === 'http:')"
        assert await page.ask(links) is True
        assert await page.ask("document.documentElement.scrollWidth") == 390
        await page.keep_screenshot("status-page-hostile-names")
        assert page.told == []


async def test_policy_stops_markup_that_got_into_the_page_all_the_same() -> None:
    """The second line: with it, a slip in the script is ugly and not dangerous."""
    async with Stage().shown() as page:
        slip = """
            (() => { try { document.body.innerHTML = '<img src=x onerror="window.harmed=1">'; return "put in"; }
                     catch (error) { return error.name; } })()
        """
        inline = """
            (() => { const script = document.createElement("script"); const node = document.createTextNode("harmed=1");
                     script.append(node); document.body.append(script); return typeof window.harmed; })()
        """
        assert await page.ask(slip) == "TypeError"
        assert await page.ask(inline) == "undefined"
        assert await page.ask("fetch('http://127.0.0.1:1/').then(() => 'sent', (error) => 'blocked')") == "blocked"


async def test_page_can_be_used_with_the_keyboard_alone() -> None:
    """Tab goes from the top to the end through what can be used, and an update takes the focus from nobody."""
    stage = Stage()
    sessions = [a_session("a:1"), a_session("b:1", extra={STATUS_URL: "http://b.example/"})]
    stage.look([a_lease("p-0", owner="a:1", token=1), a_lease("p-1", owner="b:1", token=1)], *sessions)
    stage.look([a_lease("p-0", owner="b:1", token=2), a_lease("p-1", owner="b:1", token=1)], *sessions)
    active = "(document.activeElement.id || document.activeElement.className || document.activeElement.href)"
    visible = "[...document.querySelectorAll('#rows > tr:not([hidden])')].map((row) => row.dataset.partition)"
    async with stage.shown() as page:
        order = []
        for _ in range(5):
            await page.press("Tab", 9)
            order.append(await page.ask(active))
        assert order == ["skip", "pause", "http://b.example/", "changes", "find"]

        await page.send("Input.insertText", text="p-1")
        await drawn(page)
        assert (await page.ask(active), await page.ask(visible)) == ("find", ["p-1"])

        await page.ask("document.getElementById('pause').focus()")
        await page.press("Enter", 13, "\r")
        assert await page.ask("document.getElementById('pause').getAttribute('aria-pressed')") == "true"


async def test_page_is_understood_without_being_seen() -> None:
    """A screen reader gets a table with headers, named lists, and what is new as sentences, once each."""
    stage = Stage()
    stage.look([a_lease("p-0", token=0)], a_session("a:1"), a_session("b:1"))
    stage.look([a_lease("p-0", owner="a:1", token=1)], a_session("a:1"), a_session("b:1"))
    news = "document.getElementById('news').textContent"
    async with stage.shown() as page:
        roles = await page.roles()
        assert roles["table"] == ["Partitions"]
        assert [name.split()[0] for name in roles["columnheader"]] == ["Partition", "State", "Owner", "Lag", "Token"]
        assert roles["rowheader"] == ["p-0"]
        assert {"Partitions of a", "Partitions of b", "Last changes of ownership"} <= {*roles["list"]} | {
            *roles.get("group", [])
        }
        assert (await page.ask(news), await page.ask("document.getElementById('news').getAttribute('aria-live')")) == (
            "",
            "polite",
        )

        stage.look([a_lease("p-0", owner="b:1", token=2)], a_session("b:1"))
        said = await page.until(news, bool)
        assert said == "Host a is gone. Partition p-0: a to b."


async def test_stalled_partition_is_marked_with_words() -> None:
    """Colour alone says nothing to many readers."""
    stage = Stage()
    stage.watch.on_event(SessionBegan(session_id="a:1"))
    stage.stuck.on_event(
        LeaseAcquired(partition="p-0", token=1, reason="free", previous_owner=None, position="1", duration_s=0.1)
    )
    stage.stuck.on_event(LagSeen(partition="p-0", lag_s=30.0, records=1))
    stage.clock.at_s = 79.0
    leases = [a_lease("p-0", owner="a:1", token=1)]
    leases += [a_lease(f"p-{n}", owner=f"{'abc'[n % 3]}:1", token=2) for n in range(1, 24)]
    leases += [a_lease("p-24", token=1, last_host="b"), a_lease("p-25", paused=True, token=1)]
    b = a_session("b:1", extra={STATUS_URL: "http://b.example/"})
    stage.look(leases, a_session("a:1", asks={"p-3@2": "d:1"}), b, a_session("c:1", draining=True))
    stage.clock.at_s = 89.0
    stage.look(leases, a_session("a:1", beat=1, asks={"p-3@2": "d:1"}), b, a_session("d:1"))
    async with stage.shown() as page:
        state = "document.querySelector('#rows tr').cells[1].innerText.split('\\n')"
        bar = "document.querySelector('#rows .fill').style.width"
        assert await page.ask(state) == ["owned", "stalled for 90 s"]
        assert await page.ask(bar) == "100%"
        assert "stalled" in await page.ask("document.querySelector('.chip').textContent")
        # The lag of another host's partition is on that host's page, of a free one nowhere.
        lags = "[...document.querySelectorAll('#rows tr')].map((row) => row.querySelector('.amount').innerText)"
        assert (await page.ask(lags))[:3] + (await page.ask(lags))[-2:] == ["30 s", "see b", "–", "–", "–"]
        link = "document.querySelector('#rows tr[data-partition=\"p-1\"] .amount a')"
        assert await page.ask(f"[{link}.href, {link}.rel]") == ["http://b.example/", "noopener noreferrer"]
        assert await page.ask(f"{link}.getAttribute('aria-label')") == "Lag of p-1: on the page of b"
        facts = "[...document.querySelectorAll('.lane .facts')].map((node) => node.textContent)"
        assert await page.ask(facts) == [
            "8 partitions · this host · 1 asked for",
            "8 partitions · silent for 10 s",
            "0 partitions",
            "10 partitions",
        ]
        assert "p-3 → d" in await page.ask("[...document.querySelectorAll('.chip')].map((node) => node.textContent)")
        for width, scheme in ((1280, "light"), (390, "light"), (1280, "dark")):
            await page.resize(width, 900, scheme)
            await page.keep_screenshot(f"status-page-busy-{width}-{scheme}")


async def test_page_says_so_when_its_host_does_not_answer() -> None:
    """A picture that stands still must not look like a group at rest."""
    stage = Stage()
    stage.look([a_lease("p-0", owner="a:1", token=1)], a_session("a:1"))
    page_of = StatusPage(stage.watch, "127.0.0.1")
    health = Health(healthy=True, ready=True)
    trouble = "document.getElementById('trouble').hidden ? '' : document.getElementById('trouble').textContent"
    async with chromium() as page:
        async with MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: health, page_of) as server:
            await page.show(f"http://127.0.0.1:{server.port}/")
            await page.until("document.querySelectorAll('#rows tr').length", lambda count: count == 1)
            assert await page.ask(trouble) == ""
        said = await page.until(trouble, bool)
        assert said.startswith("This host does not answer. What you see is from ")
        assert await page.ask("document.querySelectorAll('#rows tr').length") == 1
