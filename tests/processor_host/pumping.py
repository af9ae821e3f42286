"""
A pump on a stage: one term of "p0", a processor that does what the test says, and what became of both.

Knows no balancer. Everything runs in virtual time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import anyio

from partitions.leases import Lease
from partitions.retries import Waits
from partitions.sessions import Session
from partitions.sources.base import Record, Source
from partitions.verbs import Child
from processor_host.buffer import ByteBudget
from processor_host.events import ProcessorFailed, PumpEnded
from processor_host.letters.base import Letter, LettersUnavailable
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext, RecordProcessor
from processor_host.pump import PartitionPump
from processor_host.pump_parts import PumpBounds, PumpParts
from tests.stage import GROUP, PACE, Stage, beside
from tests.world.diary import passes

__all__ = [
    "BOUNDS",
    "Kept",
    "Log",
    "Pumping",
    "RecordScripted",
    "Scripted",
    "failures",
    "pump_of",
    "pumping",
    "put",
]

BOUNDS = PumpBounds(
    checkpoint_interval_s=1.0,
    close_timeout_s=5.0,
    release_margin_s=2 * PACE.call_timeout_s,
    batch_records_max=10,
    batch_bytes_max=1000,
    prefetch_records_max=20,
    prefetch_bytes_max=10_000,
    read_wait_s=20.0,
    restart_waits=Waits(first_s=1.0, most_s=60.0),
)


async def _nothing(*_: object) -> None:
    return


@dataclass
class Log:
    """What the processors of one term did, and what they are to do at each point."""

    made: int = 0
    opened: list[ProcessorContext] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    """How many records each batch had."""
    started: list[int] = field(default_factory=list)
    """The position of each record that was begun, in order."""
    finished: list[int] = field(default_factory=list)
    closed: list[CloseReason] = field(default_factory=list)
    on_open: Callable[[ProcessorContext], Awaitable[None]] = _nothing
    on_record: Callable[[Record, Batch], Awaitable[None]] = _nothing
    on_close: Callable[[CloseReason], Awaitable[None]] = _nothing

    def factory(self) -> PartitionProcessor:
        """Make the processor of a term."""
        self.made += 1
        return Scripted(self)


class Scripted(PartitionProcessor):
    """Notes everything in its log, then does what that says."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def open(self, context: ProcessorContext) -> None:
        """See `PartitionProcessor`."""
        await self._log.on_open(context)
        self._log.opened.append(context)

    async def process(self, batch: Batch) -> None:
        """See `PartitionProcessor`."""
        self._log.batches.append(len(batch))
        for record in batch:
            self._log.started.append(int(record.position))
            await self._log.on_record(record, batch)
            self._log.finished.append(int(record.position))

    async def close(self, reason: CloseReason) -> None:
        """See `PartitionProcessor`."""
        self._log.closed.append(reason)
        await self._log.on_close(reason)


