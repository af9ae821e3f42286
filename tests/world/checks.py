"""
Checks of a history: they read what happened, never the hosts, and name the first thing that must not have happened.
"""

from __future__ import annotations

from collections import defaultdict

from partitions.positions import EARLIEST, END
from partitions.verbs import Acquire, Complete, Fence, Leave, Release, SaveCheckpoint
from tests.world.world import Handled, World

__all__ = ["check_no_overlap", "check_safety", "gaps_s", "lost", "position_order", "repeats"]


def check_safety(world: World) -> None:
    """
    Fail on the first owner overlap, token that did not rise, or position that went back.

    An overlap is a term that began while an older one went on by its own host's account, or a record that was started
    under a token after one had been started under a higher token.
    """
    if world.overlaps:
        raise AssertionError(f"owner overlap: {world.overlaps[0]}")
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
        at = position_order(item.position)
        if at < positions[item.partition]:
            raise AssertionError(f"position went back from {positions[item.partition]}: {write}")
        positions[item.partition] = at


def check_no_overlap(world: World) -> None:
    """
    Fail where a record was started while one of the same partition was still in hand under an older token.

    One in the hand of a frozen host is idle; one in that of a processor that nobody can cancel is its user's business,
    so a world with a stubborn processor is not for this check.
    """
    in_hand: dict[str, list[Handled]] = defaultdict(list)
    for entry in sorted(world.journal, key=lambda entry: entry.start_s):
        for before in in_hand[entry.partition]:
            is_over = before.left_s is not None and before.left_s <= entry.start_s
            if before.token < entry.token and not is_over and not _is_frozen(world, before.place, entry.start_s):
                raise AssertionError(f"owner overlap: {entry} while {before}")
        in_hand[entry.partition] = [
            before for before in in_hand[entry.partition] if before.left_s is None or before.left_s > entry.start_s
        ] + [entry]


def gaps_s(world: World, since_s: float) -> dict[str, float]:
    """Return the longest time after `since_s` in which a partition had no owner with a session, by partition."""
    longest: dict[str, float] = defaultdict(float)
    owner: dict[str, str] = {}
    free_since: dict[str, float] = {}
    for write in world.network.applied(Acquire, Release, Complete, Leave, Fence):
        verb = write.verb
        freed = [verb.partition] if isinstance(verb, Release | Complete) else []
        if isinstance(verb, Leave | Fence):
            freed = [partition for partition, session_id in owner.items() if session_id == verb.session_id]
        for partition in freed:
            if owner.pop(partition, None) is not None and not isinstance(verb, Complete):
                free_since[partition] = write.at_s
        if isinstance(verb, Acquire):
            owner[verb.partition] = verb.session_id
            if (began_s := free_since.pop(verb.partition, None)) is not None:
                longest[verb.partition] = max(longest[verb.partition], write.at_s - max(began_s, since_s))
    for partition, began_s in free_since.items():
        longest[partition] = max(longest[partition], world.now_s - max(began_s, since_s))
    return dict(longest)


def lost(world: World) -> list[tuple[str, str]]:
    """Return every record, as (partition, position), that was stored as done and that nobody has finished."""
    finished = {(entry.partition, entry.position) for entry in world.journal if entry.end_s is not None}
    missing = []
    for lease in world.leases().values():
        records = world.source.fetch_now(lease.partition, EARLIEST, 10**9, 10**12).records
        done_to = position_order(lease.position)
        for record in records:
            if float(record.position) <= done_to and (lease.partition, record.position) not in finished:
                missing.append((lease.partition, record.position))
    return missing


def repeats(world: World) -> int:
    """Return how many records were started more than once, counting each further time."""
    starts = [(entry.partition, entry.position) for entry in world.journal]
    return len(starts) - len(set(starts))


def position_order(position: str) -> float:
    """Return a number that orders the positions of the memory source."""
    if position == EARLIEST:
        return 0.0
    return float("inf") if position == END else float(position)


def _is_frozen(world: World, place: str, at_s: float) -> bool:
    return any(name == place and from_s <= at_s <= to_s for name, from_s, to_s in world.freezes)
