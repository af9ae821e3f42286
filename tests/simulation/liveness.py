"""
Liveness: what must come true once all faults are off, and by when. Each demand has a name.

It reads the store, the journal and the notes, and the hosts' own health, which is what an operator sees. The bounds:
within 3 durations and a hand-off every partition has one running processor and the shares are even; no step is taken
after that; everything written is handled; who is told to stop is gone, with status 0 and no task left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import anyio

from partitions.errors import SourceUnavailable, StoreUnavailable
from partitions.events import SessionBegan
from partitions.items import LeaseItem
from partitions.verbs import Acquire, Ask, Attempt, Beat, Release, SaveCheckpoint
from tests.simulation.backlog import backlog_of
from tests.simulation.checkers import Failure
from tests.simulation.facts import Facts
from tests.simulation.guests import Exit, Guests
from tests.simulation.levels import uneven_levels
from tests.simulation.parameters import Parameters
from tests.world.loop import PLACE, running_loop
from tests.world.network import Write
from tests.world.world import GROUP, World

__all__ = ["MOVES_MAX", "Calm", "fair_shares", "judge_exits"]

REST_S: Final = 60.0
"""How long a group at rest is watched."""
MOVES_MAX: Final = 8
"""
Of one lease in that time, where weights count. What a new partition weighs falls to a fourth each time that it is four
times as old, where nothing comes; others go by what is stored. A plan that swings moves a lease with every other beat.
"""
LOOK_S: Final = 0.5
START_S: Final = 15.0
"""What a host may take to start or to give up, beside a duration: its first calls may wait 10 s each."""
RECORD_S: Final = 0.1
"""What each record that is still to be handled may take on top, beside a read and a write for it alone."""
LEAVE_S: Final = 5.0
"""What the last calls of a host that leaves may take, beside its drain and one and a half durations."""
HANDLE_S: Final = 60.0
"""What reading and handling may take beside the hand-offs: a lost read is given up after its wait and 10 s."""


class Broken(Exception):
    """A demand was not met; nothing after it can be asked."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(checker=checker, text=text)


