"""
The lives of a host: one session after the other, and the drain that ends the last one.

A session that is lost is final: its terms have ended, its item is deleted, and the host goes on under a new id. At a
stop the host gives everything away: it publishes that it drains, hands over what others ask for, releases what nobody
has asked for within the drain time-out, and leaves.

Where the store denies what a session lives on, no retry helps at a start, and the host ends. A host that has beaten
before has patience, because credentials may have run out and policies may be about to change. It tries calls that
change nothing, and registers only once they are allowed: while a session is registered that cannot beat, every plan
keeps partitions for it, and nobody has them.

A host on which everything fails while another is well (`processor_host.wellness`) gives everything away as at a stop,
leaves, and begins its next session after a rest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

import anyio

from partitions.beating import BeatPlace
from partitions.clocks import Clock, wait_until
from partitions.errors import StoreError, StoreMisconfigured
from partitions.events import OnEvent, tell
from partitions.items import Scalar
from partitions.retries import Waits
from partitions.sessions import Session
from partitions.stores.base import Store
from processor_host.balancer import Balancer
from processor_host.events import HostDraining, HostResting, RoundFailed
from processor_host.host_locks import HostLocks, HostSession, pace_of
from processor_host.pumps import Pumps
from processor_host.rights import check_rights
from processor_host.settings import HostSettings
from processor_host.sick_leave import until_sick
from processor_host.wellness import Wellness

__all__ = ["Lives", "LivesParts"]

R = TypeVar("R")

SESSION_PAUSE_S = 0.5
"""Before a new session after one that could not even be registered."""
DENIED_PAUSE_MAX_S = 30.0
"""Where the doubling of the pauses ends between two tries at a store that denies its use."""
DENIED_PATIENCE_S = 900.0
"""
How long a host that has beaten stays with such a store. Changed policies are in force within minutes, and a provider of
credentials that was away is back; after that a person must act, who sees a process that has ended before a log.
"""
IDS_MAX = 100
"""How many of its sessions a host remembers, so that it suspects nobody's death where it lost them itself."""
LAST_S = 1.0
"""What a cancelled processor may take to end, at a stop, before the host goes without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivesParts:
    """What the sessions of one host are made of, and what runs in them."""

    store: Store
    place: BeatPlace
    """Where the beats run."""
    group: str
    host_id: str
    settings: HostSettings
    clock: Clock
    random: Random
    about: Mapping[str, Scalar]
    """Fields for people in the session's item."""
    balancer: Balancer
    pumps: Pumps
    locks: HostLocks
    wellness: Wellness
    stopping: anyio.Event
    """Set once the host is to stop."""
    set_stop_by: Callable[[float], None]
    """Called with the moment by which every drain must be over; infinity once the host goes on after it."""
    on_rest: Callable[[], None]
    """Called when the host begins to keep away because it is sick."""
    on_try: Callable[[], None]
    """Called before each try to begin a session."""
    on_event: OnEvent | None


