"""
What an operator does to a run: asks hosts to drain, and pauses partitions that it resumes a while later.

It sends each write once and looks at no answer: what became of it is the storm's affair. Whatever is left paused when
the storm is over is resumed for good, as a command does it: it writes first, then shows itself for a beat period.
"""

from __future__ import annotations

from random import Random
from typing import Any

import anyio

from partitions.errors import StoreError
from partitions.items import LeaseItem, ask_key
from partitions.retries import call as call_store
from partitions.verbs import Ask, Drain, Leave, Pause, Register, Resume, Verb
from tests.simulation.guests import Guests
from tests.simulation.parameters import CUT_DURATIONS
from tests.world.network import PlaceStore
from tests.world.world import GROUP

__all__ = ["Operator"]

CALL_S = 5.0
SESSION_ID = "operator:1"


class Operator:
    """
    One person at a terminal.

    Attributes:
        has_paused: Whether something may be paused, by whomever.
    """

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._world = guests.world
        self._drawn = guests.parameters
        self.has_paused = False

    def note_paused(self) -> None:
        """Note that something may be paused now, by somebody else."""
        self.has_paused = True

    async def drain(self) -> None:
        """Ask a session to drain."""
        sessions = list(self._world.sessions().values())
        if not sessions:
            return
        session = self._guests.random.choice(sessions)
        for guest in self._guests.guests.values():
            if guest.drawn.host_id == session.host_id and guest.told is None:
                guest.told = "drain"
        await self._send(Drain(session_id=session.session_id))

    async def pause_now_and_then(self) -> None:
        """Pause partitions, and resume each after a while, until cancelled."""
        random = Random(f"operator of {self._drawn.seed}")
        while self._drawn.pause_every_s:
            await anyio.sleep(random.expovariate(1 / self._drawn.pause_every_s))
            able = [lease for lease in self._world.leases().values() if not lease.finished]
            if not able:
                continue
            lease = random.choice(able)
            self.has_paused = True
            await self._send(Pause(partition=lease.partition, seen_token=lease.token))
            if random.random() < 0.5 and lease.owner is not None:
                # Else the owner sees it in one of its reads.
                keys = (ask_key(lease.partition, lease.token),)
                await self._send(Ask(session_id=lease.owner, keys=keys, asker=""))
            await anyio.sleep(random.uniform(*CUT_DURATIONS) * self._drawn.duration_s)
            await self._send(self._resume(self._world.leases()[lease.partition]))

    async def resume_some(self) -> None:
        """Resume what is paused now."""
        self.has_paused = True
        for lease in self._world.leases().values():
            if lease.paused:
                await self._send(self._resume(lease))

    def has_nothing_stopped(self) -> bool:
        """Say whether every open partition has an owner that lives, none is paused, and no count may pause one."""
        owners = self._world.owners()
        open_ones = [lease for lease in self._world.leases().values() if not lease.finished and lease.token > 0]
        # Attempts that stand pause their partition only once its next owner has read the record: after half a minute,
        # where the first read is not answered.
        return not any(lease.paused or lease.attempts or owners[lease.partition] is None for lease in open_ones)

    async def resume_all(self, late_s: float) -> None:
        """Resume what is paused once the last late pause has arrived, in a storm that is over."""
        if not self.has_paused:
            return
        await anyio.sleep(max(0.0, late_s - self._world.now_s) + 2 * self._world.latency_s)
        for lease in self._world.leases().values():
            if lease.paused:
                await self._send(self._resume(lease))
        # A new session makes every host read.
        duration_s = self._drawn.duration_s
        await self._send(
            Register(
                session_id=SESSION_ID, host_id="operator", duration_s=duration_s, handoff_s=duration_s, capacity=0.0
            )
        )
        # A beat period and a call's time beyond it, as the commands stay: after a beat period alone, a host whose clock
        # is slow and that looked the moment before would look again the moment after.
        await anyio.sleep(duration_s / 3 + duration_s / 6)
        await self._send(Leave(session_id=SESSION_ID))

    def _resume(self, lease: LeaseItem) -> Resume:
        return Resume(partition=lease.partition, seen_token=lease.token)

    async def _send(self, verb: Verb[Any]) -> None:
        self._guests.did(f"the operator sends {verb}")
        store = PlaceStore(self._world.network)
        try:
            await call_store(lambda: store.submit(GROUP, verb), CALL_S)
        except StoreError as error:
            self._guests.did(f"to the operator: {error}")
