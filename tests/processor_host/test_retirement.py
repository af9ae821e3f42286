"""Which finished leases may be deleted, and when: decisions of one host's memory, without a store."""

from __future__ import annotations

import pytest

from partitions.items import LeaseItem
from processor_host.retirement import UNLISTED_S, Retirement
from tests.builders import a_lease

__all__: list[str] = []

NOW_S = 5_000.0
OTHERS = frozenset({"p-9"})


def over(partition: str = "p-0") -> LeaseItem:
    """A lease that was processed to its end."""
    return a_lease(partition, token=3, finished=True)


def unlisted_for(time_s: float, *leases: LeaseItem, listed: frozenset[str] = OTHERS) -> tuple[LeaseItem, ...]:
    """What may be deleted after so long without a listing of what is over."""
    retirement = Retirement()
    assert retirement.note(leases, listed, NOW_S) == ()
    return retirement.note(leases, listed, NOW_S + time_s)


def test_finished_lease_is_over_an_hour_after_it_was_first_seen_unlisted() -> None:
    """Deleted while a listing may still show it, it would be found again and replayed."""
    assert UNLISTED_S == 3600.0
    assert unlisted_for(UNLISTED_S, over()) == (over(),)


def test_finished_lease_is_kept_until_the_hour_is_full() -> None:
    """The hour is longer than any listing is out of date; a part of it may not be."""
    assert unlisted_for(UNLISTED_S - 0.001, over()) == ()


def test_time_before_the_first_look_does_not_count() -> None:
    """What this host has not seen unlisted may have been listed a moment ago."""
    assert Retirement().note([over()], OTHERS, 1e9) == ()


@pytest.mark.parametrize("finished", [True, False])
def test_listed_lease_is_kept_for_ever(finished: bool) -> None:
    """The source may list what has ended for days."""
    lease = a_lease("p-0", token=3, finished=finished)

    assert unlisted_for(100 * UNLISTED_S, lease, listed=frozenset({"p-0"})) == ()


def test_unfinished_lease_is_kept_however_long_it_is_unlisted() -> None:
    """Its checkpoint says how far it was read; without it, nobody would know that records were lost."""
    assert unlisted_for(100 * UNLISTED_S, a_lease("p-0", token=3)) == ()


@pytest.mark.parametrize(("child_token", "gone"), [(0, ()), (1, (over(),))])
def test_finished_lease_is_kept_while_a_child_was_never_started(child_token: int, gone: tuple[LeaseItem, ...]) -> None:
    """The child waits for the word that its parent is finished."""
    child = a_lease("p-1", token=child_token, parents=("p-0", "p-7"))

    assert unlisted_for(UNLISTED_S, over(), child, listed=frozenset({"p-1"})) == gone


def test_hour_begins_anew_where_the_partition_is_listed_again() -> None:
    """One listing that lacks it may be a fault of the source."""
    retirement = Retirement()
    retirement.note([over()], OTHERS, NOW_S)
    retirement.note([over()], frozenset({"p-0"}), NOW_S + UNLISTED_S - 1)
    retirement.note([over()], OTHERS, NOW_S + UNLISTED_S)

    assert retirement.note([over()], OTHERS, NOW_S + 2 * UNLISTED_S - 1) == ()
    assert retirement.note([over()], OTHERS, NOW_S + 2 * UNLISTED_S) == (over(),)


def test_hour_begins_anew_for_a_lease_that_was_deleted_and_is_still_seen() -> None:
    """The view of the group may be older than the delete; nothing is deleted twice for it."""
    retirement = Retirement()
    retirement.note([over()], OTHERS, NOW_S)
    assert retirement.note([over()], OTHERS, NOW_S + UNLISTED_S) == (over(),)
    retirement.forget("p-0")

    assert retirement.note([over()], OTHERS, NOW_S + UNLISTED_S) == ()
    assert retirement.note([over()], OTHERS, NOW_S + 2 * UNLISTED_S) == (over(),)


def test_each_lease_has_an_hour_of_its_own() -> None:
    """A stream that reshards all the time always has some that were delisted a moment ago."""
    retirement = Retirement()
    retirement.note([over("p-0")], OTHERS, NOW_S)
    retirement.note([over("p-0"), over("p-1")], OTHERS, NOW_S + 60)

    assert retirement.note([over("p-0"), over("p-1")], OTHERS, NOW_S + UNLISTED_S) == (over("p-0"),)
    assert retirement.note([over("p-0"), over("p-1")], OTHERS, NOW_S + UNLISTED_S + 60) == (over("p-0"), over("p-1"))


def test_lease_that_is_gone_is_forgotten() -> None:
    """Another host may have deleted it; the memory must not grow with the life of the stream."""
    retirement = Retirement()
    retirement.note([over()], OTHERS, NOW_S)
    retirement.note([], OTHERS, NOW_S + 1)

    assert retirement.note([over()], OTHERS, NOW_S + UNLISTED_S) == ()
