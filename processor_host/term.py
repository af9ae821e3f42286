"""
One term as everything that works on it sees it: its lease, its marks, and what one run of the processor leaves to the
next.

Knows no source and no user code. A run ends with an `Outcome`, or with `RunAgain` where something failed.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

import anyio

from partitions.events import Event, tell
from partitions.leases import Lease
from processor_host.buffer import Chunk
from processor_host.caution import Caution, Phase
from processor_host.checkpointer import Checkpointer
from processor_host.events import ProcessorFailed, RecordsMarked
from processor_host.pieces import Pieces
from processor_host.pump_parts import MANUAL, PumpParts
from processor_host.user_code import text_of
from processor_host.weigher import BYTES

__all__ = ["Carried", "Outcome", "RunAgain", "Term", "unless_asked"]


class Outcome(Enum):
    """How one run of a processor ended, where it is not to be run again."""

    DRAINED = "drained"
    PARTITION_ENDED = "partition ended"
    LOST = "lease lost"
    STOPPED = "stopped"
    """Its failure policy stopped the partition in the store."""
    UNTIL_REACHED = "until reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAgain:
    """User code raised; the processor is closed, and opened again after a pause."""

    stage: str
    error: BaseException
    attempt: int
    """Failures in a row, as the event tells them."""
    pause_s: float
    is_told: bool = False
    """Whether it was told of already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What was handed on and failed: its records stay in memory, so that the same ones are handed on again."""

    chunk: Chunk
    pieces: Pieces
    before: int
    """Records of the term handed on before the first of the chunk."""


class Term:
    """
    One term.

    Attributes:
        lease: The right to work.
        parts: What all pumps of the host share.
        checkpointer: How far it has come.
        handled: Records that were done or given up.
        failures: Failures in a row of `open`, and of `close` at the partition's end, by stage.
        failing: The number of a single record that failed last, and how often in a row.
        caution: How carefully records are handed on, where a host died with this partition; None where none did.
        failed_at: Where nothing is carried: how often what begins at a position has failed in a row.
        drain_by_s: By when the running user code is cancelled where nobody but this host drains the term.
    """

    def __init__(self, lease: Lease, parts: PumpParts) -> None:
        self.lease = lease
        self.parts = parts
        weigher = parts.scales.begin(lease.partition, lease.weight, parts.clock.now_s(), is_held=lease.is_held)
        self._weigher = weigher
        self.checkpointer = Checkpointer(
            lease,
            interval_s=parts.bounds.checkpoint_interval_s,
            weight=None if weigher is None else lambda: weigher.weight(parts.clock.now_s()),
        )
        self.handled = 0
        self.failures: dict[str, int] = {}
        self.failed_at: dict[str, int] = {}
        self.failing: tuple[int, int] | None = None
        self.drain_by_s = math.inf
        self.caution: Caution | None = None
        bounds = parts.bounds
        if lease.suspects > 0:
            self.caution = Caution.of(
                suspects=lease.suspects,
                attempts=lease.attempts,
                batch_records_max=bounds.batch_records_max,
                checkpoint_interval_s=bounds.checkpoint_interval_s,
            )
        self._deaths = lease.attempts if lease.suspects > 0 else 0
        self._attempts = lease.attempts
        self._carried: Carried | None = None

    def is_one_at_a_time(self) -> bool:
        """Say whether records are handed on alone, their attempt stored before."""
        return self.caution is not None and self.caution.phase(self.parts.clock.now_s()) is Phase.ONE_AT_A_TIME

    def take_deaths(self) -> int:
        """Return how often hosts died with the first record of the term, once; 0 for every other."""
        deaths, self._deaths = self._deaths, 0
        return deaths

    def take_attempts(self) -> int:
        """Return how often the first record of the term was tried before, once; 0 for every other."""
        attempts, self._attempts = self._attempts, 0
        return attempts

    def passed(self, count: int) -> None:
        """Note that so many records are over."""
        if self.caution is not None:
            self.caution = self.caution.passed(count, self.parts.clock.now_s())

    @property
    def attempts(self) -> int | None:
        """What a release tells of the first record that is not done: its failures in a row; None where it has none."""
        if self.failing is None or self.failing[0] != self.checkpointer.marked:
            return None
        return self.failing[1]

    @property
    def is_manual(self) -> bool:
        """Whether only the user's own checkpoints mark anything."""
        return self.parts.bounds.checkpoint == MANUAL

    @property
    def read_from(self) -> str:
        """The position behind which the next run reads."""
        if self._carried is not None:
            return self._carried.chunk.records[-1].position
        return self.checkpointer.position

    @property
    def carried_records(self) -> int:
        """How many records the last run has left in memory."""
        left = () if self._carried is None else self._carried.pieces.left
        return sum(piece.stop - piece.start for piece in left)

    @property
    def nothing_follows(self) -> bool:
        """Whether what is carried is the last of the partition."""
        return self._carried is not None and (self._carried.chunk.ended or self._carried.chunk.is_over)

    def carry(self, carried: Carried) -> None:
        """Keep records for the next run; they stay counted among what this host holds in memory."""
        self._carried = carried
        self.parts.budget.take(carried.chunk.bytes)

    def reconcile(self) -> None:
        """Leave out of what is carried whatever was found to be done meanwhile, as by a transaction in doubt."""
        if self._carried is None:
            return
        it = self._carried
        pieces = it.pieces.without(self.checkpointer.marked - it.before)
        if not pieces.left and not (it.chunk.ended or it.chunk.is_over):
            self.drop_carried()
        else:
            self._carried = Carried(chunk=it.chunk, pieces=pieces, before=it.before)

    def take_carried(self) -> Carried | None:
        """Return what is carried, still counted; the caller gives its bytes back once it is done."""
        carried, self._carried = self._carried, None
        return carried

    def drop_carried(self) -> None:
        """Forget what is carried."""
        if carried := self.take_carried():
            self.parts.budget.give_back(carried.chunk.bytes)

    def weigh(self, byte_count: int, duration_s: float) -> None:
        """Count what was just handled for what the partition weighs."""
        if self._weigher is not None:
            self._weigher.add(byte_count if self.parts.scales.weighed_by == BYTES else duration_s)

    def tell(self, event: Event) -> None:
        """Tell the host."""
        tell(self.parts.on_event, event)

    def tell_marked(self, *, found_done: int = 0) -> None:
        """Tell that user code has stored a checkpoint of its own; see `RecordsMarked`."""
        self.tell(RecordsMarked(partition=self.lease.partition, token=self.lease.token, found_done=found_done))

    def tell_failure(self, stage: str, error: BaseException, *, attempt: int, pause_s: float) -> None:
        """Tell of user code that raised."""
        self.tell(
            ProcessorFailed(
                partition=self.lease.partition,
                token=self.lease.token,
                stage=stage,
                error=text_of(error),
                traceback="".join(traceback.format_exception(error)),
                attempt=attempt,
                pause_s=pause_s,
            )
        )


async def unless_asked(lease: Lease, call: Callable[[], Awaitable[object]]) -> bool:
    """Await `call()`, cancelled once the lease is asked for or ends; say whether it came to its own end."""
    is_done = False

    async def watch(scope: anyio.CancelScope) -> None:
        await lease.asked.wait()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope, name=f"watch ask {lease.key}")
        await call()
        is_done = True
        tasks.cancel_scope.cancel()
    return is_done
