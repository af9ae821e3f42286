"""
A virtual world: real hosts on a virtual-time loop, over the memory store and source, behind a faulty network.

`ProcessorHost`s run as they do in production, each in a place of its own, which can be frozen and killed. Every record
that a processor starts and ends goes into the world's journal, every event of every host into its diary; the checks
(`tests.world.checks`) read those and the network's history, never the hosts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from partitions.events import Event
from partitions.items import LeaseItem, SessionItem
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from processor_host import Batch, CloseReason, HostSettings, PartitionProcessor, ProcessorContext, ProcessorHost
from tests.world.loop import VirtualTask, run_in_place, running_loop
from tests.world.network import Network, PlaceSource, PlaceStore

__all__ = ["GROUP", "Handled", "PlaceClock", "RunningHost", "World", "WorldProcessor"]

GROUP = "g"


class PlaceClock:
    """A clock of one place: it may run fast or slow within the allowed drift, and it may stand still."""

    def __init__(self, *, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self._rate = rate
        self._offset_s = offset_s
        self._stood_s = 0.0
        self._stopped_at_s: float | None = None

    def now_s(self) -> float:
        """See `partitions.clocks.Clock`."""
        now_s = running_loop().time() if self._stopped_at_s is None else self._stopped_at_s
        return (now_s - self._stood_s) * self._rate + self._offset_s

    def stand_still(self) -> None:
        """Stop, as the clock of a virtual machine that is suspended."""
        self._stopped_at_s = running_loop().time()

    def go_on(self) -> None:
        """Run again from where it stood."""
        assert self._stopped_at_s is not None
        self._stood_s += running_loop().time() - self._stopped_at_s
        self._stopped_at_s = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """One record that a processor started; `end_s` is None where it did not end."""

    place: str
    partition: str
    token: int
    position: str
    start_s: float
    end_s: float | None
    data: bytes


@dataclass(slots=True)
class RunningHost:
    """One host of the world."""

    place: str
    host: ProcessorHost
    task: VirtualTask[int]
    clock: PlaceClock

    @property
    def held(self) -> frozenset[str]:
        """The partitions that it holds by its own account."""
        session = self.host.session
        return frozenset() if session is None else frozenset(session.held)


class WorldProcessor(PartitionProcessor):
    """Writes each record into the world's journal; takes `record_s` for each."""

    def __init__(self, world: World, place: str, record_s: float) -> None:
        self._world = world
        self._place = place
        self._record_s = record_s
        self._token = 0

    async def open(self, context: ProcessorContext) -> None:
        """Note the term."""
        self._token = context.lease.token
        self._world.note(self._place, "open", context.partition, context.lease.token, context.position)

    async def process(self, batch: Batch) -> None:
        """Handle each record."""
        for record in batch:
            start_s = running_loop().time()
            entry = len(self._world.journal)
            handled = Handled(
                place=self._place,
                partition=record.partition,
                token=batch.lease.token,
                position=record.position,
                start_s=start_s,
                end_s=None,
                data=record.data,
            )
            self._world.journal.append(handled)
            await self._world.on_record(handled)
            if self._record_s:
                await anyio.sleep(self._record_s)
            self._world.journal[entry] = Handled(
                place=handled.place,
                partition=handled.partition,
                token=handled.token,
                position=handled.position,
                start_s=start_s,
                end_s=running_loop().time(),
                data=handled.data,
            )

    async def close(self, reason: CloseReason) -> None:
        """Note the reason."""
        self._world.note(self._place, "close", reason)


async def _nothing(_: Handled) -> None:
    return


