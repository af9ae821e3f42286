"""
Safety: what must never have happened. Each checker has a name, reads facts of a history and yields what broke it.

None looks at a host. Here is what users see (no overlap, no loss, order, no step back); what the protocol promises at
every write (a steal waits, a fence is late enough, a term ends in time) is in `protocol`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from partitions.transactions import Commit
from partitions.verbs import Acquire, Attempt, Complete, Create, Pause, Release, Resume, SaveCheckpoint
from tests.simulation.facts import Facts
from tests.simulation.handling import HANDLING
from tests.simulation.locks import LOCKS
from tests.simulation.modes import PLAIN, Modes
from tests.simulation.protocol import PROTOCOL
from tests.world.checks import position_order
from tests.world.world import Handled, World

__all__ = ["CHECKERS", "Failure", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a checker found."""

    checker: str
    text: str


def check(world: World, modes: Modes = PLAIN) -> list[Failure]:
    """Return the first failure of each checker, on the history of a world."""
    facts = Facts(world)
    found = []
    checkers = dict(CHECKERS)
    if modes is not PLAIN:
        # Records come again within a term, or beside one another.
        del checkers["order within a partition"]
        checkers |= HANDLING
    for name, checker in checkers.items():
        text = next(checker(facts), None)
        if text is not None:
            found.append(Failure(checker=name, text=text))
    return found


# --- What users see -------------------------------------------------------------------------------------------------


def overlaps(facts: Facts) -> Iterator[str]:
    """At no instant are records of one partition in the hands of two processors; a frozen one is idle."""
    in_hand: dict[str, list[Handled]] = defaultdict(list)
    for entry in sorted(facts.world.journal, key=lambda entry: entry.start_s):
        going_on = [before for before in in_hand[entry.partition] if _left_s(facts, before) > entry.start_s]
        for before in going_on:
            if before.token != entry.token and _run_together(facts, before, entry):
                yield f"{entry} while {before}"
        in_hand[entry.partition] = [*going_on, entry]


def unheld(facts: Facts) -> Iterator[str]:
    """Each record is started while its host's own lease says that it is held, and under no older token."""
    highest: dict[str, int] = defaultdict(int)
    for entry in sorted(facts.world.journal, key=lambda entry: entry.start_s):
        term = facts.terms.get((entry.partition, entry.token))
        if not entry.held:
            yield f"the lease said no: {entry}"
        if term is None or term.life.place != entry.place:
            yield f"under a term that this place never acquired: {entry}"
        elif not facts.is_excused(term.life, entry.start_s):
            if entry.token < highest[entry.partition]:
                yield f"after token {highest[entry.partition]} had begun to work: {entry}"
            taken_s = facts.taken_s(entry.partition, entry.token)
            if taken_s < entry.start_s:
                yield f"after the next term was acquired at {taken_s}: {entry}"
            if term.ended_s < entry.start_s:
                yield f"after its host had told the end of the term at {term.ended_s}: {entry}"
        highest[entry.partition] = max(highest[entry.partition], entry.token)


def losses(facts: Facts) -> Iterator[str]:
    """No position is stored before every record up to it has been handled."""
    for write in facts.checkpoints():
        partition, number = write.verb.partition, int(position_order(write.verb.position))
        done_s = facts.done_to_s(partition, number)
        if done_s > write.sent_s:
            yield f"stored at {write.sent_s}, handled {done_s}: {write}"
    for write in facts.applied(Complete):
        partition = write.verb.partition
        if facts.done_s[partition][-1] > write.sent_s:
            yield f"ended, but not all of its records were handled: {write}"


def disorder(facts: Facts) -> Iterator[str]:
    """A record is started only when all before it have been handled, and a term repeats none unless it starts anew."""
    opened: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for at_s, place, (what, partition, token, *_) in facts.world.notes:
        if what == "open":
            opened[place, partition, token].append(at_s)
    latest: dict[tuple[str, str, int], Handled] = {}
    for entry in facts.world.journal:
        number = int(entry.position)
        if number <= facts.first.get(entry.partition, 0):
            yield f"in front of where the group began: {entry}"
        if facts.done_to_s(entry.partition, number - 1) > entry.start_s:
            yield f"before those in front of it were handled: {entry}"
        key = (entry.place, entry.partition, entry.token)
        before = latest.get(key)
        if before is not None and number != int(before.position) + 1:
            is_anew = any(before.start_s <= at_s <= entry.start_s for at_s in opened[key])
            if not is_anew:
                yield f"out of order after {before}: {entry}"
        latest[key] = entry


