"""
The reader of one shard to which Kinesis pushes its records: enhanced fan-out, SubscribeToShard.

Knows no lease. What came is handed on by the shelf (`_shelf`), as from the reader that polls; here is only when to
subscribe, from where, and what to do about each way in which a subscription ends:

- After five minutes, or with its connection: subscribe again at once, from where it ended.
- Taken over, because a second subscription of the same consumer to the same shard began: subscribe again after a
  growing wait. That is what a hand-over looks like to the old owner; where it goes on, two groups share one consumer.
- Refused, because a subscription began less than five seconds ago, or throttled: again after a growing wait.
- The shard's end: an event with children, or without a number to go on from. Its records are handed on first.
- The consumer or the shard is not found: ended if the stream no longer lists the shard; else the consumer is looked up,
  and made again.

Theory of operation of "from where". Every event has the number to go on from, which moves on also where a shard is
idle. Once the end of the shard or a record was seen, nothing can be missing after it. Before, and where that number is
the last record's own, reading goes on *at* the last record, so that a gap is seen (`_places`). An event is asked for
only when everything before it was handed on, so that Kinesis waits for a slow processor, not this host's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.lowlevel

from partitions.aws.faults import FaultKind
from partitions.clocks import sleep_until
from partitions.errors import SourceUnavailable
from partitions.retries import Waits
from partitions.sources.base import Fetched
from partitions.sources.kinesis._fanout_calls import IN_USE, Fanout, FanoutRefused
from partitions.sources.kinesis._fanout_frames import Events
from partitions.sources.kinesis._places import AtRecord, AtTime, iterator_at, place_of
from partitions.sources.kinesis._reader import FOREIGN, ReaderParts
from partitions.sources.kinesis._records import raw_of
from partitions.sources.kinesis._shards import ShardRef
from partitions.sources.kinesis._shelf import Page, Shelf

__all__ = ["FanoutReader", "FanoutTimes", "page_of", "start_at"]

REFUSALS_MAX: Final = 4
"""Refusals in a row, or take-overs; then they are told, for it is not a hand-over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanoutTimes:
    """How long a reader waits, seconds; the defaults are what the limits of Kinesis ask for."""

    second_s: float = 5.0
    """Kinesis refuses a second subscription of one consumer to one shard so soon after the first."""
    refused: Waits = field(default_factory=lambda: Waits(first_s=2.0, most_s=10.0))
    """After refusals and take-overs."""
    settled_s: float = 60.0
    """A subscription that lived so long is not part of a quarrel: refusals are counted anew after it."""


