"""
The rules of locks as checkers, and the rare moments of them: what holders and contenders owe one another.

As everywhere it reads a history alone: what the store applied, what contenders did, and what their leases told.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from partitions.lock_verbs import AcquireLock, ReleaseLock
from partitions.locks import LockAcquired, LockEnd, LockEnded
from tests.simulation.facts import EPSILON_S, Facts, Life
from tests.world.network import Write

__all__ = ["LOCKS", "RARE_LOCKS", "STEP"]

STEP: Final = "lock step"
"""A note in the world's of something done under a lock, in the shape of all notes: what, name, token."""


@dataclass(slots=True)
class _Term:
    """One term of a lock, from the acquire that the store applied."""

    acquire: Write
    life: Life
    began_s: float = math.inf
    """When its host told that it holds it."""
    ended_s: float = math.inf
    """When its host told that it has ended, or was killed."""
    reason: LockEnd | None = None


def _terms(facts: Facts) -> dict[tuple[str, int], _Term]:
    """Every term, by name and token."""
    terms: dict[tuple[str, int], _Term] = {}
    for write in facts.applied(AcquireLock):
        life = facts.lives[write.verb.session_id]
        terms.setdefault((write.verb.name, write.result.item.token), _Term(write, life))
    for at_s, place, event in facts.world.diary:
        if isinstance(event, LockAcquired | LockEnded):
            term = terms.get((event.lock, event.token))
            if term is None or term.life.place != place:
                continue
            if isinstance(event, LockAcquired):
                term.began_s = min(term.began_s, at_s)
            elif term.reason is None:
                term.ended_s, term.reason = at_s, event.reason
    for term in terms.values():
        if term.reason is None:
            # Nothing goes on in a dead place.
            term.ended_s = facts.world.kills.get(term.life.place, math.inf)
    return terms


def _freed(facts: Facts, *, by_holder: bool = False) -> dict[tuple[str, int], Write]:
    """The first write that was to free each term, applied or not; by its own host alone, or also by an operator."""
    found: dict[tuple[str, int], Write] = {}
    for write in facts.history:
        if isinstance(write.verb, ReleaseLock):
            life = facts.lives.get(write.verb.owner)
            if by_holder and (life is None or life.place != write.place):
                continue
            found.setdefault((write.verb.name, write.verb.token), write)
    return found


# --- Checkers -------------------------------------------------------------------------------------------------------


def lock_tokens(facts: Facts) -> Iterator[str]:
    """Every acquire raises the token by one, and an owner changes to another in no other way."""
    last: dict[str, tuple[int, str | None]] = defaultdict(lambda: (0, None))
    for write in facts.applied(AcquireLock, ReleaseLock):
        item = write.result.item
        token, owner = last[item.name]
        if isinstance(write.verb, AcquireLock):
            if item.token != token + 1 or item.owner != write.verb.session_id:
                yield f"from token {token}: {write}"
        elif item.token != token or item.owner is not None or owner != write.verb.owner:
            yield f"from token {token} of {owner}: {write}"
        last[item.name] = (item.token, item.owner)


def lock_holders(facts: Facts) -> Iterator[str]:
    """A term has ended on its host when the next one is acquired: there are never two holders that have not ended."""
    terms = _terms(facts)
    for (name, token), term in terms.items():
        after = terms.get((name, token + 1))
        if after is None or term.began_s == math.inf or facts.is_excused(term.life, after.acquire.at_s):
            continue
        # An acquire may be answered late: what it brings has ended as it begins.
        taken_s = max(after.acquire.at_s, term.began_s)
        until_s = facts.awake_s(term.life.place, taken_s)
        if taken_s < term.ended_s and (until_s == taken_s or term.ended_s > until_s + EPSILON_S):
            yield f"taken at {taken_s}, ended at {term.ended_s}: {term}"


def lock_steps(facts: Facts) -> Iterator[str]:
    """Nothing is done under a lock once another holds it, by anybody whose clock runs."""
    terms = _terms(facts)
    for at_s, place, (what, name, token, *_) in facts.world.notes:
        if what != STEP:
            continue
        term, after = terms.get((name, token)), terms.get((name, token + 1))
        if term is None or term.life.place != place:
            yield f"{place} at {at_s} under {name}@{token}, which it never acquired"
        elif after is not None and after.acquire.at_s < at_s and not facts.is_excused(term.life, at_s):
            yield f"{place} at {at_s} under {name}@{token}: {after.acquire}"


def lock_ends(facts: Facts) -> Iterator[str]:
    """Rules 1 and 3: no lease of a lock outlives its session's validity."""
    for term in _terms(facts).values():
        if term.began_s == math.inf or facts.is_excused(term.life, term.ended_s):
            continue
        ended_s = min(term.ended_s, facts.world_end_s)
        late_s = term.life.oversleeps_s(term.life.registered.handoff_s)
        until_s = facts.awake_s(term.life.place, max(term.life.valid_until_s(ended_s), term.began_s)) + late_s
        if ended_s > until_s + EPSILON_S:
            yield f"ended at {term.ended_s}, after the session's validity at {until_s}: {term}"


