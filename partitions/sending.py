"""
How one write of a term is sent: again and again while the term is held, and what a refusal means.

Knows a store and, of the term, only what `Term` says; it starts no task. Each save carries a number (`seq`) that no
other save of the term has. So a refusal that shows the sender's own owner and token, and this number or a higher one,
is the sender's own earlier success whose answer was lost (rule 9); any other ends the term.
"""

from __future__ import annotations

from random import Random
from typing import Final, NoReturn, Protocol

import anyio

from partitions.errors import StoreError
from partitions.events import CheckpointFailed, OnEvent, tell
from partitions.items import LeaseItem
from partitions.retries import Waits, call
from partitions.stores.base import Store
from partitions.verbs import Applied, Attempt, Complete, Pause, Prepare, Refused, Release, Result, SaveCheckpoint

__all__ = ["RELEASES_MAX", "Save", "Sending", "Term"]

RELEASES_MAX: Final = 3
"""Tries of a release; after that a snapshot shows what became of it, and the session's end frees the lease anyway."""

Save = SaveCheckpoint | Attempt | Prepare
"""What uses up a number."""


class Term(Protocol):
    """What sending needs of the term to which a write belongs."""

    partition: str
    token: int

    def ensure_held(self) -> None:
        """Raise LeaseLost where the term has ended."""
        ...

    def remaining_s(self) -> float:
        """Return how long it goes on, seconds."""
        ...

    def refused(self, position: str, current: LeaseItem | None) -> NoReturn:
        """End the term, which the store has under another owner or token, and raise LeaseLost."""
        ...


class Sending:
    """
    Sends the writes of one term.

    Attributes:
        store: Where to.
        group: The group of the lease.
        owner: The session id of the holder.
    """

    def __init__(
        self,
        term: Term,
        *,
        store: Store,
        group: str,
        owner: str,
        random: Random,
        call_timeout_s: float,
        on_event: OnEvent | None,
    ) -> None:
        self.store = store
        self.group = group
        self.owner = owner
        self._term = term
        self._random = random
        self._call_timeout_s = call_timeout_s
        self._on_event = on_event

    async def until_stored(self, save: Save, position: str) -> LeaseItem:
        """
        Send a save until it is stored.

        Args:
            save: What is sent.
            position: The position that it is about, for people.

        Returns:
            The lease as the store has it.

        Raises:
            LeaseLost: the term has ended, or the store holds another owner or token (then the term ends here).
        """
        result = await self.while_held(save)
        if not isinstance(result, Applied) and not self.is_stored(result.current, save):
            self._term.refused(position, result.current)
        item = result.item if isinstance(result, Applied) else result.current
        assert item is not None  # No save deletes the lease, and nothing is stored in one that is not there.
        return item

    async def while_held(self, verb: Save | Pause) -> Result[LeaseItem]:
        """
        Send a write until it is answered.

        Raises:
            LeaseLost: the term has ended first.
        """
        attempt = 0
        while True:
            self._term.ensure_held()
            attempt += 1
            try:
                return await call(lambda: self.store.submit(self.group, verb), self.timeout_s())
            except StoreError as error:
                await self.failed(str(error), attempt)

    async def free(self, verb: Release | Complete) -> str | None:
        """Send the write that frees the lease, a few times; return what is wrong, or None where it is free."""
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await call(lambda: self.store.submit(self.group, verb), self._call_timeout_s)
            except StoreError as error:
                if attempt >= RELEASES_MAX:
                    return str(error)
                await anyio.sleep(self._wait_s(attempt))
                continue
            if isinstance(result, Applied):
                return None
            # Free under the same token is one's own release whose answer was lost, a higher token the next owner.
            current = result.current
            is_free = current is None or current.token > self._term.token or current.owner is None
            return None if is_free else f"the store has owner {current.owner!r}" if current else None

    async def look_for(self, save: Save) -> Applied[LeaseItem] | Refused[LeaseItem] | None:
        """Read the lease: say whether this save is in it, or that it is another's; None where it shows neither."""
        try:
            found = await call(lambda: self.store.read_lease(self.group, save.partition), self.timeout_s())
        except StoreError:
            return None
        if self.is_stored(found, save):
            return Applied(item=found)
        return None if found is not None and self.is_mine(found) else Refused(current=found)

    async def failed(self, error: str, attempt: int) -> None:
        """Tell of a try that failed, and wait before the next."""
        term = self._term
        tell(
            self._on_event,
            CheckpointFailed(partition=term.partition, token=term.token, error=error, attempt=attempt),
        )
        await anyio.sleep(min(self._wait_s(attempt), term.remaining_s()))

    def timeout_s(self) -> float:
        """Return how long one call may take."""
        return min(self._call_timeout_s, self._term.remaining_s())

    def is_mine(self, current: LeaseItem) -> bool:
        """Say whether the store has the lease as this term's."""
        return current.owner == self.owner and current.token == self._term.token

    def is_stored(self, current: LeaseItem | None, save: Save) -> bool:
        """Say whether a save is stored although it was refused or not answered: its first answer was lost (rule 9)."""
        return current is not None and self.is_mine(current) and current.seq >= save.seq

    def _wait_s(self, attempt: int) -> float:
        return Waits(first_s=self._call_timeout_s / 8, most_s=self._call_timeout_s).after(attempt, self._random)
