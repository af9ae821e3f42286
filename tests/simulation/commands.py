"""
The product's own commands in a storm, given now and then by operators, each at a place of its own.

Whoever gives one may be killed, frozen or cut off in the middle of it, as a terminal may. Knows no host but by name;
what a command says once it is over is in `given`, for `judged` to compare with the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import anyio

from partitions.errors import SourceUnavailable, StoreUnavailable
from partitions.weights import load_rule_of
from processor_host.errors import UserError
from processor_host.operating.carrying import Export, export_leases
from processor_host.operating.draining import drain, forget_host
from processor_host.operating.explaining import Explained, explain
from processor_host.operating.operator import Operator
from processor_host.operating.pausing import pause, resume
from processor_host.operating.resetting import release, reset
from tests.simulation.facts import Facts
from tests.simulation.guests import Guests
from tests.simulation.operators import OperatorAt
from tests.simulation.parameters import CLOCK_RATES, CUT_DURATIONS, FREEZE_DURATIONS
from tests.simulation.storm import Cut
from tests.world.checks import position_order
from tests.world.clocks import PlaceClock
from tests.world.loop import Killed, VirtualTask, result_of
from tests.world.network import Call

__all__ = ["REFUSALS", "Commands", "Given"]

Doing = VirtualTask[Any]
Start = Callable[[Coroutine[Any, Any, None]], None]
"""Begins something in the world, whoever asks for it."""

REFUSALS: Final = (UserError, StoreUnavailable, SourceUnavailable)
"""What a command may end with: it refuses, or store or source were away for longer than its patience."""
FATES: Final[Mapping[str, float]] = {
    "none": 4.0,
    "kill": 1.0,
    "kill at an acquire": 2.0,
    "cut requests": 1.0,
    "cut answers": 1.0,
    "freeze": 1.0,
}
"""What befalls the place in the middle of a command, and how often beside each other."""
STRUCK_S: Final = 4.0
"""It does so within so much time: most commands are over by then where nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One command that is over."""

    name: str
    place: str
    began_s: float
    ended_s: float
    outcome: Any
    """What it returned, or the exception that it ended with."""


class Commands:
    """
    The operators of a run.

    Attributes:
        given: The commands that are over, and were not killed.
    """

    def __init__(self, guests: Guests, every_s: float, start: Start, on_pause: Callable[[], None]) -> None:
        self.given: list[Given] = []
        self._on_pause = on_pause
        self._guests = guests
        self._world = guests.world
        self._storm = guests.storm
        self._duration_s = guests.parameters.duration_s
        self._every_s = every_s
        self._start = start
        self._random = Random(f"commands of {guests.parameters.seed}")
        self._places: list[str] = []
        """Where a command goes on."""
        self._ambushed: set[str] = set()
        """Those that die once they have sent an acquire."""
        self._count = 0

    async def give_now_and_then(self) -> None:
        """Give one command after the other, whether or not the one before is over, until cancelled."""
        while self._every_s:
            await anyio.sleep(self._random.expovariate(1 / self._every_s))
            if self._world.leases() and self._guests.guests:
                [name] = self._random.choices(list(COMMANDS), [often for _, often in COMMANDS.values()])
                self._start(self._give(name))

    def end(self) -> None:
        """Kill who is still at one, for the storm is over."""
        for place in list(self._places):
            self._kill(place)

    def called(self, call: Call) -> None:
        """See a call, of whomever, as it is sent."""
        if call.operation == "Acquire" and call.place in self._ambushed:
            self._ambushed.discard(call.place)
            self._start(self._strike(call.place, "kill", 2 * self._world.latency_s))

    async def _give(self, name: str) -> None:
        self._count += 1
        place = f"operator{self._count}"
        clock = PlaceClock(rate=self._random.uniform(*CLOCK_RATES), offset_s=self._random.uniform(0, 1e6))
        began_s = self._world.now_s
        doing = COMMANDS[name][0](self, OperatorAt(self._world, place, clock=clock))
        self._guests.did(f"{place} gives the command {name}")
        self._places.append(place)
        self._befall(place)
        outcome: Any
        try:
            outcome = await result_of(doing)
        except Killed:
            return
        # Containment: the judgement tells which errors a command may end with.
        except Exception as error:
            outcome = error
        self._places.remove(place)
        self._guests.did(f"{place} is told {outcome!r}")
        self.given.append(Given(name=name, place=place, began_s=began_s, ended_s=self._world.now_s, outcome=outcome))

    # --- What befalls an operator -----------------------------------------------------------------------------------

    def _befall(self, place: str) -> None:
        [fate] = self._random.choices(list(FATES), list(FATES.values()))
        if fate == "kill at an acquire":
            self._ambushed.add(place)
        elif fate != "none":
            self._start(self._strike(place, fate, STRUCK_S))

    async def _strike(self, place: str, fate: str, within_s: float) -> None:
        lasts_s = self._random.uniform(*(FREEZE_DURATIONS if fate == "freeze" else CUT_DURATIONS)) * self._duration_s
        await anyio.sleep(self._random.uniform(0, within_s))
        if place not in self._places:
            return
        self._guests.did(f"{fate}: {place}")
        if fate == "kill":
            self._kill(place)
        elif fate == "freeze":
            self._world.freeze(place)
            await anyio.sleep(lasts_s)
            if place in self._places:
                self._world.thaw(place)
        else:
            self._storm.cuts[place] = Cut(loses=fate.removeprefix("cut "), source_too=True)
            await anyio.sleep(lasts_s)
            self._storm.cuts.pop(place, None)

    def _kill(self, place: str) -> None:
        self._places.remove(place)
        self._world.kill(place)

    # --- The commands, with drawn arguments -------------------------------------------------------------------------

    def _pause(self, at: OperatorAt) -> Doing:
        self._on_pause()
        names = self._some()
        self._start(self._resume_later())
        return at.start(pause, names, waits=self._random.random() < 0.5)

    async def _resume_later(self) -> None:
        await anyio.sleep(self._random.uniform(*CUT_DURATIONS) * self._duration_s)
        if self._storm.is_on:
            await self._give(RESUME)

    def _resume(self, at: OperatorAt) -> Doing:
        paused = [name for name, lease in sorted(self._world.leases().items()) if lease.paused]
        return at.start(resume, paused or self._some())

    def _drain(self, at: OperatorAt) -> Doing:
        host = self._host()
        if len(self._guests.guests) == 1:
            # Nobody would be left; so is a name refused that is nobody's.
            host = "nobody"
        return at.start(drain, host, wait_s=self._random.choice([0.0, 2.0]) * self._duration_s)

    def _forget(self, at: OperatorAt) -> Doing:
        return at.start(forget_host, self._host())

    def _release(self, at: OperatorAt) -> Doing:
        return at.start(release, self._some())

    def _reset(self, at: OperatorAt) -> Doing:
        names = self._some()
        if self._random.random() < 0.3:
            return at.start(reset, at.source, names, "latest")
        # Only to where the group has been: what lies before its first position was never its own.
        first = Facts(self._world).first[names[0]]
        stored = position_order(self._world.leases()[names[0]].position)
        to = first if stored == math.inf else self._random.randint(first, int(stored))
        return at.start(reset, at.source, names[:1], str(to))

    def _look(self, at: OperatorAt) -> Doing:
        return at.start(look)

    def _some(self) -> list[str]:
        names = sorted(self._world.leases())
        return self._random.sample(names, k=min(len(names), self._random.choice([1, 1, 2])))

    def _host(self) -> str:
        """Mostly one that lives; some session may be left of one that does not."""
        sessions = [session.host_id for session in self._world.sessions().values()]
        living = [guest.drawn.host_id for guest in self._guests.guests.values()]
        return self._random.choice(living + sessions)


async def look(operator: Operator) -> tuple[Export, Explained]:
    """Do what `leases export` and `plan` do; neither changes anything."""
    load = load_rule_of(await operator.group_item())
    snapshot = await operator.snapshot()
    explained = explain(snapshot.leases.values(), snapshot.sessions.values(), load=load)
    return await export_leases(operator), explained


RESUME: Final = "resume"
COMMANDS: Final[Mapping[str, tuple[Callable[[Commands, OperatorAt], Doing], float]]] = {
    "pause": (Commands._pause, 1.0),
    RESUME: (Commands._resume, 0.5),
    "drain": (Commands._drain, 1.0),
    "forget": (Commands._forget, 1.0),
    "release": (Commands._release, 2.0),
    "reset": (Commands._reset, 4.0),
    "look": (Commands._look, 0.5),
}
"""By name, and how often beside each other."""
