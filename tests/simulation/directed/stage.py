"""
The stage of a directed schedule: a virtual world without weather, hosts and puppets in it, and the calm after.

The calm is that of the swarm: the same demands, under the same names, of a group whose faults are all off.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import replace
from random import Random
from typing import Any, Final

from anyio.abc import TaskGroup

from partitions.items import ask_key
from partitions.verbs import Applied, Ask, Create, Verb
from tests.simulation.checkers import Failure
from tests.simulation.directed.puppet import Puppet
from tests.simulation.guests import CANCELLED, Guest
from tests.simulation.liveness import Calm, judge_exits
from tests.simulation.parameters import HostParameters, Parameters
from tests.simulation.storm import Storm
from tests.simulation.troubles import Troubles
from tests.world.clocks import PlaceClock
from tests.world.loop import PLACE, result_of, run_in_place
from tests.world.network import Call, Fault, PlaceStore
from tests.world.world import GROUP, RunningHost, World

__all__ = ["DRIFTING", "Stage", "of"]

DRIFTING: Final = (0.995, 1.005)
"""The rates of the slowest and of the fastest clock: together they differ by what is allowed, 1 %."""


def of(place: str, *operations: str, partition: str | None = None) -> Callable[[Call], bool]:
    """Match the calls of one place, of these operations or of all but the source's, about one partition or any."""
    return lambda call: (
        call.place == place
        and (call.operation in operations if operations else not call.operation.startswith("source."))
        and partition in (None, call.partition)
    )


class Stage:
    """
    One schedule's world.

    Attributes:
        world: The world.
        seen: How often something rare was arranged that leaves no trace in the history.
    """

    def __init__(self, world: World, tasks: TaskGroup) -> None:
        self.world = world
        self._drawn = replace(
            Parameters.draw(world.seed), duration_s=world.duration_s, discovery_interval_s=30.0, audit_interval_s=60.0
        )
        storm = Storm(world, self._drawn)
        storm.end(lose_late=False)
        self.seen = storm.seen
        self._tasks = tasks
        self._troubles = Troubles(world, storm, self._drawn, tasks)
        self._puppets: list[Puppet] = []

    def make_leases(self) -> None:
        """Make the lease of every listed partition, as discovery would."""
        for info in self.world.source.list_now():
            self.world.store.apply_now(GROUP, Create(partition=info.partition, position="0", parents=info.parents))

    def host(
        self,
        place: str,
        *,
        host_id: str | None = None,
        stubborn: bool = False,
        clock: PlaceClock | None = None,
        processor: object = None,
        record_s: float = 0.05,
        **settings: Any,
    ) -> RunningHost:
        """Start a real host."""
        values: dict[str, Any] = {"drain_timeout_s": 20.0, "batch_records_max": 10}
        values |= {"handoff_s": 3 * self.world.duration_s} | dict(self.world.settings) | settings
        guest = HostParameters.draw(
            Random(place),
            self._drawn,
            place,
            host_id or place,
            stubborn=stubborn,
            handoff_s=values["handoff_s"],
            drain_timeout_s=values["drain_timeout_s"],
            capacity=values.get("capacity", 1.0),
            max_leases=values.get("max_leases"),
        )
        running = self.world.start(
            place,
            host_id=host_id,
            stubborn=stubborn,
            clock=clock,
            processor=processor,
            record_s=record_s,
            **values,
        )
        self._troubles.guests[place] = Guest(guest, self.world.now_s)
        return running

    def make_puppet(self, place: str, **what: Any) -> Puppet:
        """Make a puppet, which begins to register; see `Puppet`."""
        puppet = Puppet(self.world, place, **what)
        self._puppets.append(puppet)
        return puppet

    async def puppet(self, place: str, **what: Any) -> Puppet:
        """Make a puppet, and wait until its session lives or could not be begun."""
        puppet = self.make_puppet(place, **what)
        await puppet.registered()
        return puppet

    async def write(self, verb: Verb[Any], *, place: str = "operator") -> Any:
        """Send one write over the network, as somebody without a session would, and return its result."""
        return await result_of(run_in_place(place, PlaceStore(self.world.network).submit, GROUP, verb))

    async def write_ask(self, partition: str, *, asker: str) -> None:
        """Ask the owner of a lease for it, as somebody else would."""
        lease = self.world.leases()[partition]
        key = ask_key(partition, lease.token)
        result = await self.write(Ask(session_id=lease.owner or "", keys=(key,), asker=asker))
        assert isinstance(result, Applied)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start something in the world that goes on beside the schedule, whoever's call it is made from."""
        context = copy_context()
        context.run(PLACE.set, None)
        context.run(self._tasks.start_soon, work)

    def stop(self, place: str) -> None:
        """Tell a real host to stop, as SIGTERM does."""
        self._troubles.stop(place)

    def cancel(self, place: str) -> None:
        """Cancel a real host, as a second signal does."""
        self.told(place, "cancel")
        self.world.note(place, *CANCELLED)
        run_in_place(place, _cancel, self.world.hosts[place].host)

    def told(self, place: str, what: str) -> None:
        """Note that a real host was told to end in another way: "drain" or "cancel"."""
        self._troubles.guests[place].told = what

    def kill(self, place: str) -> None:
        """Kill a host or a puppet."""
        self.world.kill(place)
        self._troubles.guests.pop(place, None)
        self._puppets = [puppet for puppet in self._puppets if puppet.place != place]

    def disturb(self, matches: Callable[[Call], bool], **what: Any) -> Fault:
        """Add a fault to the network; the first that matches a call decides."""
        return self.world.network.disturb(matches, **what)

    def heal(self) -> None:
        """End every fault."""
        network = self.world.network
        network.faults.clear()
        network.cut_off.clear()
        network.deaf.clear()
        for place, _, to_s in self.world.freezes:
            if to_s == float("inf") and place in self.world.hosts:
                self.world.thaw(place)

    async def calm(self) -> list[Failure]:
        """
        Let the puppets leave, end every fault, and ask of the real hosts what is asked after a storm.

        Where there is none, one is started to go on with what the puppets have left.
        """
        self.heal()
        for puppet in self._puppets:
            await puppet.leave()
        self._troubles.look_after()
        if not self._troubles.guests:
            self.host("calm")
        failures = await Calm(self.world, self._troubles, self._drawn, self.world.now_s).run()
        return failures + self.exits()

    def exits(self) -> list[Failure]:
        """Return the real hosts that have ended as none may."""
        self._troubles.look_after()
        return judge_exits(self.world, self._troubles.exits)


async def _cancel(host: Any) -> None:
    host.cancel()
