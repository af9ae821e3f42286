"""
News of the group: what a balancer's round tells, beside what it does.

Knows no store; it is given what the round has read. Each session is named once for each thing that is odd about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable

from partitions.events import OnEvent, tell
from partitions.items import LeaseItem, SessionItem
from partitions.liveness import LiveView, expires_at_s, is_silent
from processor_host.events import GroupSeen, SameHostId, WaitingForSession

__all__ = ["GroupNews"]


class GroupNews:
    """Tells how the partitions stand, for whom leases wait, and who else has this host's id."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self._waited_for: set[str] = set()
        self._namesakes: dict[str, int | None] = {}
        """The beat at which each was first seen; None once it was told of."""
        self._unowned_since_s: dict[str, float] = {}
        """When each partition without an owner was first seen so."""

    def round_done(
        self,
        leases: Iterable[LeaseItem],
        sessions: Iterable[SessionItem],
        view: LiveView,
        *,
        session_id: str,
        host_id: str,
        plannable: Container[str],
        now_s: float,
    ) -> None:
        """
        Tell what is new after one round.

        Args:
            leases: All leases as last read.
            sessions: All sessions as last read.
            view: When each of them was last seen to beat.
            session_id: This host's session.
            host_id: This host.
            plannable: The partitions that some host should have: not paused or ended, and not waiting for a parent.
            now_s: This host's clock.
        """
        sessions = tuple(sessions)
        leases = tuple(leases)
        living = {session.session_id for session in sessions}
        states = Counter(_state_of(lease, living) for lease in leases)
        unowned = (each.partition for each in leases if each.partition in plannable and each.owner not in living)
        # Only what still has no owner is remembered: whatever loses its next one begins anew.
        self._unowned_since_s = {each: self._unowned_since_s.get(each, now_s) for each in unowned}
        tell(
            self._on_event,
            GroupSeen(
                owned=states["owned"],
                free=states["free"],
                paused=states["paused"],
                ended=states["ended"],
                unowned_s=now_s - min(self._unowned_since_s.values(), default=now_s),
            ),
        )
        for other in sessions:
            if other.session_id == session_id:
                continue
            if other.host_id == host_id:
                self._name_if_it_beats(other, session_id)
            self._name_if_silent(other, leases, view, now_s)

    def _name_if_it_beats(self, other: SessionItem, session_id: str) -> None:
        first_beat = self._namesakes.setdefault(other.session_id, other.beat)
        # Only one that beats while this session lives is another host; one that does not is this host's earlier life.
        if first_beat is not None and other.beat > first_beat:
            self._namesakes[other.session_id] = None
            tell(self._on_event, SameHostId(host_id=other.host_id, session_ids=(session_id, other.session_id)))

    def _name_if_silent(self, other: SessionItem, leases: Iterable[LeaseItem], view: LiveView, now_s: float) -> None:
        seen = view.seen.get(other.session_id)
        if seen is None or not is_silent(seen, now_s):
            return
        waiting = sum(lease.owner == other.session_id for lease in leases)
        if waiting and other.session_id not in self._waited_for:
            self._waited_for.add(other.session_id)
            tell(
                self._on_event,
                WaitingForSession(
                    session_id=other.session_id,
                    host_id=other.host_id,
                    leases=waiting,
                    left_s=max(0.0, expires_at_s(seen) - now_s),
                ),
            )


def _state_of(lease: LeaseItem, living: set[str]) -> str:
    if lease.finished:
        return "ended"
    if lease.paused:
        return "paused"
    return "owned" if lease.owner in living else "free"
