"""
Rare events of calls: what arrives late, twice or unanswered, and what is on its way as its host is cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from partitions.verbs import (
    Acquire,
    Ask,
    Beat,
    Complete,
    Create,
    Fence,
    Leave,
    Register,
    Release,
    SaveCheckpoint,
)
from tests.simulation.facts import Facts
from tests.simulation.guests import CANCELLED
from tests.world.network import Write

__all__ = [
    "HOST_WRITES",
    "beat_late_answered",
    "beat_twice_with_asks",
    "cancelled_in",
    "ghost",
    "late_create",
    "late_of",
    "late_release",
    "unanswered",
]

GIVEN_UP_S: Final = 1 / 6
"""Of a duration: after that much a call is given up."""
HOST_WRITES: Final = (Acquire, Ask, Beat, Complete, Create, Fence, Leave, Register, Release, SaveCheckpoint)
"""Every kind of write that a host makes again and again."""


def _is_late(facts: Facts, write: Write) -> bool:
    """Whether it was applied after its sender had given it up."""
    return write.at_s - write.sent_s > GIVEN_UP_S * facts.world.duration_s


def _is_unanswered(facts: Facts, write: Write) -> bool:
    return not write.is_repeat and write.answered_s - write.sent_s > GIVEN_UP_S * facts.world.duration_s


def late_of(*kinds: type) -> Callable[[Facts], Iterator[object]]:
    return lambda facts: (write for write in facts.applied(*kinds) if _is_late(facts, write))


def unanswered(*kinds: type) -> Callable[[Facts], Iterator[object]]:
    return lambda facts: (write for write in facts.applied(*kinds) if _is_unanswered(facts, write))


def late_create(facts: Facts) -> Iterator[object]:
    """It meets a lease that is there already, or makes one that its sender had given up."""
    for write in facts.history:
        if isinstance(write.verb, Create) and (write.is_repeat or _is_late(facts, write)):
            yield write


def late_release(facts: Facts) -> Iterator[object]:
    """Mostly refused: a later try was applied before, or the next owner has begun."""
    return (write for write in facts.history if isinstance(write.verb, Release) and _is_late(facts, write))


def beat_twice_with_asks(facts: Facts) -> Iterator[object]:
    return (
        write for write in facts.applied(Beat) if write.verb.handled and (write.is_repeat or _is_late(facts, write))
    )


def ghost(facts: Facts) -> Iterator[object]:
    registered: set[str] = set()
    for write in facts.applied(Register):
        if write.verb.session_id in registered:
            yield write
        registered.add(write.verb.session_id)


def beat_late_answered(facts: Facts) -> Iterator[object]:
    return (write for write in unanswered(Beat)(facts) if isinstance(write, Write) and write.answered_s < math.inf)


def cancelled_in(kind: type) -> Callable[[Facts], Iterator[object]]:
    """A host is cancelled while a write of this kind is on its way, or its answer."""

    def cancellations(facts: Facts) -> Iterator[object]:
        cancelled = [(at_s, place) for at_s, place, what in facts.world.notes if what == CANCELLED]
        given_up_s = GIVEN_UP_S * facts.world.duration_s
        for write in facts.history if cancelled else ():
            until_s = min(write.answered_s, write.sent_s + given_up_s)
            if isinstance(write.verb, kind) and not write.is_repeat:
                yield from (
                    write for at_s, place in cancelled if place == write.place and write.sent_s < at_s < until_s
                )

    return cancellations
