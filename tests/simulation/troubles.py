"""
What befalls the hosts and the stream of a run: kills, freezes, cuts, stops, joins, splits, drawn one after the other.

It disturbs no call; `storm` does. Some troubles are ambushes: they wait for a host's next call of some operation and
strike while it is on its way, where random moments seldom hit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from random import Random
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from tests.simulation.commands import Commands
from tests.simulation.guests import CANCELLED, Guest, Guests
from tests.simulation.modes import PLAIN, STOP, Modes
from tests.simulation.operator import Operator
from tests.simulation.parameters import CUT_DURATIONS, FOCUS, FREEZE_DURATIONS, Parameters
from tests.simulation.sharing import EVEN, Sharing
from tests.simulation.storm import Cut, Storm
from tests.world.loop import PLACE, run_in_place
from tests.world.network import Call
from tests.world.world import World

__all__ = ["Troubles"]

PARTITIONS_MAX: Final = 20
"""Partitions, ended ones too, from which on none is split; it keeps a run quick."""
AMBUSHES: Final = {name: 1.0 for name in FOCUS if not name.startswith("source.")} | {
    "Acquire": 4.0,
    "Ask": 4.0,
    "Release": 2.0,
    "Complete": 2.0,
}
"""Operations at which a trouble may wait, and how often beside each other."""
ON_THE_CALLER: Final = ("kill", "freeze", "suspend", "cut requests", "cut answers", "cancel", "stop")
"""Troubles that can be ambushes."""


class Troubles(Guests):
    """What happens to the hosts of a run, and to its stream."""

    def __init__(
        self,
        world: World,
        storm: Storm,
        parameters: Parameters,
        tasks: TaskGroup,
        modes: Modes = PLAIN,
        sharing: Sharing = EVEN,
    ) -> None:
        super().__init__(world, storm, parameters, modes, sharing)
        self.operator = Operator(self)
        self.commands = Commands(self, sharing.commands_every_s, self._in_world, self.operator.note_paused)
        self._tasks = tasks
        self._frozen: dict[str, object] = {}
        self._ambushes: dict[str, tuple[str, str]] = {}
        """Operation and trouble, by place."""
        storm.on_call = self._called

    # --- The storm --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start the first hosts, then make trouble until the storm's time is over."""
        until_s = self.world.now_s + self.parameters.storm_s
        for _ in range(self.parameters.hosts):
            self.start_host()
        kinds, weights = list(self.parameters.troubles), list(self.parameters.troubles.values())
        while True:
            await anyio.sleep(self.random.expovariate(1 / self.parameters.trouble_every_s))
            if self.world.now_s >= until_s:
                return
            self.look_after()
            [kind] = self.random.choices(kinds, weights)
            self._make(kind)
            if not self.guests:
                self.start_host()

    async def produce(self) -> None:
        """Write records, to random open partitions, until cancelled."""
        random = Random(f"records of {self.parameters.seed}")
        number = 0
        while True:
            await anyio.sleep(random.expovariate(self.parameters.records_per_s))
            partition = self.sharing.one_of(self._open_partitions(), random)
            key = partition if self.modes.keys == 1 else f"{partition}/{number % self.modes.keys}"
            self.world.source.put(partition, b"%d" % number, key=key)
            number += 1

    async def fall_ill_now_and_then(self) -> None:
        """Let hosts be unable to handle anything for a while, single ones or all at once, until cancelled."""
        random = Random(f"illnesses of {self.parameters.seed}")
        while self.modes.ill_every_s:
            await anyio.sleep(random.expovariate(1 / self.modes.ill_every_s))
            if self.guests:
                for place in random.sample(list(self.guests), random.choice([1, 1, len(self.guests)])):
                    self._fall_ill(place, random.uniform(1, 6) * self.modes.sick_after_s)

    async def resume_now_and_then(self) -> None:
        """Resume what failure policies have paused, until cancelled."""
        while self.modes.policy == STOP:
            await anyio.sleep(2 * self.parameters.duration_s)
            await self.operator.resume_some()

    def are_resting(self) -> bool:
        """Say whether some host keeps away, or is about to, because it was sick."""
        self.look_after()
        return any("sick" in self.world.hosts[place].host.health().detail for place in self.guests)

    def heal(self) -> None:
        """End every trouble that goes on."""
        self.did("heal")
        self.commands.end()
        self._ambushes.clear()
        self.ill.clear()
        for place in list(self._frozen):
            self._thaw(place)
        self.look_after()

    # --- One trouble ------------------------------------------------------------------------------------------------

    def _make(self, kind: str) -> None:
        if kind in ("split", "merge", "close"):
            self._reshard(kind)
        elif kind == "join":
            if len(self.guests) < self.parameters.hosts_max:
                self.start_host()
        elif able := [
            place
            for place, guest in self.guests.items()
            if place not in self._frozen and guest.started_s < self.world.now_s
        ]:
            place = self.random.choice(able)
            if kind in ON_THE_CALLER and self.random.random() < self.parameters.ambush:
                [operation] = self.random.choices(list(AMBUSHES), list(AMBUSHES.values()))
                self._ambushes[place] = (operation, kind)
            else:
                self._befall(place, kind)

    def _called(self, call: Call) -> None:
        self.commands.called(call)
        operation, kind = self._ambushes.get(call.place, ("", ""))
        if operation == call.operation and self.storm.is_on:
            del self._ambushes[call.place]
            on_its_way_s = self.random.choice([2 * self.world.latency_s, self.parameters.duration_s / 6])
            self._later(self.random.uniform(0, on_its_way_s), lambda: self._spring(call, kind))

    def _spring(self, call: Call, kind: str) -> None:
        if call.place in self.guests and call.place not in self._frozen:
            self.did(f"ambush of {call.place} at {call.operation}")
            self._befall(call.place, kind)

    def _befall(self, place: str, kind: str) -> None:
        drawn = self.guests[place].drawn
        if kind == "namesake":
            if len(self.guests) < self.parameters.hosts_max:
                self.start_host(drawn.host_id)
        elif kind in ("freeze", "suspend"):
            self._freeze(place, clock_stops=kind == "suspend")
        elif kind in ("cut requests", "cut answers"):
            self._cut(place, kind.partition(" ")[2], self.random.uniform(*CUT_DURATIONS) * self.parameters.duration_s)
        elif kind == "operator's drain":
            if len(self.guests) > 1:
                self._later(0.0, lambda: self._in_world(self.operator.drain()))
        elif len(self.guests) > 1 or kind == "kill":
            self._end(place, kind)

    def _end(self, place: str, kind: str) -> None:
        guest = self.guests[place]
        if kind == "stop":
            self.stop(place)
        elif kind == "cancel":
            self.did(f"cancel {place}")
            guest.told = "cancel"
            self.world.note(place, *CANCELLED)
            # In its place, so that it freezes and dies with it.
            run_in_place(place, self._cancel, place, name=f"cancel {place}")
        else:
            self.did(f"kill {place}")
            self.world.kill(place)
            self._frozen.pop(place, None)
            del self.guests[place]
        if (kind == "kill" and not self.guests) or self.random.random() < 0.5:
            # Within a duration, mostly: a restart, while the session of its life before may still be there.
            self._later(self.random.uniform(0, 1.3) * self.parameters.duration_s, lambda: self._restart(guest))

    def kill_soon(self, place: str) -> None:
        """See `Guests`."""

        async def kill() -> None:
            if place in self.guests and self.storm.is_on:
                self.did(f"a record kills {place}")
                self._end(place, "kill")

        self._in_world(kill())

    def _fall_ill(self, place: str, time_s: float) -> None:
        self.did(f"{place} falls ill")
        self.ill.add(place)

        def recover() -> None:
            self.did(f"{place} is well again")
            self.ill.discard(place)

        self._later(time_s, recover)

    def _restart(self, guest: Guest) -> None:
        if len(self.guests) < self.parameters.hosts_max:
            self.start_host(guest.drawn.host_id)

    async def _cancel(self, place: str) -> None:
        self.world.hosts[place].host.cancel()

    def _freeze(self, place: str, *, clock_stops: bool) -> None:
        self.did(f"freeze {place}{', its clock too' if clock_stops else ''}")
        self.world.freeze(place, clock_stops=clock_stops)
        this = self._frozen[place] = object()
        time_s = self.random.uniform(*FREEZE_DURATIONS) * self.parameters.duration_s
        kind = "kill" if self.random.random() < 0.1 else "thaw"

        def end() -> None:
            if self._frozen.get(place) is not this:
                return
            if kind == "kill" and place in self.guests:
                self._end(place, "kill")
            else:
                self._thaw(place)

        self._later(time_s, end)

    def _thaw(self, place: str) -> None:
        self.did(f"thaw {place}")
        del self._frozen[place]
        if self.storm.is_on and self.world.clocks[place].stands_still and self.random.random() < 0.5:
            # Its clock says that the session lives, and no beat tells otherwise: only what it reads does.
            self._cut(place, "beats", self.parameters.duration_s / 2)
        self.world.thaw(place)

    def _cut(self, place: str, loses: str, time_s: float) -> None:
        cut = Cut(loses=loses, source_too=self.random.random() < 0.3)
        self.did(f"{place}: cut off, loses {loses}{' of the source too' if cut.source_too else ''}")
        self.storm.cuts[place] = cut
        self._later(time_s, lambda: self._mend(place, cut))

    def _mend(self, place: str, cut: Cut) -> None:
        if self.storm.cuts.get(place) is cut:
            self.did(f"{place}: no longer cut off")
            del self.storm.cuts[place]

    def _reshard(self, kind: str) -> None:
        source, able = self.world.source, self._open_partitions()
        if kind == "close" and len(able) > 1:
            self.did(f"close {(name := self.random.choice(able))}")
            source.close_partition(name)
        elif len(source.list_now()) >= PARTITIONS_MAX:
            return
        elif kind == "split":
            self.did(f"split {(name := self.random.choice(able))}")
            source.split(name)
        elif kind == "merge" and len(able) > 1:
            a, b = self.random.sample(able, 2)
            self.did(f"merge {a} and {b}")
            source.merge(a, b)

    def _open_partitions(self) -> list[str]:
        return [info.partition for info in self.world.source.list_now() if not info.closed]

    # --- Later ------------------------------------------------------------------------------------------------------

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await anyio.sleep(after_s)
            if self.storm.is_on:
                act()

        self._in_world(wait())

    def _in_world(self, work: Coroutine[Any, Any, None]) -> None:
        # The caller may be in a place, and would take what it starts with it when it freezes or dies.
        context = copy_context()
        context.run(PLACE.set, None)
        context.run(self._tasks.start_soon, _await, work)


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work
