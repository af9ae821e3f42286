"""
A virtual world: real hosts on a virtual-time loop, over the memory store and source, behind a faulty network.

`ProcessorHost`s run as they do in production, each in a place of its own, which can be frozen and killed. Every record
that a processor starts and ends goes into the world's journal, every event of every host into its diary; the checks
(`tests.world.checks`) read those and the network's history, never the hosts.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from partitions.events import Event
from partitions.items import LeaseItem, Scalar, SessionItem
from partitions.sessions import Session
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from partitions.verbs import Acquire, Applied
from processor_host import HostSettings, ProcessorHost
from tests.world.clocks import PlaceClock
from tests.world.loop import VirtualTask, run_in_place, running_loop
from tests.world.network import Network, PlaceSource, PlaceStore, Write
from tests.world.processors import Handled, WorldProcessor

__all__ = ["GROUP", "Handled", "PlaceClock", "RunningHost", "World", "WorldProcessor"]

GROUP = "g"


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
    lone: list[tuple[str, Session, PlaceClock]] = field(default_factory=list)
    """Sessions without a host, each with its place."""
    journal: list[Handled] = field(default_factory=list)
    diary: list[tuple[float, str, Event]] = field(default_factory=list)
    notes: list[tuple[float, str, tuple[Any, ...]]] = field(default_factory=list)
    on_record: Callable[[Handled], Awaitable[None]] = _nothing
    overlaps: list[str] = field(default_factory=list)
    """Each term that began while an older one of the partition went on by its own host's account."""
    freezes: list[tuple[str, float, float]] = field(default_factory=list)
    """Place, from, to (infinity while it lasts)."""
    suspensions: list[tuple[str, float]] = field(default_factory=list)
    """Place and since when: the freezes in which the place's clock stood still."""
    clocks: dict[str, PlaceClock] = field(default_factory=dict)
    """By place, also of those that are gone."""
    kills: dict[str, float] = field(default_factory=dict)
    """When each place was killed."""
    stubborn: set[str] = field(default_factory=set)
    """Places whose processors let nobody cancel them in the middle of a record."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.source = MemorySource(lambda: running_loop().time(), partitions=self.partitions)
        self.network = Network(self.store, self.source, latency_s=self.latency_s)
        self.network.on_write = self._witness

    # --- Hosts ------------------------------------------------------------------------------------------------------

    def start(
        self,
        place: str,
        *,
        host_id: str | None = None,
        processor: object = None,
        record_s: float = 0.0,
        stubborn: bool = False,
        clock: PlaceClock | None = None,
        about: Mapping[str, Scalar] | None = None,
        handling: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> RunningHost:
        """
        Start a host in a place of its own; `record_s` and `stubborn` are for the `WorldProcessor`.

        `handling` are further arguments of the host, such as `on_failure`.
        """
        clock = clock or PlaceClock(offset_s=self.random.uniform(0, 1e6))
        self.clocks[place] = clock
        if stubborn:
            self.stubborn.add(place)
        values = {"lease_duration_s": self.duration_s, "checkpoint_interval_s": 1.0} | dict(self.settings) | settings
        random = Random(self.random.getrandbits(64))

        async def live() -> int:
            host = ProcessorHost(
                group=GROUP,
                source=PlaceSource(self.network),
                store=PlaceStore(self.network),
                processor=processor or (lambda: WorldProcessor(self, place, record_s, stubborn=stubborn)),
                settings=HostSettings(host_id=host_id or place, **values),
                on_event=lambda event: self.diary.append((running_loop().time(), place, event)),
                clock=clock,
                random=random,
                about=about,
                wall_clock=lambda: running_loop().time(),
                **(handling or {}),
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
        """End a host, or whoever else is at a place, at this moment as SIGKILL does: nothing of it runs any more."""
        running_loop().kill(place)
        self.kills[place] = self.now_s
        self.hosts.pop(place, None)
        for handled in self.journal:
            if handled.place == place and handled.left_s is None:
                handled.left_s = self.now_s

    def freeze(self, place: str, *, clock_stops: bool = False) -> None:
        """Stop a host where it is, as SIGSTOP does, or as a suspended machine whose clock stands still."""
        if clock_stops:
            self.clocks[place].stand_still()
            self.suspensions.append((place, self.now_s))
        running_loop().freeze(place)
        self.freezes.append((place, self.now_s, math.inf))

    def thaw(self, place: str) -> None:
        """Let a frozen host go on."""
        clock = self.clocks[place]
        if clock.stands_still:
            clock.go_on()
        running_loop().thaw(place)
        since_s = next(from_s for at, from_s, to_s in reversed(self.freezes) if at == place and to_s == math.inf)
        self.freezes[self.freezes.index((place, since_s, math.inf))] = (place, since_s, self.now_s)

    # --- What is true -----------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The world's time, seconds."""
        return running_loop().time()

    def note(self, place: str, *what: object) -> None:
        """Write something into the notes."""
        self.notes.append((self.now_s, place, what))

    def _witness(self, write: Write) -> None:
        """See, as an acquire is applied, whether an older term still goes on by its own host's account (rule 14)."""
        if not isinstance(write.verb, Acquire) or not isinstance(write.result, Applied):
            return
        living = [(running.place, running.host.session, running.clock) for running in self.hosts.values()]
        for place, session, clock in (*living, *self.lone):
            lease = None if session is None else session.held.get(write.verb.partition)
            # A clock that stands still says nothing about its host; there, the fence alone protects.
            if lease is not None and not clock.stands_still and lease.is_held():
                self.overlaps.append(f"{lease!r} went on at {place} as it was taken: {write}")

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
        """Return how many open leases each session owns, the most first; those without any count as 0."""
        owners = [lease.owner for lease in self.leases().values() if not lease.finished]
        return sorted((owners.count(session_id) for session_id in self.sessions()), reverse=True)

    def running(self) -> dict[str, list[tuple[str, int]]]:
        """Return (place, token) of every open processor of a living host, by partition."""
        running: dict[str, list[tuple[str, int]]] = {}
        for _, place, (what, partition, token, *_) in self.notes:
            if place in self.hosts and what == "open":
                running.setdefault(partition, []).append((place, token))
            elif place in self.hosts and what == "close":
                running[partition].remove((place, token))
        return {partition: found for partition, found in running.items() if found}

    def events(self, *kinds: type[Event], place: str | None = None) -> list[Any]:
        """Return the events of these kinds, of one place or of all, in order."""
        return [event for _, at, event in self.diary if isinstance(event, kinds) and place in (None, at)]

    def has_answered(self, place: str, operation: str, *, since_s: float) -> bool:
        """Say whether such a call that this place sent after a time has been answered by now, at the usual latency."""
        calls = ((at, call) for at, call in self.network.calls if at >= since_s)
        return any(
            call.place == place and call.operation == operation and at + self.latency_s < self.now_s
            for at, call in calls
        )

    def put(self, count: int, *, partitions: list[str] | None = None) -> None:
        """Write `count` records to each of these partitions, or to all open ones."""
        names = partitions or [info.partition for info in self.source.list_now() if not info.closed]
        for name in names:
            for n in range(count):
                self.source.put(name, f"{name}/{n}".encode(), key=name)

    async def wait(self, time_s: float) -> None:
        """Let so much of the world's time pass."""
        await anyio.sleep(time_s)

    async def until(self, holds: Callable[[], bool], *, within_s: float, every_s: float = 0.05) -> float:
        """Wait until something holds; return how long it took. Fails where it does not within `within_s`."""
        began_s = self.now_s
        while not holds():
            if self.now_s - began_s > within_s:
                raise AssertionError(f"not within {within_s} s; owners: {self.owners()}, at {self.now_s}")
            await anyio.sleep(every_s)
        return self.now_s - began_s

    async def until_ended(self, place: str, *, within_s: float) -> tuple[int, float]:
        """Wait until a host has ended; return its exit status and how long that took, seconds."""
        task = self.hosts[place].task
        took_s = await self.until(task.done, within_s=within_s, every_s=0.01)
        return task.result(), took_s

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
