"""
Safety: what must never have happened. Each checker has a name, reads facts of a history and yields what broke it.

None looks at a host. Two kinds: what users see (no overlap, no loss, order, no step back) and what the protocol
promises at every write (a steal waits, a fence is late enough, a term ends in time), so that a fault is seen in the
first schedule that could have done harm, not only in one that did.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from partitions.clocks import CLOCK_DRIFT
from partitions.events import EndReason, LeaseAcquired, SessionBegan
from partitions.items import ask_key
from partitions.verbs import (
    Acquire,
    Ask,
    Beat,
    Complete,
    Create,
    Drain,
    Fence,
    Leave,
    Register,
    Release,
    SaveCheckpoint,
)
from tests.simulation.facts import EPSILON_S, Facts
from tests.world.checks import position_order
from tests.world.world import Handled, World

__all__ = ["CHECKERS", "Failure", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a checker found."""

    checker: str
    text: str


Checker = Callable[[Facts], Iterator[str]]

CHECKERS: dict[str, Checker] = {}
"""By name, in the order in which they are asked."""


def check(world: World) -> list[Failure]:
    """Return the first failure of each checker, on the history of a world."""
    facts = Facts(world)
    found = []
    for name, checker in CHECKERS.items():
        text = next(checker(facts), None)
        if text is not None:
            found.append(Failure(checker=name, text=text))
    return found


def checker(name: str) -> Callable[[Checker], Checker]:
    """Add a checker under a name."""

    def add(function: Checker) -> Checker:
        assert name not in CHECKERS, name
        CHECKERS[name] = function
        return function

    return add


# --- What users see -------------------------------------------------------------------------------------------------


@checker("one processor at a time")
def overlaps(facts: Facts) -> Iterator[str]:
    """At no instant are records of one partition in the hands of two processors; a frozen one is idle."""
    in_hand: dict[str, list[Handled]] = defaultdict(list)
    for entry in sorted(facts.world.journal, key=lambda entry: entry.start_s):
        going_on = [before for before in in_hand[entry.partition] if _left_s(facts, before) > entry.start_s]
        for before in going_on:
            if before.token != entry.token and _run_together(facts, before, entry):
                yield f"{entry} while {before}"
        in_hand[entry.partition] = [*going_on, entry]


@checker("no record without a lease")
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
            taken_s = _at(facts.acquired_s[entry.partition], entry.token)
            if taken_s < entry.start_s:
                yield f"after the next term was acquired at {taken_s}: {entry}"
            if term.ended_s < entry.start_s:
                yield f"after its host had told the end of the term at {term.ended_s}: {entry}"
        highest[entry.partition] = max(highest[entry.partition], entry.token)


@checker("nothing stored is lost")
def losses(facts: Facts) -> Iterator[str]:
    """No position is stored before every record up to it has been handled."""
    for write in facts.checkpoints():
        partition, number = write.verb.partition, int(position_order(write.verb.position))
        done_s = _at(facts.done_s[partition], number)
        if done_s > write.sent_s:
            yield f"stored at {write.sent_s}, handled {done_s}: {write}"
    for write in facts.applied(Complete):
        partition = write.verb.partition
        if facts.done_s[partition][-1] > write.sent_s:
            yield f"ended, but not all of its records were handled: {write}"


@checker("order within a partition")
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
        if _at(facts.done_s[entry.partition], number - 1) > entry.start_s:
            yield f"before those in front of it were handled: {entry}"
        key = (entry.place, entry.partition, entry.token)
        before = latest.get(key)
        if before is not None and number != int(before.position) + 1:
            is_anew = any(before.start_s <= at_s <= entry.start_s for at_s in opened[key])
            if not is_anew:
                yield f"out of order after {before}: {entry}"
        latest[key] = entry


@checker("children after their parents")
def orphans_first(facts: Facts) -> Iterator[str]:
    """No child is acquired or handled before every parent is finished."""
    for (partition, _), term in facts.terms.items():
        for parent in facts.parents[partition]:
            if facts.completed_s.get(parent, math.inf) > term.acquire.at_s:
                yield f"parent {parent!r} was not finished: {term.acquire}"


# --- Tokens and positions -------------------------------------------------------------------------------------------


