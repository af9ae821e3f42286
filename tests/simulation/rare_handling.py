"""
Rare events of records that fail, kill or are given up: counted like all others, in `tests.simulation.rare`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from partitions.events import Event
from partitions.transactions import Commit
from processor_host.events import BatchSplit, HostResting, OneAtATime, PartitionStopped, RecordsGivenUp
from tests.simulation.facts import Facts
from tests.simulation.handlers import LETTER

__all__ = ["RARE_HANDLING"]


def told(kind: type[Event], matches: Callable[[Event], bool] = lambda _: True) -> Callable[[Facts], Iterator[object]]:
    return lambda facts: (event for _, _, event in facts.world.diary if isinstance(event, kind) and matches(event))


def found_killer(event: Event) -> bool:
    assert isinstance(event, RecordsGivenUp)
    return event.error.startswith("HostDied")


def has_attempts(event: Event) -> bool:
    assert isinstance(event, OneAtATime)
    return event.attempts > 0


def doubled_letter(facts: Facts) -> Iterator[object]:
    """A letter that a later term wrote again, because the one before died or was cut before the checkpoint."""
    tokens: dict[tuple[str, str], set[int]] = defaultdict(set)
    for _, _, (what, partition, token, *more) in facts.world.notes:
        if what == LETTER:
            tokens[partition, more[0]].add(token)
    return (record for record, of in tokens.items() if len(of) > 1)


def unanswered_letter(facts: Facts) -> Iterator[object]:
    return (w for w in facts.applied(Commit) if w.verb.operations and w.answered_s == math.inf and not w.is_repeat)


RARE_HANDLING: Final[Mapping[str, Callable[[Facts], Iterator[object]]]] = {
    "records handed on one at a time": told(OneAtATime),
    "a term that finds attempts of the one before": told(OneAtATime, has_attempts),
    "a record given up because hosts died of it": told(RecordsGivenUp, found_killer),
    "a batch cut up to find its bad record": told(BatchSplit),
    "a partition stopped by its policy": told(PartitionStopped),
    "a sick host that gives everything away": told(HostResting),
    "a letter written again by a later term": doubled_letter,
    "a letter stored with the checkpoint, unanswered": unanswered_letter,
}
"""What is counted, by name."""
