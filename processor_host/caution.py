"""
How carefully records are handed on after a host died with them: which phase a term is in.

The pure rule behind `suspects`; knows no lease and no processor. A record that kills the whole process never raises, so
nobody counts its attempts but the store, and nobody knows which record it was.

Theory of operation:
- ONE_AT_A_TIME: the first records of a term whose lease is suspect, a batch of them. Each is handed on alone, its
  attempt stored before (one write, which is also the checkpoint of the record before it). A killer among them is
  counted, its neighbours never.
- CAREFUL: after those, for `careful_s`. Batches as usual, but the checkpoint is stored before each of them. The stored
  position may have been a whole checkpoint interval behind the killer, so the killer may come later; the next death
  then leaves the position right before the batch that was in flight, and the next term finds it one by one.
- NORMAL: a term whose lease is not suspect, and every other after that.

So a killer costs at most two deaths more than its attempts, wherever it is, and a death that no record caused costs a
slow first batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

__all__ = ["Caution", "Phase"]


class Phase(Enum):
    """How the next records are handed on."""

    ONE_AT_A_TIME = "one at a time"
    """Each alone, its attempt stored before."""
    CAREFUL = "careful"
    """In batches, what is done stored before each."""
    NORMAL = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """Of one term."""

    one_by_one: int
    """Records that are still to be handed on one at a time."""
    careful_s: float
    """How long the careful phase lasts, seconds."""
    careful_until_s: float | None = None
    """Set as it begins."""
    attempts: int = 0
    """How often the record that comes next was begun and not ended, as the store has it."""

    @classmethod
    def of(cls, *, suspects: int, attempts: int, batch_records_max: int, checkpoint_interval_s: float) -> Caution:
        """
        Return how a term begins.

        Args:
            suspects: Terms that ended without a release since the checkpoint last moved.
            attempts: Of the first record, from the lease item.
            batch_records_max: What may have been in flight.
            checkpoint_interval_s: How far behind the stored position may have been.
        """
        is_suspect = suspects > 0 or attempts > 0
        return cls(
            one_by_one=batch_records_max if is_suspect else 0,
            # The term before may have been faster than this one; ten times covers that, and ends.
            careful_s=10 * checkpoint_interval_s if is_suspect else 0.0,
            attempts=attempts,
        )

    def phase(self, now_s: float) -> Phase:
        """Return how the next records are handed on."""
        if self.one_by_one > 0:
            return Phase.ONE_AT_A_TIME
        if self.careful_s > 0 and (self.careful_until_s is None or now_s < self.careful_until_s):
            return Phase.CAREFUL
        return Phase.NORMAL

    def begun(self) -> Caution:
        """Return this after the attempt of a single record was stored."""
        return replace(self, attempts=self.attempts + 1)

    def passed(self, count: int, now_s: float) -> Caution:
        """Return this after so many more records are done or given up."""
        left = max(0, self.one_by_one - count)
        until_s = self.careful_until_s
        if left == 0 and until_s is None and self.careful_s > 0:
            until_s = now_s + self.careful_s
        return replace(self, one_by_one=left, careful_until_s=until_s, attempts=0)