@checker("tokens rise")
def tokens(facts: Facts) -> Iterator[str]:
    """Every acquire raises the token by one, and an owner changes to another in no other way."""
    last: dict[str, tuple[int, str | None]] = defaultdict(lambda: (0, None))
    for write in facts.applied(Create, Acquire, SaveCheckpoint, Release, Complete):
        item = write.result.item
        token, owner = last[item.partition]
        if isinstance(write.verb, Acquire):
            if item.token != token + 1 or item.owner != write.verb.session_id:
                yield f"from token {token}: {write}"
        elif item.token != token or item.owner not in (None, owner):
            yield f"from token {token} of {owner}: {write}"
        last[item.partition] = (item.token, item.owner)


@checker("no checkpoint goes back")
def positions(facts: Facts) -> Iterator[str]:
    """A stored position never goes back, and only the newest term stores one."""
    stored: dict[str, float] = defaultdict(float)
    newest: dict[str, tuple[int, str]] = {}
    for write in facts.applied(Acquire, SaveCheckpoint, Release, Complete):
        verb, item = write.verb, write.result.item
        if isinstance(verb, Acquire):
            newest[verb.partition] = (item.token, verb.session_id)
        elif (verb.token, verb.owner) != newest.get(verb.partition):
            yield f"by another than the newest term {newest.get(verb.partition)}: {write}"
        at = position_order(item.position)
        if at < stored[item.partition]:
            yield f"from {stored[item.partition]:g}: {write}"
        stored[item.partition] = at


# --- The holder: rules 1 to 11 --------------------------------------------------------------------------------------


@checker("terms end in time")
def late_ends(facts: Facts) -> Iterator[str]:
    """Rules 1, 3 and 10: no term outlives its session's validity or the deadline of an ask for it."""
    for term in facts.terms.values():
        if term.began_s == math.inf or facts.is_excused(term.life, term.ended_s):
            continue
        asked_s = term.life.ask_deadline_s(term.asked_s) if term.asked_s < math.inf else math.inf
        # One that goes on at the end of the run must have time left then.
        ended_s = min(term.ended_s, facts.world_end_s)
        valid_s = term.life.valid_until_s(ended_s)
        late_s = term.life.oversleeps_s(term.life.registered.handoff_s)
        for name, over_s in (("the session's validity", valid_s), ("the ask's deadline", asked_s)):
            until_s = facts.awake_s(term.life.place, max(over_s, term.began_s)) + late_s
            if ended_s > until_s + EPSILON_S:
                yield f"ended at {term.ended_s}, after {name} at {until_s}: {term}"


@checker("terms end before they are freed")
def early_frees(facts: Facts) -> Iterator[str]:
    """Rules 4 and 6: a term has ended on its host before a release, a complete or a leave is sent."""
    for key, term in facts.terms.items():
        if term.began_s == math.inf:
            continue
        freed = facts.freed.get(key)
        freed_s = math.inf if freed is None else freed.sent_s
        if term.ended_s > min(freed_s, term.life.left_s):
            yield f"ended at {term.ended_s}, freed {freed_s} or left {term.life.left_s}: {term}"


@checker("no two hosts hold a lease")
def witnessed(facts: Facts) -> Iterator[str]:
    """A term has ended on its host when the next one is acquired."""
    for (partition, token), term in facts.terms.items():
        taken_s = _at(facts.acquired_s[partition], token)
        if term.began_s == math.inf or taken_s == math.inf or facts.is_excused(term.life, taken_s):
            continue
        # A frozen host is asleep; whether it starts anything when it wakes is another checker's question.
        until_s = facts.awake_s(term.life.place, taken_s)
        if taken_s < term.ended_s and (until_s == taken_s or term.ended_s > until_s + EPSILON_S):
            yield f"taken at {taken_s}, ended at {term.ended_s}: {term}"


@checker("terms end for a reason")
def groundless_ends(facts: Facts) -> Iterator[str]:
    """Rule 6: a read or a refusal ends a term only where the store has it otherwise, an ask only where there is one."""
    for key, term in facts.terms.items():
        if term.reason in (EndReason.SEEN_TAKEN, EndReason.REFUSED):
            freed = facts.freed.get(key)
            gone_s = min(_at(facts.acquired_s[key[0]], key[1]), math.inf if freed is None else freed.at_s)
            if gone_s > term.ended_s:
                yield f"the store still had it: {term}"
        if term.reason is EndReason.ASK_DEADLINE and term.asked_s > term.ended_s:
            yield f"nobody had asked: {term}"


