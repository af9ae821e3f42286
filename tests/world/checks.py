"""
Checks of a history: they read what happened, never the hosts, and name the first thing that must not have happened.
"""

from __future__ import annotations

from collections import defaultdict

from partitions.positions import EARLIEST, END
from partitions.verbs import Acquire, Complete, Release, SaveCheckpoint
from tests.world.world import World

__all__ = ["check_safety", "lost", "repeats"]


def check_safety(world: World) -> None:
    """
    Fail on the first owner overlap, token that did not rise, or position that went back.

    An overlap is a record that was started under a token after one had been started under a higher token.
    """
    highest: dict[str, int] = defaultdict(int)
    for entry in sorted(world.journal, key=lambda entry: entry.start_s):
        if entry.token < highest[entry.partition]:
            raise AssertionError(f"owner overlap: {entry} after token {highest[entry.partition]} had begun")
        highest[entry.partition] = entry.token
    tokens: dict[str, int] = defaultdict(int)
    positions: dict[str, float] = defaultdict(float)
    for write in world.network.applied(Acquire, SaveCheckpoint, Release, Complete):
        item = write.result.item
        if isinstance(write.verb, Acquire):
            if item.token <= tokens[item.partition]:
                raise AssertionError(f"token did not rise: {write}")
            tokens[item.partition] = item.token
        at = _order(item.position)
        if at < positions[item.partition]:
            raise AssertionError(f"position went back from {positions[item.partition]}: {write}")
        positions[item.partition] = at


def lost(world: World) -> list[tuple[str, str]]:
    """Return every record, as (partition, position), that was stored as done and that nobody has finished."""
    finished = {(entry.partition, entry.position) for entry in world.journal if entry.end_s is not None}
    missing = []
    for lease in world.leases().values():
        records = world.source.fetch_now(lease.partition, EARLIEST, 10**9, 10**12).records
        done_to = _order(lease.position)
        for record in records:
            if float(record.position) <= done_to and (lease.partition, record.position) not in finished:
                missing.append((lease.partition, record.position))
    return missing


def repeats(world: World) -> int:
    """Return how many records were started more than once, counting each further time."""
    starts = [(entry.partition, entry.position) for entry in world.journal]
    return len(starts) - len(set(starts))


def _order(position: str) -> float:
    if position == EARLIEST:
        return 0.0
    return float("inf") if position == END else float(position)
