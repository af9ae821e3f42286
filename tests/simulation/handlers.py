"""
What the simulated hosts run where a run has modes: records that always fail, or kill, and hosts that are ill.

Each is a `SimulatedProcessor` at its core, so that everything else befalls its records too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import anyio

from partitions.sources.base import Record
from partitions.stores.memory import MemoryTransaction
from processor_host import Batch, CloseReason, ProcessorContext, RecordProcessor
from processor_host.letters.base import Letter
from tests.simulation.modes import JOINED, RECORDS, Modes
from tests.simulation.processors import DrawnFailure, SimulatedProcessor
from tests.world.loop import running_loop
from tests.world.processors import Handled
from tests.world.world import World

__all__ = ["LETTER", "Letters", "handler_of", "letter_key"]

LETTER = "letter"
"""A note in the world's of a letter that was written, in the shape of all notes: what, partition, token, position."""


class Ward(Protocol):
    """Whoever knows which places are ill, and buries those that a record kills."""

    def is_ill(self, place: str) -> bool:
        """Say whether nothing can be handled there."""
        ...

    def kill_soon(self, place: str) -> None:
        """Kill a place as soon as the caller lets go of the loop."""
        ...


def letter_key(partition: str, position: str) -> str:
    """Return the key of a letter that was stored with the checkpoint, in all terms together."""
    return f"letter/{partition}/{position}"


class Letters:
    """The sink of one host: each letter is noted in the world, or counted in the store with the checkpoint."""

    url = "memory:letters"

    def __init__(self, world: World, place: str, modes: Modes) -> None:
        self._world = world
        self._place = place
        self._modes = modes

    async def open(self) -> None:
        """It is there."""

    async def close(self) -> None:
        """Nothing to let go of."""

    async def write(self, letter: Letter) -> None:
        """Keep it; on its way for as long as a call is."""
        await anyio.sleep(self._world.latency_s / 2)
        self._world.note(self._place, LETTER, letter.partition, letter.token, letter.position)
        await anyio.sleep(self._world.latency_s / 2)

    def joins(self, collector: object) -> bool:
        """Only in runs that say so."""
        return self._modes.policy == JOINED and isinstance(collector, MemoryTransaction)

    def join(self, collector: Any, letter: Letter) -> None:
        """Count it."""
        collector.add(letter_key(letter.partition, letter.position), 1)


class _Batches(SimulatedProcessor):
    """Batches of one host."""

    def __init__(self, modes: Modes, ward: Ward, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._modes = modes
        self._ward = ward

    async def process(self, batch: Batch) -> None:
        """Handle them, and say so where nobody else does."""
        await super().process(batch)
        if self._modes.checkpoint == "manual":
            await batch.checkpoint()

    async def _work(self, handled: Handled) -> None:
        if self._is_stormy():
            if self._ward.is_ill(self._host.place):
                raise DrawnFailure("ill")
            if self._modes.is_killer(handled.data):
                self._ward.kill_soon(self._host.place)
                await anyio.sleep_forever()
            if self._modes.is_poison(handled.data):
                raise DrawnFailure("poison")
        await super()._work(handled)


class _Records(RecordProcessor):
    """Single records of one host."""

    def __init__(self, place: str, inner: _Batches) -> None:
        self._place = place
        self._inner = inner
        self._context: ProcessorContext | None = None

    async def open(self, context: ProcessorContext) -> None:
        """Note the term, or fail to."""
        self._context = context
        await self._inner.open(context)

    async def handle(self, record: Record) -> None:
        """Handle one."""
        assert self._context is not None  # It was opened.
        lease = self._context.lease
        await self._inner.handle(
            Handled(
                place=self._place,
                partition=record.partition,
                token=lease.token,
                position=record.position,
                data=record.data,
                start_s=running_loop().time(),
                held=lease.is_held(),
            )
        )

    async def close(self, reason: CloseReason) -> None:
        """Note the reason."""
        await self._inner.close(reason)


def handler_of(modes: Modes, ward: Ward, place: str, *given: Any, **more: Any) -> Callable[[], object]:
    """Return the factory of a host's processors; the arguments are those of `SimulatedProcessor`."""

    def batches() -> _Batches:
        return _Batches(modes, ward, *given, **more)

    return (lambda: _Records(place, batches())) if modes.kind == RECORDS else batches
