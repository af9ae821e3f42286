"""
What befalls the hosts and the stream of a run: kills, freezes, cuts, stops, joins, splits, drawn one after the other.

It disturbs no call; `storm` does. Some troubles are ambushes: they wait for a host's next call of some operation and
strike while it is on its way, where random moments seldom hit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from partitions.errors import StoreError
from partitions.retries import call as call_store
from partitions.verbs import Drain
from tests.simulation.parameters import FOCUS, HostParameters, Parameters
from tests.simulation.processors import SimulatedProcessor
from tests.simulation.storm import Cut, Storm
from tests.world.clocks import PlaceClock
from tests.world.loop import PLACE, run_in_place
from tests.world.network import Call, PlaceStore
from tests.world.world import GROUP, World

__all__ = ["Exit", "Guest", "Troubles"]

PARTITIONS_MAX: Final = 20
"""Partitions, ended ones too, from which on none is split; it keeps a run quick."""
OPERATIONS: Final = tuple(name for name in FOCUS if not name.startswith("source."))
ON_THE_CALLER: Final = ("kill", "freeze", "suspend", "cut requests", "cut answers", "cancel", "stop")
"""Troubles that can be ambushes."""


@dataclass(slots=True)
class Guest:
    """One host that runs, or is frozen."""

    drawn: HostParameters
    started_s: float
    told: str | None = None
    """"stop", "drain" or "cancel", once it was told to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a host ended by itself."""

    at_s: float
    place: str
    told: str | None
    status: int | None
    error: BaseException | None


class Troubles:
    """
    The hosts of a run, and what happens to them.

    Attributes:
        guests: The living hosts, by place.
        drawn_hosts: Every host that was started.
        exits: Every host that ended by itself.
        actions: What was done when, for people.
    """

    def __init__(self, world: World, storm: Storm, parameters: Parameters, tasks: TaskGroup) -> None:
        self.guests: dict[str, Guest] = {}
        self.drawn_hosts: list[HostParameters] = []
        self.exits: list[Exit] = []
        self.actions: list[tuple[float, str]] = []
        self._world = world
        self._storm = storm
        self._parameters = parameters
        self._tasks = tasks
        self._random = Random(f"troubles of {parameters.seed}")
        self._frozen: dict[str, object] = {}
        self._ambushes: dict[str, tuple[str, str]] = {}
        """Operation and trouble, by place."""
        self._names = 0
        storm.on_call = self._called

    # --- The storm --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start the first hosts, then make trouble until the storm's time is over."""
        until_s = self._world.now_s + self._parameters.storm_s
        for _ in range(self._parameters.hosts):
            self.start_host()
        kinds, weights = list(self._parameters.troubles), list(self._parameters.troubles.values())
        while True:
            await anyio.sleep(self._random.expovariate(1 / self._parameters.trouble_every_s))
            if self._world.now_s >= until_s:
                return
            self.look_after()
            [kind] = self._random.choices(kinds, weights)
            self._make(kind)
            if not self.guests:
                self.start_host()

    async def produce(self) -> None:
        """Write records, to random open partitions, until cancelled."""
        random = Random(f"records of {self._parameters.seed}")
        number = 0
        while True:
            await anyio.sleep(random.expovariate(self._parameters.records_per_s))
            partition = random.choice(self._open_partitions())
            self._world.source.put(partition, b"%d" % number, key=partition)
            number += 1

    def heal(self) -> None:
        """End every trouble that goes on."""
        self._did("heal")
        self._ambushes.clear()
        for place in list(self._frozen):
            self._thaw(place)
        self.look_after()

    def start_host(self, host_id: str | None = None, **changes: Any) -> str:
        """Start a host, under a new id unless one is given; return its place."""
        place = f"n{self._names}"
        self._names += 1
        drawn = HostParameters.draw(self._random, self._parameters, place, host_id or place, **changes)
        self.drawn_hosts.append(drawn)
        self._did(f"start {drawn.show()}")
        if drawn.stubborn:
            self._world.stubborn.add(place)
        self._world.start(
            place,
            host_id=drawn.host_id,
            processor=lambda: SimulatedProcessor(self._world, drawn, self._parameters, lambda: self._storm.is_on),
            clock=PlaceClock(rate=drawn.clock_rate, offset_s=drawn.clock_offset_s),
            start=self._parameters.start,
            handoff_s=drawn.handoff_s,
            drain_timeout_s=drawn.drain_timeout_s,
            capacity=drawn.capacity,
            max_leases=drawn.max_leases,
            audit_interval_s=self._parameters.audit_interval_s,
            discovery_interval_s=self._parameters.discovery_interval_s,
            checkpoint_interval_s=drawn.checkpoint_interval_s,
            batch_records_max=drawn.batch_records_max,
            read_wait_s=drawn.read_wait_s,
            restart_pause_max_s=drawn.restart_pause_max_s,
        )
        self.guests[place] = Guest(drawn, self._world.now_s)
        return place

    def look_after(self) -> None:
        """Note which hosts have ended by themselves."""
        for place, guest in list(self.guests.items()):
            task = self._world.hosts[place].task
            if task.done():
                error = task.exception()
                status = None if error is not None else task.result()
                self.exits.append(
                    Exit(at_s=self._world.now_s, place=place, told=guest.told, status=status, error=error)
                )
                self._did(f"{place} has ended: {status if error is None else error!r}")
                del self.guests[place]

    def stop(self, place: str) -> None:
        """Tell a host to stop in order."""
        self._did(f"stop {place}")
        self.guests[place].told = "stop"
        self._world.stop(place)

    # --- One trouble ------------------------------------------------------------------------------------------------

    def _make(self, kind: str) -> None:
        if kind in ("split", "merge", "close"):
            self._reshard(kind)
        elif kind == "join":
            if len(self.guests) < self._parameters.hosts_max:
                self.start_host()
        elif able := [
            place
            for place, guest in self.guests.items()
            if place not in self._frozen and guest.started_s < self._world.now_s
        ]:
            place = self._random.choice(able)
            if kind in ON_THE_CALLER and self._random.random() < self._parameters.ambush:
                self._ambushes[place] = (self._random.choice(OPERATIONS), kind)
            else:
                self._befall(place, kind)

    def _called(self, call: Call) -> None:
        operation, kind = self._ambushes.get(call.place, ("", ""))
        if operation == call.operation and self._storm.is_on:
            del self._ambushes[call.place]
            on_its_way_s = self._random.choice([2 * self._world.latency_s, self._parameters.duration_s / 6])
            self._later(self._random.uniform(0, on_its_way_s), lambda: self._spring(call, kind))

    def _spring(self, call: Call, kind: str) -> None:
        if call.place in self.guests and call.place not in self._frozen:
            self._did(f"ambush of {call.place} at {call.operation}")
            self._befall(call.place, kind)

    def _befall(self, place: str, kind: str) -> None:
        drawn, duration_s = self.guests[place].drawn, self._parameters.duration_s
        if kind == "namesake":
            if len(self.guests) < self._parameters.hosts_max:
                self.start_host(drawn.host_id)
        elif kind in ("freeze", "suspend"):
            self._freeze(place, clock_stops=kind == "suspend")
        elif kind in ("cut requests", "cut answers"):
            cut = Cut(loses=kind.partition(" ")[2], source_too=self._random.random() < 0.3)
            self._did(f"{place}: {kind}{' and the source' if cut.source_too else ''}")
            self._storm.cuts[place] = cut
            self._later(self._random.uniform(0.3, 3) * duration_s, lambda: self._mend(place, cut))
        elif kind == "operator's drain":
            if len(self.guests) > 1:
                self._later(0.0, lambda: self._in_world(self._drain()))
        elif len(self.guests) > 1 or kind == "kill":
            self._end(place, kind)

    def _end(self, place: str, kind: str) -> None:
        guest = self.guests[place]
        if kind == "stop":
            self.stop(place)
        elif kind == "cancel":
            self._did(f"cancel {place}")
            guest.told = "cancel"
            # In its place, so that it freezes and dies with it.
            run_in_place(place, self._cancel, place, name=f"cancel {place}")
        else:
            self._did(f"kill {place}")
            self._world.kill(place)
            self._frozen.pop(place, None)
            del self.guests[place]
        if (kind == "kill" and not self.guests) or self._random.random() < 0.5:
            # Within a duration, mostly: a restart, while the session of its life before may still be there.
            self._later(self._random.uniform(0, 1.3) * self._parameters.duration_s, lambda: self._restart(guest))

    def _restart(self, guest: Guest) -> None:
        if len(self.guests) < self._parameters.hosts_max:
            self.start_host(guest.drawn.host_id)

    async def _cancel(self, place: str) -> None:
        self._world.hosts[place].host.cancel()

    def _freeze(self, place: str, *, clock_stops: bool) -> None:
        self._did(f"freeze {place}{', its clock too' if clock_stops else ''}")
        self._world.freeze(place, clock_stops=clock_stops)
        this = self._frozen[place] = object()
        time_s = self._random.uniform(0.1, 3) * self._parameters.duration_s
        kind = "kill" if self._random.random() < 0.1 else "thaw"

        def end() -> None:
            if self._frozen.get(place) is not this:
                return
            if kind == "kill":
                self._end(place, "kill")
            else:
                self._thaw(place)

        self._later(time_s, end)

    def _thaw(self, place: str) -> None:
        self._did(f"thaw {place}")
        del self._frozen[place]
        self._world.thaw(place)

    def _mend(self, place: str, cut: Cut) -> None:
        if self._storm.cuts.get(place) is cut:
            self._did(f"{place}: no longer cut off")
            del self._storm.cuts[place]

    async def _drain(self) -> None:
        """Ask a session to drain, as an operator does."""
        sessions = list(self._world.sessions().values())
        if not sessions:
            return
        session = self._random.choice(sessions)
        for guest in self.guests.values():
            if guest.drawn.host_id == session.host_id and guest.told is None:
                guest.told = "drain"
        self._did(f"operator's drain of {session.session_id}")
        store = PlaceStore(self._world.network)
        try:
            await call_store(lambda: store.submit(GROUP, Drain(session_id=session.session_id)), 5.0)
        except StoreError as error:
            self._did(f"operator's drain failed: {error}")

    def _reshard(self, kind: str) -> None:
        source, able = self._world.source, self._open_partitions()
        if kind == "close" and len(able) > 1:
            self._did(f"close {(name := self._random.choice(able))}")
            source.close_partition(name)
        elif len(source.list_now()) >= PARTITIONS_MAX:
            return
        elif kind == "split":
            self._did(f"split {(name := self._random.choice(able))}")
            source.split(name)
        elif kind == "merge" and len(able) > 1:
            a, b = self._random.sample(able, 2)
            self._did(f"merge {a} and {b}")
            source.merge(a, b)

    def _open_partitions(self) -> list[str]:
        return [info.partition for info in self._world.source.list_now() if not info.closed]

    def _did(self, what: str) -> None:
        self.actions.append((self._world.now_s, what))

    # --- Later ------------------------------------------------------------------------------------------------------

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await anyio.sleep(after_s)
            if self._storm.is_on:
                act()

        self._in_world(wait())

    def _in_world(self, work: Coroutine[Any, Any, None]) -> None:
        # The caller may be in a place, and would take what it starts with it when it freezes or dies.
        context = copy_context()
        context.run(PLACE.set, None)
        context.run(self._tasks.start_soon, _await, work)


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work
