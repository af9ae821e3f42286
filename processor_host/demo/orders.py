"""
What has to come after what where partitions are born of others: records of one key, and children after their parents.

Pure. A record without a key, as of a stream whose partitions never change, has no order beside that of its partition,
which is the business of `processor_host.demo.verdict`.

- **Out of order**: the handling of a record began before the one produced before it under the same key had been
  handled to its end, in whichever partition that was. A repeat comes after the first time and breaks no order.
- **Early**: the handling of a record of a partition began before the last handling in one of its parents was over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from processor_host.demo.handlings import Handling, text_of
from processor_host.demo.lines import Birth, Produced

__all__ = ["early_children", "keys_over_births", "out_of_order"]

Place = tuple[str, str]
"""Partition and position."""


def out_of_order(handlings: Iterable[Handling], produced: Iterable[Produced]) -> Iterator[str]:
    """
    Yield a text for each record that came too early.

    Args:
        handlings: All of them, in any order.
        produced: The producer's list, each key's records in the order in which the stream has them.
    """
    began_s: dict[Place, float] = {}
    done_s: dict[Place, float] = {}
    for each in handlings:
        began_s[each.place] = min(each.start_s, began_s.get(each.place, each.start_s))
        if each.is_ended:
            done_s[each.place] = min(each.end_s, done_s.get(each.place, each.end_s))
    before: dict[str, Place] = {}
    for one in produced:
        place = one.partition, one.position
        # What was never handled is lost, which is another fault.
        if not one.key or place not in done_s:
            continue
        if one.key in before and began_s[place] < done_s[before[one.key]]:
            yield f"{text_of(*place)} of key {one.key!r} before {text_of(*before[one.key])} was done"
        before[one.key] = place


def early_children(handlings: Mapping[str, Sequence[Handling]], births: Iterable[Birth]) -> Iterator[str]:
    """
    Yield a text for each child, and each of its parents, that were handled at the same time or in the wrong order.

    Args:
        handlings: Those of each partition.
        births: Which partition is born of which.
    """
    for birth in births:
        children, parents = handlings.get(birth.partition, ()), handlings.get(birth.parent, ())
        if not children or not parents:
            continue
        first = min(children, key=lambda each: each.start_s)
        last = max(parents, key=lambda each: each.end_s)
        if first.start_s < last.end_s:
            yield f"{text_of(*first.place)} before its parent was done with {text_of(*last.place)}"


def keys_over_births(
    handled: frozenset[Place], produced: Iterable[Produced], births: Iterable[Birth]
) -> frozenset[str]:
    """Return the keys of which records were handled in a partition and in one that is born of it."""
    keys: dict[str, set[str]] = defaultdict(set)
    for one in produced:
        if one.key and (one.partition, one.position) in handled:
            keys[one.partition].add(one.key)
    return frozenset(key for birth in births for key in keys[birth.partition] & keys[birth.parent])