class Lives:
    """
    Runs the sessions of one host.

    Attributes:
        session: The present session; between two the one that was lost or is being registered, which is not valid.
            Locks are acquired from each of them, under whichever is valid next.
    """

    def __init__(self, parts: LivesParts) -> None:
        self._parts = parts
        self._balancer = parts.balancer
        self._pumps = parts.pumps
        self._stopping = parts.stopping
        self._clock = parts.clock
        self._on_event = parts.on_event
        self._pauses = Waits(first_s=SESSION_PAUSE_S, most_s=DENIED_PAUSE_MAX_S)
        self._keeps_item = False
        self._is_to_rest = False
        """The present session gives everything away because the host is sick."""
        self._ids: deque[str] = deque(maxlen=IDS_MAX)
        """Of the sessions of this process, which outlived all of them but the present one."""
        self._has_beaten = False
        """Some session of this host had a beat answered: it was allowed to live."""
        self._denials = 0
        """Times in a row that the store has denied its use, since a beat was answered last."""
        self._denied_s = 0.0
        """When it did so first."""
        self.session = self._new_session()

    async def run(self) -> None:
        """
        Live until the host is stopped and has left.

        Raises:
            StoreMisconfigured: the store denies what a session lives on: at a start, or for `DENIED_PATIENCE_S`.
        """
        lost: Session | None = None
        first: HostSession | None = self.session
        while not self._stopping.is_set():
            self._parts.on_try()
            self.session = session = first or self._new_session()
            first = None
            try:
                is_registered = await self._register(session)
            except StoreMisconfigured as error:
                session.end(f"it could not be registered: {error}")
                await self._outlast(error)
                # A try before the one that was denied may have been applied; it is fenced where this fails.
                await session.leave()
                continue
            if not is_registered:
                await wait_until(self._clock, self._clock.now_s() + SESSION_PAUSE_S, self._stopping)
                continue
            self._keeps_item = self._is_to_rest = False
            await self._live(session, lost)
            # At once, or its leases wait for its fence; where the store is away, once more in the next life.
            is_gone = self._keeps_item or session.has_left or await session.leave()
            lost = None if is_gone else session
            if session.beats.has_beaten:
                self._has_beaten, self._denials = True, 0
            if session.drain_asked.is_set():
                # Also where the session was giving everything away already, and nobody waited for an operator.
                self._stopping.set()
            if session.beats.denied is not None and not self._stopping.is_set():
                await self._outlast(session.beats.denied)
            if self._is_to_rest and not self._stopping.is_set():
                await self._rest()

    async def _rest(self) -> None:
        """Keep away for a while, then go on as if nothing had been."""
        wellness = self._parts.wellness
        self._parts.set_stop_by(math.inf)
        self._parts.on_rest()
        pause_s = wellness.begin_rest()
        tell(self._on_event, HostResting(pause_s=pause_s))
        await self._pause(pause_s)
        wellness.end_rest()

    async def _outlast(self, error: StoreMisconfigured) -> None:
        """
        Return once the store allows again what this host lives on, or the host is to stop.

        Raises:
            StoreMisconfigured: this host has never beaten, or its patience is over.
        """
        if not self._has_beaten:
            raise error
        if self._denials == 0:
            self._denied_s = self._clock.now_s()
        while not self._stopping.is_set():
            self._denials += 1
            # The first look comes at once. One that went well and led to no beat does not make the pauses short again.
            if self._denials > 1:
                pause_s = self._pauses.after(self._denials - 1, self._parts.random)
                left_s = self._denied_s + DENIED_PATIENCE_S - self._clock.now_s()
                if pause_s > left_s:
                    raise error
                text = f"no session can begin; tried again in {pause_s:.3g} s, given up in {left_s:.3g} s: {error}"
                tell(self._on_event, RoundFailed(error=text))
                await self._pause(pause_s)
            try:
                await self._until_stop(partial(check_rights, self._parts.store, self._parts.group))
            except StoreMisconfigured as again:
                error = again
            else:
                return

    async def _pause(self, pause_s: float) -> None:
        """Wait, or until the host is to stop; a host that waits is no host that hangs."""
        until_s = self._clock.now_s() + pause_s
        while self._clock.now_s() < until_s and not self._stopping.is_set():
            self._parts.on_try()
            step_s = min(until_s, self._clock.now_s() + self._parts.settings.lease_duration_s)
            await wait_until(self._clock, step_s, self._stopping)

    async def _until_stop(self, do: Callable[[], Awaitable[R]]) -> R | None:
        """Return what this returns, or None where the host is to stop first."""
        result: R | None = None
        denied: StoreMisconfigured | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_at_stop, tasks.cancel_scope, name="stop")
            try:
                result = await do()
            except StoreMisconfigured as error:
                # Kept apart from the group, which would wrap it into another exception.
                denied = error
            tasks.cancel_scope.cancel()
        if denied is not None:
            raise denied
        return result

    def _new_session(self) -> HostSession:
        parts = self._parts
        session = HostSession(
            parts.locks.locks,
            store=parts.store,
            group=parts.group,
            host_id=parts.host_id,
            session_id=f"{parts.host_id}:{parts.random.getrandbits(64):016x}",
            clock=parts.clock,
            random=parts.random,
            pace=pace_of(parts.settings),
            capacity=parts.settings.capacity,
            max_leases=parts.settings.max_leases,
            extra=parts.about,
            earlier=tuple(self._ids),
            place=parts.place,
            on_event=parts.on_event,
        )
        self._ids.append(session.session_id)
        return session

    async def _register(self, session: Session) -> bool:
        """Begin a session; give up where the host is to stop."""
        registered = await self._until_stop(session.register)
        if not registered:
            # A try that was not answered may have been applied all the same.
            await session.leave()
        return bool(registered)

    async def _cancel_at_stop(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _live(self, session: Session, lost: Session | None) -> None:
        """Beat and balance until the session is over."""
        async with anyio.create_task_group() as life:
            if lost is not None:
                life.start_soon(lost.leave, name=f"leave {lost.session_id}")
            life.start_soon(self._balancer.run, session, name=f"balancer {session.session_id}")
            life.start_soon(self._drain, session, name=f"drain {session.session_id}")
            self._parts.locks.begin(session)
            await session.run()
            life.cancel_scope.cancel()

    async def _drain(self, session: Session) -> None:
        """Once the host is to stop, or is sick: give everything away, release what nobody asks for, leave."""
        reason = await self._wait_for_reason(session)
        began_s = self._clock.now_s()
        give_by_s = began_s + self._parts.settings.drain_timeout_s
        stop_by_s = give_by_s + self._parts.settings.lease_duration_s / 2
        self._parts.set_stop_by(stop_by_s)
        self._parts.locks.drain()
        session.drain()
        tell(self._on_event, HostDraining(reason=reason, held=len(session.held)))
        try:
            await self._balancer.refresh_sessions(session)
        except StoreError:
            # Nobody can be seen who would take over; what follows is bounded.
            give_by_s = began_s
        while self._pumps.running and self._clock.now_s() < give_by_s:
            if not self._balancer.has_target_besides(session.session_id):
                break
            await self._pumps.wait_for_some(give_by_s)
        while self._is_working and self._clock.now_s() < stop_by_s + LAST_S:
            # Each time, because the answer of an acquire may still have been on its way.
            for lease in tuple(session.held.values()):
                lease.asked.set()
            await self._pumps.wait_for_some(stop_by_s + LAST_S)
        if not self._is_working:
            await session.leave()
        else:
            # Not left: a lease must not be free while its processor lives. The others fence this session in time.
            self._keeps_item = True
            session.end("it was stopped while a processor was still running")

    @property
    def _is_working(self) -> bool:
        return bool(self._pumps.running or self._parts.locks.running)

    async def _wait_for_reason(self, session: Session) -> str:
        """Return why everything is to be given away: the host was told to stop, an operator asks for it, it is sick."""
        reason = "stop asked"

        async def wait_for_operator(scope: anyio.CancelScope) -> None:
            nonlocal reason
            await session.drain_asked.wait()
            reason = "operator"
            self._stopping.set()
            scope.cancel()

        async def wait_for_sickness(scope: anyio.CancelScope) -> None:
            nonlocal reason
            interval_s = self._parts.settings.timings().beat_interval_s
            await until_sick(session, self._balancer, self._parts.wellness, interval_s=interval_s)
            reason = "sick"
            self._is_to_rest = True
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_operator, tasks.cancel_scope, name="operator")
            tasks.start_soon(wait_for_sickness, tasks.cancel_scope, name="sickness")
            await self._stopping.wait()
            tasks.cancel_scope.cancel()
        return reason
