"""
Handing on: one unit (a batch, a part of one, or a single record) through the middleware to user code.

Knows no order and no policy. Whoever hands on says how the unit's checkpoints are stored, and marks it once it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import anyio
import anyio.lowlevel

from partitions.sources.base import Record
from processor_host.events import BatchCut, BatchHandled
from processor_host.kinds import Kind
from processor_host.middleware import around
from processor_host.processor import Batch
from processor_host.term import Term
from processor_host.user_code import UserFailed, call_user

__all__ = ["Handing", "Marking"]


class Marking(Protocol):
    """How one unit's own checkpoints are stored; indices are those of its records."""

    async def save(self, index: int) -> None:
        """See `Batch.checkpoint`."""
        ...

    async def commit(self, index: int, operations: Sequence[Any]) -> None:
        """See `Batch.transaction`."""
        ...

    async def prepare(self, index: int, state: str) -> None:
        """See `Batch.prepare`."""
        ...


class Handing:
    """Hands units to one processor that is open."""

    def __init__(self, term: Term, kind: Kind, *, pause: Callable[[float], None]) -> None:
        self._term = term
        self._process = around(term.parts.middleware, kind.process)
        self._pause = pause
        self._at_work = 0
        """Records handed on that neither were done nor failed; what a cancellation struck stays."""

    def tell_cut(self) -> None:
        """Tell what was at work as everything was cancelled."""
        if self._at_work:
            lease = self._term.lease
            self._term.tell(BatchCut(partition=lease.partition, token=lease.token, records=self._at_work))

    async def hand_on(
        self, records: Sequence[Record], *, byte_count: int, lag_s: float | None, marking: Marking
    ) -> UserFailed | None:
        """
        Have a unit handled.

        Args:
            records: Of the unit, at least one.
            byte_count: Of their payload.
            lag_s: As `Batch.lag_s`.
            marking: How what the batch's own methods ask for is stored.

        Returns:
            None once all of its records are done; else what user code raised.

        Raises:
            LeaseLost: the lease has ended.
        """
        term = self._term
        batch = Batch(
            records,
            lease=term.lease,
            lag_s=lag_s,
            save=marking.save,
            commit=marking.commit,
            pause=self._pause,
            prepare=marking.prepare,
        )
        began_s = term.parts.clock.now_s()
        self._at_work += len(records)
        try:
            await call_user(term.lease, "process", lambda: self._process(batch))
            # Raised again where it swallowed its cancellation and returned: what it left out must not count as done.
            await anyio.lowlevel.checkpoint_if_cancelled()
        except UserFailed as failed:
            self._at_work -= len(records)
            return failed
        self._at_work -= len(records)
        duration_s = term.parts.clock.now_s() - began_s
        term.handled += len(records)
        term.weigh(byte_count, duration_s)
        term.tell(
            BatchHandled(
                partition=term.lease.partition,
                records=len(records),
                bytes=byte_count,
                duration_s=duration_s,
                lag_s=lag_s,
            )
        )
        return None
