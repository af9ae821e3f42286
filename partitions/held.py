"""
The terms that one session holds, and the writes of them that are on their way.

Knows no store. A partition is *busy* while a term of it goes on here, or an acquire or a release of it waits for its
answer: at most one acquire per partition is on its way (rule 8), and what is being released is not taken for an acquire
whose answer was lost.

Written on the session's loop. Its beats, which may run in a thread, ask `is_open`, and must not find a term between two
states: from acquiring to held to releasing each state begins before the one before it ends. It looks at them in the
order acquiring, releasing, held; so only a term that ends while it looks could be missed, and waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from partitions.events import Asked, EndReason, OnEvent, tell
from partitions.items import LeaseItem, parse_ask_key
from partitions.leases import Lease
from partitions.table import SessionTable
from partitions.terms import Term

__all__ = ["HeldTerms"]


class HeldTerms:
    """
    What goes on here, by partition.

    Attributes:
        leases: The terms that have not ended; read only for everybody else.
        releasing: Partitions whose term has ended here while the write that frees them is on its way.
    """

    def __init__(self, session_id: str, table: SessionTable, on_event: OnEvent | None) -> None:
        self.leases: dict[str, Lease] = {}
        self.releasing: set[str] = set()
        self._acquiring: set[str] = set()
        self._is_over = False
        self._at_end: list[Callable[[], object]] = []
        self._ending = Lock()
        """Held by a term that ends, and by who looks at all three states."""
        self._session_id = session_id
        self._table = table
        self._on_event = on_event

    def is_busy(self, partition: str) -> bool:
        """Say whether a term of the partition goes on here, or an acquire or release of it waits for its answer."""
        return partition in self.leases or partition in self._acquiring or partition in self.releasing

    def is_open(self, partition: str, token: int) -> bool:
        """Say whether this very term goes on here, or may still begin or be on its way to the store."""
        with self._ending:
            if partition in self._acquiring or partition in self.releasing:
                return True
            lease = self.leases.get(partition)
            return lease is not None and lease.token == token

    @contextmanager
    def acquiring(self, partition: str) -> Iterator[None]:
        """Mark that an acquire waits for its answer; `begin` comes inside, so that an ask finds one or the other."""
        self._acquiring.add(partition)
        try:
            yield
        finally:
            self._acquiring.discard(partition)

    def begin(self, lease: Lease) -> None:
        """Hold a term that has just begun; an ask for it may be known already."""
        self.leases[lease.partition] = lease
        if self._table.is_asked(lease.key):
            lease.asked.set()

    def ended(self, lease: Term) -> None:
        """Drop a term that has ended."""
        with self._ending:
            if self.leases.get(lease.partition) is lease:
                del self.leases[lease.partition]

    def pass_on(self, key: str, asker: str) -> None:
        """Tell the term that an ask names, if it is held here, to drain."""
        try:
            partition, token = parse_ask_key(key)
        except ValueError:
            # Not written by this product; it names no term.
            return
        lease = self.leases.get(partition)
        is_held = lease is not None and lease.token == token
        if lease is not None and is_held:
            lease.asked.set()
        left_s = self._table.remaining_s(key)
        tell(self._on_event, Asked(partition=partition, token=token, asker=asker, left_s=left_s, held=is_held))

    def compare(self, items: Iterable[LeaseItem]) -> None:
        """
        End each term that a read of the store contradicts, and drain each that is paused (rule 6).

        A page that was read just before one's own acquire landed shows an older token; that ends nothing.
        """
        for item in items:
            lease = self.leases.get(item.partition)
            if lease is None or item.token < lease.token:
                continue
            if item.token > lease.token or item.owner != self._session_id:
                lease.end(EndReason.SEEN_TAKEN)
            elif item.paused:
                lease.asked.set()

    def end_overdue(self) -> float:
        """End each term whose time is over; return when the next one's will be (infinity where none is held)."""
        for lease in tuple(self.leases.values()):
            if not lease.is_held():
                lease.end(lease.reason_of_time())
        return min((self._table.until_s(lease.key) for lease in self.leases.values()), default=math.inf)

    def end_all(self) -> None:
        """End every term, and what else lives as long: the session is over."""
        self._is_over = True
        for lease in tuple(self.leases.values()):
            lease.end(EndReason.SESSION_ENDED)
        for do in self._at_end:
            do()

    def at_end(self, do: Callable[[], object]) -> None:
        """Call `do` with `end_all`; at once where that was."""
        if self._is_over:
            do()
        else:
            self._at_end.append(do)
