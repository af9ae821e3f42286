"""
A contender of a directed schedule: the product's session for locks in one place, without a will of its own.

It beats, and looks at its locks, by itself; what it acquires and does the schedule decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import anyio

from partitions.locks import LockLease, Session
from tests.simulation.directed.stage import Stage
from tests.simulation.locks import STEP
from tests.world.clocks import PlaceClock
from tests.world.loop import VirtualTask, result_of, run_in_place, running_loop
from tests.world.network import PlaceStore
from tests.world.world import GROUP, RunningHost

__all__ = ["Contender", "contender"]

T = TypeVar("T")


class Contender:
    """
    One session for locks.

    Attributes:
        place: Its place, and its host id.
        locks: The session.
        session: None, as of a host that has none: it holds no partition.
    """

    def __init__(self, stage: Stage, place: str, clock: PlaceClock | None) -> None:
        self._world = stage.world
        self.place = place
        self.session = None
        self.still_running: tuple[str, ...] = ()
        clock = clock or PlaceClock(offset_s=self._world.random.uniform(0, 1e6))
        self._world.clocks[place] = clock
        self.locks = Session(
            PlaceStore(self._world.network),
            group=GROUP,
            host_id=place,
            duration_s=self._world.duration_s,
            clock=clock,
            random=Random(self._world.random.getrandbits(64)),
            on_event=lambda event: self._world.diary.append((running_loop().time(), place, event)),
        )
        self.begun = anyio.Event()
        self._leaving = anyio.Event()
        self.task = run_in_place(place, self._live, name=f"contender {place}")
        # So that it can be frozen and killed as a host can.
        self._world.hosts[place] = RunningHost(place, self, self.task, clock)  # type: ignore[arg-type]

    async def _live(self) -> None:
        async with self.locks:
            self.begun.set()
            await self._leaving.wait()

    async def leave(self) -> None:
        """End the session in order."""
        await self.do(self._leave)
        await result_of(self.task)

    async def _leave(self) -> None:
        self._leaving.set()

    def start(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> VirtualTask[T]:
        """Begin to do something in the place."""

        async def do() -> T:
            return await function(*args, **named)

        return run_in_place(self.place, do)

    async def do(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Do something in the place, and wait for it."""
        return await result_of(self.start(function, *args, **named))

    async def take(self, name: str = "nightly") -> LockLease:
        """Acquire a lock, which must be to be had at once."""
        lease = await self.do(self.locks.try_acquire, name)
        assert lease is not None
        return lease

    def work(self, lease: LockLease, *, step_s: float = 0.25) -> VirtualTask[None]:
        """Do one step after the other under a lease, for as long as it says that it is held."""

        async def work() -> None:
            while lease.is_held():
                self._world.note(self.place, STEP, lease.name, lease.token)
                await anyio.sleep(step_s)

        return self.start(work)


async def contender(stage: Stage, place: str, *, clock: PlaceClock | None = None) -> Contender:
    """Make a contender, and wait until its session lives."""
    made = Contender(stage, place, clock)
    await made.begun.wait()
    return made
