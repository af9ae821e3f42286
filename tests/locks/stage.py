"""
The stage of lock tests: one store behind a faulty network, and sessions of one group that contend, in virtual time.

Each session has a place of its own on the network, which can be cut off, and a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from partitions.clocks import CLOCK_DRIFT
from partitions.items import LockItem
from partitions.locks import LockLease, Session
from tests.stage import GROUP, JumpingClock, Stage
from tests.world.network import Call, Network, PlaceStore

__all__ = ["BEAT_S", "CALL_S", "DURATION_S", "EXPIRY_S", "POLL_S", "VALIDITY_S", "LockStage", "of"]

DURATION_S = 6.0
BEAT_S = DURATION_S / 3
CALL_S = DURATION_S / 6
POLL_S = 0.25
VALIDITY_S = DURATION_S * (1 - CLOCK_DRIFT)
"""How long a session holds after the sending of a beat."""
EXPIRY_S = DURATION_S * (1 + CLOCK_DRIFT)
"""How long a contender watches a session that does not beat before it fences it."""


class _AtPlace(PlaceStore):
    """The store as one place sees it, whatever task calls it."""

    def __init__(self, network: Network, place: str) -> None:
        super().__init__(network)
        self._place = place

    async def _carry(self, operation: str, apply: Callable[[], Any], **about: Any) -> Any:
        return await self._network.carry(Call(place=self._place, operation=operation, **about), apply)


class LockStage(Stage):
    """A store, a network, and contenders for its locks."""

    def __init__(self, *, latency_s: float = 0.02) -> None:
        super().__init__(partitions=0, latency_s=latency_s)
        self.clocks: dict[str, JumpingClock] = {}
        """By host id, of the last contender of that name."""
        self._contenders = 0

    def contender(self, host_id: str = "a", /, **more: Any) -> Session:
        """A session that has not begun; its place on the network has the name of its host unless `host_id` is given."""
        self._contenders += 1
        self.clocks[host_id] = JumpingClock(offset_s=1000.0 * self._contenders)
        values: dict[str, Any] = {"duration_s": DURATION_S, "poll_s": POLL_S, "on_event": self.tell} | more
        return Session(
            _AtPlace(self.network, host_id),
            group=GROUP,
            random=Random(self._contenders),
            extra={"pid": 7, "host_name": "h"},
            **{"host_id": host_id, "clock": self.clocks[host_id], **values},
        )

    def cut(self, host_id: str) -> None:
        """Let no request of a host arrive any more."""
        self.network.cut_off.add(host_id)

    def mend(self, host_id: str) -> None:
        """End a cut."""
        self.network.cut_off.discard(host_id)

    def lock(self, name: str = "nightly") -> LockItem | None:
        """Return a lock as it is stored, without what is for people."""
        item = self.store.lock_now(GROUP, name)
        return (
            None
            if item is None
            else LockItem(name=item.name, owner=item.owner, token=item.token, expires=item.expires, holder=item.holder)
        )

    def free(self, token: int, name: str = "nightly", *, expires: bool = True) -> LockItem:
        """What a free lock looks like."""
        return LockItem(name=name, token=token, expires=expires)

    def held_by(self, session: Session, token: int, name: str = "nightly", *, expires: bool = True) -> LockItem:
        """What a lock looks like that the present session of a contender holds."""
        owner = session.session_id
        return LockItem(name=name, owner=owner, token=token, expires=expires, holder=session.host_id)

    def forget(self, name: str = "nightly") -> None:
        """Delete a lock's item, as somebody does by hand."""
        assert self.store._groups is not None
        del self.store._groups[GROUP].locks[name]


def of(lease: LockLease | None) -> LockLease:
    """The lease, which is there."""
    assert lease is not None
    return lease