@dataclass(slots=True)
class World:
    """Everything there is. Make it inside `run_virtual`."""

    partitions: int = 4
    seed: int = 1
    duration_s: float = 6.0
    latency_s: float = 0.005
    settings: Mapping[str, Any] = field(default_factory=dict)
    store: MemoryStore = field(default_factory=MemoryStore)
    source: MemorySource = field(init=False)
    network: Network = field(init=False)
    random: Random = field(init=False)
    hosts: dict[str, RunningHost] = field(default_factory=dict)
    journal: list[Handled] = field(default_factory=list)
    diary: list[tuple[float, str, Event]] = field(default_factory=list)
    notes: list[tuple[float, str, tuple[object, ...]]] = field(default_factory=list)
    on_record: Callable[[Handled], Awaitable[None]] = _nothing

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.source = MemorySource(lambda: running_loop().time(), partitions=self.partitions)
        self.network = Network(self.store, self.source, latency_s=self.latency_s)

    # --- Hosts ------------------------------------------------------------------------------------------------------

    def start(
        self,
        place: str,
        *,
        host_id: str | None = None,
        processor: object = None,
        record_s: float = 0.0,
        clock: PlaceClock | None = None,
        **settings: Any,
    ) -> RunningHost:
        """Start a host in a place of its own."""
        clock = clock or PlaceClock(offset_s=self.random.uniform(0, 1e6))
        values = {"lease_duration_s": self.duration_s, "checkpoint_interval_s": 1.0} | dict(self.settings) | settings
        random = Random(self.random.getrandbits(64))

        async def live() -> int:
            host = ProcessorHost(
                group=GROUP,
                source=PlaceSource(self.network),
                store=PlaceStore(self.network),
                processor=processor or (lambda: WorldProcessor(self, place, record_s)),
                settings=HostSettings(host_id=host_id or place, **values),
                on_event=lambda event: self.diary.append((running_loop().time(), place, event)),
                clock=clock,
                random=random,
            )
            made.append(host)
            return await host.run()

        made: list[ProcessorHost] = []
        task = run_in_place(place, live, name=f"host {place}")
        running = RunningHost(place, _Late(made), task, clock)  # type: ignore[arg-type]
        self.hosts[place] = running
        return running

    def stop(self, place: str) -> None:
        """Ask a host for an orderly stop, as SIGTERM does."""
        self.hosts[place].host.stop()

    def kill(self, place: str) -> None:
        """End a host at this moment, as SIGKILL does: nothing of it runs any more."""
        running_loop().kill(place)
        del self.hosts[place]

    def freeze(self, place: str, *, clock_stops: bool = False) -> None:
        """Stop a host where it is, as SIGSTOP does, or as a suspended machine whose clock stands still."""
        if clock_stops:
            self.hosts[place].clock.stand_still()
        running_loop().freeze(place)

    def thaw(self, place: str) -> None:
        """Let a frozen host go on."""
        clock = self.hosts[place].clock
        if clock._stopped_at_s is not None:
            clock.go_on()
        running_loop().thaw(place)

    # --- What is true -----------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The world's time, seconds."""
        return running_loop().time()

    def note(self, place: str, *what: object) -> None:
        """Write something into the notes."""
        self.notes.append((self.now_s, place, what))

    def leases(self) -> dict[str, LeaseItem]:
        """Return the leases as they are stored."""
        return {lease.partition: lease for lease in self.store.leases_now(GROUP)}

    def sessions(self) -> dict[str, SessionItem]:
        """Return the sessions as they are stored."""
        return {session.session_id: session for session in self.store.sessions_now(GROUP)}

    def owners(self) -> dict[str, str | None]:
        """Return the host id that owns each lease, None where its owner has no session."""
        sessions = self.sessions()
        return {
            lease.partition: sessions[lease.owner].host_id if lease.owner in sessions else None
            for lease in self.leases().values()
        }

    def shares(self) -> list[int]:
        """Return how many open leases each living host owns, the most first; hosts without any count as 0."""
        owners = [self.owners()[name] for name, lease in self.leases().items() if not lease.finished]
        return sorted((owners.count(session.host_id) for session in self.sessions().values()), reverse=True)

    def events(self, *kinds: type[Event], place: str | None = None) -> list[Any]:
        """Return the events of these kinds, of one place or of all, in order."""
        return [event for _, at, event in self.diary if isinstance(event, kinds) and place in (None, at)]

    def put(self, count: int, *, partitions: list[str] | None = None) -> None:
        """Write `count` records to each of these partitions, or to all open ones."""
        names = partitions or [info.partition for info in self.source.list_now() if not info.closed]
        for name in names:
            for n in range(count):
                self.source.put(name, f"{name}/{n}".encode(), key=name)

    async def until(self, holds: Callable[[], bool], *, within_s: float, every_s: float = 0.05) -> float:
        """Wait until something holds; return how long it took. Fails where it does not within `within_s`."""
        began_s = self.now_s
        while not holds():
            if self.now_s - began_s > within_s:
                raise AssertionError(f"not within {within_s} s; owners: {self.owners()}, at {self.now_s}")
            await anyio.sleep(every_s)
        return self.now_s - began_s

    def is_balanced(self, hosts: int) -> bool:
        """Say whether every open lease is owned, by so many hosts, in shares that differ by at most one."""
        leases = self.leases()
        owners = self.owners()
        open_ones = [name for name, lease in leases.items() if not lease.finished and not lease.paused]
        if not open_ones or any(owners[name] is None for name in open_ones):
            return False
        shares = self.shares()
        return len(shares) == hosts and shares[0] - shares[-1] <= 1

    def handled(self, partition: str | None = None) -> list[Handled]:
        """Return the journal of one partition, or of all."""
        return [entry for entry in self.journal if partition in (None, entry.partition)]


class _Late:
    """A host that is made in its own place a moment later."""

    def __init__(self, made: list[ProcessorHost]) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        if not self._made and name in ("session", "still_running"):
            return None if name == "session" else ()
        return getattr(self._made[0], name)
