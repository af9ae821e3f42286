"""
How far a term has come, in memory and in the store.

`mark` is memory only and never goes back. The store follows: every interval, when a user asks, at every orderly end.
Positions are opaque, so records are told apart by a count of their own: the n-th record handed on in this term.

A user's transaction saves and marks at once: its records are done if and only if it was applied. Where that is in
doubt, as after a cancellation, the next save finds out first, so that reading goes on behind what was applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from partitions.leases import Lease
from partitions.transactions import TransactionInvalid

__all__ = ["Checkpointer"]


class Checkpointer:
    """The marks of one term, and their writes: at most one on its way, always of the newest mark that is wanted."""

    def __init__(self, lease: Lease, *, interval_s: float) -> None:
        self._lease = lease
        self._interval_s = interval_s
        self._one_save = anyio.Lock()
        self._marked = (0, lease.position)
        self._saved = (0, lease.position)
        self._in_doubt: tuple[int, str] | None = None
        """What a transaction would have marked that was sent and, as far as is known here, not applied."""
        self._wanted = anyio.Event()
        self._progressed = anyio.Event()
        self._waits = 0
        """How many wait for a mark: most terms never do, and mark all the time."""

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
            if self._waits:
                progressed, self._progressed = self._progressed, anyio.Event()
                progressed.set()

    async def wait_for(self, count: int) -> None:
        """Return once the first `count` records are marked."""
        self._waits += 1
        try:
            while self._marked[0] < count:
                await self._progressed.wait()
        finally:
            self._waits -= 1

    def save_soon(self) -> None:
        """Have `run` store the newest mark now rather than at its next interval."""
        self._wanted.set()

    async def save(self) -> None:
        """
        Store the newest mark; return once the store has it.

        Calls that wait while a write is on its way are served by one write together.

        Raises:
            LeaseLost: the lease has ended.
        """
        wanted, _ = self._marked
        async with self._one_save:
            await self._settle()
            if self._saved[0] >= wanted:
                return
            newest = self._marked
            await self._lease.checkpoint(newest[1])
            self._saved = newest

    async def commit(self, count: int, position: str, operations: Sequence[Any]) -> None:
        """
        Store that the first `count` records are done, together with a user's operations, or neither.

        Raises:
            LeaseLost: the lease has ended.
            TransactionInvalid: so many records are done already, perhaps by this very transaction in an earlier try.
            Exception: what the operations themselves raise; see `Lease.commit`.
        """
        async with self._one_save:
            await self._settle()
            if count <= self._marked[0]:
                raise TransactionInvalid(
                    f"the records up to {position!r} are marked as done already, so a crash would not bring this "
                    "transaction back; let each transaction go further in its batch than the one before, by upto=, "
                    "and let what it raises leave `process`"
                )
            self._in_doubt = (count, position)
            await self._lease.commit(position, operations)
            self._applied()

    async def settle(self) -> None:
        """
        Mark what a transaction has stored that was cancelled, or that failed, where that is in doubt.

        Raises:
            LeaseLost: the lease has ended.
        """
        if self._in_doubt is not None:
            async with self._one_save:
                await self._settle()

    async def _settle(self) -> None:
        if self._in_doubt is not None:
            if await self._lease.settled() == self._in_doubt[1]:
                self._applied()
            self._in_doubt = None

    def _applied(self) -> None:
        assert self._in_doubt is not None  # Set before it was sent.
        self._saved = self._in_doubt
        self.mark(*self._in_doubt)
        self._in_doubt = None

    async def run(self) -> None:
        """Store the newest mark every interval, or sooner where that is wanted, for as long as the lease is held."""
        while True:
            with anyio.move_on_after(self._interval_s):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            await self.save()
