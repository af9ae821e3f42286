"""
What all pumps of one host share: the parts they work with and the bounds they keep.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from partitions.clocks import Clock
from partitions.events import OnEvent
from partitions.leases import Lease
from partitions.retries import Waits
from partitions.sources.base import Source
from partitions.verbs import Child
from processor_host.buffer import ByteBudget
from processor_host.failures import Policy, Retry
from processor_host.kinds import ProcessorFactory
from processor_host.middleware import Middleware
from processor_host.replay import Replay
from processor_host.settings import HostSettings
from processor_host.sinks import Sinks
from processor_host.weigher import Scales

__all__ = ["AUTOMATIC", "EVERY_RECORD", "MANUAL", "PumpBounds", "PumpParts", "bounds_of"]

AUTOMATIC, MANUAL, EVERY_RECORD = "automatic", "manual", "every-record"
"""What `HostSettings.checkpoint` may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpBounds:
    """How much at once, how often and for how long; see `HostSettings` for the reasons."""

    checkpoint_interval_s: float
    close_timeout_s: float
    """How long `close` may take where no deadline is nearer."""
    release_margin_s: float
    """How long before a deadline the running `process` is cancelled, so that `close` and the release fit in."""
    batch_records_max: int
    batch_bytes_max: int
    prefetch_records_max: int
    prefetch_bytes_max: int
    read_wait_s: float
    restart_waits: Waits
    checkpoint: str = AUTOMATIC
    concurrency: int = 1
    window_max: int = 1
    """Records between the first that is not done and the last that may begin, where several are at work."""
    batch_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpParts:
    """What all pumps of one host share."""

    group: str
    host_id: str
    source: Source
    factory: ProcessorFactory
    resources: Any
    clock: Clock
    random: Random
    budget: ByteBudget
    on_event: OnEvent | None
    stopping: anyio.Event
    """Set once the host stops."""
    on_freed: Callable[[Lease], None]
    """Called when the store is known to have a lease as free or finished that this host has given up."""
    children_of: Callable[[str], Awaitable[Sequence[Child]]]
    """Lists the children of a partition that has just been read to its end."""
    stop_by_s: Callable[[], float]
    """The moment by which a drain must be over where no asker sets one; infinity while the host does not stop."""
    bounds: PumpBounds
    scales: Scales = field(default_factory=Scales)
    """What the partitions of this host weigh."""
    policy: Policy = field(default_factory=Retry)
    """Of the host; a processor's own method goes over it."""
    middleware: tuple[Middleware, ...] = ()
    sinks: Sinks = field(default_factory=Sinks)
    replay: Replay | None = None
    """Where each partition ends, where the host was given `until`."""
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """Bounds the worker threads of synchronous processors."""
    wall_s: Callable[[], float] = time.time
    """Seconds since 1970, for letters and for `until`; nothing of the protocol reads it."""


def bounds_of(settings: HostSettings) -> PumpBounds:
    """Return the bounds that follow from a host's settings."""
    return PumpBounds(
        checkpoint_interval_s=settings.checkpoint_interval_s,
        close_timeout_s=settings.drain_timeout_s,
        release_margin_s=2 * settings.timings().call_timeout_s,
        batch_records_max=settings.batch_records_max,
        batch_bytes_max=settings.batch_bytes_max,
        prefetch_records_max=settings.prefetch_records_max,
        prefetch_bytes_max=settings.prefetch_bytes_max,
        read_wait_s=settings.read_wait_s,
        restart_waits=Waits(first_s=settings.restart_pause_s, most_s=settings.restart_pause_max_s),
        checkpoint=settings.checkpoint,
        concurrency=settings.concurrency,
        # Four rounds of records beyond a slow one; a batch of them is read at once anyway.
        window_max=max(settings.batch_records_max, 4 * settings.concurrency),
        batch_wait_s=settings.batch_wait_s,
    )
