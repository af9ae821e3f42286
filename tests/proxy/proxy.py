"""
The proxy as tests see it: started and stopped as a context manager, its network cut and mended, its notes read.

All network work happens on one loop in a thread of its own. Every method may be called from any thread; those that
change the network return when it is done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

import aiohttp
import anyio
from aiohttp import web
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.proxy.calls import Call
from tests.proxy.faults import Rules
from tests.proxy.notes import Capacity, Notes
from tests.proxy.relay import Relay

__all__ = ["Proxy"]

HOST = "127.0.0.1"

# Below the ports that the kernel gives to outgoing connections and beside those of tests.servers: after a cut the
# proxy finds its port free.
PORTS = range(12_000, 20_000)
BINDS_MAX = 100

CONNECT_S_MAX = 5.0

# Node's servers close a connection after 5 s without a call; one that is closed while a call is under way looks
# like a fault that no test asked for.
IDLE_S_MAX = 2.0
CLIENT_IDLE_S_MAX = 3600.0

# Calls that still wait are given up then. (0 would be no bound to aiohttp.)
STOP_S_MAX = 0.1


class Network:
    """The listening side, on the proxy's loop."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.server = web.Server(
            relay.handle, auto_decompress=False, access_log=None, keepalive_timeout=CLIENT_IDLE_S_MAX
        )
        self.port = 0
        self._listening: asyncio.Server | None = None

    async def listen(self) -> None:
        """Take the port that it had, at first any free one."""
        loop = asyncio.get_running_loop()
        for attempt in range(BINDS_MAX):
            port = self.port or random.choice(PORTS)
            try:
                self._listening = await loop.create_server(self.server, HOST, port)
            except OSError:
                if self.port or attempt == BINDS_MAX - 1:
                    raise
            else:
                self.port = port
                return

    async def cut(self, silent: bool) -> None:
        if silent:
            self.relay.mended = anyio.Event()
        else:
            self.refuse()

    async def mend(self) -> None:
        """Undo either kind of cut."""
        self.relay.mended.set()
        if self._listening is None:
            await self.listen()

    def refuse(self) -> None:
        """Close the port and reset every connection."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in self.server.connections:
            if connection.transport is not None:
                connection.transport.abort()


class Proxy:
    """
    A proxy in front of one server, for the length of a `with` block.

    Args:
        upstream_url: The server, such as the fixture `moto_url`.
        seed: Of the random numbers by which faults with a probability hit.
        asks_capacity: Add `ReturnConsumedCapacity` to the calls of DynamoDB that lack it, so that `capacity` is
            the sum of all calls; else only those that ask for it count.
    """

    def __init__(self, upstream_url: str, *, seed: int = 0, asks_capacity: bool = False) -> None:
        self.upstream_url = upstream_url.rstrip("/")
        self.rules = Rules(seed)
        """The faults in force."""
        self._asks_capacity = asks_capacity
        self._notes = Notes()
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._network: Network | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal(name="fault proxy"))
            self._network = stack.enter_context(self._portal.wrap_async_context_manager(self._serve()))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._notes.broken and error is None:
            raise ExceptionGroup("a rule's predicate raised, or a repeat met no server", self._notes.broken)

    @property
    def url(self) -> str:
        """What a client takes as `endpoint_url`; the same before and after a cut."""
        return f"http://{HOST}:{self._running()[1].port}"

    def count(self, *operations: str) -> int:
        """How many calls of these operations have arrived; of all operations if none is named."""
        counts = self._notes.counts
        return sum(counts[operation] for operation in operations) if operations else counts.total()

    @property
    def counts(self) -> dict[str, int]:
        """How many calls of each operation have arrived."""
        return dict(self._notes.counts)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that are over, in the order of their ends; the last 200,000."""
        return self._notes.calls

    @property
    def capacity(self) -> Capacity:
        """The consumed capacity that the server reported, in all."""
        return self._notes.capacity

    def forget(self) -> None:
        """Begin counts, calls and capacity anew."""
        self._notes.forget()

    def wait_until(self, holds: Callable[[], bool], *, within_s: float) -> bool:
        """
        Block until it holds, which is asked again whenever a call arrives or ends; in async tests on a thread.

        Returns:
            Whether it holds; False after `within_s` seconds without.
        """
        return self._notes.wait_until(holds, within_s)

    @contextmanager
    def cut(self, *, silent: bool = False) -> Iterator[None]:
        """
        No call gets through during the block.

        Args:
            silent: False resets every connection and refuses new ones. True lets clients connect and send, and
                answers nothing, until the block ends and their connections with it.
        """
        portal, network = self._running()
        portal.call(network.cut, silent)
        try:
            yield
        finally:
            portal.call(network.mend)

    def _running(self) -> tuple[BlockingPortal, Network]:
        if self._portal is None or self._network is None:
            raise RuntimeError("the proxy is not running; use it inside `with Proxy(...) as proxy:`")
        return self._portal, self._network

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[Network]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S_MAX)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as client,
            anyio.create_task_group() as tasks,
        ):
            relay = Relay(
                upstream_url=self.upstream_url,
                client=client,
                rules=self.rules,
                notes=self._notes,
                tasks=tasks,
                asks_capacity=self._asks_capacity,
            )
            network = Network(relay)
            await network.listen()
            try:
                yield network
            finally:
                relay.mended.set()
                network.refuse()
                await network.server.shutdown(STOP_S_MAX)
                tasks.cancel_scope.cancel()
