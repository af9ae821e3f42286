"""
What was read of one partition and not handled yet, and the byte budget that all partitions of a host share.

Bounded twice: by records and bytes for one partition, and by bytes for the host. A reader asks for room before each
read, so a partition whose processor is slow stops being read, and a host with many partitions does not fill all of its
buffers. Reads that are under way when the budget is used up still bring what they bring, so each partition may
overshoot it by one read: to reserve before reading would let partitions that wait for records starve the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio

from partitions.sources.base import Record

__all__ = ["ByteBudget", "Chunk", "RecordBuffer"]


class ByteBudget:
    """The bytes that all buffers of one host hold together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._freed = anyio.Event()

    @property
    def used(self) -> int:
        """The bytes that are held now."""
        return self._used

    async def wait_for_room(self) -> None:
        """Return once less than the budget is used."""
        while self._used >= self._bytes_max:
            await self._freed.wait()

    def take(self, count: int) -> None:
        """Count bytes that a buffer holds from now on."""
        self._used += count

    def give_back(self, count: int) -> None:
        """Count bytes that are no longer held."""
        self._used -= count
        freed, self._freed = self._freed, anyio.Event()
        freed.set()


class Chunk:
    """What one read returned: its records and what the source said beside them."""

    __slots__ = ("bytes", "ended", "is_over", "lag_s", "records")

    def __init__(
        self, records: Sequence[Record], *, lag_s: float | None, ended: bool, is_over: bool = False
    ) -> None:
        self.records = tuple(records)
        self.bytes = sum(len(record.data) for record in self.records)
        self.lag_s = lag_s
        self.ended = ended
        self.is_over = is_over
        """`until` ends the partition behind these records."""


class RecordBuffer:
    """The chunks of one partition, between one reader and one pump."""

    def __init__(self, budget: ByteBudget, *, records_max: int, bytes_max: int) -> None:
        self._budget = budget
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._chunks: deque[Chunk] = deque()
        self._dropped = 0
        self._records = 0
        self._bytes = 0
        self._changed = anyio.Event()
        self._closed = False

    async def wait_for_room(self) -> None:
        """Return once the reader may read on, for this partition and for the host; never once the buffer is closed."""
        # A reader that went on would read the whole stream into nothing while the last batch is at work.
        while self._closed or self._records >= self._records_max or self._bytes >= self._bytes_max:
            await self._changed.wait()
        await self._budget.wait_for_room()

    def put(self, chunk: Chunk) -> None:
        """Add what was read."""
        if self._closed:
            return
        self._chunks.append(chunk)
        self._records += len(chunk.records)
        self._bytes += chunk.bytes
        self._budget.take(chunk.bytes)
        self._wake()

    async def get(self, number: int | None = None) -> Chunk | None:
        """
        Return a chunk, waiting for it; None once the buffer is closed.

        Args:
            number: Which, counted from the first that was ever put, 0, so that what is dropped meanwhile shifts
                nothing; None for the oldest.
        """
        while not self._closed and self._dropped + len(self._chunks) <= (self._dropped if number is None else number):
            await self._changed.wait()
        return None if self._closed else self._chunks[0 if number is None else number - self._dropped]

    def is_empty(self) -> bool:
        """Say whether there is no chunk at all."""
        return not self._chunks

    def done(self) -> None:
        """Drop the oldest chunk: it was handled, or will be read again. Nothing is left of one that was closed."""
        if not self._chunks:
            return
        chunk = self._chunks.popleft()
        self._dropped += 1
        self._records -= len(chunk.records)
        self._bytes -= chunk.bytes
        self._budget.give_back(chunk.bytes)
        self._wake()

    def close(self) -> None:
        """Discard everything; `get` returns None from now on."""
        self._closed = True
        while self._chunks:
            self.done()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
