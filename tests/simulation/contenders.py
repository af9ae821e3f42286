"""
Contenders for locks: one session in the place of each host, frozen, cut off and killed with it.

It disturbs nothing. What they do under a lock goes into the world's notes, and what the product tells of locks into its
diary; the checkers (`tests.simulation.locks`) read those. Of a session's own events the diary has only the host's: its
place is known by them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import anyio

from partitions.errors import StoreUnavailable
from partitions.events import Event
from partitions.locks import LockAcquired, LockEnded, LockReleased, LockReleaseFailed, LocksUnread, Session
from tests.simulation.checkers import Failure
from tests.simulation.locks import STEP
from tests.simulation.parameters import Parameters
from tests.world.clocks import PlaceClock
from tests.world.loop import VirtualTask, run_in_place, running_loop
from tests.world.network import PlaceStore
from tests.world.world import GROUP, World

__all__ = ["Contenders"]

POLL_S: Final = 1.5
STEPS_MAX: Final = 4
STEP_S: Final = 1.0
"""What a step may take; some take longer than a session lives."""
LONG: Final = 0.05
PAUSE_S: Final = 8.0
"""Between two turns, at most."""
LOOK_S: Final = 0.5
TURNS_S: Final = 90.0
"""What the turns of all and the pauses of a session that could not begin may take, beside the durations."""

KINDS: Final = (LockAcquired, LockEnded, LockReleased, LockReleaseFailed, LocksUnread)


class Contenders:
    """The contenders of a run."""

    def __init__(self, world: World, parameters: Parameters, *, locks: int) -> None:
        self._world = world
        self._parameters = parameters
        self._names = [f"lock-{number}" for number in range(locks)]
        self._random = Random(f"contenders of {parameters.seed}")
        self._tasks: dict[str, VirtualTask[None]] = {}
        self._is_calm = False
        self._is_over = False

    def join(self, place: str) -> None:
        """Let a session contend in a place for as long as a host runs there."""
        if not self._names:
            return
        random = Random(self._random.getrandbits(64))
        clock = self._world.clocks[place]

        async def live() -> None:
            while self._goes_on(place):
                try:
                    await self._live(place, clock, random)
                except StoreUnavailable:
                    # It could not begin.
                    continue

        self._tasks[place] = run_in_place(place, live, name=f"contender {place}")

    async def end(self) -> list[Failure]:
        """
        Ask, once all faults are off, that each that lives has a turn of each lock; then let all leave.

        Returns:
            Who had none, or has not left.
        """
        self._is_calm = True
        since_s = self._world.now_s
        within_s = TURNS_S + 6 * self._parameters.duration_s
        while (missing := self._missing(since_s)) and self._world.now_s - since_s < within_s:
            await anyio.sleep(LOOK_S)
        found = [Failure(checker="every contender has its turn", text=f"not within {within_s} s: {missing}")]
        found = found if missing else []
        self._is_over = True
        while (left := self._living()) and self._world.now_s - since_s < 2 * within_s:
            await anyio.sleep(LOOK_S)
        if left:
            found.append(Failure(checker="every contender leaves", text=f"not within {2 * within_s} s: {left}"))
        return found

    def _goes_on(self, place: str) -> bool:
        return not self._is_over and place in self._world.hosts and not self._world.hosts[place].task.done()

    def _living(self) -> list[str]:
        return [place for place, task in self._tasks.items() if place not in self._world.kills and not task.done()]

    def _missing(self, since_s: float) -> list[tuple[str, str]]:
        had = {
            (place, event.lock)
            for at_s, place, event in self._world.diary
            if at_s >= since_s and isinstance(event, LockAcquired)
        }
        staying = [place for place in self._living() if self._goes_on(place)]
        return [(place, name) for place in staying for name in self._names if (place, name) not in had]

    async def _live(self, place: str, clock: PlaceClock, random: Random) -> None:
        session = Session(
            PlaceStore(self._world.network),
            group=GROUP,
            host_id=f"{place}.locks",
            duration_s=self._parameters.duration_s,
            poll_s=POLL_S,
            clock=clock,
            random=random,
            extra={"pid": 0, "host_name": place},
            on_event=lambda event: self._note(place, event),
        )
        async with session, anyio.create_task_group() as tasks:
            for name in self._names:
                tasks.start_soon(self._contend, session, place, name, random)
            while self._goes_on(place):
                await anyio.sleep(LOOK_S)
            tasks.cancel_scope.cancel()

    async def _contend(self, session: Session, place: str, name: str, random: Random) -> None:
        while True:
            try:
                if random.random() < 0.1:
                    lease = await session.try_acquire(name)
                else:
                    lease = await session.acquire(name, timeout_s=random.choice([None, 5.0, 40.0]))
            except (TimeoutError, StoreUnavailable):
                lease = None
            if lease is not None:
                async with lease:
                    for _ in range(random.randint(0, 1 if self._is_calm else STEPS_MAX)):
                        await self._step(random)
                        if random.random() < 0.1:
                            await self._renew(lease.renew)
                        if not lease.is_held():
                            break
                        self._world.note(place, STEP, name, lease.token)
            # Once it is calm the demand is a turn for each, soon.
            await anyio.sleep(random.uniform(0, PAUSE_S / 4 if self._is_calm else PAUSE_S))

    async def _step(self, random: Random) -> None:
        longest_s = 2 * self._parameters.duration_s if random.random() < LONG and not self._is_calm else STEP_S
        await anyio.sleep(random.uniform(0, longest_s))

    async def _renew(self, renew: Callable[[], Awaitable[bool]]) -> None:
        try:
            await renew()
        except StoreUnavailable:
            return

    def _note(self, place: str, event: Event) -> None:
        if isinstance(event, KINDS):
            self._world.diary.append((running_loop().time(), place, event))
