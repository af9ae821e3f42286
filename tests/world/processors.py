"""
What the hosts of a virtual world run on each partition: a processor that writes every record into the world's journal.

It knows the world only as somebody who keeps a journal and notes, and who may hold up a record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import anyio

from processor_host import Batch, CloseReason, PartitionProcessor, ProcessorContext
from tests.world.loop import running_loop

__all__ = ["Handled", "Keeper", "WorldProcessor"]


@dataclass(slots=True, kw_only=True)
class Handled:
    """One record that a processor started."""

    place: str
    partition: str
    token: int
    position: str
    data: bytes
    start_s: float
    end_s: float | None = None
    """When it was done; None where it is not."""
    left_s: float | None = None
    """When its processor was through with it, done or not; None while it is at it."""
    held: bool = True
    """Whether its lease said at `start_s` that it is held."""


class Keeper(Protocol):
    """Whoever keeps the journal."""

    journal: list[Handled]

    @property
    def on_record(self) -> Callable[[Handled], Awaitable[None]]:
        """Called as a record starts; may take its time."""
        ...

    def note(self, place: str, *what: object) -> None:
        """Write something into the notes."""
        ...


class WorldProcessor(PartitionProcessor):
    """Takes `record_s` for each record; `stubborn`: it lets nobody cancel it in the middle of one."""

    def __init__(self, keeper: Keeper, place: str, record_s: float, *, stubborn: bool = False) -> None:
        self._keeper = keeper
        self._place = place
        self._record_s = record_s
        self._stubborn = stubborn
        self._term: tuple[str, int] = ("", 0)

    async def open(self, context: ProcessorContext) -> None:
        """Note the term."""
        self._term = (context.partition, context.lease.token)
        self._keeper.note(self._place, "open", *self._term, context.position)

    async def process(self, batch: Batch) -> None:
        """Handle each record."""
        for record in batch:
            await self.handle(
                Handled(
                    place=self._place,
                    partition=record.partition,
                    token=batch.lease.token,
                    position=record.position,
                    data=record.data,
                    start_s=running_loop().time(),
                    held=batch.lease.is_held(),
                )
            )

    async def handle(self, handled: Handled) -> None:
        """Handle one record, in the journal from its start on."""
        self._keeper.journal.append(handled)
        try:
            await self._work(handled)
            handled.end_s = running_loop().time()
        finally:
            handled.left_s = running_loop().time()

    async def _work(self, handled: Handled) -> None:
        await self._keeper.on_record(handled)
        if self._record_s:
            with anyio.CancelScope(shield=self._stubborn):
                await anyio.sleep(self._record_s)

    async def close(self, reason: CloseReason) -> None:
        """Note the reason."""
        self._keeper.note(self._place, "close", *self._term, reason)
