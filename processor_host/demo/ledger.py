"""
How far the play is: the journals and the producer's list, read while they grow.

For the table and for waiting only; the verdict reads the files anew when all their writers are gone. Knows no store.
"""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path
from typing import Final

from processor_host.demo.lines import Act, Line, LineReader, Produced

__all__ = ["Ledger"]

RATE_S: Final = 2.0
"""What a rate is the average of, seconds: long enough to be steady, short enough to show a kill."""


class Ledger:
    """
    What the processes have written so far.

    Attributes:
        produced: Records on the producer's list.
        handled: Of those, and of those that it is about to list, how many were handled, each counted once.
        repeats: Further handlings.
        tokens: The highest token under which a record of each partition was handled.
        last_s: When the last record was handled, seconds; None before the first.
    """

    def __init__(self, journals: Path, produced: Path) -> None:
        """Name the folder of the journals and the producer's list."""
        self._folder = journals
        self._listed = LineReader(produced, Produced)
        self._journals: dict[str, LineReader[Line]] = {}
        self._waiting: dict[tuple[str, str], float] = {}
        self._done: set[tuple[str, str]] = set()
        self._newest_s: dict[str, float] = {}
        self._done_s: dict[str, float] = {}
        self._recent: deque[tuple[float, str, int]] = deque()
        self.produced = 0
        self.repeats = 0
        self.tokens: dict[str, int] = defaultdict(int)
        self.last_s: float | None = None

    @property
    def handled(self) -> int:
        """See above."""
        return len(self._done)

    @property
    def missing(self) -> int:
        """How many records of the list are still to be handled."""
        return len(self._waiting)

    def read(self) -> None:
        """Take in what was written since the last call."""
        for each in self._listed.read():
            self._take_produced(each)
        for path in sorted(self._folder.glob("*.jsonl")):
            reader = self._journals.setdefault(path.name, LineReader(path, Line))
            for line in reader.read():
                if line.act is Act.ENDED:
                    self._take_ended(line)

    def lag_s(self, partition: str) -> float | None:
        """Return the seconds between a partition's newest record and the last one handled; None before the first."""
        if partition not in self._newest_s:
            return None
        return max(0.0, self._newest_s[partition] - self._done_s.get(partition, self._newest_s[partition]))

    def rates(self, now_s: float) -> tuple[dict[str, float], dict[int, float]]:
        """Return the records a second of each partition, and of each process."""
        while self._recent and self._recent[0][0] < now_s - RATE_S:
            self._recent.popleft()
        by_partition: dict[str, float] = defaultdict(float)
        by_pid: dict[int, float] = defaultdict(float)
        for _, partition, pid in self._recent:
            by_partition[partition] += 1 / RATE_S
            by_pid[pid] += 1 / RATE_S
        return by_partition, by_pid

    def _take_produced(self, each: Produced) -> None:
        self.produced += 1
        self._newest_s[each.partition] = each.at_s
        # Nothing handled yet: the lag grows from the first record on.
        self._done_s.setdefault(each.partition, each.at_s)
        if (each.partition, each.position) in self._done:
            self._done_s[each.partition] = each.at_s
        else:
            self._waiting[each.partition, each.position] = each.at_s

    def _take_ended(self, line: Line) -> None:
        place = line.partition, line.position
        self._recent.append((line.at_s, line.partition, line.pid))
        self.tokens[line.partition] = max(self.tokens[line.partition], line.token)
        self.last_s = max(line.at_s, self.last_s or line.at_s)
        if place in self._done:
            self.repeats += 1
            return
        self._done.add(place)
        if (at_s := self._waiting.pop(place, None)) is not None:
            self._done_s[line.partition] = max(at_s, self._done_s[line.partition])
