"""
A batch that is handed on in pieces: which records come next, and how often they failed.

Pure data; knows no record and no policy. A batch starts as one piece. A piece that is done goes away, one that is cut
up is replaced by its parts, in order. So every record is in exactly one piece until it is done, nothing is passed, and
the done ones are always the first ones: the checkpoint is the start of the first piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

__all__ = ["Piece", "Pieces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Records of a batch that are handed on together: those from index `start` up to but without `stop`."""

    start: int
    stop: int
    attempts: int = 0
    """Calls in a row that failed at this very piece."""
    is_part: bool = False
    """Whether it is a part of something that was cut up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What is left of a batch, first piece first."""

    count: int
    """Records of the whole batch."""
    left: tuple[Piece, ...]

    @classmethod
    def of(cls, count: int, *, attempts: int = 0, single: bool = False) -> Pieces:
        """
        Return a batch of which nothing is done.

        Args:
            count: Its records.
            attempts: How often its first piece has failed already, as when it is read again.
            single: Whether each record is handed on alone.
        """
        starts = range(count) if single else range(min(count, 1))
        pieces = [Piece(start=at, stop=at + 1 if single else count, is_part=single and count > 1) for at in starts]
        if pieces:
            pieces[0] = replace(pieces[0], attempts=attempts)
        return cls(count=count, left=tuple(pieces))

    @property
    def done(self) -> int:
        """How many records of the batch are done: all before this index."""
        return self.left[0].start if self.left else self.count

    def without(self, count: int) -> Pieces:
        """Return what is left once the first `count` records of the batch are done; progress starts attempts anew."""
        left = tuple(
            piece if piece.start >= count else replace(piece, start=count, attempts=0)
            for piece in self.left
            if piece.stop > count
        )
        return replace(self, left=left)

    def passed(self) -> Pieces:
        """Return what is left once the first piece is done."""
        return replace(self, left=self.left[1:])

    def failed(self, attempts: int | None = None) -> Pieces:
        """Return the same pieces after one more failure of the first, or so many where they were counted elsewhere."""
        first = self.left[0]
        attempts = first.attempts + 1 if attempts is None else attempts
        return replace(self, left=(replace(first, attempts=attempts), *self.left[1:]))

    def split(self, at: Sequence[int]) -> Pieces:
        """
        Return the pieces with the first one cut up.

        Args:
            at: Where each further part begins, counted from the start of the first piece.

        Raises:
            ValueError: a cut is not inside the piece, or they do not rise.
        """
        first = self.left[0]
        edges = [0, *at, first.stop - first.start]
        if len(at) == 0 or any(one >= other for one, other in pairwise(edges)):
            raise ValueError(f"cuts at {tuple(at)} do not rise inside a piece of {first.stop - first.start} records")
        parts = [
            Piece(start=first.start + one, stop=first.start + other, is_part=True) for one, other in pairwise(edges)
        ]
        return replace(self, left=(*parts, *self.left[1:]))
