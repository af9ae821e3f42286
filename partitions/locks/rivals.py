"""
The sessions that hold what others want: whether they are gone, and the fence of those that were seen dead.

Uses a store and a clock. Observed time, as everywhere (DESIGN rule 12): a contender notes on its own clock when an
answer showed a changed beat, and fences on condition of that very beat after the owner's whole duration without another
one. So nobody is hurried by a contender that has only just come, nor by one whose clock is set wrong.

A session is read after the lock that names it, strongly consistent (rule 13): it registered before it acquired, so one
that is missing then is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from partitions.clocks import Clock
from partitions.events import OnEvent, SessionFenced, tell
from partitions.items import LockItem
from partitions.liveness import LiveView, expired, expires_at_s, observe_one
from partitions.stores.base import Store
from partitions.verbs import Fence, Refused

__all__ = ["RIVALS_MAX", "Rivals", "Send"]

Send = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Makes one call of the store under the call time-out."""

RIVALS_MAX: Final = 1000
"""Sessions that are remembered at once; the one that was not asked about for longest is forgotten, and lives longer."""

LOOKS: Final = 12
"""Looks at a rival in its duration, for who waits: each may let it live by one interval longer than it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The last look at one session."""

    view: LiveView
    """Of this session alone."""
    at_s: float
    duration_s: float


class Rivals:
    """What this host has seen of the sessions that hold what it wants."""

    def __init__(
        self,
        store: Store,
        group: str,
        *,
        clock: Clock,
        send: Send,
        on_event: OnEvent | None,
    ) -> None:
        """
        Begin with nobody.

        Args:
            store: Where sessions are.
            group: The group's id.
            clock: This host's clock.
            send: Makes one call of the store, under the call time-out.
            on_event: Gets `SessionFenced`.
        """
        self._store = store
        self._group = group
        self._clock = clock
        self._send = send
        self._on_event = on_event
        self._looks: dict[str, _Look] = {}

    async def have_left(self, lock: LockItem | None, *, mine: str, is_waiting: bool) -> bool:
        """
        Say whether a lock may be acquired.

        Args:
            lock: As it was read; None where it has no item.
            mine: The session that wants it.
            is_waiting: Look at its owner no more often than who waits should.

        Raises:
            StoreUnavailable, StoreMisconfigured: as the contract of stores says.
        """
        if lock is None or lock.owner is None or lock.owner == mine:
            # This session's: its acquire was not answered, or its release. Nobody here holds it.
            return True
        if not lock.expires:
            return False
        if is_waiting and self._clock.now_s() < self.next_look_s(lock.owner):
            return False
        return await self.is_gone(lock.owner)

    def next_look_s(self, session_id: str) -> float:
        """Return when a waiting contender should look at a session again; -infinity where it has not looked yet."""
        look = self._looks.get(session_id)
        if look is None:
            return float("-inf")
        (seen,) = look.view.seen.values()
        return min(look.at_s + look.duration_s / LOOKS, max(look.at_s, expires_at_s(seen)))

    async def is_gone(self, session_id: str) -> bool:
        """
        Look at a session, and fence it where it was seen dead for its whole duration.

        Returns:
            True if the store has no such session; then every term of it has ended.

        Raises:
            StoreUnavailable, StoreMisconfigured: as the contract of stores says.
        """
        session = await self._send(lambda: self._store.read_session(self._group, session_id))
        if session is None:
            self._looks.pop(session_id, None)
            return True
        now_s = self._clock.now_s()
        before = self._looks.pop(session_id, None)
        view = observe_one(LiveView.empty() if before is None else before.view, session, now_s)
        self._looks[session_id] = _Look(view=view, at_s=now_s, duration_s=session.duration_s)
        if len(self._looks) > RIVALS_MAX:
            del self._looks[next(iter(self._looks))]
        for name, beat in expired(view, now_s):
            verb = Fence(session_id=name, seen_beat=beat)
            result = await self._send(partial(self._store.submit, self._group, verb))
            if isinstance(result, Refused) and result.current is not None:
                # It lives: its beat had moved since the read.
                seen = observe_one(view, result.current, self._clock.now_s())
                self._looks[session_id] = _Look(view=seen, at_s=seen.at_s, duration_s=session.duration_s)
                return False
            self._looks.pop(session_id, None)
            if not isinstance(result, Refused):
                unchanged_s = now_s - view.seen[name].since_s
                tell(
                    self._on_event,
                    SessionFenced(session_id=name, host_id=session.host_id, unchanged_s=unchanged_s),
                )
            return True
        return False
