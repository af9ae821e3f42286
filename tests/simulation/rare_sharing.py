"""
Rare events of sharing: an operator's commands, waits before steps, and moves for the sake of weights. Counted like all
others, in `tests.simulation.rare`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from partitions.positions import EARLIEST
from partitions.verbs import Acquire, Ask, Drain, Fence, Register
from partitions.weights import LOAD_MODE
from tests.simulation.facts import Facts
from tests.world.checks import position_order
from tests.world.network import Write
from tests.world.world import GROUP

__all__ = ["RARE_SHARING"]

SETTLED_DURATIONS: Final = 3
"""After so long a newcomer has asked for its share."""


def reset_by(sign: int) -> Callable[[Facts], Iterator[object]]:
    """A reset that goes forth (1) or back (-1) from what was stored."""

    def resets(facts: Facts) -> Iterator[object]:
        for write in facts.resets:
            term = facts.terms.get((write.verb.partition, write.verb.token))
            if term is not None:
                stored = position_order(term.acquire.result.item.position or EARLIEST)
                if sign * (position_order(write.verb.position) - stored) > 0:
                    yield write

    return resets


def killed_operator(facts: Facts) -> Iterator[object]:
    """An operator that is killed with a lease in its hands, so that the lease is free once its session is fenced."""
    for key, term in facts.terms.items():
        killed_s = facts.world.kills.get(term.life.place, math.inf)
        freed = facts.freed.get(key)
        if facts.is_operators(term) and killed_s < min(term.life.gone_s, math.inf if freed is None else freed.at_s):
            yield term


def fenced_operator(facts: Facts) -> Iterator[object]:
    for write in facts.applied(Fence):
        life = facts.lives.get(write.verb.session_id)
        if life is not None and life.registered.capacity == 0:
            yield write


def operators(kind: type) -> Callable[[Facts], Iterator[object]]:
    """A write of this kind that is applied at an operator's place."""

    def writes(facts: Facts) -> Iterator[Write]:
        hosts = {place for _, place, _ in facts.world.diary}
        return (write for write in facts.applied(kind) if write.place not in hosts and write.place != "world")

    return writes


def moved_by_load(facts: Facts) -> Iterator[object]:
    """In load mode a lease is asked for although nobody has come for a while, and its owner stays: by its weight."""
    group = facts.world.store.group_now(GROUP)
    if group is None or group.plan_mode != LOAD_MODE:
        return
    last_s = -math.inf
    for write in facts.applied(Register, Ask):
        owner = write.result.item
        if isinstance(write.verb, Register):
            last_s = write.at_s
        elif (
            write.verb.asker
            and not (owner.draining or owner.drain_asked)
            and write.at_s > last_s + SETTLED_DURATIONS * facts.world.duration_s
        ):
            yield write


def found_again(facts: Facts) -> Iterator[object]:
    """A host that was fenced takes a lease again in its next life, which nobody had taken meanwhile."""
    for (partition, token), term in facts.terms.items():
        before = facts.terms.get((partition, token - 1))
        if before is None or before.life.gone_s > term.acquire.at_s:
            continue
        mine, theirs = before.life.registered, term.life.registered
        if mine.host_id == theirs.host_id and mine.session_id != theirs.session_id:
            yield term


RARE_SHARING: Final[Mapping[str, Callable[[Facts], Iterator[object]]]] = {
    "a reset that goes back": reset_by(-1),
    "a reset that goes forth": reset_by(1),
    "an operator killed with a lease in hand": killed_operator,
    "an operator that is fenced": fenced_operator,
    "a lease asked for by an operator": operators(Ask),
    "a lease taken by an operator": operators(Acquire),
    "a host fenced by an operator": operators(Fence),
    "a host drained by an operator's command": operators(Drain),
    "a lease asked for because of its weight": moved_by_load,
    "a lease found again by the host that had it": found_again,
}
"""What is counted, by name."""