def lock_frees(facts: Facts) -> Iterator[str]:
    """Rules 4 and 6: a lease of a lock has ended on its host before its release or its session's leave is sent."""
    freed = _freed(facts, by_holder=True)
    for key, term in _terms(facts).items():
        if term.began_s == math.inf:
            continue
        freed_s = math.inf if key not in freed else freed[key].sent_s
        left_s = max(term.life.left_s, term.began_s)
        if term.ended_s > min(freed_s, left_s):
            yield f"ended at {term.ended_s}, freed {freed_s} or left {term.life.left_s}: {term}"


def lock_answers(facts: Facts) -> Iterator[str]:
    """Rule 8: a host holds only what an acquire of its own was answered with; one in doubt is never adopted."""
    terms = _terms(facts)
    for at_s, place, event in facts.world.diary:
        if isinstance(event, LockAcquired):
            term = terms.get((event.lock, event.token))
            if term is None or term.life.place != place:
                yield f"{place} holds what it never acquired: {event}"
            elif term.acquire.answered_s > at_s + EPSILON_S:
                yield f"the acquire was never answered: {event}, {term.acquire}"


def lock_steals(facts: Facts) -> Iterator[str]:
    """A lock is taken only from a session that is gone, or by its own."""
    for term in _terms(facts).values():
        verb, write = term.acquire.verb, term.acquire
        owner = facts.lives.get(verb.seen_owner or "")
        if owner is not None and verb.seen_owner != verb.session_id and owner.gone_s > write.at_s:
            yield f"its owner was there until {owner.gone_s}: {write}"


def lock_losses(facts: Facts) -> Iterator[str]:
    """A read ends a lease only where the store has the lock otherwise."""
    freed = _freed(facts)
    terms = _terms(facts)
    for (name, token), term in terms.items():
        if term.reason is LockEnd.SEEN_TAKEN:
            after = terms.get((name, token + 1))
            released = freed.get((name, token))
            gone_s = min(
                math.inf if after is None else after.acquire.at_s, math.inf if released is None else released.at_s
            )
            if gone_s > term.ended_s:
                yield f"the store still had it: {term}"


def lock_strays(facts: Facts) -> Iterator[str]:
    """What a session has in the store and does not hold is its own no longer than a few of its beats."""
    freed, terms = _freed(facts), _terms(facts)
    for (name, token), term in terms.items():
        if term.began_s < math.inf:
            continue
        after = terms.get((name, token + 1))
        gone_s = min(
            term.life.gone_s,
            math.inf if after is None else after.acquire.at_s,
            math.inf if (released := freed.get((name, token))) is None else released.at_s,
            facts.world.kills.get(term.life.place, math.inf),
        )
        calm_s = facts.world.network.calls[-1][0] - 3 * term.life.registered.duration_s
        if gone_s == math.inf and term.acquire.at_s < calm_s:
            yield f"nobody holds it and nobody freed it: {term}"


LOCKS: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "tokens of locks rise": lock_tokens,
    "no two hosts hold a lock": lock_holders,
    "nothing is done under another's lock": lock_steps,
    "leases of locks end in time": lock_ends,
    "leases of locks end before they are freed": lock_frees,
    "leases of locks begin with an answer": lock_answers,
    "locks are taken from the gone": lock_steals,
    "leases of locks are lost for a reason": lock_losses,
    "what nobody holds is freed": lock_strays,
}
"""By name, in the order in which they are asked."""


# --- Rare moments ---------------------------------------------------------------------------------------------------


def _taken_over(facts: Facts) -> Iterator[object]:
    return (term for term in _terms(facts).values() if term.acquire.verb.seen_owner not in (None, term.life.session_id))


def _acquired_again(facts: Facts) -> Iterator[object]:
    return (term for term in _terms(facts).values() if term.acquire.verb.seen_owner == term.life.session_id)


def _given_back(facts: Facts) -> Iterator[object]:
    terms = _terms(facts)
    for write in facts.applied(ReleaseLock):
        term = terms[write.verb.name, write.verb.token]
        if term.began_s == math.inf:
            yield write


def _late_release(facts: Facts) -> Iterator[object]:
    for write in facts.refused(ReleaseLock):
        item = write.result.current
        if item is not None and item.token > write.verb.token:
            yield write


def _lost_in_a_turn(facts: Facts) -> Iterator[object]:
    return (term for term in _terms(facts).values() if term.began_s < math.inf and term.reason is LockEnd.SESSION_ENDED)


def _lost_race(facts: Facts) -> Iterator[object]:
    return facts.refused(AcquireLock)


RARE_LOCKS: Final[Mapping[str, Callable[[Facts], Iterator[object]]]] = {
    "a lock taken over from a session that is gone": _taken_over,
    "an ambiguous acquire of a lock, acquired again": _acquired_again,
    "an ambiguous acquire of a lock, given back": _given_back,
    "a release of a lock that meets a later term": _late_release,
    "a lease of a lock that ends with its session": _lost_in_a_turn,
    "a race for a lock that is lost": _lost_race,
}
"""What is counted, by name."""
