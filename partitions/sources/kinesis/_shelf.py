"""
The shelf of one shard: the answer that was read last, handed on in as many pieces as a caller likes.

Knows no call and no clock; both ways of reading fill it. One answer of Kinesis is up to 10 MB or 10,000 records, far
more than a batch, and a read may not be repeated often: so a whole answer is kept until it is handed on.

Theory of operation. `place` is where reading goes on after all that was ever put here, so that whoever lost an iterator
never starts anew. What was done before is recognised by its sequence number, and passed over. See `_places` for how a
gap is seen: a record that is awaited and does not come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitions.sources.base import Fetched, Record
from partitions.sources.kinesis._kpl import Unpack
from partitions.sources.kinesis._places import AtEnd, AtHorizon, AtRecord, AtTime, Place
from partitions.sources.kinesis._records import RawRecord, records_of

__all__ = ["Page", "Shelf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer."""

    raws: Sequence[RawRecord] = ()
    lag_s: float | None = None
    """How far the end of this answer is behind the newest record of the shard, seconds; None where it is not said."""
    ended: bool = False
    """Nothing follows: the shard is closed, and this is its last answer."""
    vanished: bool = False
    """The shard is gone from the stream with whatever was unread in it; goes with `ended`."""


class Shelf:
    """What was read of one shard and not handed on yet."""

    def __init__(self, partition: str, place: Place, unpack: Unpack | None) -> None:
        self._partition = partition
        self._unpack = unpack
        self._place = place
        self._is_joint = True
        """What comes next may begin with what was done before: an iterator was made, and brought nothing newer yet."""
        self._is_awaited = isinstance(place, AtRecord)
        """The record at `place` must come first, or something is missing."""
        self._from_s: float | None = place.time_s if isinstance(place, AtTime) else None
        """Records before this time are passed over, until one is not."""
        self._raws: deque[RawRecord] = deque()
        self._records: deque[Record] = deque()
        self._page = Page(ended=isinstance(place, AtEnd), lag_s=0.0 if isinstance(place, AtEnd) else None)
        self._last_s: float | None = None
        """When the last record of the page was written."""
        self._is_gap = False
        self._is_gap_ahead = False

    @property
    def place(self) -> Place:
        """Where reading goes on after everything that was put here."""
        return self._place

    @property
    def lag_s(self) -> float | None:
        """What the last answer said about how far it is behind."""
        return self._page.lag_s

    def begin_anew(self, *, is_sure: bool) -> None:
        """Reading goes on at `place` with a new iterator; `is_sure`: whatever comes, nothing can be missing."""
        self._is_joint = True
        self._is_awaited = isinstance(self._place, AtRecord) and not is_sure

    def go_on_at_horizon(self) -> None:
        """The place is gone: what comes next begins after a gap."""
        self._place = AtHorizon()
        self._is_awaited = False
        self._is_gap_ahead = True

    def put(self, page: Page) -> None:
        """Take an answer in, right after the last one."""
        raws = self._not_done(page)
        if raws:
            self._place = AtRecord(sequence=raws[-1].sequence)
            self._last_s = raws[-1].time_s
            self._is_joint = False
        self._raws.extend(raws)
        self._page = page
        self._is_gap = self._is_gap or self._is_gap_ahead or page.vanished
        self._is_gap_ahead = False

    def take(self, records_max: int, bytes_max: int) -> Fetched | None:
        """Return the next records, at least one; None where nothing is left and there is nothing to tell."""
        records: list[Record] = []
        size = 0
        while len(records) < records_max and (self._records or self._raws):
            if not self._records:
                self._records.extend(records_of(self._partition, self._raws.popleft(), self._unpack))
                continue
            size += len(self._records[0].data)
            if records and size > bytes_max:
                break
            records.append(self._records.popleft())
        ended = self._page.ended and not self._records and not self._raws
        trimmed, self._is_gap = self._is_gap, False
        if not (records or ended or trimmed):
            return None
        return Fetched(records=tuple(records), lag_s=self._lag_of(records), ended=ended, trimmed=trimmed)

    def _not_done(self, page: Page) -> Sequence[RawRecord]:
        """Return what is left of a page without what was done before; see whether something is missing."""
        raws = page.raws if self._from_s is None else list(self._since(page.raws, self._from_s))
        place = self._place
        if not self._is_joint or not isinstance(place, AtRecord):
            return raws
        done = int(place.sequence)
        # A server whose iterators are coarse may begin earlier than asked.
        newer = [raw for raw in raws if int(raw.sequence) > done]
        if not self._is_awaited:
            return newer
        last = next((raw for raw in raws if raw.sequence == place.sequence), None)
        if last is not None:
            self._is_awaited = False
            if place.sub is not None:
                self._records.extend(records_of(self._partition, last, self._unpack, after=place.sub))
                self._last_s = last.time_s
                self._place = AtRecord(sequence=place.sequence)
        elif newer or page.ended or page.lag_s == 0:
            # It was not there, and cannot come any more.
            self._is_awaited = False
            self._is_gap = True
        return newer

    def _since(self, raws: Sequence[RawRecord], from_s: float) -> Iterator[RawRecord]:
        for raw in raws:
            # Times are not strictly growing, so only what comes before the first record of the time is passed over.
            if self._from_s is None or raw.time_s is None or raw.time_s >= from_s:
                self._from_s = None
                yield raw

    def _lag_of(self, records: Sequence[Record]) -> float | None:
        """Return the lag after these records: what the page says about its end, and how far that still is."""
        lag_s = self._page.lag_s
        if lag_s is None or not records or not (self._records or self._raws):
            return lag_s
        written_s = records[-1].time_s
        return None if written_s is None or self._last_s is None else lag_s + max(0.0, self._last_s - written_s)
