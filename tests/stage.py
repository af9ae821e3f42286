"""
The stage of tests below a host: one store behind a faulty network, and sessions of one group, in virtual time.

It knows no balancer and no pump. The clock of its sessions has another zero than the loop's, so that whoever mixes the
two fails, and it can jump, as the clock of a machine that was suspended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

import anyio
import pytest

from partitions.beats import Pace
from partitions.clocks import CLOCK_DRIFT, Clock
from partitions.events import Event
from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.leases import Lease
from partitions.positions import EARLIEST
from partitions.sessions import Session
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from partitions.verbs import Acquire, Applied, Ask, Create, Fence, Register, Result, Verb
from tests.world.loop import VirtualTimeLoop, running_loop
from tests.world.network import Call, Fault, Network, PlaceSource, PlaceStore

__all__ = [
    "GROUP",
    "HANDOFF_S",
    "LATENCY_S",
    "PACE",
    "VALIDITY_S",
    "VIRTUAL_TIME",
    "HandClock",
    "JumpingClock",
    "Stage",
    "about",
    "beside",
    "verb_of",
]

T = TypeVar("T", bound=Event)

VIRTUAL_TIME: tuple[str, dict[str, Any]] = ("asyncio", {"loop_factory": VirtualTimeLoop})
"""The backend of a module whose async tests run in virtual time."""

GROUP = "g"
PACE = Pace(duration_s=6.0, handoff_s=18.0, beat_interval_s=2.0, call_timeout_s=1.0)
VALIDITY_S = PACE.duration_s * (1 - CLOCK_DRIFT)
"""How long a session holds after the sending of a beat."""
HANDOFF_S = PACE.handoff_s * (1 - CLOCK_DRIFT)
"""How long a term lasts after the sending of the last beat that did not show an ask for it."""
LATENCY_S = 0.02
"""Of a call without a fault, half of it each way."""


class HandClock:
    """A clock that the test moves by hand."""

    def __init__(self, at_s: float = 100.0) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        """See `partitions.clocks.Clock`."""
        return self.at_s


class JumpingClock:
    """The loop's time with another zero; it jumps ahead of it where the machine was suspended."""

    def __init__(self, offset_s: float = 50_000.0) -> None:
        self._offset_s = offset_s

    def now_s(self) -> float:
        """See `partitions.clocks.Clock`."""
        return running_loop().time() + self._offset_s

    def jump(self, ahead_s: float) -> None:
        """Let so many seconds pass that no timer of the loop counts."""
        self._offset_s += ahead_s


def about(value: Any) -> Any:
    """Equal to numbers that differ by rounding alone; as `Any`, so that it may stand for a number in a whole value."""
    return pytest.approx(value, abs=1e-6)


def verb_of(*kinds: type, **fields: object) -> Callable[[Call], bool]:
    """Match the calls of these verbs whose fields have these values, for `Stage.disturb`."""
    return lambda call: (
        isinstance(call.verb, kinds) and all(getattr(call.verb, name) == value for name, value in fields.items())
    )


