"""
A batch in pieces: whatever fails and is cut, each record is handed on in its order and none is passed.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.base import Record
from processor_host.failures import Again, Failure, PassOver, Skip, SplitUp, what_next
from processor_host.pieces import Piece, Pieces

__all__: list[str] = []


def test_pieces_of_a_batch_are_one_piece() -> None:
    """A batch processor gets what it asked for until it fails."""
    assert Pieces.of(5, attempts=2) == Pieces(count=5, left=(Piece(start=0, stop=5, attempts=2),))


def test_pieces_of_single_records_carry_the_attempts_of_the_first_alone() -> None:
    """What is known of earlier terms is about the first record that is not done."""
    assert Pieces.of(2, attempts=2, single=True).left == (
        Piece(start=0, stop=1, attempts=2, is_part=True),
        Piece(start=1, stop=2, is_part=True),
    )


def test_pieces_of_nothing_are_done() -> None:
    """A read may end a partition and bring no record."""
    assert (Pieces.of(0).left, Pieces.of(0).done) == ((), 0)


def test_pieces_after_a_split_begin_their_attempts_anew() -> None:
    """A part is not guilty of what its batch did."""
    pieces = Pieces.of(6).failed().failed().split((2, 3))

    assert pieces.left == (
        Piece(start=0, stop=2, is_part=True),
        Piece(start=2, stop=3, is_part=True),
        Piece(start=3, stop=6, is_part=True),
    )
    assert [pieces.done, pieces.passed().done, pieces.passed().passed().passed().done] == [0, 2, 6]


@pytest.mark.parametrize("at", [(), (0,), (3,), (2, 1), (1, 1), (-1,)])
def test_pieces_refuse_cuts_outside_of_the_first(at: tuple[int, ...]) -> None:
    """An empty part would be handed on as a batch without records, for ever."""
    with pytest.raises(ValueError, match="do not rise inside a piece of 3 records"):
        Pieces.of(3).split(at)


@given(count=st.integers(1, 60), bad=st.sets(st.integers(0, 59)), attempts=st.integers(1, 4))
def test_bisection_passes_over_the_bad_records_alone_and_hands_each_good_one_on(
    count: int, bad: set[int], attempts: int
) -> None:
    """Each good record is done once, in order; each bad one has all its attempts alone; the calls are bounded."""
    bad &= set(range(count))
    records = [Record(partition="p0", position=str(at), key=None, data=b"") for at in range(count)]
    policy = Skip(attempts=attempts, bisect=True)
    pieces, done, given_up, calls = Pieces.of(count), list[int](), list[int](), 0
    tried_alone = dict.fromkeys(bad, 0)

    while pieces.left:
        assert done + given_up == [] or pieces.done == len(done) + len(given_up)
        first, calls = pieces.left[0], calls + 1
        inside = range(first.start, first.stop)
        if not bad & set(inside):
            done += inside
            pieces = pieces.passed()
            continue
        if len(inside) == 1:
            tried_alone[first.start] += 1
        pieces = pieces.failed()
        failed = Failure(
            partition="p0",
            token=1,
            stage="process",
            error=ValueError(),
            attempts=pieces.left[0].attempts,
            records=tuple(records[first.start : first.stop]),
            is_part=first.is_part,
        )
        match what_next(policy, failed):
            case Again():
                pass
            case SplitUp(at=at):
                pieces = pieces.split(at)
            case PassOver():
                given_up += inside
                pieces = pieces.passed()

    assert (given_up, done) == (sorted(bad), [at for at in range(count) if at not in bad])
    assert tried_alone == dict.fromkeys(bad, attempts)
    # The whole batch's attempts, then two calls per level for each bad record, and its own attempts.
    assert calls <= attempts + len(bad) * (2 * 6 + attempts) + 1
