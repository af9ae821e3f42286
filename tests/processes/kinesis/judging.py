"""
What must hold of a stream whose shards are split and merged, judged from journals and from what was written.

Knows no process, no server and no code of the product. `test_judging.py` gives each judgement a history that it must
find guilty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.processes.histories import Entry, Interval
from tests.processes.kinesis.streams import Written

__all__ = ["Stored", "begun_below", "early_children", "lost", "order_at", "out_of_order"]

Stored = tuple[str, int, int]
"""Shard, token and order of a checkpoint that the store was known to have."""


def order_at(position: str) -> int:
    """Return a number that orders the positions of a shard; what is no sequence number stands before all."""
    return int(position) if position.isdigit() else 0


def lost(written: Iterable[Written], entries: Iterable[Entry]) -> list[Written]:
    """Return every record that nobody has finished."""
    done = {(entry.partition, entry.value) for entry in entries if entry.act == "ended"}
    return [each for each in written if (each.shard, each.position) not in done]


def out_of_order(written: Sequence[Written], entries: Iterable[Entry]) -> list[tuple[Written, Written]]:
    """
    Return each record that was begun before the one before it of its key was done, and that one first.

    Args:
        written: In the order of writing.
        entries: The journals, in the order of time; of several times the first counts.
    """
    begun_s: dict[tuple[str, str], float] = {}
    done_s: dict[tuple[str, str], float] = {}
    for entry in entries:
        if entry.act == "started":
            begun_s.setdefault((entry.partition, entry.value), entry.at_s)
        elif entry.act == "ended":
            done_s.setdefault((entry.partition, entry.value), entry.at_s)
    before: dict[str, Written] = {}
    found: list[tuple[Written, Written]] = []
    for record in written:
        place = record.shard, record.position
        # What was never done is lost, which is told elsewhere.
        if place not in done_s:
            continue
        last = before.get(record.key)
        if last is not None and begun_s[place] < done_s[last.shard, last.position]:
            found.append((last, record))
        before[record.key] = record
    return found


def early_children(parents: Mapping[str, Sequence[str]], handled: Iterable[Interval]) -> list[tuple[str, str]]:
    """Return each child and parent of which a record of the child was begun before all of the parent's were over."""
    starts: dict[str, float] = {}
    ends: dict[str, float] = defaultdict(float)
    for each in handled:
        starts[each.partition] = min(each.start_s, starts.get(each.partition, each.start_s))
        ends[each.partition] = max(each.end_s, ends[each.partition])
    return [
        (child, parent)
        for child, all_parents in parents.items()
        for parent in all_parents
        if child in starts and parent in ends and starts[child] < ends[parent]
    ]


def begun_below(stored: Iterable[Stored], entries: Iterable[Entry]) -> list[tuple[Stored, Entry]]:
    """Return each term whose first record is at or before a checkpoint that an older term had stored."""
    first: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        if entry.act == "started":
            first.setdefault((entry.partition, entry.token), entry)
    return [
        (checkpoint, entry)
        for checkpoint in stored
        for (shard, token), entry in first.items()
        if shard == checkpoint[0] and token > checkpoint[1] and order_at(entry.value) <= checkpoint[2]
    ]
