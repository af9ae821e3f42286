"""
Reading ahead: fills the buffer of one partition from its source, from one position on.

Knows no lease and no processor. Whatever a source raises, the partition tries again after a growing pause, with a new
reader right after the last record that was handed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import anyio

from partitions.errors import SourceUnavailable
from partitions.events import Event, OnEvent, tell
from partitions.retries import Waits, is_cancelled
from partitions.sources.base import Fetched, Reader, Source
from processor_host.buffer import Chunk, RecordBuffer
from processor_host.events import LagSeen, PartitionGap, ReadFailed

__all__ = ["ReadAhead"]

WAITS = Waits(first_s=0.2, most_s=10.0)
"""Pauses after failed reads; the longest bounds how late reading is back once the source is."""

READ_GRACE_S = 10.0
"""How long a read may take beyond the wait it was given; then it is tried again, for it may never be answered."""

CLOSE_S = 1.0
"""How long a reader may take to let go, on the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAhead:
    """One partition, from `position` (the last record done) on."""

    source: Source
    partition: str
    position: str
    records_max: int
    """Of one read, which is one batch."""
    bytes_max: int
    wait_s: float
    random: Random
    on_event: OnEvent | None
    tells_of_nothing: bool = False
    """Whether a read that brought nothing is passed on, for who must know that nothing is left."""

    async def run(self, buffer: RecordBuffer) -> None:
        """Read until the partition's end, never further ahead than `buffer` has room."""
        position = self.position
        attempt = 0
        reader: Reader | None = None
        try:
            while True:
                await buffer.wait_for_room()
                try:
                    reader = reader or self.source.reader(self.partition, position)
                    fetched = await self._read(reader)
                except Exception as error:  # Containment: whatever a source raises, this partition tries again.
                    attempt += 1
                    pause_s = WAITS.after(attempt, self.random)
                    text = f"{type(error).__name__}: {error}"
                    self._tell(ReadFailed(partition=self.partition, error=text, attempt=attempt, pause_s=pause_s))
                    await _close(reader)
                    reader = None
                    await anyio.sleep(pause_s)
                    continue
                attempt = 0
                self._take(fetched, position, buffer)
                if fetched.records:
                    position = fetched.records[-1].position
                if fetched.ended:
                    return
        finally:
            await _close(reader)

    async def _read(self, reader: Reader) -> Fetched:
        try:
            with anyio.fail_after(self.wait_s + READ_GRACE_S):
                return await reader.read(records_max=self.records_max, bytes_max=self.bytes_max, wait_s=self.wait_s)
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled():
                raise
            # Nobody cancelled this task: the source awaited something of its own that was. Passing it on would cancel
            # the pump without a word and keep the lease without a processor.
            raise SourceUnavailable("something that the read waited for was cancelled") from error

    def _take(self, fetched: Fetched, position: str, buffer: RecordBuffer) -> None:
        if fetched.trimmed:
            self._tell(PartitionGap(partition=self.partition, position=position))
        self._tell(LagSeen(partition=self.partition, lag_s=fetched.lag_s, records=len(fetched.records)))
        if fetched.records or fetched.ended or (self.tells_of_nothing and buffer.is_empty()):
            buffer.put(Chunk(fetched.records, lag_s=fetched.lag_s, ended=fetched.ended))

    def _tell(self, event: Event) -> None:
        tell(self.on_event, event)


async def _close(reader: Reader | None) -> None:
    if reader is None:
        return
    with anyio.move_on_after(CLOSE_S, shield=True):
        try:
            await reader.close()
        except Exception:  # Containment: a reader that is given up cannot fail anybody.
            return
