"""
The hosts of a run: who lives, who has ended and how, and how the next one is drawn and started.

It does nothing to a host but start it and tell it to stop; `troubles` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from partitions.verbs import Applied, Drain, Register
from tests.simulation.handlers import Letters, handler_of
from tests.simulation.modes import PLAIN, Modes
from tests.simulation.parameters import HostParameters, Parameters
from tests.simulation.sharing import EVEN, Sharing
from tests.simulation.storm import Storm
from tests.world.clocks import PlaceClock
from tests.world.network import Write
from tests.world.world import World

__all__ = ["CANCELLED", "Exit", "Guest", "Guests"]

CANCELLED: Final = ("cancel", "", 0)
"""A note in the world's of a host that is cancelled, in the shape of all notes: what, partition, token."""


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


class Guests:
    """
    The hosts of a run.

    Attributes:
        guests: The living hosts, by place.
        drawn_hosts: Every host that was started.
        exits: Every host that ended by itself.
        actions: What was done when, for people.
        stuck_until_s: Until when a record is in hands that let nobody take it.
        ill: The places on which nothing can be handled.
        on_start: Called with the place of each host that was started.
    """

    def __init__(
        self,
        world: World,
        storm: Storm,
        parameters: Parameters,
        modes: Modes = PLAIN,
        sharing: Sharing = EVEN,
    ) -> None:
        self.guests: dict[str, Guest] = {}
        self.drawn_hosts: list[HostParameters] = []
        self.exits: list[Exit] = []
        self.actions: list[tuple[float, str]] = []
        self.stuck_until_s = 0.0
        self.ill: set[str] = set()
        self.on_start: Callable[[str], None] = lambda _: None
        self.modes = modes
        self.sharing = sharing
        self.world = world
        self.storm = storm
        self.parameters = parameters
        self.random = Random(f"troubles of {parameters.seed}")
        self._names = 0
        self._places: dict[str, str] = {}
        """Of each session."""
        self._witness = world.network.on_write
        world.network.on_write = self._note

    def start_host(self, host_id: str | None = None, **changes: Any) -> str:
        """Start a host, under a new id unless one is given; return its place."""
        place = f"n{self._names}"
        self._names += 1
        drawn = HostParameters.draw(self.random, self.parameters, place, host_id or place, **changes)
        self.drawn_hosts.append(drawn)
        self.did(f"start {drawn.show()}")
        if drawn.stubborn:
            self.world.stubborn.add(place)
        self.world.start(
            place,
            host_id=drawn.host_id,
            processor=handler_of(
                self.modes,
                self,
                place,
                self.world,
                drawn,
                self.parameters,
                is_stormy=lambda: self.storm.is_on,
                on_stuck=self._stuck,
            ),
            handling={"on_failure": self.modes.on_failure(Letters(self.world, place, self.modes))},
            clock=PlaceClock(rate=drawn.clock_rate, offset_s=drawn.clock_offset_s),
            start=self.parameters.start,
            handoff_s=drawn.handoff_s,
            drain_timeout_s=drawn.drain_timeout_s,
            capacity=drawn.capacity,
            max_leases=drawn.max_leases,
            audit_interval_s=self.parameters.audit_interval_s,
            discovery_interval_s=self.parameters.discovery_interval_s,
            checkpoint_interval_s=drawn.checkpoint_interval_s,
            batch_records_max=drawn.batch_records_max,
            read_wait_s=drawn.read_wait_s,
            restart_pause_max_s=drawn.restart_pause_max_s,
            **self.modes.settings(),
            **self.sharing.settings(),
        )
        self.guests[place] = Guest(drawn, self.world.now_s)
        self.on_start(place)
        return place

    def look_after(self) -> None:
        """Note which hosts have ended by themselves."""
        for place, guest in list(self.guests.items()):
            task = self.world.hosts[place].task
            if task.done():
                error = task.exception()
                status = None if error is not None else task.result()
                self.exits.append(Exit(at_s=self.world.now_s, place=place, told=guest.told, status=status, error=error))
                self.did(f"{place} has ended: {status if error is None else error!r}")
                del self.guests[place]

    def make_room(self) -> None:
        """Start a host that may take everything where those that stay may not; nobody else is asked to."""
        self.look_after()
        staying = [guest for guest in self.guests.values() if guest.told is None]
        if not any(guest.drawn.max_leases is None for guest in staying):
            self.start_host(max_leases=None)

    def stop(self, place: str) -> None:
        """Tell a host to stop in order."""
        self.did(f"stop {place}")
        self.guests[place].told = "stop"
        self.world.stop(place)

    def is_ill(self, place: str) -> bool:
        """Say whether nothing can be handled on a place."""
        return place in self.ill

    def kill_soon(self, place: str) -> None:
        """Kill a place whose record does that, as soon as the caller lets go of the loop."""
        raise NotImplementedError

    def _note(self, write: Write) -> None:
        """See which sessions are asked to drain, as they are: a command chooses them by itself."""
        self._witness(write)
        if isinstance(write.verb, Register):
            self._places[write.verb.session_id] = write.place
        elif isinstance(write.verb, Drain) and isinstance(write.result, Applied):
            guest = self.guests.get(self._places[write.verb.session_id])
            if guest is not None and guest.told is None:
                guest.told = "drain"

    def _stuck(self, until_s: float) -> None:
        self.stuck_until_s = max(self.stuck_until_s, until_s)

    def did(self, what: str) -> None:
        """Note what was done, for people."""
        self.actions.append((self.world.now_s, what))
