"""The last changes of ownership: each is told once, whoever saw it first, and none that did not happen."""

from __future__ import annotations

from partitions.items import LeaseItem, SessionItem
from processor_host.page.changes import CHANGES_MAX, Change, Changes, note_freed, note_look, note_taken
from tests.builders import a_lease, a_session

__all__: list[str] = []

A, B = a_session("a:1"), a_session("b:1")


def change(kind: str, token: int, before: str | None, after: str | None, **more: object) -> Change:
    values: dict[str, object] = {"at_s": 2.0, "partition": "p-0", "token": token, "before": before, "after": after}
    return Change(kind=kind, **(values | more))  # type: ignore[arg-type]  # Put together from words.


def looks(*looks: tuple[LeaseItem, tuple[SessionItem, ...]]) -> tuple[Change, ...]:
    """What is told after these looks, at 1.0, 2.0 and so on."""
    changes = Changes()
    for number, (lease, sessions) in enumerate(looks, 1):
        changes = note_look(changes, [lease], sessions, float(number))
    return changes.last


def owned(by: str, token: int, **more: object) -> LeaseItem:
    return a_lease(owner=f"{by}:1", token=token, last_host=by, **more)


def test_first_look_tells_of_no_change() -> None:
    """What a host finds at its start has not just happened."""
    assert looks((owned("a", 3), (A, B))) == ()


def test_hand_over_between_two_looks_is_one_change() -> None:
    """Nobody should have to put two lines together to see where a partition went."""
    assert looks((owned("a", 3), (A, B)), (owned("b", 4), (A, B))) == (change("taken", 4, "a", "b"),)


def test_hand_over_that_was_seen_free_in_between_is_one_change_in_the_end() -> None:
    """Whether a look fell into the moment between says nothing about the group."""
    free = a_lease(token=3, last_host="a")

    assert looks((owned("a", 3), (A, B)), (free, (A, B)), (owned("b", 4), (A, B))) == (
        change("taken", 4, "a", "b", at_s=3.0),
    )


def test_lease_whose_owner_is_fenced_is_freed() -> None:
    """Its item still names the owner, but the session is gone, and nobody handles its records."""
    assert looks((owned("a", 3), (A, B)), (owned("a", 3), (B,))) == (change("freed", 3, "a", None),)


def test_partition_that_is_processed_to_its_end_has_ended() -> None:
    """It is free for good, which is no loss."""
    ended = a_lease(token=3, last_host="a", finished=True)

    assert looks((owned("a", 3), (A,)), (ended, (A,))) == (change("ended", 3, "a", None),)


def test_taken_and_freed_between_two_looks_is_told_as_freed() -> None:
    """The last one to have it is known, and that somebody had it."""
    freed = a_lease(token=4, last_host="b")

    assert looks((owned("a", 3), (A, B)), (freed, (A, B))) == (change("freed", 4, "b", None),)


def test_new_partition_is_told_once_somebody_has_it() -> None:
    """A lease that is made says nothing about who owns what."""
    changes = note_look(Changes(), [], [A], 1.0)

    assert note_look(changes, [a_lease()], [A], 2.0).last == ()
    assert note_look(changes, [owned("a", 1)], [A], 2.0).last == (change("taken", 1, None, "a"),)


def test_stale_look_tells_nothing_and_changes_nothing() -> None:
    """Reads that are eventually consistent go back and forth."""
    told = looks((owned("a", 4), (A, B)), (owned("b", 3), (A, B)), (owned("a", 4), (A, B)))

    assert told == ()


def test_own_term_is_told_once_with_how_it_came_about() -> None:
    """The host's own event comes before the next look, and says more."""
    changes = note_look(Changes(), [owned("b", 3)], [A, B], 1.0)
    changes = note_taken(changes, partition="p-0", token=4, host="a", before="b", how="asked", now_s=2.0)
    changes = note_look(changes, [owned("a", 4)], [A, B], 3.0)

    assert changes.last == (change("taken", 4, "b", "a", how="asked"),)


def test_own_release_is_told_once_though_a_look_is_older() -> None:
    """A look that began before the release still shows this host; it owns nothing again under the same token."""
    changes = note_look(Changes(), [owned("a", 4)], [A, B], 1.0)
    changes = note_freed(changes, partition="p-0", token=4, now_s=2.0)
    changes = note_look(changes, [owned("a", 4)], [A, B], 3.0)
    changes = note_look(changes, [a_lease(token=4, last_host="a")], [A, B], 4.0)

    assert changes.last == (change("freed", 4, "a", None),)


def test_changes_are_bounded_and_the_newest_stay() -> None:
    """A group that cannot settle must not fill the memory of its hosts."""
    changes = Changes()
    for token in range(1, CHANGES_MAX + 11):
        changes = note_taken(changes, partition="p-0", token=token, host="a", before=None, how="free", now_s=0.0)

    assert [each.token for each in changes.last] == list(range(11, CHANGES_MAX + 11))


def test_partition_that_is_deleted_is_forgotten() -> None:
    """What is remembered is bounded by what there is."""
    changes = note_look(note_look(Changes(), [owned("a", 1)], [A], 1.0), [], [A], 2.0)

    assert (changes.last, dict(changes.seen)) == ((), {})
