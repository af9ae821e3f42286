"""
The pumps of one host: at most one running processor per partition, whatever terms come and go.

A new term waits for the processor of the one before it to end. A fault of one pump stays there.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from partitions.clocks import Clock, wait_until
from partitions.events import OnEvent, tell
from partitions.leases import Lease
from processor_host.events import ProcessorFailed
from processor_host.pump import PartitionPump

__all__ = ["Pumps"]

LOOK_S = 0.2
"""How often whoever waits for the pumps looks, beside being woken by each that ends."""


class Pumps:
    """Starts a pump for each term and knows which are running."""

    def __init__(
        self, tasks: TaskGroup, make: Callable[[Lease], PartitionPump], *, clock: Clock, on_event: OnEvent | None
    ) -> None:
        self._tasks = tasks
        self._make = make
        self._clock = clock
        self._on_event = on_event
        self._newest: dict[str, PartitionPump] = {}
        """By partition; it waits for the one before it to end."""
        self._ended = anyio.Event()

    @property
    def running(self) -> tuple[str, ...]:
        """The partitions whose pump has not ended: user code runs, or the last write of the term is on its way."""
        return tuple(sorted(self._newest))

    @property
    def with_processor(self) -> tuple[str, ...]:
        """The partitions whose processor has not ended."""
        return tuple(sorted(partition for partition, pump in self._newest.items() if not pump.has_ended))

    def start(self, lease: Lease) -> None:
        """Start the pump of a term that has just begun."""
        pump = self._make(lease)
        before = self._newest.get(lease.partition)
        self._newest[lease.partition] = pump
        self._tasks.start_soon(self._run, pump, before, name=f"pump {lease.key}")

    async def pause(self, partition: str, token: int, reason: str) -> None:
        """Pause a partition in the store, and drain it; does nothing where this term is over."""
        pump = self._newest.get(partition)
        if pump is not None and pump.lease.token == token:
            await pump.pause(reason)

    async def wait_for_some(self, until_s: float) -> None:
        """Return when a pump has ended, after a moment, or at `until_s`."""
        self._ended = anyio.Event()
        await wait_until(self._clock, min(until_s, self._clock.now_s() + LOOK_S), self._ended)

    async def _run(self, pump: PartitionPump, before: PartitionPump | None) -> None:
        lease = pump.lease
        try:
            if before is not None:
                await before.finished.wait()
            await pump.run()
        except Exception as error:  # Containment: a fault of one pump must not end its neighbours.
            failed = ProcessorFailed(
                partition=lease.partition,
                token=lease.token,
                stage="pump",
                error=f"{type(error).__name__}: {error}",
                traceback="".join(traceback.format_exception(error)),
                attempt=1,
                pause_s=0.0,
            )
            tell(self._on_event, failed)
            # No processor runs for it any more, so the lease must not be kept.
            await lease.release()
        finally:
            pump.finished.set()
            if self._newest.get(lease.partition) is pump:
                del self._newest[lease.partition]
            self._ended.set()