class RecordScripted(RecordProcessor):
    """Notes every record in its log, then does what that says; `on_record` gets no batch but None."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def open(self, context: ProcessorContext) -> None:
        """See `RecordProcessor`."""
        await self._log.on_open(context)
        self._log.opened.append(context)

    async def handle(self, record: Record) -> None:
        """See `RecordProcessor`."""
        self._log.started.append(int(record.position))
        await self._log.on_record(record, None)  # type: ignore[arg-type]
        self._log.finished.append(int(record.position))

    async def close(self, reason: CloseReason) -> None:
        """See `RecordProcessor`."""
        self._log.closed.append(reason)
        await self._log.on_close(reason)


class Kept:
    """A sink of dead letters in memory, which fails as often as it is told to."""

    url = "memory:letters"

    def __init__(self, fails: int = 0) -> None:
        self.letters: list[Letter] = []
        self.opened = 0
        self.closed = 0
        self.fails = fails

    async def open(self) -> None:
        """See `LetterSink`."""
        self.opened += 1

    async def write(self, letter: Letter) -> None:
        """See `LetterSink`."""
        await passes(0.01)
        if self.fails:
            self.fails -= 1
            raise LettersUnavailable("the sink is away")
        self.letters.append(letter)

    async def close(self) -> None:
        """See `LetterSink`."""
        self.closed += 1

    @property
    def positions(self) -> list[int]:
        """Of the letters, in the order in which they were written."""
        return [int(letter.position) for letter in self.letters]


@dataclass
class Pumping:
    """A pump that runs beside the test."""

    stage: Stage
    session: Session
    lease: Lease
    log: Log
    pump: PartitionPump
    began_s: float
    freed: list[Lease]
    stopping: anyio.Event

    async def run(self) -> None:
        """Run the pump as the host does."""
        try:
            await self.pump.run()
        finally:
            self.pump.finished.set()

    async def over(self, within_s: float = 600.0) -> str:
        """Wait for the pump's end and return how it ended."""
        with anyio.fail_after(within_s):
            await self.pump.finished.wait()
        (ended,) = self.stage.events_of(PumpEnded)
        assert (ended.partition, ended.token) == ("p0", self.lease.token)
        return ended.reason

    async def handled(self, count: int, within_s: float = 600.0) -> None:
        """Wait until so many records were finished, counting each time."""
        with anyio.fail_after(within_s):
            while len(self.log.finished) < count:
                await passes(0.01)

    def drain(self) -> None:
        """Ask the term to drain without any deadline, as where the lease is paused."""
        self.lease.asked.set()


def failures(stage: Stage) -> list[tuple[str, int]]:
    """Return stage and attempt of each failure of user code."""
    return [(event.stage, event.attempt) for event in stage.events_of(ProcessorFailed)]


def put(stage: Stage, count: int, *, size: int = 1) -> None:
    """Write records to "p0"."""
    for _ in range(count):
        stage.source.put("p0", b"x" * size)


def pump_of(
    stage: Stage,
    session: Session,
    lease: Lease,
    log: Log,
    *,
    factory: Callable[[], Any] | None = None,
    source: Source | None = None,
    budget: ByteBudget | None = None,
    children: Callable[[str], Awaitable[Sequence[Child]]] | None = None,
    stop_by_s: Callable[[], float] = lambda: math.inf,
    given: Mapping[str, Any] | None = None,
    **bounds: Any,
) -> Pumping:
    """Make the pump of a term, to be run by the caller; `given` are further parts of it, such as its policy."""

    async def no_children(_: str) -> Sequence[Child]:
        return ()

    freed: list[Lease] = []
    stopping = anyio.Event()
    parts = PumpParts(
        group=GROUP,
        host_id="a",
        source=source or stage.source_of_a_host(),
        factory=factory or log.factory,
        resources={"pool": 1},
        clock=stage.clock,
        random=Random(1),
        budget=budget or ByteBudget(10**6),
        on_event=stage.tell,
        stopping=stopping,
        on_freed=freed.append,
        children_of=children or no_children,
        stop_by_s=stop_by_s,
        bounds=replace(BOUNDS, **bounds),
        wall_s=lambda: stage.now_s,
        **(given or {}),
    )
    return Pumping(
        stage=stage,
        session=session,
        lease=lease,
        log=log,
        pump=PartitionPump(lease, parts),
        began_s=stage.now_s,
        freed=freed,
        stopping=stopping,
    )


@asynccontextmanager
async def pumping(
    stage: Stage,
    log: Log | None = None,
    *,
    session: Session | None = None,
    before: Callable[[Lease], object] = lambda _: None,
    **more: Any,
) -> AsyncIterator[Pumping]:
    """Acquire "p0" and run its pump beside the body; `before` is called with the lease right before."""
    async with stage.living(session) as living:
        lease = await stage.acquired(living)
        it = pump_of(stage, living, lease, log or Log(), **more)
        before(lease)
        async with beside(it.run):
            yield it
