"""
How far a term has come, in memory and in the store.

`mark` is memory only and never goes back. The store follows: every interval, when a user asks, at every orderly end.
Positions are opaque, so records are told apart by a count of their own: the n-th record handed on in this term.
"""

from __future__ import annotations

import anyio

from partitions.leases import Lease

__all__ = ["Checkpointer"]


class Checkpointer:
    """The marks of one term, and their writes: at most one on its way, always of the newest mark that is wanted."""

    def __init__(self, lease: Lease, *, interval_s: float) -> None:
        self._lease = lease
        self._interval_s = interval_s
        self._one_save = anyio.Lock()
        self._marked = (0, lease.position)
        self._saved = (0, lease.position)

    @property
    def marked(self) -> int:
        """How many records of this term are done, in memory."""
        return self._marked[0]

    @property
    def position(self) -> str:
        """The position up to which everything is done, in memory: where reading goes on after a failure."""
        return self._marked[1]

    @property
    def unsaved(self) -> str | None:
        """The position to be stored with a release; None where the store has it already."""
        return self._marked[1] if self._marked[0] > self._saved[0] else None

    def mark(self, count: int, position: str) -> None:
        """Note that the first `count` records of this term are done, the last of them at `position`."""
        if count > self._marked[0]:
            self._marked = (count, position)

    async def save(self) -> None:
        """
        Store the newest mark; return once the store has it.

        Calls that wait while a write is on its way are served by one write together.

        Raises:
            LeaseLost: the lease has ended.
        """
        wanted, _ = self._marked
        async with self._one_save:
            if self._saved[0] >= wanted:
                return
            newest = self._marked
            await self._lease.checkpoint(newest[1])
            self._saved = newest

    async def run(self) -> None:
        """Store the newest mark every interval, for as long as the lease is held."""
        while True:
            await anyio.sleep(self._interval_s)
            await self.save()
