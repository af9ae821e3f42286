"""
A bounded replay: where each partition ends for this host, and what has ended here.

Knows no pump and no lease beyond its partition's name. A partition that is over stays with the host, its processor
closed, until the whole host is done: given back, it would be taken and opened again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

import anyio

from partitions.errors import SourceUnavailable
from partitions.events import OnEvent, tell
from partitions.items import LeaseItem, SessionItem
from partitions.retries import Waits, is_cancelled
from partitions.sources.base import Source
from processor_host.discovery import Listing
from processor_host.ends import End, Until, UntilLatest, end_of
from processor_host.errors import UserError
from processor_host.events import ReadFailed, ReplayDone

__all__ = ["Replay"]

WAITS = Waits(first_s=0.2, most_s=10.0)
CALL_S = 10.0
"""How long the source may take to say where a partition ended as the host started."""


class Replay:
    """
    The ends of one host's partitions.

    Attributes:
        ends: By partition, once found.
        handled: Partitions that are over here, with the records done or given up in all of their terms here.
        parked: Those of them whose lease is held now.
        error: Why no end can be found, where that is so; the host ends with it.
    """

    def __init__(
        self,
        until: Until,
        *,
        source: Source,
        latest: str | None,
        random: Random,
        on_event: OnEvent | None,
        on_change: Callable[[], None],
    ) -> None:
        """
        Keep what is needed to tell ends.

        Args:
            until: What the user gave.
            source: An open source.
            latest: For `UntilLatest`, what "latest" resolved to as the host started.
            random: Spreads the waits after a failure of the source.
            on_event: Gets `ReadFailed`.
            on_change: Called when a partition is over, and when something is wrong.
        """
        self.ends: dict[str, End] = {}
        self.handled: dict[str, int] = {}
        self.parked: set[str] = set()
        self.error: UserError | None = None
        self._until = until
        self._source = source
        self._latest = latest
        self._random = random
        self._on_event = on_event
        self._on_change = on_change
        self._beats: dict[str, int] = {}
        """Of the other sessions, at the first look after something changed here."""
        self._is_new = True

    def check(self) -> None:
        """
        Return if nothing went wrong.

        Raises:
            UserError: no end could be found.
        """
        if self.error is not None:
            raise self.error

    async def find_end(self, partition: str) -> None:
        """Find out where a partition is over; tries again for as long as the source does not say."""
        attempt = 0
        while partition not in self.ends:
            try:
                self.ends[partition] = await self._look_up(partition)
            except Exception as error:  # Containment: whatever a source raises, this partition tries again.
                attempt += 1
                pause_s = WAITS.after(attempt, self._random)
                text = f"{type(error).__name__}: {error}"
                tell(self._on_event, ReadFailed(partition=partition, error=text, attempt=attempt, pause_s=pause_s))
                await anyio.sleep(pause_s)

    def count(self, partition: str, handled: int) -> None:
        """Add what one term has handled."""
        self.handled[partition] = self.handled.get(partition, 0) + handled

    def park(self, partition: str) -> None:
        """Note that a partition is over and its lease is kept."""
        self.parked.add(partition)
        self._is_new = True
        self._on_change()

    def left(self, partition: str) -> None:
        """Note that the lease of a partition is no longer kept."""
        self.parked.discard(partition)

    def failed(self, error: UserError) -> None:
        """Note that the end of a partition cannot be found, ever."""
        self.error = self.error or error
        self._on_change()

    def is_done(
        self,
        leases: Mapping[str, LeaseItem],
        sessions: Iterable[SessionItem],
        listing: Listing | None,
        session_id: str,
    ) -> bool:
        """
        Say whether nothing is left for this host: every partition is over here, finished, paused, or another host's.

        What another host holds is its own to end, as long as it is alive: its beat has moved since the last partition
        was over here, and it is not draining. A host that has just died looks alive until then, and if this one left
        too, nobody would end what it held. If that one leaves first, its partitions come here, and are over at once
        where it had come so far.

        Args:
            leases: All leases as last read.
            sessions: All sessions as last read.
            listing: What the source listed last; None before the first time.
            session_id: This host's session.
        """
        if self.error is not None:
            return True
        if listing is None or not listing.partitions <= leases.keys():
            return False
        sessions = [session for session in sessions if session.session_id != session_id]
        if self._is_new:
            self._beats = {session.session_id: session.beat for session in sessions}
            self._is_new = False
        others = {
            session.session_id
            for session in sessions
            if not session.draining and session.beat > self._beats.get(session.session_id, -1)
        }

        def is_over(lease: LeaseItem) -> bool:
            if lease.finished or lease.paused or lease.partition in self.parked or lease.owner in others:
                return True
            # A child begins once its parent is finished; one whose parent is kept at its end, or paused, never does.
            parents = [leases[parent] for parent in lease.parents if parent in leases]
            return lease.token == 0 and any(not parent.finished and is_over(parent) for parent in parents)

        return all(is_over(lease) for lease in leases.values())

    def done(self) -> ReplayDone:
        """Return what is told once nothing is left."""
        partitions = tuple(sorted(self.handled))
        return ReplayDone(partitions=partitions, handled=tuple(self.handled[name] for name in partitions))

    async def _look_up(self, partition: str) -> End:
        if not isinstance(self._until, UntilLatest):
            return end_of(self._until, partition)
        assert self._latest is not None  # Resolved at the start.
        try:
            with anyio.fail_after(CALL_S):
                position = await self._source.first_position(partition, self._latest)
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled():
                raise
            # The source's own; passed on it would end the pump without a word.
            raise SourceUnavailable("something that the call waited for was cancelled") from error
        return end_of(self._until, partition, latest=position)