@checker("terms begin with an answer")
def adopted(facts: Facts) -> Iterator[str]:
    """Rule 8: a host holds only what its own acquire brought; one whose answer was lost is never adopted."""
    for at_s, place, event in facts.world.diary:
        if isinstance(event, LeaseAcquired):
            term = facts.terms.get((event.partition, event.token))
            if term is None or term.life.place != place:
                yield f"{place} holds what it never acquired: {event}"
            elif term.acquire.answered_s > at_s + EPSILON_S:
                yield f"the acquire was never answered: {event}, {term.acquire}"


@checker("a session lives once")
def revived(facts: Facts) -> Iterator[str]:
    """Rules 3 and 4: no beat, ask or drain makes an item, and a session id begins once."""
    there: set[str] = set()
    for write in facts.applied(Register, Beat, Ask, Drain, Fence, Leave):
        session_id = write.verb.session_id
        if isinstance(write.verb, Register) == (session_id in there):
            yield f"its item was {'there' if session_id in there else 'gone'}: {write}"
        there.add(session_id)
        if isinstance(write.verb, Fence | Leave):
            there.discard(session_id)
    began: dict[str, float] = {}
    for at_s, _, event in facts.world.diary:
        if isinstance(event, SessionBegan) and began.setdefault(event.session_id, at_s) != at_s:
            yield f"begun at {began[event.session_id]} and at {at_s}: {event}"


@checker("asks are removed by their term's end")
def removed_asks(facts: Facts) -> Iterator[str]:
    """Rule 11: a beat removes an ask only when the term it names is over or can no longer begin."""
    for write in facts.applied(Beat):
        for key in write.verb.handled:
            partition, _, token = key.rpartition("@")
            term = facts.terms.get((partition, int(token)))
            if term is None or term.life.session_id != write.verb.session_id or term.began_s == math.inf:
                continue
            if term.began_s > write.sent_s or term.ended_s > write.sent_s:
                yield f"removed by a beat sent at {write.sent_s}: {term}"


# --- The observer: rules 12 to 14 -----------------------------------------------------------------------------------


@checker("only the dead are fenced")
def early_fences(facts: Facts) -> Iterator[str]:
    """Rule 12: a fence is applied only after a whole duration without a beat, on the observer's clock."""
    for write in facts.applied(Fence):
        life = facts.lives.get(write.verb.session_id)
        observer = facts.world.clocks.get(write.place)
        # What arrives late for a session that is gone already may make its item again, and fence it again.
        if life is None or observer is None or life.gone_s < write.at_s:
            continue
        quiet_s = life.registered.duration_s * (1 + CLOCK_DRIFT) / observer.rate
        changed_s = facts.last_change_s(write.verb.session_id, write.at_s)
        if write.sent_s < changed_s + quiet_s - EPSILON_S:
            yield f"its beat changed at {changed_s}, which is less than {quiet_s} s before it was sent: {write}"


@checker("force waits for the hand-off")
def early_steals(facts: Facts) -> Iterator[str]:
    """Rules 13 and 14: a lease of a living session is taken only after its whole hand-off since it was asked for."""
    for (partition, token), term in facts.terms.items():
        verb, write = term.acquire.verb, term.acquire
        owner = facts.lives.get(verb.seen_owner or "")
        if owner is None or verb.seen_owner == verb.session_id or owner.gone_s <= write.at_s:
            continue
        robbed = facts.terms.get((partition, token - 1))
        asked_s = math.inf if robbed is None else robbed.asked_s
        waits_s = owner.registered.handoff_s * (1 + CLOCK_DRIFT) / term.life.rate
        if write.sent_s < asked_s + waits_s - EPSILON_S:
            yield f"{ask_key(partition, token - 1)} was asked for at {asked_s}, to wait {waits_s} s: {write}"


# --- Helpers --------------------------------------------------------------------------------------------------------


def _at(values: list[float], index: int) -> float:
    return values[index] if 0 <= index < len(values) else math.inf


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
