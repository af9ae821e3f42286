"""
Lineage: a child waits for its parents, and a finished parent is kept as long as somebody may ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.items import LeaseItem
from partitions.lineage import is_eligible, may_delete
from tests.builders import a_lease

__all__: list[str] = []

NOTHING_LISTED: frozenset[str] = frozenset()


def by_partition(*leases: LeaseItem) -> Mapping[str, LeaseItem]:
    return {lease.partition: lease for lease in leases}


def test_lease_without_parents_is_eligible() -> None:
    """Nothing has to be read before it."""
    lease = a_lease("p")

    assert is_eligible(lease, by_partition(lease), None)


@pytest.mark.parametrize(
    ("parents", "eligible"),
    [
        ([a_lease("a", finished=True)], True),
        ([a_lease("a", owner="x:1", token=3)], False),
        ([a_lease("a", token=3)], False),
        ([a_lease("a", paused=True, token=3)], False),
        ([a_lease("a", finished=True), a_lease("b", finished=True)], True),
        ([a_lease("a", finished=True), a_lease("b", token=3)], False),
    ],
    ids=["finished", "running", "free", "paused", "merge, both finished", "merge, one open"],
)
def test_child_is_eligible_once_every_parent_is_finished(parents: Sequence[LeaseItem], eligible: bool) -> None:
    """A record of the child that is handled before the last one of a parent breaks the order per key."""
    child = a_lease("c", parents=tuple(parent.partition for parent in parents))

    assert is_eligible(child, by_partition(child, *parents), None) is eligible


@pytest.mark.parametrize("listed", [None, frozenset({"a", "c"})])
def test_child_that_was_started_is_eligible_whatever_its_parents_are(listed: frozenset[str] | None) -> None:
    """It has passed the gate; holding it back afterwards would take it from its owner."""
    child = a_lease("c", parents=("a", "gone"), token=1)

    assert is_eligible(child, by_partition(child, a_lease("a", token=3)), listed)


@pytest.mark.parametrize(
    ("listed", "eligible"),
    [(None, False), (frozenset({"a", "c"}), False), (frozenset({"c"}), True)],
    ids=["no listing", "listed", "not listed"],
)
def test_child_of_a_parent_without_an_item_waits_until_a_later_listing_lacks_it(
    listed: frozenset[str] | None, eligible: bool
) -> None:
    """Only such a listing tells a parent that was finished and deleted from one that nobody has discovered yet."""
    child = a_lease("c", parents=("a",))

    assert is_eligible(child, by_partition(child), listed) is eligible


def test_listing_does_not_count_for_a_parent_that_has_an_item() -> None:
    """A source stops listing what is past its retention; its unread end is still to be handled, or reported as lost."""
    child, parent = a_lease("c", parents=("a",)), a_lease("a", token=3)

    assert not is_eligible(child, by_partition(child, parent), NOTHING_LISTED)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_circle_of_parents_waits_and_nothing_loops(length: int) -> None:
    """No order would be right for it, and a source's nonsense must not hang the plan of the other partitions."""
    circle = [a_lease(f"p{number}", parents=(f"p{(number + 1) % length}",)) for number in range(length)]

    assert [is_eligible(lease, by_partition(*circle), NOTHING_LISTED) for lease in circle] == [False] * length


# --- Deleting -------------------------------------------------------------------------------------------------------

FINISHED = a_lease("p", token=4, finished=True)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [a_lease("c", parents=("p",), token=1)],
        [a_lease("c", parents=("p", "q"), token=1), a_lease("d", parents=("p",), token=2, finished=True)],
        [a_lease("x", parents=("q",))],
    ],
    ids=["children deleted", "child started", "both started", "a child of another"],
)
def test_finished_lease_may_be_deleted_once_every_child_was_started(others: Sequence[LeaseItem]) -> None:
    """Nobody asks for it any more; kept for ever, the table grows with every reshard."""
    assert may_delete(FINISHED, [FINISHED, *others], NOTHING_LISTED)


@pytest.mark.parametrize(
    ("lease", "others", "listed"),
    [
        (a_lease("p", token=4), [], NOTHING_LISTED),
        (FINISHED, [], frozenset({"p"})),
        (FINISHED, [a_lease("c", parents=("p",))], NOTHING_LISTED),
        (FINISHED, [a_lease("c", parents=("p",), token=1), a_lease("d", parents=("q", "p"))], NOTHING_LISTED),
    ],
    ids=["not finished", "still listed", "child not started", "one of two children not started"],
)
def test_lease_is_kept_as_long_as_it_is_open_listed_or_waited_for(
    lease: LeaseItem, others: Sequence[LeaseItem], listed: frozenset[str]
) -> None:
    """Deleted too early it is found again and replayed, or its child counts it as one that nobody has discovered."""
    assert not may_delete(lease, [lease, *others], listed)


@st.composite
def lineages(draw: st.DrawFn) -> list[LeaseItem]:
    """Leases whose parents come before them, some finished, some never started, some parents without an item."""
    size = draw(st.integers(min_value=1, max_value=8))
    leases = []
    for number in range(size):
        parents = draw(st.lists(st.integers(min_value=0, max_value=max(0, number - 1)), max_size=2, unique=True))
        state = draw(st.sampled_from(["born", "running", "finished"]))
        leases.append(
            a_lease(
                f"p{number}",
                parents=tuple(f"p{parent}" for parent in parents) if number else (),
                token=0 if state == "born" else 1,
                finished=state == "finished",
            )
        )
    gone = draw(st.sets(st.sampled_from([lease.partition for lease in leases])))
    return [lease for lease in leases if lease.partition not in gone]


@given(leases=lineages(), listed=st.frozensets(st.sampled_from([f"p{number}" for number in range(8)])))
def test_deleting_whatever_may_be_deleted_holds_back_no_partition(
    leases: list[LeaseItem], listed: frozenset[str]
) -> None:
    """A deletion must not change who may start, or a child would wait for ever, or not long enough."""
    kept = [lease for lease in leases if not may_delete(lease, leases, listed)]

    def eligible(among: list[LeaseItem]) -> dict[str, bool]:
        return {lease.partition: is_eligible(lease, by_partition(*among), listed) for lease in kept}

    assert eligible(kept) == eligible(leases)
