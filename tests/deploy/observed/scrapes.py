"""
What scrapes say about who held what, and when: terms as a scraper sees them, and whether two of a partition overlap.

Pure. Two hosts are scraped at different moments, so the last look at one may be older than the first look at the next
owner, and a sum over the newest looks may count a partition twice that moved in between. What scrapes can prove is
this: a term was held from the first scrape that showed it until the last, whatever was looked at in between.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.deploy.observed.prometheus import Series

__all__ = ["Term", "most_owned", "owned_twice", "terms_of"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Term:
    """One term of a partition on one host, as far as scrapes show it."""

    partition: str
    token: int
    instance: str
    from_s: float
    """When the first scrape that showed it was over at the latest, seconds since 1970."""
    until_s: float
    """When the last scrape that showed it began."""


def terms_of(tokens: Iterable[Series], scrapes: Iterable[Series]) -> list[Term]:
    """
    Return the terms that scrapes have shown.

    Args:
        tokens: The samples of each series of `processor_host_lease_fencing_token`, stamped with when a scrape began.
        scrapes: The samples of each series of `scrape_duration_seconds`, of the same time.
    """
    took_s = {(each.labels["instance"], at_s): value for each in scrapes for at_s, value in each.samples}
    seen: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for each in tokens:
        for at_s, value in each.samples:
            seen[each.labels["partition"], int(value), each.labels["instance"]].append(at_s)
    return sorted(
        Term(
            partition=partition,
            token=token,
            instance=instance,
            from_s=min(moments) + took_s[instance, min(moments)],
            until_s=max(moments),
        )
        for (partition, token, instance), moments in seen.items()
    )


def owned_twice(terms: Iterable[Term]) -> list[tuple[Term, Term]]:
    """Return the pairs of terms of one partition of which the later one began while the earlier one was still held."""
    by_partition: Mapping[str, list[Term]] = defaultdict(list)
    for term in terms:
        by_partition[term.partition].append(term)
    return [
        (one, other)
        for each in by_partition.values()
        for at, one in enumerate(each)
        for other in each[at + 1 :]
        if one.from_s < other.until_s and other.from_s < one.until_s
    ]


def most_owned(terms: Iterable[Term]) -> int:
    """Return the most leases that were held at one moment."""
    # At the same moment those that end come first.
    steps = sorted(
        step for term in terms if term.from_s < term.until_s for step in ((term.from_s, 1), (term.until_s, -1))
    )
    now, most = 0, -math.inf
    for _, step in steps:
        now += step
        most = max(most, now)
    return int(most) if steps else 0
