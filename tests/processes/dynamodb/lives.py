"""
Credentials with a short life: STS as hosts reach it, which gives out keys for so many seconds and notes them.

Stands between hosts and the STS behind a proxy, so that the proxy's rules can make a refresh fail. It adds the one
parameter that the SDK's provider for web identities never sends, how long the credentials live, and passes the rest on.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from tests import aws_calls
from tests.proxy import Call

__all__ = ["ShortLives", "short_lives"]

HOST = "127.0.0.1"
GIVEN = re.compile(r"<AccessKeyId>([^<]+)</AccessKeyId>")
ROLE = "arn:aws:iam::123456789012:role/hosts"


class ShortLives:
    """
    What was given out.

    Attributes:
        url: What a client takes as the endpoint of STS.
    """

    def __init__(self, upstream_url: str, life_s: float) -> None:
        self.url = ""
        self._upstream_url = upstream_url
        self._life_s = life_s
        # Written on the loop's thread and read on the proxy's: each entry is set once.
        self._until_s: dict[str, float] = {}

    @property
    def given(self) -> int:
        """How many credentials were given out."""
        return len(self._until_s)

    @property
    def last_until_s(self) -> float:
        """When the last of them ends, on this process's monotonic clock."""
        return max(self._until_s.values())

    def is_expired(self, call: Call) -> bool:
        """Say whether a call was signed with a key that has had its life, or that was never given out."""
        is_signed = bool(call.access_key)
        return is_signed and time.monotonic() >= self._until_s.get(call.access_key, 0.0)

    def environment(self, folder: Path) -> dict[str, str]:
        """Return what makes the SDK of a host ask here, with a token from a file, as in a cluster."""
        token = folder / "token"
        token.write_text("who-i-am")
        return {
            "AWS_ENDPOINT_URL_STS": self.url,
            "AWS_ROLE_ARN": ROLE,
            "AWS_ROLE_SESSION_NAME": "host",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            # Static ones would come first; empty ones are none.
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
            # Asking for credentials is unsigned and the SDK's own affair: no policy of a host grants it.
            aws_calls.FOLDER: "",
        }

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen for the length of the block."""
        async with aiohttp.ClientSession() as client:

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                body = await request.read() + f"&DurationSeconds={self._life_s:.0f}".encode()
                asked_s = time.monotonic()
                content_type = {"Content-Type": request.headers["Content-Type"]}
                async with client.post(self._upstream_url, data=body, headers=content_type) as answer:
                    text = await answer.text()
                for key in GIVEN.findall(text):
                    self._until_s[key] = asked_s + self._life_s
                return web.Response(status=answer.status, text=text, content_type=answer.content_type)

            runner = web.ServerRunner(web.Server(handle, access_log=None))
            await runner.setup()
            site = web.TCPSite(runner, HOST, 0)
            await site.start()
            self.url = f"http://{HOST}:{runner.addresses[0][1]}"
            try:
                yield
            finally:
                await runner.cleanup()


@contextmanager
def short_lives(upstream_url: str, life_s: float) -> Iterator[ShortLives]:
    """Give out credentials for the length of the block, on a thread of its own."""
    made = ShortLives(upstream_url, life_s)
    with start_blocking_portal(name="short lives") as portal, portal.wrap_async_context_manager(made.serve()):
        yield made