class FanoutReader:
    """A `partitions.sources.base.Reader` of one shard. A call that is cancelled has handed on nothing."""

    def __init__(
        self,
        parts: ReaderParts,
        fanout: Fanout,
        partition: str,
        ref: ShardRef,
        position: str,
        *,
        times: FanoutTimes | None = None,
    ) -> None:
        """
        Name the place to go on from; nothing is asked before the first read.

        Raises:
            SourceMisconfigured: the position is none of Kinesis.
        """
        self._parts = parts
        self._times = times or FanoutTimes()
        self._fanout = fanout
        self._partition = partition
        self._ref = ref
        self._position = position
        self._shelf = Shelf(partition, place_of(partition, position), parts.unpack)
        self._events: Events | None = None
        self._subscribed_s = 0.0
        """When the last subscription was answered, on the clock of this host; 0.0 before the first."""
        self._due_s = parts.clock.now_s()
        """When to subscribe."""
        self._refusals = 0
        self._continuation: str | None = None

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        """See `Reader.read`."""
        if records_max < 1:
            raise ValueError(f"records_max={records_max}; expected 1 or more")
        until_s = self._parts.clock.now_s() + wait_s
        # A caller that always finds something would never let go of the loop otherwise.
        await anyio.lowlevel.checkpoint()
        while True:
            if (fetched := self._shelf.take(records_max, bytes_max)) is not None:
                return self._told(fetched)
            if not await self._step(until_s):
                return Fetched(records=(), lag_s=self._shelf.lag_s)

    async def close(self) -> None:
        """See `Reader.close`."""
        await anyio.lowlevel.checkpoint()
        await self._leave()

    def _told(self, fetched: Fetched) -> Fetched:
        """Return what is handed on; a gap that was told of before, by a reader that had to be replaced, is not told."""
        position = self._position
        if fetched.records:
            self._position = fetched.records[-1].position
        if not fetched.trimmed or self._parts.is_news(self._partition, position):
            return fetched
        return Fetched(records=fetched.records, lag_s=fetched.lag_s, ended=fetched.ended)

    async def _step(self, until_s: float) -> bool:
        """Subscribe, or take in the next event; false if it is `until_s` before either can be done."""
        clock = self._parts.clock
        if self._events is None:
            await sleep_until(clock, min(self._due_s, until_s))
            if self._due_s > until_s:
                return False
            await self._subscribe()
            return True
        try:
            with anyio.move_on_after(max(0.0, until_s - clock.now_s())) as waiting:
                has_more = await self._events.arrived()
            if waiting.cancelled_caught:
                return False
            event = await self._events.next() if has_more else None
        except Exception as error:  # Containment: whatever ends a subscription, the next one goes on where it ended.
            refused = self._fanout.refused(error, "SubscribeToShard", self._resource)
            await self._leave()
            await self._ended(refused)
            return True
        if event is None:
            await self._leave()
            # Not sooner, or it is refused: a subscription may end as soon as it began.
            self._due_s = max(clock.now_s(), self._subscribed_s + self._times.second_s)
        else:
            self._take_in(event)
        return True

    async def _subscribe(self) -> None:
        parts = self._parts
        shelf = self._shelf
        place = shelf.place
        if self._continuation is None or (isinstance(place, AtRecord) and place.sequence == self._continuation):
            shelf.begin_anew(is_sure=False)
            start = start_at(iterator_at(place, present_s=parts.calls.present_s))
        else:
            shelf.begin_anew(is_sure=True)
            start = {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": self._continuation}
        try:
            self._events = await self._fanout.subscribe(parts.calls, self._ref.stream, self._ref.shard, start)
        except FanoutRefused as refused:
            await self._refused(refused)
            return
        except SourceUnavailable:
            self._wait_longer()
            raise
        self._subscribed_s = parts.clock.now_s()

    def _take_in(self, event: Mapping[str, Any]) -> None:
        if (pushed := event.get("SubscribeToShardEvent")) is None:
            return
        page = page_of(pushed)
        if self._parts.clock.now_s() - self._subscribed_s >= self._times.settled_s:
            self._refusals = 0
        if self._continuation is not None or page.raws or page.lag_s == 0:
            self._continuation = pushed.get("ContinuationSequenceNumber")
        self._shelf.put(page)

    async def _refused(self, refused: FanoutRefused) -> None:
        """
        Act on a subscription that Kinesis refused.

        Raises:
            SourceUnavailable, SourceMisconfigured: nothing can be done about it here, or not for now.
        """
        fault = refused.fault
        place = self._shelf.place
        if fault.kind is FaultKind.INVALID:
            if isinstance(place, AtTime) and "imestamp" in fault.text:
                # The clocks of the servers of Kinesis differ a little: this one has not come to that time yet.
                self._wait_longer()
                raise SourceUnavailable(fault.text) from refused
            if isinstance(place, AtRecord) and not any(words in fault.text for words in FOREIGN):
                self._continuation = None
                self._shelf.go_on_at_horizon()
                return
        await self._ended(refused)

    async def _ended(self, refused: FanoutRefused) -> None:
        """
        Act on an error with which a subscription ended, or was refused.

        Raises:
            SourceUnavailable, SourceMisconfigured: it is not one that has to be expected.
        """
        fault = refused.fault
        self._wait_longer()
        if fault.code == IN_USE:
            if self._refusals >= REFUSALS_MAX:
                raise SourceUnavailable(
                    f"{fault.text}; another reader subscribes to {self._resource} as consumer "
                    f"{self._fanout.consumer!r}: give each group a consumer of its own"
                ) from refused
            return
        if fault.kind is FaultKind.THROTTLED:
            return
        if fault.kind is FaultKind.MISSING:
            self._fanout.forget(self._ref.stream)
            if not await self._parts.is_listed(self._ref):
                self._shelf.put(Page(ended=True, lag_s=0.0, vanished=True))
                return
            raise SourceUnavailable(f"{fault.text}; the consumer is made again") from refused
        if fault.kind is FaultKind.PASSING and self._refusals == 1:
            # A connection that broke: what a second one cannot mend is told.
            return
        raise refused.as_error() from refused

    def _wait_longer(self) -> None:
        self._refusals += 1
        now_s = self._parts.clock.now_s()
        wait_s = self._times.refused.after(self._refusals, self._parts.random)
        self._due_s = max(now_s + wait_s, self._subscribed_s + self._times.second_s if self._subscribed_s else now_s)

    async def _leave(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            await events.close()

    @property
    def _resource(self) -> str:
        return f"shard {self._ref.shard!r} of stream {self._ref.stream!r}"


def page_of(pushed: Mapping[str, Any]) -> Page:
    """Return what an event brought; it is the shard's last if it names children or no number to go on from."""
    behind_ms = pushed.get("MillisBehindLatest")
    ended = bool(pushed.get("ChildShards")) or not pushed.get("ContinuationSequenceNumber")
    return Page(
        raws=[raw_of(record) for record in pushed.get("Records") or ()],
        lag_s=0.0 if ended else None if behind_ms is None else behind_ms / 1000,
        ended=ended,
    )


def start_at(begin: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a place as SubscribeToShard names it, of what GetShardIterator would be asked (`_places.iterator_at`)."""
    names = {"ShardIteratorType": "Type", "StartingSequenceNumber": "SequenceNumber", "Timestamp": "Timestamp"}
    return {names[name]: value for name, value in begin.items()}
