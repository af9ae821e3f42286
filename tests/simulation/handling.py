"""
Checkers of runs with modes: what users see of records that fail, side by side, and of their letters.

They take the place of the order of plain runs, in which records are handled one after the other and again and again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.simulation.facts import Facts
from tests.simulation.handlers import LETTER
from tests.world.checks import position_order
from tests.world.world import GROUP

__all__ = ["HANDLING"]


def key_disorder(facts: Facts) -> Iterator[str]:
    """A record is started only when all before it that have its key were handled or given up."""
    before: dict[str, list[int | None]] = {}
    for partition, keys in facts.keys.items():
        last: dict[str | None, int] = {}
        before[partition] = [None]
        for number, key in enumerate(keys, start=1):
            before[partition].append(last.get(key))
            last[key] = number
    done_s: dict[tuple[str, int], float] = {}
    for entry in facts.world.journal:
        number = int(entry.position)
        if number <= facts.first.get(entry.partition, 0):
            yield f"in front of where the group began: {entry}"
        if _key_done_s(facts, before, done_s, entry.partition, before[entry.partition][number]) > entry.start_s:
            yield f"before those of its key in front of it were handled: {entry}"


def _key_done_s(
    facts: Facts,
    before: Mapping[str, list[int | None]],
    known: dict[tuple[str, int], float],
    partition: str,
    number: int | None,
) -> float:
    """When a record and all before it of its key had been handled; the chain is walked once for each record."""
    chain = []
    while number is not None and number > facts.first.get(partition, 0) and (partition, number) not in known:
        chain.append(number)
        number = before[partition][number]
    done_s = float("-inf") if number is None else known.get((partition, number), float("-inf"))
    for each in reversed(chain):
        done_s = max(done_s, facts.ends_s[partition].get(each, float("inf")))
        known[partition, each] = done_s
    return done_s


def letters_of_a_term(facts: Facts) -> Iterator[str]:
    """A term writes one letter of a record: only a death between letter and checkpoint brings another, of the next."""
    letters = Counter(what[1:] for _, _, what in facts.world.notes if what[0] == LETTER)
    for (partition, token, position), count in letters.items():
        if count > 1:
            yield f"{count} letters of {position} in {partition} by term {token}"


def letters_of_a_record(facts: Facts) -> Iterator[str]:
    """A letter that is stored with the checkpoint is written once, whatever dies, and once more after each reset."""
    resets: dict[str, list[int]] = defaultdict(list)
    for write in facts.resets:
        resets[write.verb.partition].append(int(position_order(write.verb.position)))
    values = facts.world.store.values_now(GROUP)
    for key, count in values.items():
        _, partition, position = key.split("/")
        again = sum(to < int(position) for to in resets[partition])
        if count > 1 + again:
            yield f"{count} letters: {key}, {again} resets"


def handled_behind(facts: Facts) -> Iterator[str]:
    """No record is started that the store had as done when its term was acquired."""
    stored: dict[tuple[str, int], int] = defaultdict(int)
    for (partition, token), term in facts.terms.items():
        stored[partition, token] = int(position_order(term.acquire.result.item.position))
    for entry in facts.world.journal:
        if int(entry.position) <= stored[entry.partition, entry.token]:
            yield f"the term began behind {stored[entry.partition, entry.token]}: {entry}"


HANDLING: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "order within a key": key_disorder,
    "one letter in a term": letters_of_a_term,
    "one letter with the checkpoint": letters_of_a_record,
    "nothing that is stored begins again": handled_behind,
}
"""By name, in the order in which they are asked."""
