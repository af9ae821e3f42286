"""
How far a term has come, in memory and in the store.

`mark` is memory only and never goes back. The store follows: every interval, when a user asks, at every orderly end.
Positions are opaque, so records are told apart by a count of their own: the n-th record handed on in this term.

A user's transaction saves and marks at once: its records are done if and only if it was applied. Where that is in
doubt, as after a cancellation, the next save finds out first, so that reading goes on behind what was applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio

from partitions.items import Prepared
from partitions.leases import Lease
from partitions.transactions import TransactionInvalid

__all__ = ["Checkpointer"]

IDLE_SHARE = 4
"""A weight that fell so far since it was stored is stored though there is nothing else to: once in minutes, at most."""


class Checkpointer:
    """The marks of one term, and their writes: at most one on its way, always of the newest mark that is wanted."""

    def __init__(self, lease: Lease, *, interval_s: float, weight: Callable[[], float] | None = None) -> None:
        """
        Begin at the stored checkpoint.

        Args:
            lease: Of the term.
            interval_s: Between two writes, seconds.
            weight: Returns what the partition weighs by now, which goes with each checkpoint; None where nobody weighs.
        """
        self._lease = lease
        self._weight = weight
        self._stored_weight = lease.weight
        self._interval_s = interval_s
        self._one_save = anyio.Lock()
        self._marked = (0, lease.position)
        self._saved = (0, lease.position)
        self._in_doubt: tuple[int, str] | None = None
        """What a transaction would have marked that was sent and, as far as is known here, not applied."""
        self.prepared: Prepared | None = lease.prepared
        """What is prepared and not checkpointed, by this term or an earlier one."""
        self._prepared_count = 0
        """The number of the record that it was prepared for; 0 where an earlier term did."""
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
            await self._store(self._marked)

    async def _store(self, newest: tuple[int, str]) -> None:
        keeps_prepared = self._keeps_prepared(newest[0])
        if self._weight is None:
            await self._lease.checkpoint(newest[1], keeps_prepared=keeps_prepared)
        else:
            weight = self._weight()
            await self._lease.checkpoint(newest[1], weight=weight, keeps_prepared=keeps_prepared)
            self._stored_weight = weight
        self._stored(newest)

    async def attempt(self) -> None:
        """
        Count a call that is about to begin with the first record that is not marked; stores the newest mark with it.

        Raises:
            LeaseLost: the lease has ended; do not begin the call.
        """
        async with self._one_save:
            await self._settle()
            newest = self._marked
            await self._lease.attempt(newest[1] if newest[0] > self._saved[0] else None)
            self._stored(newest)

    async def prepare(self, count: int, position: str, state: str) -> None:
        """
        Store a user's state beside the checkpoint, for the one that will say that `count` records are done.

        Raises:
            LeaseLost: the lease has ended.
            ValueError: the state is too long.
        """
        async with self._one_save:
            await self._lease.prepare(state, position)
            self.prepared, self._prepared_count = Prepared(state=state, position=position), count

    async def confirm(self) -> None:
        """
        Store the position for which an earlier term prepared something, before anything of this one is handed on.

        Raises:
            LeaseLost: the lease has ended.
            ValueError: nothing is prepared, or it was by this term.
        """
        if self.prepared is None or self._prepared_count or self._marked[0]:
            raise ValueError("nothing is prepared that an earlier term left; look at context.prepared first")
        async with self._one_save:
            position = self.prepared.position
            await self._lease.checkpoint(position)
            self._marked = self._saved = (0, position)
            self.prepared = None

    @property
    def keeps_prepared(self) -> bool:
        """Whether what is prepared is for a position behind the newest mark."""
        return self._keeps_prepared(self._marked[0])

    def _keeps_prepared(self, count: int) -> bool:
        return self.prepared is not None and count < self._prepared_count

    def _stored(self, newest: tuple[int, str]) -> None:
        is_news = newest[0] > self._saved[0]
        self._saved = newest
        if is_news and not self._keeps_prepared(newest[0]):
            self.prepared = None

    async def _save_weight(self) -> None:
        """Store the weight of a partition in which nothing happens any more: no checkpoint would tell of that."""
        if self._weight is not None and 0 < self._weight() < self._stored_weight / IDLE_SHARE:
            async with self._one_save:
                await self._settle()
                await self._store(max(self._marked, self._saved))

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
        self._stored(self._in_doubt)
        self.mark(*self._in_doubt)
        self._in_doubt = None

    async def run(self) -> None:
        """Store the newest mark every interval, or sooner where that is wanted, for as long as the lease is held."""
        while True:
            with anyio.move_on_after(self._interval_s):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            await self.save()
            await self._save_weight()
