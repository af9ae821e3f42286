"""
Rare events: what a simulation must have met, or it has not tested what it seems to test. Each is counted in a history.

A schedule, drawn or directed, is a world; `count` tells how often each event happened in it, and the tests demand that
all of theirs together have met every one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from partitions.events import Asked, EndReason, LeaseAcquired, SessionBegan, SessionEnded
from partitions.verbs import (
    Acquire,
    Applied,
    Ask,
    Beat,
    Complete,
    Create,
    Fence,
    Register,
    Release,
    SaveCheckpoint,
)
from processor_host.events import ProcessorFailed
from tests.simulation.facts import Facts, Term
from tests.simulation.locks import RARE_LOCKS
from tests.simulation.rare_calls import (
    HOST_WRITES,
    beat_late_answered,
    beat_twice_with_asks,
    cancelled_in,
    ghost,
    late_create,
    late_of,
    late_release,
    unanswered,
)
from tests.simulation.rare_handling import RARE_HANDLING
from tests.simulation.rare_sharing import RARE_SHARING
from tests.world.world import World

__all__ = ["RARE", "SEEN", "count", "table"]

SEEN: Final = ("look at the sessions that was stale", "page older than one's own acquire")
"""Rare events that leave no trace in a history; the storm counts them."""


def count(world: World, seen: Mapping[str, int]) -> dict[str, int]:
    """Return how often each rare event happened in a world; `seen` are those that only the storm knows."""
    facts = Facts(world)
    counts = {name: sum(1 for _ in rare(facts)) for name, rare in RARE.items()}
    return counts | {name: seen.get(name, 0) for name in SEEN}


def table(counts: Mapping[str, int], met: Mapping[str, int]) -> str:
    """Return how often each rare event happened and in how many schedules, a line each, the rarest first."""
    lines = [
        f"{number:8d} in {met[name]:5d}  {name}"
        for name, number in sorted(counts.items(), key=lambda item: met[item[0]])
    ]
    return "\n".join(["   times in schedules", *lines])


# --- Leases ---------------------------------------------------------------------------------------------------------


def acquired(reason: str) -> Callable[[Facts], Iterator[object]]:
    return lambda facts: (
        event for _, _, event in facts.world.diary if isinstance(event, LeaseAcquired) and event.reason == reason
    )


def ended(reason: EndReason) -> Callable[[Facts], Iterator[object]]:
    return lambda facts: (term for term in facts.terms.values() if term.reason is reason)


def given_back(facts: Facts) -> Iterator[object]:
    """A release of a lease that its owner never held: the answer of its acquire was lost."""
    for write in facts.applied(Release):
        term = facts.terms.get((write.verb.partition, write.verb.token))
        if term is not None and term.began_s == math.inf and not facts.is_operators(term):
            yield write


def stillborn(facts: Facts) -> Iterator[object]:
    """An acquire whose answer hands out a term that has ended already."""
    return (term for term in facts.terms.values() if term.began_s == term.ended_s < math.inf)


def lost_release_answer(facts: Facts) -> Iterator[object]:
    for write in facts.refused(Release, Complete):
        item = write.result.current
        if not write.is_repeat and item is not None and item.token == write.verb.token and item.owner is None:
            yield write


def fenced_off(facts: Facts) -> Iterator[object]:
    """A write of an old owner, refused because of its token."""
    for write in facts.refused(SaveCheckpoint, Release, Complete):
        item = write.result.current
        if not write.is_repeat and item is not None and item.token > write.verb.token:
            yield write


def late_checkpoint(facts: Facts) -> Iterator[object]:
    for write in facts.refused(SaveCheckpoint):
        item = write.result.current
        if write.is_repeat and item is not None and item.token == write.verb.token and item.seq > write.verb.seq:
            yield write


def refused_as_paused(facts: Facts) -> Iterator[object]:
    """An acquire of a lease that was paused since it was read."""
    for write in facts.refused(Acquire):
        item, verb = write.result.current, write.verb
        if item is not None and item.paused and (item.owner, item.token) == (verb.seen_owner, verb.seen_token):
            yield write


def second_parent(facts: Facts) -> Iterator[object]:
    """A partition ends whose child is there already, as after the other half of a merge or by a listing."""
    born: set[str] = set()
    for write in facts.applied(Create, Complete):
        names = [write.verb.partition] if isinstance(write.verb, Create) else [c.partition for c in write.verb.children]
        if isinstance(write.verb, Complete) and born & set(names):
            yield write
        born |= set(names)


# --- Asks -----------------------------------------------------------------------------------------------------------


def ask_for_unknown(facts: Facts) -> Iterator[object]:
    return (event for _, _, event in facts.world.diary if isinstance(event, Asked) and not event.held)


def ask_stands(facts: Facts) -> Iterator[object]:
    """An ask that is refused because another's stands."""
    for write in facts.refused(Ask):
        asks = {} if write.result.current is None else write.result.current.asks
        standing = [asks[key] for key in write.verb.keys if key in asks]
        if not write.is_repeat and any(asker != write.verb.asker for asker in standing):
            yield write


def ask_for_the_dead(facts: Facts) -> Iterator[object]:
    """A term that ends by release although its asker is gone by then."""
    asked = {key: write for write in facts.applied(Ask) for key in write.verb.keys}
    for term in facts.terms.values():
        asker = facts.lives.get(asked[term.key].verb.asker) if term.key in asked else None
        if asker is not None and term.reason is EndReason.RELEASED and asker.gone_s < term.ended_s:
            yield term


