"""
Headless Chromium, driven through its DevTools protocol: open a page, ask its DOM, press keys, keep a screenshot.

Knows nothing of the product. The browser is a process of its own with a fresh profile, and is gone afterwards; every
wait is bounded. Debian's package is enough; where it is missing the test fails and says what to install.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest

__all__ = ["ARTEFACTS", "Browser", "chromium"]

ARTEFACTS = Path(__file__).parents[2] / ".artefacts"
"""Where screenshots are kept; git ignores it."""

MISSING = "chromium was not found: install it (Debian: apt-get install chromium)"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--remote-debugging-port=0", "--remote-debugging-address=127.0.0.1", "--mute-audio", "--lang=en"),
)
START_S = 60.0
END_S = 10.0
ANSWER_S = 30.0
POLL_S = 0.05


class Browser:
    """
    One tab.

    Attributes:
        told: What the page's console said, what it raised, and what its policy blocked.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.told: list[str] = []
        self._socket = socket
        self._last = 0
        self._is_loaded = False

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give one command of the protocol and return its result."""
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        with anyio.fail_after(ANSWER_S):
            while True:
                message = await self._message()
                if message.get("id") == self._last:
                    assert "error" not in message, message["error"]
                    result: dict[str, Any] = message["result"]
                    return result

    async def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads((await self._socket.receive()).data)
        match message.get("method"):
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.told.append(json.dumps(message["params"]))
            case "Page.loadEventFired":
                self._is_loaded = True
        return message

    async def show(self, url: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Open a page in a window of this size, and wait until it is loaded; `scheme` is "light" or "dark"."""
        for domain in ("Runtime", "Log", "Page", "Accessibility"):
            await self.send(f"{domain}.enable")
        await self.resize(width, height, scheme)
        self._is_loaded = False
        await self.send("Page.navigate", url=url)
        with anyio.fail_after(ANSWER_S):
            while not self._is_loaded:
                await self._message()

    async def resize(self, width: int, height: int, scheme: str = "light") -> None:
        """Change the size of the window, and what the reader prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, holds: Callable[[Any], bool], within_s: float = 20.0) -> Any:
        """Poll an expression until its value will do, and return it; fail after `within_s` with the last value."""
        until_s = time.monotonic() + within_s
        while True:
            value = await self.ask(expression)
            if holds(value):
                return value
            if time.monotonic() >= until_s:
                raise AssertionError(f"not within {within_s} s: {expression}\nlast: {value!r}\ntold: {self.told}")
            await anyio.sleep(POLL_S)

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        values = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **values, **({"text": text} if text else {}))
        await self.send("Input.dispatchKeyEvent", type="keyUp", **values)

    async def roles(self) -> dict[str, list[str]]:
        """Return the names by role, as somebody hears them who does not see the page."""
        found: dict[str, list[str]] = {}
        for node in (await self.send("Accessibility.getFullAXTree"))["nodes"]:
            if not node["ignored"]:
                found.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
        return found

    async def keep_screenshot(self, name: str) -> Path:
        """Keep what the whole page looks like, as an artefact."""
        ARTEFACTS.mkdir(exist_ok=True)
        answer = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file = ARTEFACTS / f"{name}.png"
        file.write_bytes(base64.b64decode(answer["data"]))
        return file


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser with one empty tab; its processes are gone afterwards."""
    with _running() as port_file:
        port = await anyio.to_thread.run_sync(_port, port_file)
        async with aiohttp.ClientSession() as client:
            async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (tab,) = [each for each in await answer.json() if each["type"] == "page"]
            async with client.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Browser(socket)


@contextmanager
def _running() -> Iterator[Path]:
    """Run the browser in a folder of its own; yield the file that will name its port."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail(MISSING, pytrace=False)
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        with Path(folder, "log").open("wb") as log:
            # A process group of its own, because a browser is many processes.
            process = subprocess.Popen(
                [program, *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield Path(folder, "profile", "DevToolsActivePort")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_S)


def _port(file: Path) -> int:
    """Wait for the port; it is the first line, which is whole once there is a second one."""
    until_s = time.monotonic() + START_S
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        if time.monotonic() >= until_s:
            log = (file.parents[1] / "log").read_text(errors="replace")
            raise AssertionError(f"chromium has not answered within {START_S} s; its log:\n{log[-3000:]}")
        time.sleep(POLL_S)