@asynccontextmanager
async def beside(run: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """Run something beside the body, and cancel it at the end."""
    finished = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield
        finished = True
        tasks.cancel_scope.cancel()
    # A task that ends cancelled though nobody cancelled it takes its group, this body included, with it.
    assert finished, f"{run} ended with a cancellation of its own; the body was cut short"


class Stage:
    """A store, a source, a clock, and what happened. Make it inside a test that runs in virtual time."""

    def __init__(self, *, partitions: int = 1, latency_s: float = LATENCY_S) -> None:
        self.clock = JumpingClock()
        self.random = Random(1)
        self.store = MemoryStore()
        self.source = MemorySource(lambda: running_loop().time(), partitions=partitions)
        self.network = Network(self.store, self.source, latency_s=latency_s)
        self.events: list[Event] = []
        self.told: list[tuple[float, Event]] = []
        """The events, each with the loop's time."""
        for n in range(partitions):
            self.create(f"p{n}")

    # --- What there is ----------------------------------------------------------------------------------------------

    def create(self, partition: str, position: str = EARLIEST, parents: tuple[str, ...] = ()) -> LeaseItem:
        """Make a free lease, at once."""
        item: LeaseItem = self.apply(Create(partition=partition, position=position, parents=parents))
        return item

    def session(
        self, session_id: str = "a:1", *, pace: Pace = PACE, clock: Clock | None = None, **more: Any
    ) -> Session:
        """Make a session that is not registered yet."""
        return Session(
            store=PlaceStore(self.network),
            group=GROUP,
            host_id=session_id.rpartition(":")[0],
            session_id=session_id,
            clock=clock or self.clock,
            random=self.random,
            pace=pace,
            **{"on_event": self.tell, **more},
        )

    @asynccontextmanager
    async def living(self, session: Session | None = None) -> AsyncIterator[Session]:
        """Register a session and let it beat beside the body."""
        session = session or self.session()
        assert await session.register()
        async with beside(session.run):
            yield session

    async def acquired(self, session: Session, partition: str = "p0") -> Lease:
        """Acquire a lease as it is stored."""
        lease = await session.acquire(self.lease(partition), reason="free")
        assert lease is not None
        return lease

    def store_of_a_host(self) -> PlaceStore:
        """The store behind the network."""
        return PlaceStore(self.network)

    def source_of_a_host(self) -> PlaceSource:
        """The source behind the network."""
        return PlaceSource(self.network)

    # --- What others do, at once ------------------------------------------------------------------------------------

    def apply(self, verb: Verb[Any]) -> Any:
        """Do a write without the network and return the item as it is then; it must not be refused."""
        result: Result[Any] = self.store.apply_now(GROUP, verb)
        assert isinstance(result, Applied), f"{verb} was refused: {result}"
        return result.item

    def ask(self, owner: str, partition: str, token: int, *, by: str = "b:1") -> str:
        """Ask a session for a term; return the key of the ask."""
        key = ask_key(partition, token)
        self.apply(Ask(session_id=owner, keys=(key,), asker=by))
        return key

    def register(self, session_id: str, **more: Any) -> SessionItem:
        """Make the item of a session that this stage does not run."""
        times = {"duration_s": PACE.duration_s, "handoff_s": PACE.handoff_s}
        item: SessionItem = self.apply(
            Register(session_id=session_id, host_id=session_id.rpartition(":")[0], **(times | more))
        )
        return item

    def fence(self, session_id: str) -> None:
        """Delete a session's item, as another host does that saw it dead."""
        item = self.item(session_id)
        assert item is not None
        self.apply(Fence(session_id=session_id, seen_beat=item.beat))

    def take(self, partition: str, *, by: str = "b:1") -> LeaseItem:
        """Let another session acquire a lease, whoever owns it."""
        seen = self.lease(partition)
        taken: LeaseItem = self.apply(
            Acquire(
                partition=partition,
                seen_owner=seen.owner,
                seen_token=seen.token,
                session_id=by,
                host_id=by.rpartition(":")[0],
            )
        )
        return taken

    # --- What is true -----------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The loop's time."""
        return running_loop().time()

    def lease(self, partition: str = "p0") -> LeaseItem:
        """Return a lease as it is stored."""
        item = self.store.lease_now(GROUP, partition)
        assert item is not None
        return item

    def item(self, session_id: str = "a:1") -> SessionItem | None:
        """Return a session as it is stored."""
        return self.store.session_now(GROUP, session_id)

    def asks(self, session_id: str = "a:1") -> Mapping[str, str]:
        """Return the asks that stand in a session's item."""
        item = self.item(session_id)
        assert item is not None
        return dict(item.asks)

    def sent(self, *kinds: type) -> list[Any]:
        """Return the verbs of these kinds that were sent, whatever became of them."""
        return [call.verb for _, call in self.network.calls if isinstance(call.verb, kinds)]

    def sent_at_s(self, *kinds: type) -> list[float]:
        """Return when they were sent, on the loop's clock."""
        return [at_s for at_s, call in self.network.calls if isinstance(call.verb, kinds)]

    def disturb(self, matches: Callable[[Call], bool], **what: Any) -> Fault:
        """See `Network.disturb`."""
        return self.network.disturb(matches, **what)

    def tell(self, event: Event) -> None:
        """Keep an event: the `on_event` of everything on this stage."""
        self.events.append(event)
        self.told.append((self.now_s, event))

    def events_of(self, kind: type[T]) -> list[T]:
        """Return the events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def at_s(self, kind: type[Event]) -> list[float]:
        """Return when events of one kind were told, on the loop's clock."""
        return [at_s for at_s, event in self.told if isinstance(event, kind)]
