"""
Sessions without a host, in places of a virtual world: for rules of the protocol that need one exact order of events.

What is done through a `Lone` runs in its place, over the network, and freezes with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from partitions.beats import Pace
from partitions.items import ask_key
from partitions.leases import Lease
from partitions.sessions import Session
from partitions.verbs import Ask, Create, Result
from tests.world.clocks import PlaceClock
from tests.world.loop import VirtualTask, result_of, run_in_place, running_loop
from tests.world.network import PlaceStore
from tests.world.world import GROUP, World

__all__ = ["Lone", "begun", "write_ask"]

T = TypeVar("T")


class Lone:
    """One session in a place."""

    def __init__(self, world: World, place: str, session: Session, clock: PlaceClock) -> None:
        self.place = place
        self.session = session
        self.clock = clock
        self._world = world
        self.running: VirtualTask[str] | None = None

    def start(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> VirtualTask[T]:
        """Begin to do something in the place."""

        async def do() -> T:
            return await function(*args, **named)

        return run_in_place(self.place, do)

    async def do(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Do something in the place, and wait for it."""
        return await result_of(self.start(function, *args, **named))

    async def acquire(self, partition: str, *, reason: str = "free") -> Lease:
        """Acquire a lease as it is stored; it must not be refused."""
        lease = await self.do(self.session.acquire, self._world.leases()[partition], reason=reason)
        assert lease is not None
        return lease


async def begun(
    world: World,
    place: str,
    *,
    clock: PlaceClock | None = None,
    register: bool = True,
    handoff_s: float | None = None,
    call_timeout_s: float | None = None,
) -> Lone:
    """
    Register a session `<place>:1` with the world's duration, and let it beat; make all leases first.

    Without `register` it is made only.
    """
    for info in world.source.list_now():
        world.store.apply_now(GROUP, Create(partition=info.partition, position="0"))
    clock = clock or PlaceClock(offset_s=world.random.uniform(0, 1e6))
    pace = Pace(
        duration_s=world.duration_s,
        handoff_s=3 * world.duration_s if handoff_s is None else handoff_s,
        beat_interval_s=world.duration_s / 3,
        call_timeout_s=world.duration_s / 6 if call_timeout_s is None else call_timeout_s,
    )
    session = Session(
        store=PlaceStore(world.network),
        group=GROUP,
        host_id=place,
        session_id=f"{place}:1",
        clock=clock,
        random=Random(world.random.getrandbits(64)),
        pace=pace,
        on_event=lambda event: world.diary.append((running_loop().time(), place, event)),
    )
    lone = Lone(world, place, session, clock)
    world.lone.append((place, session, clock))
    if register:
        assert await lone.do(session.register)
        lone.running = lone.start(session.run)
    return lone


def write_ask(world: World, lease: Lease, owner: str, asker: str = "") -> Result[Any]:
    """Ask for a term right in the store, as a host that nobody sees would."""
    return world.store.apply_now(
        GROUP, Ask(session_id=owner, keys=(ask_key(lease.partition, lease.token),), asker=asker)
    )
