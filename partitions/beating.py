"""
Where the beats of a session run: on the loop of everything else, or on a loop of their own in a thread.

The session's code is the same on both (DESIGN rule 16); it says which loop a thing belongs to, and a place brings it
there. Knows no session and no lease; a place serves one session after the other.

- **On the same loop** (`SameLoop`: tests, simulations, stores that serve one loop only) everything is called directly.
- **On a loop of its own** (`OwnLoop`: production) a processor that blocks the main loop does not stop the beats. What a
  beat's answer says is written into the session's table by the thread at once; only what is *told* of it is queued to
  the main loop, in order. So code that was blocked meanwhile finds the deadline of an ask that it has not been told of.

A host whose main loop never goes on must lose its leases. So a place may hold beats back; see `why_held`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from partitions.retries import is_cancelled
from partitions.stores.base import Store

__all__ = ["BeatPlace", "OwnLoop", "SameLoop"]

R = TypeVar("R")

THREAD: Final = "partitions beats"
"""The name of the thread, in stacks and debuggers."""


class BeatPlace(Protocol):
    """Where beats run."""

    @property
    def store(self) -> Store:
        """The store for beats, on their loop."""
        ...

    def tell(self, do: Callable[..., object], *args: object) -> None:
        """Call `do` on the session's loop, soon and in order. For code on the beats' loop."""
        ...

    def reach(self, do: Callable[..., object], *args: object) -> None:
        """Call `do` on the beats' loop, soon. For code on the session's loop."""
        ...

    def why_held(self) -> str | None:
        """Return why no beat may be sent at this moment; None where one may. For code on the beats' loop."""
        ...

    async def run(self, beats: Callable[[], Awaitable[str]]) -> str:
        """Run this on the beats' loop, and return what it returns; a cancellation ends it there."""
        ...


class SameLoop:
    """See `BeatPlace`: the beats run where the session does, so that what stops one stops both."""

    __slots__ = ("store",)

    def __init__(self, store: Store) -> None:
        self.store: Final = store

    def tell(self, do: Callable[..., object], *args: object) -> None:
        """See `BeatPlace.tell`."""
        do(*args)

    def reach(self, do: Callable[..., object], *args: object) -> None:
        """See `BeatPlace.reach`."""
        do(*args)

    def why_held(self) -> str | None:
        """See `BeatPlace.why_held`: code that runs is the proof that its loop does."""
        return None

    async def run(self, beats: Callable[[], Awaitable[str]]) -> str:
        """See `BeatPlace.run`."""
        return await beats()


class OwnLoop:
    """
    See `BeatPlace`. Open it on the loop of the sessions, and close it there after the last of them has ended.

    Between the two the main loop is never waited for by the thread.
    """

    def __init__(
        self,
        store: Store,
        *,
        is_shared: bool,
        why_held: Callable[[], str | None],
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """
        Prepare a thread; nothing is started.

        Args:
            store: The store for beats, opened and closed here on the beats' loop.
            is_shared: It serves several loops, and is opened and closed by whoever owns it.
            why_held: As `BeatPlace.why_held`; called in the thread.
            beside: Runs on the beats' loop for as long as beats do; what it raises, `run` raises.
        """
        self._store = store
        self._is_shared = is_shared
        self._why_held = why_held
        self._beside = beside
        self._portal: BlockingPortal | None = None
        self._thread: AbstractContextManager[BlockingPortal] | None = None
        self._sessions_loop: asyncio.AbstractEventLoop | None = None
        self._beats_loop: asyncio.AbstractEventLoop | None = None
        self._has_died = False

    @property
    def store(self) -> Store:
        """See `BeatPlace.store`."""
        return self._store

    async def open(self) -> None:
        """
        Start the thread and its loop, and open the store there.

        Raises:
            StoreUnavailable, StoreMisconfigured: as the store's `open`.
        """
        self._sessions_loop = asyncio.get_running_loop()
        self._thread = start_blocking_portal(name=THREAD)
        # Both wait for a thread that only has to start; nothing else is under way on this loop that could be late.
        self._portal = self._thread.__enter__()
        self._beats_loop = self._portal.call(_running_loop)
        try:
            if not self._is_shared:
                await self._there(self._store.open)
        except BaseException:  # Also where the caller was cancelled: the thread must not stay.
            await self.close()
            raise

    async def close(self) -> None:
        """Close the store, and end the thread. Shielded from cancellation; twice does nothing."""
        thread, portal = self._thread, self._portal
        if thread is None or portal is None:
            return
        self._thread = None
        with anyio.CancelScope(shield=True):
            try:
                # Where the thread has died, its connections have died with it, and `run` has said so.
                if not self._is_shared and not self._has_died:
                    await self._there(self._store.close)
            finally:
                self._portal = None
                await anyio.to_thread.run_sync(thread.__exit__, None, None, None)

    def tell(self, do: Callable[..., object], *args: object) -> None:
        """See `BeatPlace.tell`."""
        assert self._sessions_loop is not None  # Beats run between open and close.
        self._sessions_loop.call_soon_threadsafe(do, *args)

    def reach(self, do: Callable[..., object], *args: object) -> None:
        """See `BeatPlace.reach`. Does nothing once the place is closed: nothing runs there any more."""
        if self._portal is not None and self._beats_loop is not None:
            # Where the thread has died, its loop is closed; that is for `run` to raise, and not for who ends a session.
            with suppress(RuntimeError):
                self._beats_loop.call_soon_threadsafe(do, *args)

    def why_held(self) -> str | None:
        """See `BeatPlace.why_held`."""
        return self._why_held()

    async def run(self, beats: Callable[[], Awaitable[str]]) -> str:
        """
        See `BeatPlace.run`.

        Raises:
            RuntimeError: the thread has died.
        """
        return await self._there(partial(self._run, beats))

    async def _run(self, beats: Callable[[], Awaitable[str]]) -> str:
        async with anyio.create_task_group() as tasks:
            if self._beside is not None:
                tasks.start_soon(self._beside, name="beside the beats")
            result = await beats()
            tasks.cancel_scope.cancel()
        return result

    async def _there(self, do: Callable[[], Awaitable[R]]) -> R:
        assert self._portal is not None  # Open.
        try:
            future = self._portal.start_task_soon(do, name=THREAD)
        except RuntimeError as error:
            raise self._died() from error
        try:
            # A cancellation of the awaiting task cancels the future, and with it the task in the thread.
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            # The loop there came to its end under the task. Passed on it would look like a cancellation of the caller,
            # and end a host without a word.
            raise self._died() from error

    def _died(self) -> RuntimeError:
        self._has_died = True
        return RuntimeError(f"the thread {THREAD!r} has died, as of a sys.exit in it, and nothing beats any more")


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