class Calm:
    """What follows the storm."""

    def __init__(self, world: World, guests: Guests, drawn: Parameters, late_s: float) -> None:
        self._world = world
        self._guests = guests
        self._drawn = drawn
        self._late_s = late_s
        """When the last late call arrives, and the last record is done that nobody can take away."""

    async def run(self) -> list[Failure]:
        """Ask for one thing after the other; return the first that was not so, if any."""
        try:
            await self._recover()
            await self._rest()
            await self._stop()
        except Broken as broken:
            return [broken.failure]
        return []

    # --- One after the other ----------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        self._guests.make_room()
        starts_s = self._drawn.duration_s + START_S
        await self._until("every start ends", lambda: not self._starting(), within_s=starts_s, tell=self._starting)
        self._guests.make_room()
        await self._until("every start ends", lambda: not self._starting(), within_s=starts_s, tell=self._starting)
        if (left_s := self._late_s - self._world.now_s) > 0:
            await anyio.sleep(left_s)
        since_s = self._world.now_s
        plannable = {lease.partition for lease in self._plannable()}
        settled_s = 3 * self._drawn.duration_s + self._handoff_s() + self._guests.sharing.waits_s
        await anyio.sleep(settled_s)
        await self._ask_for_one_processor_each(plannable)
        backlog = sum(map(len, backlog_of(Facts(self._world)).values()))
        handled_s = (
            settled_s
            + HANDLE_S
            + 2.2 * self._drawn.discovery_interval_s
            + backlog * (RECORD_S + 2 * self._drawn.latency_s)
        )
        leave_s = max(guest.drawn.drain_timeout_s for guest in self._guests.guests.values()) + LEAVE_S
        leave_s += 1.5 * self._drawn.duration_s
        waited_s = await self._until(
            "who is told to leave is gone",
            lambda: not self._leaving(),
            within_s=since_s + leave_s - self._world.now_s,
            tell=self._leaving,
        )
        waited_s += await self._until(
            "everything is handled",
            lambda: not self._unhandled(),
            within_s=since_s + handled_s - self._world.now_s,
            tell=self._unhandled,
        )
        if waited_s > 0 or self._has_ended(since_s):
            # Hosts left meanwhile, or partitions ended and their children began, perhaps this very moment.
            await anyio.sleep(settled_s)
        await self._ask_for_owners()
        if self._guests.sharing.is_by_load:
            await self._even_out()
        else:
            self._ask_for_even_shares()
        await self._ask_for_one_processor_each({lease.partition for lease in self._plannable()})

    async def _even_out(self) -> None:
        """
        Wait until there is a moment at which the loads are even by the weights that are stored.

        For a moment only: a weight that has fallen since it was stored is stored again, minutes later, and others then
        go by it. A host may see that in its next audit, and what moves then has its hand-off time.
        """
        drawn = self._drawn
        seen_s = drawn.audit_interval_s + drawn.duration_s + self._guests.sharing.steal_delay_s
        await self._until(
            "loads are even",
            lambda: not self._uneven(),
            within_s=2 * (seen_s + self._handoff_s()),
            tell=self._uneven,
        )

    async def _rest(self) -> None:
        since_s = self._world.now_s
        for info in self._world.source.list_now():
            if not info.closed:
                self._world.source.put(info.partition, b"last", key=info.partition)
        await anyio.sleep(REST_S)
        self._ask_for_no_step([write for write in self._world.network.history if write.at_s > since_s])
        if unhandled := self._unhandled():
            raise Broken("everything is handled", f"written {REST_S} s ago to a group at rest: {unhandled}")
        self._ask_for_health()

    async def _stop(self) -> None:
        """Stop all at once; nobody is there to take anything."""
        places = list(self._guests.guests)
        for place in places:
            self._guests.stop(place)
        stop_s = max(guest.drawn.drain_timeout_s for guest in self._guests.guests.values()) + self._drawn.duration_s
        await self._until("all stop", lambda: not self._living(), within_s=stop_s, tell=self._living)
        self._guests.look_after()
        if sessions := self._world.sessions():
            raise Broken("all stop", f"sessions are left: {list(sessions)}")
        if owned := [lease for lease in self._world.leases().values() if lease.owner is not None]:
            raise Broken("all stop", f"leases are owned by nobody's session: {owned}")
        left = [task.get_name() for task in running_loop().pending_tasks() if task.context.get(PLACE) is not None]
        if left:
            raise Broken("no task is left", f"{left}")

    # --- Demands ----------------------------------------------------------------------------------------------------

    async def _ask_for_one_processor_each(self, partitions: set[str]) -> None:
        await self._until(
            "one running processor each",
            lambda: not self._without_one(partitions),
            within_s=self._moving_s(),
            tell=lambda: self._without_one(partitions),
        )

    def _without_one(self, partitions: set[str]) -> list[str]:
        """Those of the partitions that do not have one running processor, of the term that is stored."""
        running = self._world.running()
        owners = self._world.owners()
        done_s = Facts(self._world).done_s
        # One that was read to its end has no processor while that is being stored.
        ending = {i.partition for i in self._world.source.list_now() if i.closed and done_s[i.partition][-1] < math.inf}
        found = []
        for lease in self._plannable():
            if lease.partition in partitions - ending:
                terms = running.get(lease.partition, [])
                if [token for _, token in terms] != [lease.token] or owners[lease.partition] is None:
                    found.append(f"{terms} for {lease}")
        return found

    def _moving_s(self) -> float:
        """Where weights count a lease may be on its way at any moment, as one is stored that has changed."""
        return self._handoff_s() + self._drawn.duration_s if self._guests.sharing.is_by_load else 0.0

    async def _ask_for_owners(self) -> None:
        living, sessions = self._living(), self._world.sessions()
        if len(sessions) != len(living):
            raise Broken("one session for each host", f"hosts {living}; {self._state()}")
        await self._until("even shares", lambda: not self._unowned(), within_s=self._moving_s(), tell=self._unowned)

    def _unowned(self) -> list[str]:
        sessions = self._world.sessions()
        return [f"{lease} is owned by nobody" for lease in self._plannable() if lease.owner not in sessions]

    def _ask_for_even_shares(self) -> None:
        leases, sessions = self._plannable(), self._world.sessions()
        shares = Counter(lease.owner for lease in leases)
        fair = fair_shares(len(leases), {name: (item.capacity, item.max_leases) for name, item in sessions.items()})
        for session_id in sessions:
            if abs(shares[session_id] - fair[session_id]) >= 1:
                raise Broken("even shares", f"{session_id} owns {shares[session_id]} of {fair}; {self._state()}")

    def _ask_for_no_step(self, writes: list[Write]) -> None:
        """Where weights count a lease may move as they change; but it does not go on and on."""
        steps = [write for write in writes if not isinstance(write.verb, Attempt | Beat | SaveCheckpoint)]
        if self._guests.sharing.is_by_load:
            taken = Counter(write.verb.partition for write in steps if isinstance(write.verb, Acquire))
            if swinging := {name: number for name, number in taken.items() if number > MOVES_MAX}:
                raise Broken("no lease swings", f"within {REST_S} s: {swinging}")
            steps = [write for write in steps if not isinstance(write.verb, Ask | Acquire | Release)]
        if steps:
            raise Broken("no step in a balanced group", f"{steps[0]}")

    def _ask_for_health(self) -> None:
        if paused := [lease for lease in self._world.leases().values() if lease.paused]:
            raise Broken("nobody is needed", f"paused: {paused}")
        for place in self._living():
            health = self._world.hosts[place].host.health()
            if not (health.healthy and health.ready):
                raise Broken("nobody is needed", f"{place} is not well: {health}")

    # --- What is so -------------------------------------------------------------------------------------------------

    def _uneven(self) -> list[str]:
        group = self._world.store.group_now(GROUP)
        assert group is not None  # A host has set it up before it began.
        return uneven_levels(self._plannable(), self._world.sessions().values(), group)

    def _living(self) -> list[str]:
        return [place for place in self._guests.guests if not self._world.hosts[place].task.done()]

    def _starting(self) -> list[str]:
        """The hosts that have neither begun a session nor given up."""
        begun = {place for _, place, event in self._world.diary if isinstance(event, SessionBegan)}
        return [place for place in self._living() if place not in begun]

    def _leaving(self) -> list[str]:
        """The hosts that were told to go, and the sessions that an operator has asked to."""
        told = [place for place in self._living() if self._guests.guests[place].told in ("stop", "cancel")]
        draining = [name for name, item in self._world.sessions().items() if item.draining or item.drain_asked]
        return told + draining

    def _has_ended(self, since_s: float) -> bool:
        """Say whether a host or a partition has come to its end since a time, so that leases have to be placed anew."""
        self._guests.look_after()
        ends_s = [*Facts(self._world).completed_s.values(), *(left.at_s for left in self._guests.exits)]
        return any(at_s > since_s for at_s in ends_s)

    def _handoff_s(self) -> float:
        return max(guest.drawn.handoff_s for guest in self._guests.guests.values())

    def _plannable(self) -> list[LeaseItem]:
        leases = self._world.leases()
        return [
            lease
            for lease in leases.values()
            if not lease.finished
            and (lease.token > 0 or all(parent in leases and leases[parent].finished for parent in lease.parents))
        ]

    def _unhandled(self) -> list[str]:
        """What is still to be done: records, and partitions whose end was not stored."""
        backlog = backlog_of(Facts(self._world))
        leases = self._world.leases()
        found: list[str] = []
        for info in self._world.source.list_now():
            name = info.partition
            if name not in leases:
                found.append(f"{name} has no lease")
                continue
            if info.closed and not leases[name].finished:
                found.append(f"{name} is not finished")
            if backlog[name]:
                found.append(f"{name} from {backlog[name][0]}")
        return found

    def _state(self) -> str:
        sessions = [
            f"{item.session_id} owned={item.owned} draining={item.draining or item.drain_asked} asks={dict(item.asks)}"
            for item in self._world.sessions().values()
        ]
        leases = [f"{item.partition}@{item.token} {item.owner}" for item in self._plannable()]
        return f"at {self._world.now_s}: {'; '.join(sessions)}; {'; '.join(leases)}"

    async def _until(
        self, name: str, holds: Callable[[], bool], *, within_s: float, tell: Callable[[], Iterable[str]]
    ) -> float:
        began_s = self._world.now_s
        while not holds():
            if self._world.now_s - began_s > within_s:
                raise Broken(name, f"not within {within_s:g} s: {list(tell())[:10]}; {self._state()}")
            await anyio.sleep(LOOK_S)
        return self._world.now_s - began_s


