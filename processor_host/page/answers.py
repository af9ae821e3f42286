"""
What the HTTP server answers for the status page: the page, its script and style, and `/status.json`.

Knows no store and no host; the watch knows the group. Only GET and HEAD: nothing here changes anything.

One picture for all viewers: it is made at most every `FRESH_S`, on a thread, whoever asks; so viewers cost this process
little and the store nothing. Names that others have chosen reach the browser as JSON alone, and the script puts them
into the page as text. Should that ever fail, the policy in the headers lets no script run that is not this file.
"""

from __future__ import annotations

import gzip
import ipaddress
import json
import socket
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from processor_host.page.picture import Material, picture_of
from processor_host.page.watch import GroupWatch

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["FRESH_S", "StatusPage", "page_url"]

FRESH_S: Final = 0.5
"""For how long one picture serves everybody who asks."""

FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}

HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """One picture, encoded."""

    at_s: float
    text: bytes
    packed: bytes
    """The same, compressed."""


class StatusPage:
    """
    Answers for the status page of one host.

    Args:
        watch: What it shows.
        host: The address that the server listens on. Where it is one of this machine alone, requests under another
            machine's name are refused: a foreign page whose name was made to mean 127.0.0.1 must not read this one.
    """

    def __init__(self, watch: GroupWatch, host: str) -> None:
        self.watch = watch
        self._is_local = _is_loopback(host)
        self._made: _Made | None = None
        self._making = anyio.Lock()
        self._files: dict[str, bytes] = {}

    def add_to(self, app: web.Application) -> None:
        """Add the routes. Every method but GET and HEAD is answered by 405."""
        folder = files("processor_host.page")
        self._files = {path: folder.joinpath(name).read_bytes() for path, (name, _) in FILES.items()}
        for path in FILES:
            app.router.add_get(path, self._file)
        app.router.add_get("/status.json", self._status)

    async def picture(self) -> _Made:
        """Return the picture of this moment, or the one that another viewer was given a moment ago."""
        async with self._making:
            made = self._made
            if made is None or self.watch.now_s - made.at_s >= FRESH_S:
                # Thousands of rows take long enough to delay a beat.
                made = await anyio.to_thread.run_sync(_encoded, self.watch.material())
                self._made = made
            return made

    async def _file(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if refused := self._refused(request):
            return refused
        kind = FILES[request.path][1]
        return web.Response(body=self._files[request.path], content_type=kind, charset="utf-8", headers=HEADERS)

    async def _status(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if refused := self._refused(request):
            return refused
        made = await self.picture()
        headers = {**HEADERS, "Vary": "Accept-Encoding"}
        is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(
            body=made.packed if is_packed else made.text,
            content_type="application/json",
            charset="utf-8",
            headers=headers,
        )

    def _refused(self, request: web.Request) -> web.Response | None:
        from aiohttp import web

        if not self._is_local or _is_loopback(_host_of(request.host)):
            return None
        text = "this port is for this machine alone: open it as http://127.0.0.1 or localhost, or set --metrics-host\n"
        return web.Response(status=421, text=text, headers=HEADERS)


def _encoded(material: Material) -> _Made:
    text = json.dumps(_finite(picture_of(material).as_json()), ensure_ascii=True, separators=(",", ":")).encode()
    return _Made(at_s=material.now_s, text=text, packed=gzip.compress(text, 3, mtime=0))


def _finite(value: Any) -> Any:
    """The same without infinities, which a browser's JSON does not know."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return None
    return value


def _host_of(header: str) -> str:
    """The host of a `Host` header, without its port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def page_url(host: str, port: int) -> str:
    """Return the address of the page for people; a server that listens on every address has this machine's name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}/"
    if address.is_unspecified:
        return f"http://{socket.gethostname()}:{port}/"
    return f"http://[{host}]:{port}/" if address.version == 6 else f"http://{host}:{port}/"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