def orphans_first(facts: Facts) -> Iterator[str]:
    """No child is acquired or handled before every parent is finished."""
    for (partition, _), term in facts.terms.items():
        for parent in facts.parents[partition]:
            if facts.completed_s.get(parent, math.inf) > term.acquire.at_s:
                yield f"parent {parent!r} was not finished: {term.acquire}"


# --- Tokens and positions -------------------------------------------------------------------------------------------


def tokens(facts: Facts) -> Iterator[str]:
    """Every acquire raises the token by one, and an owner changes to another in no other way."""
    last: dict[str, tuple[int, str | None]] = defaultdict(lambda: (0, None))
    for write in facts.applied(Create, Acquire, Attempt, SaveCheckpoint, Release, Complete):
        item = write.result.item
        token, owner = last[item.partition]
        if isinstance(write.verb, Acquire):
            if item.token != token + 1 or item.owner != write.verb.session_id:
                yield f"from token {token}: {write}"
        elif item.token != token or item.owner not in (None, owner):
            yield f"from token {token} of {owner}: {write}"
        last[item.partition] = (item.token, item.owner)


def positions(facts: Facts) -> Iterator[str]:
    """A stored position goes back by a reset alone, and only the newest term stores one."""
    resets = set(map(id, facts.resets))
    stored: dict[str, float] = defaultdict(float)
    newest: dict[str, tuple[int, str]] = {}
    for write in facts.applied(Acquire, Attempt, SaveCheckpoint, Commit, Release, Complete):
        verb, item = write.verb, write.result.item
        if isinstance(verb, Commit):
            verb = verb.save
        if isinstance(verb, Acquire):
            newest[verb.partition] = (item.token, verb.session_id)
        elif (verb.token, verb.owner) != newest.get(verb.partition):
            yield f"by another than the newest term {newest.get(verb.partition)}: {write}"
        at = position_order(item.position)
        if at < stored[item.partition] and id(write) not in resets:
            yield f"from {stored[item.partition]:g}: {write}"
        stored[item.partition] = at


def taken_while_paused(facts: Facts) -> Iterator[str]:
    """What an operator has paused is acquired by nobody."""
    paused: set[str] = set()
    for write in facts.applied(Pause, Resume, Acquire):
        partition = write.verb.partition
        if isinstance(write.verb, Pause):
            paused.add(partition)
        elif isinstance(write.verb, Resume):
            paused.discard(partition)
        elif partition in paused:
            yield f"it was paused: {write}"


# --- Helpers --------------------------------------------------------------------------------------------------------


def _left_s(facts: Facts, entry: Handled) -> float:
    if entry.place in facts.world.stubborn:
        # Nobody can take a record out of its hands: only when it starts one is asked.
        return entry.start_s
    return math.inf if entry.left_s is None else entry.left_s


def _run_together(facts: Facts, before: Handled, entry: Handled) -> bool:
    """Say whether both ran at one moment between the start of the later one and the end of the first that ends."""
    until_s = min(_left_s(facts, before), _left_s(facts, entry))
    terms = [facts.terms.get((one.partition, one.token)) for one in (before, entry)]
    # From one waking to the next, until both are awake.
    at_s = entry.start_s
    while at_s < until_s:
        awake_s = max(facts.awake_s(before.place, at_s), facts.awake_s(entry.place, at_s))
        if awake_s == at_s:
            return not any(term is not None and facts.is_excused(term.life, at_s) for term in terms)
        at_s = awake_s
    return False


CHECKERS: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "one processor at a time": overlaps,
    "no record without a lease": unheld,
    "nothing stored is lost": losses,
    "order within a partition": disorder,
    "children after their parents": orphans_first,
    "tokens rise": tokens,
    "no checkpoint goes back": positions,
    "what is paused rests": taken_while_paused,
    **PROTOCOL,
    **LOCKS,
}
"""By name, in the order in which they are asked."""
