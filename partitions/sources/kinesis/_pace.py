"""
The pace of reading one shard: when the next read may go out.

Knows no call and reads no clock: it is told what became of each read and when that was sent.

Theory of operation. Kinesis allows five reads and 2 MiB a second for one shard, to all its readers together
(https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html). One host takes at most two reads a
second, which leaves room for others, and waits after a large answer as long as its bytes take at 2 MiB/s. A read that
brought nothing, from the end of the shard, is followed by the idle pause. Refused reads are followed by growing pauses,
spread at random so that readers which met do not meet again; the first that is answered ends them. The longest is below
ten seconds: so soon is reading back once the others have gone.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

from partitions.retries import Waits

__all__ = ["BUSY_S", "IDLE_S", "THROTTLED", "Pace"]

READ_BYTES_PER_S: Final = 2 * 1024 * 1024  # Kinesis limit per shard, all readers together.
BUSY_S: Final = 0.5
"""Between two reads while there is something to read, seconds: two of the five a second."""
IDLE_S: Final = 1.0
"""Between two reads of a shard without news, seconds."""
JITTER: Final = 0.2
"""How much longer a pause may be, so that many shards are not read in step; never shorter."""
THROTTLED: Final = Waits(first_s=0.5, most_s=8.0)


class Pace:
    """
    When one shard may be read.

    Attributes:
        due_s: The earliest moment of the next read, on the clock of the caller; at once at first.
    """

    def __init__(self, random: Random, *, idle_s: float = IDLE_S) -> None:
        self.due_s = -math.inf
        self._random = random
        self._idle_s = idle_s
        self._busy_s = min(BUSY_S, idle_s)
        self._refusals = 0

    def answered(self, sent_s: float, *, bytes_read: int, is_idle: bool) -> None:
        """
        Note a read that was answered.

        Args:
            sent_s: When it was sent, on the caller's clock.
            bytes_read: The payload that it brought.
            is_idle: It brought nothing, and there was nothing.
        """
        self._refusals = 0
        pause_s = max(self._idle_s if is_idle else self._busy_s, bytes_read / READ_BYTES_PER_S)
        self.due_s = sent_s + pause_s * (1 + JITTER * self._random.random())

    def throttled(self, at_s: float) -> None:
        """Note that a call was refused, because all readers together ask too often or for too much."""
        self._refusals += 1
        self.due_s = at_s + THROTTLED.after(self._refusals, self._random)
