"""
The clients of one store or source: each made once, with settings of its own, and closed once.

Knows no operation. The SDK's defaults do not fit leases: time-outs of a minute, up to ten hidden attempts, ten
connections for everything.

- **No hidden retries.** A repeated write whose first try was applied is refused, and looks like a lost race. Whoever
  sends decides whether to send again.
- **One pool of connections per client**, so that two uses cannot queue in front of each other.
- **One session.** Its credentials are asked for each request and refresh themselves; they are never copied. How early
  is in `credentials`; a session that is passed in keeps its own ways.
- **An answer is the service's.** What something in between has sent in its place is none; see `answers`.

Clients belong to the event loop on which they were made: a host that beats on a loop of its own needs a second store.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aioboto3  # type: ignore[import-untyped]  # It has no types; all that is used of it is in this module.
import anyio
from aiobotocore.config import AioConfig  # type: ignore[import-untyped]

from partitions.aws.answers import watch
from partitions.aws.credentials import paced_session
from partitions.aws.places import AwsPlace

__all__ = ["AwsClients", "ClientSettings"]

KEEPALIVE_S: Final = 60.0
"""How long a connection that nobody uses is kept; longer than a beat period, so that no beat pays for a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How one client behaves."""

    timeout_s: float
    """For a connection to be made, and for each silence of the server, seconds. At most the caller's own time-out."""
    connections_max: int
    """Requests at the same time; others wait for one of them."""


class AwsClients:
    """The clients at one place. Any number of tasks of one event loop may use it at once."""

    def __init__(
        self,
        place: AwsPlace,
        *,
        session: aioboto3.Session | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Name the place; nothing is made or read yet.

        Args:
            place: Where the clients connect.
            session: The session to make clients from; None makes one that finds its credentials as the SDK does.
            given: Clients by name that are used instead of making them. They are the caller's, who closes them.
        """
        self.place = place
        self._session = session
        self._given = dict(given or {})
        self._made: dict[str, Any] = {}
        self._stack = AsyncExitStack()
        self._one_at_a_time = anyio.Lock()
        self._is_closed = False

    @property
    def region(self) -> str:
        """The region that is used, for messages."""
        for client in (*self._made.values(), *self._given.values()):
            return str(client.meta.region_name)
        return self.place.region or (self._session and self._session.region_name) or "the default region"

    async def client(self, name: str, service: str, settings: ClientSettings) -> Any:
        """
        Return the client of this name; the first call makes it, with its settings.

        Args:
            name: What it is for, such as "beats". One name is one pool of connections.
            service: The service, such as "dynamodb".
            settings: How it behaves.

        Raises:
            RuntimeError: these clients were closed.
            Exception: what the SDK raises where a region or a profile is missing; see `partitions.aws.faults`.
        """
        if (known := self._given.get(name) or self._made.get(name)) is not None:
            return known
        async with self._one_at_a_time:
            if self._is_closed:
                raise RuntimeError(f"client {name!r} was asked for after close(); make new AwsClients")
            if name not in self._made:
                self._session = self._session or await paced_session()
                making = self._session.client(
                    service,
                    region_name=self.place.region,
                    endpoint_url=self.place.endpoint_url,
                    config=_config(settings),
                )
                client = await self._stack.enter_async_context(making)
                watch(client)
                self._made[name] = client
            return self._made[name]

    async def close(self) -> None:
        """Close every client that was made here, also where the caller was cancelled. Twice does nothing."""
        with anyio.CancelScope(shield=True):
            async with self._one_at_a_time:
                self._is_closed = True
                self._made.clear()
                await self._stack.aclose()


def _config(settings: ClientSettings) -> Any:
    return AioConfig(
        connect_timeout=settings.timeout_s,
        read_timeout=settings.timeout_s,
        max_pool_connections=settings.connections_max,
        retries={"mode": "standard", "total_max_attempts": 1},
        tcp_keepalive=True,
        connector_args={"keepalive_timeout": KEEPALIVE_S},
    )
