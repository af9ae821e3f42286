"""The judge of scrapes finds what it is for, and takes a move for no overlap."""

from __future__ import annotations

import pytest

from tests.deploy.observed.prometheus import Series
from tests.deploy.observed.scrapes import Term, most_owned, owned_twice, terms_of

__all__: list[str] = []


def term(token: int, instance: str, from_s: float, until_s: float, partition: str = "p0") -> Term:
    return Term(partition=partition, token=token, instance=instance, from_s=from_s, until_s=until_s)


def test_term_lasts_from_the_end_of_its_first_scrape_to_the_beginning_of_its_last() -> None:
    """When within a scrape a host was asked is not known; only this much is certain."""
    tokens = [
        Series(labels={"instance": "a", "partition": "p0"}, samples=((10.0, 1.0), (10.5, 1.0), (11.0, 3.0))),
        Series(labels={"instance": "b", "partition": "p0"}, samples=((10.75, 2.0),)),
    ]
    scrapes = [
        Series(labels={"instance": "a"}, samples=((10.0, 0.25), (10.5, 0.125), (11.0, 0.125))),
        Series(labels={"instance": "b"}, samples=((10.75, 0.5),)),
    ]

    assert terms_of(tokens, scrapes) == [
        term(1, "a", 10.25, 10.5),
        term(2, "b", 11.25, 10.75),
        term(3, "a", 11.125, 11.0),
    ]


@pytest.mark.parametrize(
    ("other", "is_overlap"),
    [
        pytest.param(term(2, "b", 13.0, 20.0), False, id="moved"),
        pytest.param(term(2, "b", 11.9, 20.0), True, id="still held when the next one had begun"),
        pytest.param(term(1, "b", 11.0, 11.5), True, id="the same token on two hosts"),
        pytest.param(term(2, "b", 11.0, 10.9), True, id="seen once, and in the middle"),
        pytest.param(term(2, "b", 12.1, 11.9), False, id="seen once, when the other one was seen last"),
        pytest.param(term(2, "b", 11.0, 20.0, "p1"), False, id="another partition"),
    ],
)
def test_partition_is_owned_twice_where_one_host_still_held_it_after_another_did(other: Term, is_overlap: bool) -> None:
    """A judge that finds nothing would pass any group."""
    one = term(1, "a", 10.0, 12.0)

    assert owned_twice([one, other]) == ([(one, other)] if is_overlap else [])


def test_most_owned_counts_what_was_held_at_the_same_moment() -> None:
    """A lease that moves is one, also where the new term begins at the very moment at which the old one ended."""
    moved = [term(1, "a", 10.0, 12.0), term(2, "b", 12.0, 14.0)]

    assert [most_owned(terms) for terms in ([], moved, [*moved, term(1, "c", 11.0, 13.0, "p1")])] == [0, 1, 2]
