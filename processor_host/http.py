"""
The HTTP server of a host: `/metrics`, `/healthz` and `/readyz`, and the status page at `/`.

Knows no host: it is given a registry, a function that says how the host is, and the page. It only shows: every method
but GET and HEAD is answered by 405. It runs on the host's own event loop, so that a loop which is blocked answers no
health check. aiohttp is loaded only when a server starts.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from processor_host.errors import UserError
from processor_host.page import StatusPage

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Health", "MetricsServer"]

ANSWERS_END_S: Final = 0.25
"""How long a stop waits for answers that are on their way; a scraper asks again."""

STOP_S: Final = 0.75
"""How long a stop may take in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a host is."""

    healthy: bool
    """Its loops go round. Whether it holds leases does not enter: an idle host is a healthy one."""
    ready: bool
    """It has found its place in the group, and is not about to leave it."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """More for people, as JSON can hold it."""


class MetricsServer:
    """
    Serves the metrics and the health of one host.

    Args:
        host: The address to listen on.
        port: 0 lets the system pick one.
        registry: What `/metrics` shows.
        health: Asked at each health check; must not wait.
        page: Answers at `/`; without it there is no page, and `/healthz?verbose` says no more than `/healthz`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        health: Callable[[], Health],
        page: StatusPage | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._health = health
        self._page = page
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; the one that was asked for until it has started."""
        return self._port

    async def start(self) -> None:
        """
        Listen.

        Raises:
            UserError: the port is taken or may not be used, or the address is not one of this machine.
        """
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        if self._page is not None:
            self._page.add_to(app)
        # No log of requests: a scraper's every few seconds would be most of the log.
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=ANSWERS_END_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except (OSError, UnicodeError) as error:
            await runner.cleanup()
            raise UserError(_refusal(self._host, self._port, error)) from error
        self._runner = runner
        self._port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and close every connection, in less than a second; twice does nothing."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with anyio.move_on_after(STOP_S, shield=True):
                await runner.cleanup()

    async def __aenter__(self) -> MetricsServer:
        """Start; leaving the body stops."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # Thousands of series take long enough to delay a beat.
        body = await anyio.to_thread.run_sync(encode, self._registry, abandon_on_cancel=True)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _healthz(self, request: web.Request) -> web.Response:
        health = self._health()
        more: dict[str, Any] = {}
        if self._page is not None and "verbose" in request.query:
            # Told, and no more: a restart mends no record that cannot be handled.
            more["without_progress"] = self._page.watch.without_progress()
        return _answer(health.healthy, {"healthy": health.healthy, "ready": health.ready, **health.detail, **more})

    async def _readyz(self, request: web.Request) -> web.Response:
        health = self._health()
        return _answer(health.ready, {"healthy": health.healthy, "ready": health.ready, **health.detail})


def _answer(good: bool, content: Mapping[str, Any]) -> web.Response:
    from aiohttp import web

    return web.json_response(content, status=200 if good else 503)


def _refusal(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Say which port or address, why not, and what to use instead."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror):
        if error.errno == errno.EADDRINUSE:
            return (
                f"metrics_port={port} of {host} is taken; use another --metrics-port, or 0 to let the system pick one"
            )
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"metrics_port={port} may not be used by this user; use a --metrics-port from 1024 on"
        if error.errno == errno.EADDRNOTAVAIL:
            return f"metrics_host={host!r} is no address of this machine; use 127.0.0.1, or 0.0.0.0 for every address"
        return f"metrics_port={port} of {host} cannot be used: {os.strerror(error.errno or 0)}"
    return f"metrics_host={host!r} is not an address or known name; use 127.0.0.1, or 0.0.0.0 for every address"
