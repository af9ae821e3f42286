"""
Records of one partition at work side by side: which may begin, and how far everything is done.

The pure core of `concurrency=N`; knows no task, no processor and no lease. Records are told apart by a number of their
own, counted from 0 in the order of the partition.

Theory of operation:
- Records of one key form a lane: its first one is at work or may begin, the rest wait. A record without a key has a
  lane of its own, for nobody has asked for an order among those.
- Of all that may begin, the earliest does, and at most `at_once` are at work. So what holds back the checkpoint comes
  first, and something begins whenever anything may.
- A record that failed stays at the head of its lane; its key waits for it, the others do not. Every record that is
  not done holds the checkpoint back, and nothing is taken in further than `window_max` beyond it.
- `done` counts the records before the first that is not done. It never goes back.
"""

from __future__ import annotations

import heapq
from collections import deque

from partitions.sources.base import Record

__all__ = ["SideBySide"]


class SideBySide:
    """
    The records of one term that were taken in and are not all done. One owner; not for several threads.

    Attributes:
        at_once: Records at work together, at most.
        window_max: Records between the first that is not done and the last taken in, at most.
    """

    def __init__(self, *, at_once: int, window_max: int) -> None:
        if at_once < 1 or window_max < at_once:
            raise ValueError(f"at_once={at_once} and window_max={window_max}: expected 1 <= at_once <= window_max")
        self.at_once = at_once
        self.window_max = window_max
        self._records: deque[Record] = deque()
        """From the first that is not done on."""
        self._first = 0
        """The number of the first that is not done."""
        self._position: str | None = None
        self._lanes: dict[str, deque[int]] = {}
        self._may_begin: list[int] = []
        self._at_work: set[int] = set()
        self._failed: set[int] = set()
        """Neither at work nor allowed to begin, until `again`."""
        self._done_beyond: set[int] = set()

    @property
    def done(self) -> int:
        """How many records are done without a gap, from the first one on."""
        return self._first

    @property
    def position(self) -> str | None:
        """The position of the last of those, which is what a checkpoint may store; None while there is none."""
        return self._position

    @property
    def at_work(self) -> int:
        """How many have begun and neither ended nor failed."""
        return len(self._at_work)

    @property
    def unfinished(self) -> int:
        """How many were taken in and are not done, at work or not."""
        return len(self._records) - len(self._done_beyond)

    @property
    def room(self) -> int:
        """How many more may be taken in now."""
        return self.window_max - len(self._records)

    def add(self, record: Record) -> int:
        """
        Take in the next record of the partition and return its number.

        Raises:
            ValueError: there is no room.
        """
        if self.room < 1:
            raise ValueError(f"window_max={self.window_max} records are taken in already; wait until some are done")
        number = self._first + len(self._records)
        self._records.append(record)
        if record.key is None:
            heapq.heappush(self._may_begin, number)
            return number
        lane = self._lanes.setdefault(record.key, deque())
        lane.append(number)
        if len(lane) == 1:
            heapq.heappush(self._may_begin, number)
        return number

    def begin(self) -> tuple[int, Record] | None:
        """Return the record that is to begin now, with its number; None where none may."""
        if not self._may_begin or len(self._at_work) >= self.at_once:
            return None
        number = heapq.heappop(self._may_begin)
        self._at_work.add(number)
        return number, self._record(number)

    def end(self, number: int) -> None:
        """
        Note that a record at work is done, or that one that failed was given up.

        Raises:
            ValueError: it is neither.
        """
        if number in self._failed:
            self._failed.remove(number)
        else:
            self._stop_work(number)
        key = self._record(number).key
        if key is not None:
            lane = self._lanes[key]
            lane.popleft()
            if lane:
                heapq.heappush(self._may_begin, lane[0])
            else:
                del self._lanes[key]
        self._done_beyond.add(number)
        while self._first in self._done_beyond:
            self._done_beyond.remove(self._first)
            self._position = self._records.popleft().position
            self._first += 1

    def fail(self, number: int) -> None:
        """
        Note that a record at work failed. It stays first of its key and begins no more until `again`.

        Raises:
            ValueError: it is not at work.
        """
        self._stop_work(number)
        self._failed.add(number)

    def again(self, number: int) -> None:
        """
        Let a record that failed begin once more.

        Raises:
            ValueError: it has not failed, or may begin already.
        """
        if number not in self._failed:
            raise ValueError(f"record {number} has not failed; {sorted(self._failed)} have")
        self._failed.remove(number)
        heapq.heappush(self._may_begin, number)

    def before(self, number: int) -> str | None:
        """Return the position right before a record that is not done; None where nothing was taken in before it."""
        return self._record(number - 1).position if number > self._first else self._position

    def _record(self, number: int) -> Record:
        return self._records[number - self._first]

    def _stop_work(self, number: int) -> None:
        if number not in self._at_work:
            raise ValueError(f"record {number} is not at work; {sorted(self._at_work)} are")
        self._at_work.remove(number)
