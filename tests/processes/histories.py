"""
Journals read back and judged: overlaps, starts under an old token, repeats, losses.

Knows no process and no store. The judgements are functions of what the journals say, and `test_histories.py` gives each
a history that it must find guilty.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from partitions.positions import EARLIEST

__all__ = ["Entry", "Interval", "Journals", "intervals", "order_of", "overlaps", "repeats", "stale_starts", "unhandled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a journal."""

    act: str
    """"opened", "started", "ended", "cut", "saved", "refused" or "closed"."""
    partition: str
    token: int
    value: str
    """The record's position; where the act is "closed", the reason."""
    host: str
    pid: int
    at_s: float
    """On the machine's clock that counts suspend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A record in the hand of a processor."""

    partition: str
    position: str
    token: int
    pid: int
    start_s: float
    end_s: float
    """Infinity where it is not over."""


@dataclass(slots=True)
class Journals:
    """All journals of a folder, read as they grow."""

    folder: Path
    _entries: list[Entry] = field(default_factory=list)
    _read_to: dict[Path, int] = field(default_factory=dict)

    def read(self) -> list[Entry]:
        """Return what is written by now, in the order of time."""
        for file in self.folder.glob("journal-*.jsonl"):
            with file.open("rb") as lines:
                lines.seek(self._read_to.get(file, 0))
                text = lines.read()
            # A line without its end is still being written, or was when its process was killed.
            whole = text[: text.rfind(b"\n") + 1]
            self._read_to[file] = self._read_to.get(file, 0) + len(whole)
            self._entries += (entry_of(line) for line in whole.splitlines())
        self._entries.sort(key=lambda entry: entry.at_s)
        return self._entries

    def started(self) -> list[Entry]:
        """Return the starts of records, in the order of time."""
        return [entry for entry in self.read() if entry.act == "started"]

    def ended(self) -> list[Entry]:
        """Return the ends of records that were done, in the order of time."""
        return [entry for entry in self.read() if entry.act == "ended"]


def entry_of(line: bytes) -> Entry:
    act, partition, token, value, host, pid, at_s = json.loads(line)
    return Entry(act=act, partition=partition, token=token, value=value, host=host, pid=pid, at_s=at_s)


def intervals(entries: Iterable[Entry], died_s: Mapping[int, float] | None = None) -> list[Interval]:
    """
    Return each record that was started, with its end.

    Args:
        entries: In the order of time.
        died_s: Process id → when it was gone: then nothing is in its hand any more.
    """
    found: list[Interval] = []
    open_starts: dict[tuple[int, str, str], Entry] = {}

    def close(start: Entry, end_s: float) -> None:
        found.append(
            Interval(
                partition=start.partition,
                position=start.value,
                token=start.token,
                pid=start.pid,
                start_s=start.at_s,
                end_s=end_s,
            )
        )

    for entry in entries:
        key = (entry.pid, entry.partition, entry.value)
        if entry.act == "started":
            open_starts[key] = entry
        elif entry.act in ("ended", "cut"):
            close(open_starts.pop(key), entry.at_s)
    for start in open_starts.values():
        close(start, (died_s or {}).get(start.pid, math.inf))
    return sorted(found, key=lambda each: each.start_s)


def overlaps(handled: Iterable[Interval]) -> list[tuple[Interval, Interval]]:
    """Return each record that was started while one of the same partition was in hand: two owners at once."""
    found: list[tuple[Interval, Interval]] = []
    last: dict[str, Interval] = {}
    for each in sorted(handled, key=lambda each: each.start_s):
        before = last.get(each.partition)
        if before is not None and each.start_s < before.end_s:
            found.append((before, each))
        if before is None or each.end_s > before.end_s:
            last[each.partition] = each
    return found


def stale_starts(entries: Iterable[Entry]) -> list[Entry]:
    """Return each start of a record under a token after one under a higher token."""
    found: list[Entry] = []
    highest: dict[str, int] = defaultdict(int)
    for entry in sorted(entries, key=lambda entry: entry.at_s):
        if entry.act == "started":
            if entry.token < highest[entry.partition]:
                found.append(entry)
            highest[entry.partition] = max(highest[entry.partition], entry.token)
    return found


def repeats(entries: Iterable[Entry]) -> dict[tuple[str, str], int]:
    """Return (partition, position) → how many further times it was started, for those where there are any."""
    starts = Counter((entry.partition, entry.value) for entry in entries if entry.act == "started")
    return {record: count - 1 for record, count in starts.items() if count > 1}


def unhandled(entries: Iterable[Entry], records: Mapping[str, int]) -> list[tuple[str, str]]:
    """
    Return every record that nobody has finished.

    Args:
        entries: The journals.
        records: Partition → how many records it has; a local stream numbers them from 1.
    """
    done = {(entry.partition, entry.value) for entry in entries if entry.act == "ended"}
    return [record for record in every(records) if record not in done]


def every(records: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for partition, count in records.items():
        for number in range(1, count + 1):
            yield partition, str(number)


def order_of(position: str) -> int:
    """Return a number that orders the positions of a local stream."""
    return 0 if position == EARLIEST else int(position)
