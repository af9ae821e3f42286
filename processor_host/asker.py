"""
The asker: asks owners for the leases that the plan gives to this host, and takes them once they are released.

It reads only the leases it has asked for, several times a second, until they are free or the wait is over. Force is the
exception (rule 14): only after the owner's whole hand-off time, stretched by the drift, since the ask was answered as
applied or was seen standing in the owner's item; on condition of the owner and token that the ask names; and with a
valid session of one's own. By then the old term has ended on its own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import anyio

from partitions.clocks import CLOCK_DRIFT, Clock
from partitions.errors import StoreError
from partitions.items import ASKS_MAX, LeaseItem, SessionItem, ask_key
from partitions.leases import Lease
from partitions.retries import call
from partitions.sessions import Session
from partitions.stores.base import Store
from partitions.verbs import Applied, Ask

__all__ = ["ASK_LOOK_S", "Asker", "Pending"]

ASK_LOOK_S = 0.25
"""How often the leases that were asked for are read: what a hand-off may rest unowned, at one small read."""

READ_AT_ONCE = 100
"""Leases in one read, as in the contract of the store."""


OnLease = Callable[[Lease], None]
"""Starts the pump of a term that has just begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An ask that stands."""

    lease: LeaseItem
    """As it was seen when it was asked for: the owner and the token that the ask names."""
    force_at_s: float
    """From when on it may be taken from an owner that has not released it, on this host's clock."""


class Asker:
    """The asks of one session; `on_over` is called where a lease that it waits for has moved on without it."""

    def __init__(
        self,
        session: Session,
        *,
        store: Store,
        group: str,
        clock: Clock,
        call_timeout_s: float,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._store = store
        self._group = group
        self._clock = clock
        self._call_timeout_s = call_timeout_s
        self._on_over = on_over
        self._pending: dict[str, Pending] = {}
        self._added = anyio.Event()

    @property
    def pending(self) -> frozenset[str]:
        """The keys of the asks that this host waits for."""
        return frozenset(self._pending)

    async def ask(self, owner: SessionItem, leases: Iterable[LeaseItem]) -> int:
        """
        Ask one owner for leases, in one request; once more without those that were asked for already.

        Returns:
            How many asks were added to the owner's item.

        Raises:
            StoreError: no answer, or a broken store; the plan will show whether the ask stands.
        """
        wanted = [lease for lease in leases if ask_key(lease.partition, lease.token) not in self._pending]
        current: SessionItem | None = owner
        for _ in range(2):
            if current is None:
                return 0
            room = ASKS_MAX - len(current.asks)
            standing = current.asks
            free = [lease for lease in wanted if ask_key(lease.partition, lease.token) not in standing][:room]
            self.follow((lease for lease in wanted if ask_key(lease.partition, lease.token) in standing), current)
            if not free or not self._session.is_valid:
                return 0
            verb = Ask(
                session_id=owner.session_id,
                keys=tuple(ask_key(lease.partition, lease.token) for lease in free),
                asker=self._session.session_id,
            )
            result = await call(partial(self._store.submit, self._group, verb), self._call_timeout_s)
            if isinstance(result, Applied):
                self.follow(free, owner)
                return len(free)
            current = result.current
        return 0

    def follow(self, leases: Iterable[LeaseItem], owner: SessionItem) -> None:
        """Wait for leases whose ask was just answered as applied, or was just seen standing in the owner's item."""
        force_at_s = self._clock.now_s() + owner.handoff_s * (1 + CLOCK_DRIFT)
        for lease in leases:
            key = ask_key(lease.partition, lease.token)
            if key not in self._pending:
                self._pending[key] = Pending(lease=lease, force_at_s=force_at_s)
                self._added.set()

    async def run(self, on_lease: OnLease) -> None:
        """Look after what was asked for, for as long as the session lives; give each term that begins to `on_lease`."""
        while True:
            if not self._pending:
                self._added = anyio.Event()
                await self._added.wait()
            await anyio.sleep(ASK_LOOK_S)
            if self._session.draining or not self._session.is_valid:
                # Whoever may take them will: a draining asker counts for nobody's plan.
                self._pending.clear()
                continue
            pending = list(self._pending.items())
            async with anyio.create_task_group() as tasks:
                for start in range(0, len(pending), READ_AT_ONCE):
                    tasks.start_soon(self._look, dict(pending[start : start + READ_AT_ONCE]), on_lease, name="look")

    async def _look(self, pending: dict[str, Pending], on_lease: OnLease) -> None:
        partitions = [entry.lease.partition for entry in pending.values()]
        try:
            items = await call(
                lambda: self._store.read_some_leases(self._group, partitions), self._call_timeout_s
            )
        except StoreError:
            # The next look tries again.
            return
        found = {item.partition: item for item in items}
        async with anyio.create_task_group() as tasks:
            for key, entry in pending.items():
                item = found.get(entry.lease.partition)
                reason = self._reason_to_take(entry, item)
                if reason == "over" or item is None:
                    self._pending.pop(key, None)
                    # It was planned on a lease that has since moved on; asked for again as it was, nobody would answer.
                    self._on_over()
                elif reason is not None:
                    tasks.start_soon(self._take, key, item, reason, on_lease, name=f"take {key}")

    def _reason_to_take(self, entry: Pending, item: LeaseItem | None) -> str | None:
        """Return "asked" (it was released), "forced" (the wait is over), "over" (nothing to wait for), or None."""
        if item is None or item.token != entry.lease.token or item.paused or item.finished:
            return "over"
        if item.owner is None:
            return "asked"
        if item.owner != entry.lease.owner:
            return "over"
        return "forced" if self._clock.now_s() >= entry.force_at_s else None

    async def _take(self, key: str, item: LeaseItem, reason: str, on_lease: OnLease) -> None:
        try:
            lease = await self._session.acquire(item, reason=reason)
        except Exception:
            # Unanswered: a later look finds the token raised, and the plan resolves what became of it (rule 8). Or
            # something odd about one lease, which must not end the rounds of all; a later look tries again.
            return
        self._pending.pop(key, None)
        if lease is not None:
            on_lease(lease)
