"""
The host: puts the parts together and lives one session after the other, until it is stopped.

It starts what runs (HTTP, balancer, one pump per held lease), begins a new session when one is lost, and drains at a
stop. What each part does is the part's own business; here are only their order and their ends:

- The port is taken and store, source and group are checked before any lease is.
- Two pumps of one partition never run side by side: a new term waits for the processor of the old one to end.
- A stop gives everything away, then leaves. What is still running at the end keeps its lease until the session runs
  out, because a lease must not be freed while its processor lives.
- If the beats or the balancer die of something unexpected, all terms end and `run` raises.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from types import MappingProxyType

import anyio
from anyio.abc import TaskGroup, TaskStatus
from prometheus_client import CollectorRegistry

from partitions.beating import BeatPlace
from partitions.clocks import BootClock, Clock
from partitions.events import Event, OnEvent, tell
from partitions.items import Scalar
from partitions.leases import Lease
from partitions.locks import Leader
from partitions.sources.base import Source
from partitions.stores.base import Store
from processor_host.background import RunsBeside
from processor_host.balancer import Balancer, BalancerParts
from processor_host.beat_loop import beat_place
from processor_host.buffer import ByteBudget
from processor_host.condition import health_of
from processor_host.errors import SettingsError, only_error
from processor_host.events import HostReady, HostStopped
from processor_host.failures import Policy
from processor_host.handling import handling_of
from processor_host.host_locks import HostSession
from processor_host.http import Health
from processor_host.lives import Lives, LivesParts
from processor_host.metrics import HostMetrics
from processor_host.middleware import Middleware
from processor_host.observed import ObservedStore
from processor_host.opening import Lifespan, Opened, Opening
from processor_host.pump import PartitionPump
from processor_host.pump_parts import PumpParts, bounds_of
from processor_host.pumps import Pumps
from processor_host.settings import HostSettings, check_id, default_host_id, settings_or_default
from processor_host.singletons import Singleton, check_singletons
from processor_host.stalls import Pulse
from processor_host.urls import open_source, open_store
from processor_host.weigher import Scales
from processor_host.wellness import Wellness

__all__ = ["Lifespan", "ProcessorHost"]

STILL_RUNNING = 4  # Exit status where a processor had not ended.


class ProcessorHost(RunsBeside):
    """
    One host of a group: takes its share of the partitions and runs the processor on each.

    Several hosts may run in one process; `async with` runs one beside its body. Only the command line installs signal
    handlers.
    """

    def __init__(
        self,
        *,
        group: str,
        source: Source | str,
        store: Store | str,
        processor: object,
        settings: HostSettings | None = None,
        registry: CollectorRegistry | None = None,
        on_event: OnEvent | None = None,
        lifespan: Lifespan | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        about: Mapping[str, Scalar] | None = None,
        on_failure: Policy | None = None,
        middleware: Iterable[Middleware] = (),
        singletons: Mapping[str, Singleton] = MappingProxyType({}),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Put a host together; nothing is opened yet.

        Args:
            group: The application that shares the work: `[A-Za-z0-9._-]{1,128}`.
            source: The stream, or its URL.
            store: Where the leases live, or its URL.
            processor: A subclass of `PartitionProcessor` or `RecordProcessor`, a factory without arguments, or an
                `async def` that takes a batch or a `record`.
            settings: Timings and bounds; the defaults otherwise.
            registry: Where the metrics go; one of its own by default.
            on_event: Gets every event of host and library, after the metrics; those of a blocked loop in a thread.
            lifespan: Makes what the processors share, entered once per run.
            clock: For tests; the machine's clock that counts suspend by default.
            random: For tests; seeded by the system by default.
            about: Fields for people in the session's item.
            on_failure: What becomes of records that fail; `Retry()` by default, which passes over nothing.
            middleware: What is around `process`, the outermost first.
            singletons: By name, each an `async def` that runs on one host of the group at a time; see docs/locks.md.
            wall_clock: Seconds since 1970, for dead letters and for a time given as `until`.

        Raises:
            UserError: something that was given cannot work; the text says what would.
        """
        self.settings = settings_or_default(settings)
        self.group = group
        check_id("group", group)
        self.host_id = self.settings.host_id or default_host_id()
        check_id("host_id", self.host_id)
        self.registry = registry or CollectorRegistry()
        self.stopped = anyio.Event()
        """Set once everything is given away and the session has left, or was given up."""
        self._timings = self.settings.timings()
        self._handling = handling_of(processor, self.settings, on_failure=on_failure, middleware=middleware)
        self._wall_clock = wall_clock
        self._opened: Opened | None = None
        self._lifespan = lifespan
        check_singletons(singletons)
        self._singletons = dict(singletons)
        self._clock = clock or BootClock()
        self._pulse, limit_s = Pulse(), self.settings.loop_stall_limit_s
        self._beat_place = partial(beat_place, pulse=self._pulse, limit_s=limit_s, is_apart=clock is None)
        self._random = random or Random()
        self._about = dict(about or {})
        self._metrics = HostMetrics(self.registry, group, self.settings, singletons, clock=self._clock.now_s)
        self._user_event = on_event
        self._source = open_source(source) if isinstance(source, str) else source
        raw = open_store(store, call_timeout_s=self._timings.call_timeout_s) if isinstance(store, str) else store
        self._store = ObservedStore(raw, on_event=self._on_event, clock=self._clock.now_s)
        self._stopping = anyio.Event()
        self._stop_by_s = math.inf
        self._budget = ByteBudget(self.settings.buffer_bytes_max)
        self._scales = Scales()
        self._wellness = Wellness(sick_after_s=self.settings.sick_after_s, clock=self._clock, random=self._random)
        self._pumps: Pumps | None = None
        self._balancer: Balancer | None = None
        self._lives: Lives | None = None
        self._is_ready = False
        self._progressed_s = self._clock.now_s()
        self._scope: anyio.CancelScope | None = None

    @property
    def session(self) -> HostSession | None:
        """The present session, from which also locks are acquired (`partitions.locks`); None before the start."""
        return None if self._lives is None else self._lives.session

    @property
    def still_running(self) -> tuple[str, ...]:
        """The partitions whose processor has not ended, and the singletons that have not."""
        pumps, opened = self._pumps, self._opened
        return () if pumps is None or opened is None else (*pumps.with_processor, *opened.locks.running)

    def leader_of(self, singleton: str) -> Leader | None:
        """Return what this host knows of who runs one of its singletons; None before the start."""
        return None if self._opened is None else self._opened.locks.singletons.leaders[singleton]

    def stop(self) -> None:
        """Ask for an orderly stop: give everything away, then leave. Twice does nothing more. Not thread-safe."""
        self._stopping.set()

    def cancel(self) -> None:
        """Stop at once: cancel every processor, end all terms."""
        self._stopping.set()
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> int:
        """
        Run until `stop` or `cancel` is called. `task_status`, of anyio, is told once everything fits and is open.

        Returns:
            The exit status: 0, or 4 where a processor was still running when everything else was done.

        Raises:
            UserError, StoreMisconfigured, SourceMisconfigured, SourceMismatch: something does not fit, at the start.
            StoreUnavailable, SourceUnavailable: not there at the start.
        """
        if self._scope is not None:
            raise SettingsError("this ProcessorHost has run already; make a new one for every run")
        with anyio.CancelScope() as self._scope:
            try:
                return await self._run(task_status)
            except BaseExceptionGroup as group:
                raise only_error(group) from group
            finally:
                self.stopped.set()
        return 0

    async def _run(self, task_status: TaskStatus[None]) -> int:
        still_running: tuple[str, ...] = ()
        async with AsyncExitStack() as stack:
            stack.callback(self._metrics.close)
            self._opened = await self._opening().open(stack)
            where = self._beat_place(self._store, clock=self._clock, on_event=self._on_event)
            place = await stack.enter_async_context(where)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._opened.stuck.run, name="stuck")
                # What still runs at the end has lost its lease; this group waits for it, a command line need not.
                async with anyio.create_task_group() as pump_tasks:
                    self._lives = self._put_together(self._opened, place, pump_tasks)
                    task_status.started()
                    pump_tasks.start_soon(self._opened.locks.run, name="locks")
                    await self._lives.run()
                    self._opened.locks.close()
                    still_running = self.still_running
                    self._on_event(HostStopped(still_running=still_running))
                    self.stopped.set()
                tasks.cancel_scope.cancel()
        if self._opened.replay is not None:
            self._opened.replay.check()
        return STILL_RUNNING if still_running else 0

    def _opening(self) -> Opening:
        return Opening(
            group=self.group,
            store=self._store,
            source=self._source,
            settings=self.settings,
            host_id=self.host_id,
            handling=self._handling,
            lifespan=self._lifespan,
            singletons=self._singletons,
            clock=self._clock,
            random=self._random,
            registry=self.registry,
            health=self.health,
            on_event=self._on_event,
            on_change=self._end_if_done,
        )

    def _put_together(self, opened: Opened, place: BeatPlace, tasks: TaskGroup) -> Lives:
        self._progressed()
        make = partial(PartitionPump, parts=self._pump_parts(opened))
        self._pumps = Pumps(tasks, make, clock=self._clock, on_event=self._on_event)
        self._balancer = Balancer(
            BalancerParts(
                store=self._store,
                group=self.group,
                clock=self._clock,
                discovery=opened.discovery,
                on_lease=self._pumps.start,
                running=lambda: () if self._pumps is None else self._pumps.with_processor,
                on_try=self._progressed,
                on_round=self._round_done,
                settings=self.settings,
                scales=self._scales,
                on_event=self._on_event,
            )
        )
        opened.follow(self._balancer, self._pumps)
        return Lives(
            LivesParts(
                store=self._store,
                place=place,
                group=self.group,
                host_id=self.host_id,
                settings=self.settings,
                clock=self._clock,
                random=self._random,
                about={**self._about, **opened.about},
                balancer=self._balancer,
                pumps=self._pumps,
                locks=opened.locks,
                wellness=self._wellness,
                stopping=self._stopping,
                set_stop_by=partial(setattr, self, "_stop_by_s"),
                on_rest=partial(setattr, self, "_is_ready", False),
                on_try=self._progressed,
                on_event=self._on_event,
            )
        )

    def _freed(self, lease: Lease) -> None:
        if self.session is not None and self._balancer is not None and self._opened is not None:
            self._opened.freed(lease, self.session.session_id, self._balancer)

    def _pump_parts(self, opened: Opened) -> PumpParts:
        return PumpParts(
            group=self.group,
            host_id=self.host_id,
            source=self._source,
            factory=self._handling.factory,
            resources=opened.resources,
            clock=self._clock,
            random=self._random,
            budget=self._budget,
            scales=self._scales,
            on_event=self._on_event,
            stopping=self._stopping,
            on_freed=self._freed,
            children_of=opened.discovery.children_of,
            stop_by_s=lambda: self._stop_by_s,
            bounds=bounds_of(self.settings),
            policy=self._handling.policy,
            middleware=self._handling.middleware,
            sinks=self._handling.sinks,
            threads=self._handling.threads,
            replay=opened.replay,
            wall_s=self._wall_clock,
        )

    def health(self) -> Health:
        """Say whether the loops progress, and whether this host takes part in the group."""
        return health_of(
            self.session,
            self._wellness,
            host_id=self.host_id,
            progressed_before_s=self._clock.now_s() - self._progressed_s,
            lease_duration_s=self._timings.lease_duration_s,
            is_ready=self._is_ready,
            is_stopping=self._stopping.is_set(),
        )

    def _progressed(self) -> None:
        self._progressed_s = self._clock.now_s()

    def _round_done(self) -> None:
        session = self.session
        if not self._is_ready and session is not None:
            self._is_ready = True
            self._on_event(HostReady(session_id=session.session_id))
        self._end_if_done()

    def _end_if_done(self) -> None:
        """Stop in order where a bounded replay has nothing left for this host."""
        session, balancer, opened = self.session, self._balancer, self._opened
        if session is None or not session.is_valid or balancer is None or opened is None or self._stopping.is_set():
            return
        if (done := opened.replay_done(session.session_id, balancer)) is not None:
            self._on_event(done)
            self.stop()

    def _on_event(self, event: Event) -> None:
        self._pulse.note()
        seen = None if self._opened is None else self._opened.on_event
        for listener in (self._metrics.on_event, self._wellness.on_event, seen, self._user_event):
            tell(listener, event)
