"""
A puppet: the product's session, asker, pumps and discovery in one place, without its balancer and without a will.

What a real host would decide in its rounds, the schedule decides: when it acquires, asks, beats, leaves. Everything
that waits (beats, hand-overs, processors) is the product's own and runs by itself.
"""

from __future__ import annotations

from random import Random
from typing import Any

import anyio
from anyio.abc import TaskGroup

from partitions.beats import Pace
from partitions.items import LeaseItem
from partitions.leases import Lease
from partitions.positions import EARLIEST
from partitions.sessions import Session
from processor_host import HostSettings
from processor_host.asker import Asker
from processor_host.buffer import ByteBudget
from processor_host.discovery import Discovery
from processor_host.pump import PartitionPump
from processor_host.pump_parts import PumpParts, bounds_of
from processor_host.pumps import Pumps
from tests.cases.lone import Lone
from tests.world.clocks import PlaceClock
from tests.world.loop import VirtualTask, running_loop
from tests.world.network import PlaceSource, PlaceStore
from tests.world.processors import WorldProcessor
from tests.world.world import GROUP, RunningHost, World

__all__ = ["Puppet"]


class Puppet(Lone):
    """
    One session of a host that does nothing unless it is told to.

    Attributes:
        still_running: As of a `ProcessorHost`.
    """

    def __init__(
        self,
        world: World,
        place: str,
        *,
        record_s: float = 0.05,
        stubborn: bool = False,
        clock: PlaceClock | None = None,
        capacity: float = 1.0,
        processes: bool = True,
        **settings: Any,
    ) -> None:
        """
        Make it and begin to register.

        Args:
            world: Where it lives.
            place: Its place, its host id, and with ":1" its session id.
            record_s: What a record takes.
            stubborn: Its processors let nobody cancel them in the middle of a record.
            clock: The place's clock.
            capacity: 0 for an operator's session.
            processes: Whether a processor runs for what it acquires; else its lease is just held.
            settings: For the `HostSettings`.
        """
        clock = clock or PlaceClock(offset_s=world.random.uniform(0, 1e6))
        values: dict[str, Any] = {"checkpoint_interval_s": 1.0, "batch_records_max": 10}
        values |= {"lease_duration_s": world.duration_s} | dict(world.settings) | settings
        self._settings = HostSettings(host_id=place, **values)
        timings = self._settings.timings()
        self._random = Random(world.random.getrandbits(64))
        session = Session(
            store=PlaceStore(world.network),
            group=GROUP,
            host_id=place,
            session_id=f"{place}:1",
            clock=clock,
            random=self._random,
            pace=Pace(
                duration_s=timings.lease_duration_s,
                handoff_s=timings.handoff_s,
                beat_interval_s=timings.beat_interval_s,
                call_timeout_s=timings.call_timeout_s,
            ),
            capacity=capacity,
            max_leases=self._settings.max_leases,
            on_event=self._note,
        )
        super().__init__(world, place, session, clock)
        self.still_running: tuple[str, ...] = ()
        self._record_s = record_s
        self._stubborn = stubborn
        self._processes = processes
        self._registered = anyio.Event()
        self.asker = Asker(
            session, store=PlaceStore(world.network), group=GROUP, clock=clock, call_timeout_s=timings.call_timeout_s
        )
        self.pumps: Pumps
        world.clocks[place] = clock
        if stubborn:
            world.stubborn.add(place)
        task = self.start(self._live)
        # So that it can be frozen and killed, and is seen where hosts are.
        world.hosts[place] = RunningHost(place, self, task, clock)  # type: ignore[arg-type]

    async def registered(self) -> None:
        """Wait until the session lives, or could not be begun in time."""
        await self._registered.wait()

    async def take(self, partition: str, *, seen: LeaseItem | None = None, reason: str = "free") -> Lease | None:
        """Acquire a lease as it is stored now, or as it was seen, and start its processor; None: it was refused."""
        return await self.do(self._take, seen or self._world.leases()[partition], reason)

    def taking(self, partition: str) -> VirtualTask[Lease | None]:
        """Send an acquire of a lease as it is stored now; the answer may be long in coming."""
        return self.start(self._take, self._world.leases()[partition], "free")

    async def ask(self, *partitions: str) -> int:
        """Ask the one owner of these leases, and take each once it is released; return how many asks were added."""
        leases = [self._world.leases()[partition] for partition in partitions]
        [owner] = {lease.owner for lease in leases}
        return await self.do(self.asker.ask, self._world.sessions()[owner or ""], leases)

    async def beat(self) -> bool:
        """Beat at once; say whether that was answered while the session lives."""
        return await self.do(self.session.renew)

    def beating(self) -> VirtualTask[bool]:
        """Send a beat now; the answer may be long in coming."""
        return self.start(self.session.renew)

    async def leave(self) -> None:
        """Drain everything, then leave."""
        await self.do(self._leave)

    async def _take(self, seen: LeaseItem, reason: str) -> Lease | None:
        lease = await self.session.acquire(seen, reason=reason)
        if lease is not None:
            self._begin(lease)
        return lease

    def _begin(self, lease: Lease) -> None:
        # One that has ended already, since its session was over, finds nothing here that still runs.
        if self._processes and lease.is_held():
            self.pumps.start(lease)

    async def _live(self) -> None:
        async with anyio.create_task_group() as pump_tasks:
            parts = self._parts()
            self.pumps = Pumps(
                pump_tasks, lambda lease: PartitionPump(lease, parts), clock=self.clock, on_event=self._note
            )
            is_living = await self.session.register()
            self._registered.set()
            if is_living:
                async with anyio.create_task_group() as life:
                    life.start_soon(self.asker.run, self._begin)
                    await self._beat_on(life)

    async def _beat_on(self, life: TaskGroup) -> None:
        await self.session.run()
        life.cancel_scope.cancel()

    async def _leave(self) -> None:
        while self.pumps.running:
            for lease in tuple(self.session.held.values()):
                lease.asked.set()
            await self.pumps.wait_for_some(self.clock.now_s() + 1.0)
        await self.session.leave()

    def _parts(self) -> PumpParts:
        source = PlaceSource(self._world.network)
        discovery = Discovery(
            store=PlaceStore(self._world.network),
            source=source,
            group=GROUP,
            point=EARLIEST,
            clock=self.clock,
            random=self._random,
            interval_s=30.0,
            call_timeout_s=self._settings.timings().call_timeout_s,
            on_event=self._note,
        )
        return PumpParts(
            group=GROUP,
            host_id=self.place,
            source=source,
            factory=lambda: WorldProcessor(self._world, self.place, self._record_s, stubborn=self._stubborn),
            resources=None,
            clock=self.clock,
            random=self._random,
            budget=ByteBudget(self._settings.buffer_bytes_max),
            on_event=self._note,
            stopping=anyio.Event(),
            on_freed=lambda _: None,
            children_of=discovery.children_of,
            stop_by_s=lambda: float("inf"),
            bounds=bounds_of(self._settings),
        )

    def _note(self, event: Any) -> None:
        self._world.diary.append((running_loop().time(), self.place, event))
