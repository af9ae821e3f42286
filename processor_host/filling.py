"""
Filling: what was read of one partition becomes what is handed on next, in one run of its processor.

Knows no processor. Between the reader's buffer and whoever hands on stand three things: a wait for fuller batches
(`batch_wait_s`), a pause that user code asked for (`batch.pause_s`), and the end of a bounded replay (`until`). Without
any of them a chunk passes as it was read.
"""

from __future__ import annotations

import math
from collections import deque

import anyio

from partitions.clocks import wait_until
from processor_host.buffer import Chunk, RecordBuffer
from processor_host.ends import End, cut
from processor_host.events import PartitionPausedFor
from processor_host.term import Term

__all__ = ["Filling"]


class Filling:
    """Gives one chunk after the other; the caller says when each is done, in the same order."""

    def __init__(self, term: Term, buffer: RecordBuffer, end: End | None) -> None:
        self._term = term
        self._buffer = buffer
        self._end = end
        self._after = term.read_from
        """The position before what is given next."""
        self.before = self._after
        """The position before the first record of what was given last."""
        self._taken: deque[int] = deque()
        """How many chunks of the buffer each of those is made of that were given and are not done."""
        self._next = 0
        """The number of the buffer's chunk that is given next. What is done meanwhile must not shift it."""
        self._pause_until_s = -math.inf

    def pause(self, seconds: float) -> None:
        """Give nothing more for so long, from now on."""
        lease = self._term.lease
        self._pause_until_s = self._term.parts.clock.now_s() + seconds
        self._term.tell(PartitionPausedFor(partition=lease.partition, token=lease.token, pause_s=seconds))

    async def paused(self) -> None:
        """Return once no pause lasts; at once where the lease is asked for."""
        clock = self._term.parts.clock
        while self._pause_until_s > clock.now_s() and not self._term.lease.asked.is_set():
            # The last call counts, and it may come while this waits.
            await wait_until(clock, min(self._pause_until_s, clock.now_s() + 1.0), self._term.lease.asked)

    async def next(self) -> Chunk | None:
        """
        Return what is to be handed on next, waiting for it; None once the buffer is closed.

        A chunk without records says that the partition has ended, or is over for this replay.
        """
        while True:
            await self.paused()
            if self._end is not None and self._is_at(self._end):
                return Chunk((), lag_s=None, ended=False, is_over=True)
            chunk = await self._buffer.get(self._next)
            if chunk is None:
                return None
            count = 1
            if self._term.parts.bounds.batch_wait_s > 0:
                chunk, count = await self._fuller(chunk)
                if chunk is None:
                    return None
                await self.paused()
            self._taken.append(count)
            self._next += count
            if self._end is not None:
                chunk = self._up_to(self._end, chunk)
            if chunk.records:
                self.before = self._after
                self._after = chunk.records[-1].position
            if chunk.records or chunk.ended or chunk.is_over:
                return chunk
            self.done()

    def done(self) -> None:
        """Let go of the first chunk that was given and is not done."""
        for _ in range(self._taken.popleft()):
            self._buffer.done()

    async def _fuller(self, chunk: Chunk) -> tuple[Chunk | None, int]:
        """Return a chunk with those that come within the wait, as far as they fit into a batch, and their number."""
        bounds = self._term.parts.bounds
        parts = [chunk]
        records, size = len(chunk.records), chunk.bytes
        with anyio.move_on_after(bounds.batch_wait_s):
            while records < bounds.batch_records_max and size < bounds.batch_bytes_max and not parts[-1].ended:
                more = await self._buffer.get(self._next + len(parts))
                if more is None:
                    return None, 0
                if records + len(more.records) > bounds.batch_records_max or size + more.bytes > bounds.batch_bytes_max:
                    break
                parts.append(more)
                records += len(more.records)
                size += more.bytes
        if len(parts) == 1:
            return chunk, 1
        joined = [record for part in parts for record in part.records]
        return Chunk(joined, lag_s=parts[-1].lag_s, ended=parts[-1].ended), len(parts)

    def _up_to(self, end: End, chunk: Chunk) -> Chunk:
        found = cut(
            end,
            self._after,
            chunk.records,
            # A lag of 0 with records says only that the newest one has the same time as the last of these.
            nothing_left=chunk.ended or (not chunk.records and chunk.lag_s == 0),
            now_s=self._term.parts.wall_s(),
        )
        if found.count == len(chunk.records) and not found.is_over:
            return chunk
        # A partition that has ended where the replay does is simply at its end.
        is_over = found.is_over and not (chunk.ended and found.count == len(chunk.records))
        ended = chunk.ended and not is_over
        return Chunk(chunk.records[: found.count], lag_s=chunk.lag_s, ended=ended, is_over=is_over)

    def _is_at(self, end: End) -> bool:
        """Say whether what was handled last is the end already, as after a fail-over."""
        return cut(end, self._after, (), nothing_left=False, now_s=self._term.parts.wall_s()).is_over