def fair_shares(total: int, takers: dict[str, tuple[float, int | None]]) -> dict[str, float]:
    """Divide so many leases in proportion to capacity, to nobody more than it may have; shares need not be whole."""
    shares: dict[str, float] = {}
    left, open_ones = float(total), dict(takers)
    while open_ones:
        weight = sum(capacity for capacity, _ in open_ones.values())
        full = {
            name: float(most)
            for name, (capacity, most) in open_ones.items()
            if most is not None and most <= left * capacity / weight
        }
        if not full:
            return shares | {name: left * capacity / weight for name, (capacity, _) in open_ones.items()}
        shares |= full
        left -= sum(full.values())
        open_ones = {name: taker for name, taker in open_ones.items() if name not in full}
    return shares


def judge_exits(world: World, exits: Iterable[Exit]) -> list[Failure]:
    """Return the hosts that ended as none may: told nothing, with an error of their own, or with a wrong status."""
    begun = {place for _, place, event in world.diary if isinstance(event, SessionBegan)}
    found = []
    for left in exits:
        if isinstance(left.error, StoreUnavailable | SourceUnavailable) and left.place not in begun:
            # Not there at the start: whoever started it starts it again.
            continue
        if left.error is not None:
            found.append(Failure(checker="no host fails", text=f"{left}"))
        elif left.told is None:
            found.append(Failure(checker="no host ends untold", text=f"{left}"))
        elif left.status != 0 and not (left.status == 4 and left.place in world.stubborn):
            found.append(Failure(checker="exit status 0", text=f"{left}"))
    return found
