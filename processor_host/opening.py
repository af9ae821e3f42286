"""
The start of a host: everything is opened and checked, in the order in which a fault is cheapest to find.

Knows no session and no lease: nothing here takes one. What was opened is closed by the caller's exit stack, in reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from partitions.clocks import Clock
from partitions.events import EndReason, Event, OnEvent, tell
from partitions.items import Scalar
from partitions.leases import Lease
from partitions.sources.base import Source
from partitions.stores.base import Store
from processor_host.balancer import Balancer
from processor_host.discovery import Discovery
from processor_host.ends import UntilLatest, UntilPositions, parse_until
from processor_host.errors import SettingsError
from processor_host.events import HttpStarted, ReplayDone
from processor_host.failures import DeadLetter
from processor_host.groups import set_up_group
from processor_host.handling import Handling
from processor_host.host_locks import HostLocks
from processor_host.http import Health, MetricsServer
from processor_host.page import STATUS_URL, GroupWatch, StatusPage, page_url
from processor_host.places import fault_of_place, listing_text
from processor_host.pumps import Pumps
from processor_host.replay import Replay
from processor_host.settings import HostSettings
from processor_host.singletons import Singleton
from processor_host.starts import parse_starts
from processor_host.stuck import Stuck

__all__ = ["Lifespan", "Opened", "Opening"]

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
"""Entered once per host; what it yields is `context.resources`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a start has brought."""

    discovery: Discovery
    replay: Replay | None
    resources: Any
    stuck: Stuck
    """Keeps the progress of the partitions."""
    watch: GroupWatch | None
    """Keeps what the status page tells of; None without a server."""
    about: Mapping[str, Scalar]
    """Fields for people in the session's item, beside those of the user."""
    locks: HostLocks

    def on_event(self, event: Event) -> None:
        """Gets every event of the host."""
        tell(self.stuck.on_event, event)
        tell(None if self.watch is None else self.watch.on_event, event)

    def freed(self, lease: Lease, session_id: str, balancer: Balancer) -> None:
        """Have it seen what became possible when a term ended here."""
        if lease.end_reason is EndReason.COMPLETED:
            # Its children wait for nothing else; those that it was completed without are for the discovery.
            self.discovery.want()
            balancer.read_anew()
        else:
            balancer.note_freed(lease, session_id)

    def replay_done(self, session_id: str, balancer: Balancer) -> ReplayDone | None:
        """Return what is to be told where a bounded replay has nothing left for this host; else None."""
        leases, sessions = balancer.leases, balancer.sessions
        if self.replay is None or not self.replay.is_done(leases, sessions, self.discovery.listing, session_id):
            return None
        return self.replay.done()

    def follow(self, balancer: Balancer, pumps: Pumps) -> None:
        """Watch these from now on."""
        self.stuck.follow(pumps.pause)
        if self.watch is not None:
            self.watch.follow(balancer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a start needs."""

    group: str
    store: Store
    source: Source
    settings: HostSettings
    host_id: str
    handling: Handling
    lifespan: Lifespan | None
    singletons: Mapping[str, Singleton]
    clock: Clock
    random: Random
    registry: CollectorRegistry
    health: Callable[[], Health]
    on_event: OnEvent
    on_change: Callable[[], None]
    """Called when a partition is where `until` ends it."""

    async def open(self, stack: AsyncExitStack) -> Opened:
        """
        Take the port, open store, source and sink, set the group up, and enter the lifespan.

        Raises:
            UserError, StoreMisconfigured, SourceMisconfigured, SourceMismatch: something does not fit.
            StoreUnavailable, SourceUnavailable: not there.
        """
        settings = self.settings
        stuck = Stuck(
            host_id=self.host_id,
            clock=self.clock,
            on_event=self.on_event,
            limit_s=settings.stall_limit_s,
            pauses=settings.pause_stuck,
        )
        watch: GroupWatch | None = None
        about: dict[str, Scalar] = {}
        if settings.metrics_port is not None:
            watch = GroupWatch(
                group=self.group,
                source=self.source.url,
                host_id=self.host_id,
                clock=self.clock.now_s,
                stuck=stuck,
            )
            page = StatusPage(watch, settings.metrics_host)
            http = MetricsServer(settings.metrics_host, settings.metrics_port, self.registry, self.health, page)
            await http.start()
            self.on_event(HttpStarted(host=settings.metrics_host, port=http.port))
            stack.push_async_callback(http.stop)
            about[STATUS_URL] = page_url(settings.metrics_host, http.port)
        stack.push_async_callback(self.store.close)
        await self.store.open()
        stack.push_async_callback(self.source.close)
        await self.source.open()
        stack.push_async_callback(self.handling.sinks.close)
        if isinstance(self.handling.policy, DeadLetter):
            await self.handling.sinks.opened(self.handling.policy.sink)
        positions = parse_starts(settings.start).positions
        await self._check_places("start", positions)
        await self._check_places("until", _ends_of(settings))
        point = await set_up_group(
            self.store,
            self.source,
            self.group,
            settings=settings,
            clock=self.clock,
            random=self.random,
            on_event=self.on_event,
        )
        discovery = Discovery(
            store=self.store,
            source=self.source,
            group=self.group,
            point=point,
            clock=self.clock,
            random=self.random,
            interval_s=settings.discovery_interval_s,
            call_timeout_s=settings.timings().call_timeout_s,
            on_event=self.on_event,
            positions=positions,
        )
        replay = await self._replay()
        resources = None if self.lifespan is None else await stack.enter_async_context(self.lifespan())
        locks = HostLocks(
            store=self.store,
            group=self.group,
            host_id=self.host_id,
            settings=settings,
            singletons=self.singletons,
            resources=resources,
            clock=self.clock,
            random=self.random,
            on_event=self.on_event,
        )
        return Opened(
            discovery=discovery,
            replay=replay,
            resources=resources,
            stuck=stuck,
            watch=watch,
            about=about,
            locks=locks,
        )

    async def _check_places(self, setting: str, positions: Mapping[str, str]) -> None:
        """
        Refuse a position for a partition that is not there, and one that is no place in its partition.

        A slip in a name would start a partition at its beginning, or end it before its first record, unseen; one in a
        position would let it never begin, or end it somewhere else. A partition that the source no longer lists may
        be done already, where its lease is there: a host that starts again is given the same settings.
        """
        if not positions:
            return
        listed = {info.partition for info in await self.source.list_partitions()}
        if unknown := positions.keys() - listed:
            unknown -= {lease.partition for lease in await self.store.read_some_leases(self.group, sorted(unknown))}
        if unknown:
            raise SettingsError(
                f"{setting}: {self.source.url} has no partition {min(unknown)!r}; it has {listing_text(listed)}"
            )
        for partition in sorted(positions.keys() & listed):
            position = positions[partition]
            if (why := await fault_of_place(self.source, partition, position)) is not None:
                raise SettingsError(
                    f"{setting}: {partition}={position} is no place in the stream ({why}); use a position as "
                    "'processor-host status --json' shows it"
                )

    async def _replay(self) -> Replay | None:
        if self.settings.until is None:
            return None
        until = parse_until(self.settings.until)
        return Replay(
            until,
            source=self.source,
            latest=await self.source.resolve_start("latest") if isinstance(until, UntilLatest) else None,
            random=self.random,
            on_event=self.on_event,
            on_change=self.on_change,
        )


def _ends_of(settings: HostSettings) -> Mapping[str, str]:
    """Return the positions that `until` names, by partition."""
    until = None if settings.until is None else parse_until(settings.until)
    return until.positions if isinstance(until, UntilPositions) else {}