def taken_by_another(facts: Facts) -> Iterator[object]:
    """A term that was asked for and then begun by another than the asker."""
    asked = {key: write for write in facts.applied(Ask) for key in write.verb.keys}
    for (partition, token), term in facts.terms.items():
        following = facts.terms.get((partition, token + 1))
        if term.key in asked and following and following.life.session_id != asked[term.key].verb.asker:
            yield term


# --- Sessions -------------------------------------------------------------------------------------------------------


def fenced_alive(facts: Facts) -> Iterator[object]:
    """A session that learns from a beat that it was fenced."""
    for _, _, event in facts.world.diary:
        if isinstance(event, SessionEnded) and "fenced" in event.reason:
            yield event


def begun_anew(facts: Facts) -> Iterator[object]:
    """A session that begins after its host has lost another."""
    lost: set[str] = set()
    for _, place, event in facts.world.diary:
        if isinstance(event, SessionEnded) and event.lost:
            lost.add(place)
        elif isinstance(event, SessionBegan) and place in lost:
            lost.discard(place)
            yield event


def restarted(facts: Facts) -> Iterator[object]:
    """A host that registers while the session of its earlier life is still there."""
    there: dict[str, str] = {}
    for write in facts.history:
        if isinstance(write.verb, Register) and isinstance(write.result, Applied):
            if write.verb.host_id in there.values() and write.verb.session_id not in there:
                yield write
            there[write.verb.session_id] = write.verb.host_id
        elif isinstance(write.result, Applied) and write.result.item is None:
            there.pop(getattr(write.verb, "session_id", ""), None)


def last_breath(facts: Facts) -> Iterator[object]:
    """A session that goes on after more than half of it had passed without an answered beat."""
    for life in facts.lives.values():
        sent_s = life.first_sent_s
        for sent, _, answered in life.answers:
            if answered - sent_s > life.registered.duration_s / 2:
                yield life
            sent_s = sent


# --- Hosts ----------------------------------------------------------------------------------------------------------


def woken_in_a_batch(facts: Facts) -> Iterator[object]:
    """A freeze, shorter or longer than the session, that begins and ends with a record in hand."""
    for place, from_s, to_s in facts.world.freezes:
        for entry in facts.world.journal:
            if entry.place == place and entry.start_s < from_s and entry.left_s is not None and entry.left_s >= to_s:
                yield entry


def old_writes_of_the_suspended(facts: Facts) -> Iterator[object]:
    """A write of a host whose clock stood still, refused because its term was over."""
    for write in facts.refused(SaveCheckpoint, Release, Complete, Beat):
        session_id = getattr(write.verb, "session_id", None) or write.verb.owner
        life = facts.lives.get(session_id)
        if life is not None and not write.is_repeat and facts.is_excused(life, write.sent_s):
            yield write


def failed_processor(facts: Facts) -> Iterator[object]:
    return (event for _, _, event in facts.world.diary if isinstance(event, ProcessorFailed))


def cut_in_the_middle(facts: Facts) -> Iterator[object]:
    """A record that was begun and not finished, because its processor was cancelled or died."""
    return (entry for entry in facts.world.journal if entry.end_s is None)


def handoff(facts: Facts) -> Iterator[Term]:
    return (term for term in facts.terms.values() if term.asked_s < math.inf and term.reason is EndReason.RELEASED)


RARE: Final[Mapping[str, Callable[[Facts], Iterator[object]]]] = {
    "a steal by force": acquired("forced"),
    "an ambiguous acquire, resolved by acquiring again": acquired("resolved"),
    "an ambiguous acquire, given back": given_back,
    "an acquire that hands out an ended term": stillborn,
    "an acquire applied after it was given up": late_of(Acquire),
    "a release that arrives after it was given up": late_release,
    "a checkpoint applied after it was given up": late_of(SaveCheckpoint),
    "a register applied after it was given up": late_of(Register),
    "a beat applied after it was given up": late_of(Beat),
    "a late create": late_create,
    "a late or repeated beat that removes asks": beat_twice_with_asks,
    "a late checkpoint, refused by its number": late_checkpoint,
    "a release whose answer was lost": lost_release_answer,
    "a register applied but unanswered": unanswered(Register),
    "a beat answered after its time-out": beat_late_answered,
    "an ask applied but unanswered": unanswered(Ask),
    "a complete applied but unanswered": unanswered(Complete),
    "a refused fence": lambda facts: (w for w in facts.refused(Fence) if w.result.current and not w.is_repeat),
    "a fence applied but unanswered": unanswered(Fence),
    "a session that is made again after it was gone": ghost,
    "a living session that finds itself fenced": fenced_alive,
    "a session that was lost and begun anew": begun_anew,
    "a session saved after half of it": last_breath,
    "a host back while its earlier session is there": restarted,
    "an ask for a term that is not held": ask_for_unknown,
    "an ask that is refused because one stands": ask_stands,
    "an ask honoured though its asker is gone": ask_for_the_dead,
    "an asked lease that another takes": taken_by_another,
    "a term ended by an ask's deadline": ended(EndReason.ASK_DEADLINE),
    "a term seen to be taken": ended(EndReason.SEEN_TAKEN),
    "an old owner fenced off by its token": fenced_off,
    "a hand-off": handoff,
    "waking from a freeze inside a batch": woken_in_a_batch,
    "a write refused of a host whose clock stood still": old_writes_of_the_suspended,
    "a record cut off in the middle": cut_in_the_middle,
    "a processor that failed": failed_processor,
    "a parent that ends when its child is there": second_parent,
    "a lease that is refused because it is paused": refused_as_paused,
    **RARE_HANDLING,
    **RARE_LOCKS,
    **RARE_SHARING,
    **{f"a cancellation with its {kind.__name__} on its way": cancelled_in(kind) for kind in HOST_WRITES},
}
"""What is counted, by name."""
