"""
The reader of one shard that polls: GetShardIterator, then GetRecords again and again, at a pace that others can bear.

Knows no lease. What is read is handed on by the shelf (`_shelf`), when to read is the pace's business (`_pace`), and
what a place means is said in `_places`; here is only what to do about each answer:

- Throttled: wait, longer each time; the caller is told nothing but that there is no record yet.
- An expired iterator: a new one from right after the last record that was read, never from the start.
- No next iterator, written as null or left out, with or without records, or no iterator at all: the shard has ended.
- A shard that is not found: ended, if the stream is there and no longer lists it; what was unread in it is missing.
- A sequence number that is refused: the place is gone, and reading goes on at the horizon, with a gap.

An iterator is renewed by every answer, so only a slow caller or a cut lets it expire. Whoever saw the shard's end a
moment before missed nothing, whatever is left of the last record; only where that is too long ago is a gap looked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import anyio.lowlevel

from partitions.clocks import Clock, sleep_until
from partitions.errors import SourceUnavailable
from partitions.sources.base import Fetched
from partitions.sources.kinesis._calls import CallRefused, Calls, Refusal
from partitions.sources.kinesis._kpl import Unpack
from partitions.sources.kinesis._pace import Pace
from partitions.sources.kinesis._places import AtRecord, AtTime, iterator_at, place_of
from partitions.sources.kinesis._records import raw_of
from partitions.sources.kinesis._shards import ShardRef
from partitions.sources.kinesis._shelf import Page, Shelf

__all__ = ["KinesisReader", "ReaderParts"]

RECORDS_MAX: Final = 10_000
"""The most that GetRecords returns."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""What one read is to bring: no more goes through in a second, and a reader keeps it beside the host's buffers."""
FIRST_LIMIT: Final = 2_000
"""Records asked for before their size is known."""
FRESH_S: Final = 3600.0
"""Whoever saw the end of a shard so long ago has missed nothing: Kinesis keeps records for a day at least."""
FOREIGN: Final = ("did not come from this stream", "It encodes")
"""In the text of a refusal: the sequence number is of another stream or shard, so there is nothing to go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderParts:
    """What all readers of one source share."""

    calls: Calls
    clock: Clock
    random: Random
    idle_read_s: float
    unpack: Unpack | None
    is_listed: Callable[[ShardRef], Awaitable[bool]]
    """Says whether the stream still lists a shard, or may not list it yet; raises what a source may raise."""
    is_news: Callable[[str, str], bool]
    """Says, once for each partition and position, that a gap after it has not been told of yet."""


class KinesisReader:
    """A `partitions.sources.base.Reader` of one shard. A call that is cancelled has handed on nothing."""

    def __init__(self, parts: Callable[[], ReaderParts], partition: str, ref: ShardRef, position: str) -> None:
        self._parts_of = parts
        self._partition = partition
        self._ref = ref
        self._position = position
        self._shelf: Shelf | None = None
        self._pace: Pace | None = None
        self._iterator: str | None = None
        self._limit = FIRST_LIMIT
        self._caught_up_s: float | None = None
        """When an answer last reached the end of the shard, on the clock of this host."""

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        """See `Reader.read`."""
        if records_max < 1:
            raise ValueError(f"records_max={records_max}; expected 1 or more")
        parts = self._parts_of()
        shelf = self._shelf = self._shelf or self._new_shelf(parts)
        pace = self._pace = self._pace or Pace(parts.random, idle_s=parts.idle_read_s)
        until_s = parts.clock.now_s() + wait_s
        # A caller that always finds something would never let go of the loop otherwise.
        await anyio.lowlevel.checkpoint()
        while True:
            if (fetched := shelf.take(records_max, bytes_max)) is not None:
                return self._told(fetched, parts)
            # At least as long as this is away, nothing can come.
            if pace.due_s > until_s:
                await sleep_until(parts.clock, until_s)
                return Fetched(records=(), lag_s=shelf.lag_s)
            await sleep_until(parts.clock, pace.due_s)
            await self._read_page(parts, shelf, pace)

    async def close(self) -> None:
        """See `Reader.close`."""
        await anyio.lowlevel.checkpoint()

    def _new_shelf(self, parts: ReaderParts) -> Shelf:
        return Shelf(self._partition, place_of(self._partition, self._position), parts.unpack)

    def _told(self, fetched: Fetched, parts: ReaderParts) -> Fetched:
        """Return what is handed on; a gap that was told of before, by a reader that had to be replaced, is not told."""
        position, trimmed = self._position, fetched.trimmed
        if fetched.records:
            self._position = fetched.records[-1].position
        if not trimmed or parts.is_news(self._partition, position):
            return fetched
        return Fetched(records=fetched.records, lag_s=fetched.lag_s, ended=fetched.ended)

    async def _read_page(self, parts: ReaderParts, shelf: Shelf, pace: Pace) -> None:
        """Ask once, and put on the shelf what came; say to the pace when to ask again."""
        sent_s = parts.clock.now_s()
        try:
            page = await self._ask(parts, shelf)
        except CallRefused as refused:
            if refused.refusal is Refusal.THROTTLED:
                pace.throttled(parts.clock.now_s())
                return
            # Also where the next answer refuses again: not faster than other reads.
            pace.answered(sent_s, bytes_read=0, is_idle=False)
            if (found := await self._refused(refused, parts, shelf)) is not None:
                shelf.put(found)
            return
        bytes_read = sum(len(raw.data) for raw in page.raws)
        if page.lag_s == 0 and not page.ended:
            self._caught_up_s = sent_s
        if page.raws:
            fits = PAGE_BYTES * len(page.raws) // max(1, bytes_read)
            self._limit = max(1, min(RECORDS_MAX, (self._limit + fits) // 2))
        pace.answered(sent_s, bytes_read=bytes_read, is_idle=not page.raws and not page.lag_s)
        shelf.put(page)

    async def _ask(self, parts: ReaderParts, shelf: Shelf) -> Page:
        iterator = self._iterator or await self._new_iterator(parts, shelf)
        if iterator is None:
            return Page(ended=True, lag_s=0.0)
        answer = await parts.calls.get_records(self._ref.stream, iterator, self._limit)
        # Only after the await: a read that was cancelled is asked again.
        self._iterator = answer.get("NextShardIterator")
        return _page_of(answer)

    async def _new_iterator(self, parts: ReaderParts, shelf: Shelf) -> str | None:
        caught_up_s = self._caught_up_s
        shelf.begin_anew(is_sure=caught_up_s is not None and parts.clock.now_s() - caught_up_s < FRESH_S)
        begin = iterator_at(shelf.place, present_s=parts.calls.present_s)
        answer = await parts.calls.get_shard_iterator(self._ref.stream, self._ref.shard, begin)
        self._iterator = answer.get("ShardIterator")
        return self._iterator

    async def _refused(self, refused: CallRefused, parts: ReaderParts, shelf: Shelf) -> Page | None:
        """
        Act on a refusal; return what it says about the shard, None where another read will tell.

        Raises:
            SourceUnavailable, SourceMisconfigured: nothing can be done about it here.
        """
        has_iterator, self._iterator = self._iterator is not None, None
        if refused.refusal is Refusal.EXPIRED:
            return None
        if refused.refusal is Refusal.NOT_FOUND:
            if await parts.is_listed(self._ref):
                raise SourceUnavailable(refused.fault.text) from refused
            return Page(ended=True, lag_s=0.0, vanished=True)
        place = shelf.place
        if isinstance(place, AtTime) and "imestamp" in refused.fault.text:
            # The clocks of the servers of Kinesis differ a little: this one has not come to that time yet.
            raise SourceUnavailable(refused.fault.text) from refused
        # One of GetRecords says nothing about the place: from the horizon, all would be read once more.
        if (
            not has_iterator
            and isinstance(place, AtRecord)
            and not any(words in refused.fault.text for words in FOREIGN)
        ):
            shelf.go_on_at_horizon()
            return None
        raise refused.as_error() from refused


def _page_of(answer: Mapping[str, Any]) -> Page:
    behind_ms = answer.get("MillisBehindLatest")
    ended = not answer.get("NextShardIterator")
    return Page(
        raws=[raw_of(record) for record in answer["Records"]],
        lag_s=0.0 if ended else None if behind_ms is None else behind_ms / 1000,
        ended=ended,
    )
