"""
The rules of the protocol as checkers: what a holder, an asked one and an observer owe one another at every write.

They find a fault in the first schedule that could have done harm, not only in one that did. Each yields what broke it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from partitions.clocks import CLOCK_DRIFT
from partitions.events import EndReason, LeaseAcquired, SessionBegan
from partitions.items import ask_key
from partitions.verbs import Ask, Beat, Drain, Fence, Leave, Register
from tests.simulation.facts import EPSILON_S, Facts

__all__ = ["PROTOCOL"]


# --- The holder: rules 1 to 11 --------------------------------------------------------------------------------------


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


def early_frees(facts: Facts) -> Iterator[str]:
    """Rules 4 and 6: a term has ended on its host before a release, a complete or a leave is sent."""
    for key, term in facts.terms.items():
        if term.began_s == math.inf:
            continue
        freed = facts.freed.get(key)
        freed_s = math.inf if freed is None else freed.sent_s
        # An acquire may be answered after the leave was sent: what it brings ends as it begins.
        left_s = max(term.life.left_s, term.began_s)
        if term.ended_s > min(freed_s, left_s):
            yield f"ended at {term.ended_s}, freed {freed_s} or left {term.life.left_s}: {term}"


def witnessed(facts: Facts) -> Iterator[str]:
    """A term has ended on its host when the next one is acquired."""
    for (partition, token), term in facts.terms.items():
        taken_s = facts.taken_s(partition, token)
        if term.began_s == math.inf or taken_s == math.inf or facts.is_excused(term.life, taken_s):
            continue
        # A frozen host is asleep; whether it starts anything when it wakes is another checker's question.
        until_s = facts.awake_s(term.life.place, taken_s)
        if taken_s < term.ended_s and (until_s == taken_s or term.ended_s > until_s + EPSILON_S):
            yield f"taken at {taken_s}, ended at {term.ended_s}: {term}"


def groundless_ends(facts: Facts) -> Iterator[str]:
    """Rule 6: a read or a refusal ends a term only where the store has it otherwise, an ask only where there is one."""
    for key, term in facts.terms.items():
        if term.reason in (EndReason.SEEN_TAKEN, EndReason.REFUSED):
            freed = facts.freed.get(key)
            gone_s = min(facts.taken_s(*key), math.inf if freed is None else freed.at_s)
            if gone_s > term.ended_s:
                yield f"the store still had it: {term}"
        if term.reason is EndReason.ASK_DEADLINE and term.asked_s > term.ended_s:
            yield f"nobody had asked: {term}"


def adopted(facts: Facts) -> Iterator[str]:
    """Rule 8: a host holds only what its own acquire brought; one whose answer was lost is never adopted."""
    for at_s, place, event in facts.world.diary:
        if isinstance(event, LeaseAcquired):
            term = facts.terms.get((event.partition, event.token))
            if term is None or term.life.place != place:
                yield f"{place} holds what it never acquired: {event}"
            elif term.acquire.answered_s > at_s + EPSILON_S:
                yield f"the acquire was never answered: {event}, {term.acquire}"


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


PROTOCOL: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "terms end in time": late_ends,
    "terms end before they are freed": early_frees,
    "no two hosts hold a lease": witnessed,
    "terms end for a reason": groundless_ends,
    "terms begin with an answer": adopted,
    "a session lives once": revived,
    "asks are removed by their term's end": removed_asks,
    "only the dead are fenced": early_fences,
    "force waits for the hand-off": early_steals,
}
"""By name, in the order in which they are asked."""
