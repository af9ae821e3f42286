"""
The watch over a group: keeps what the status page and the health check tell of, from events and from looks.

Knows no store, no HTTP and no browser. The host gives it every event; whoever has read the items tells `GroupSeen`
after each round, and what it knows is noted then. All of it is bounded by the number of partitions, sessions and kept
changes. Events may come from the thread of the session; the rest is of the main loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from partitions.events import CheckpointSaved, Event, LeaseAcquired, LeaseReleased, SessionBegan, SessionEnded
from partitions.items import LeaseItem, SessionItem
from partitions.liveness import LiveView, observe
from processor_host.events import GroupSeen
from processor_host.page.changes import Changes, note_freed, note_look, note_taken
from processor_host.page.picture import Material
from processor_host.stuck import Stuck

__all__ = ["GroupWatch", "Known"]


class Known(Protocol):
    """Who has read the items of a group: the balancer of the host."""

    leases: dict[str, LeaseItem]
    """All leases, as last read."""
    sessions: tuple[SessionItem, ...]
    """All sessions, as last read; after the leases."""


class GroupWatch:
    """
    Keeps what one host knows of its group.

    Args:
        group: Its name.
        source: The URL of the stream.
        host_id: This host.
        clock: Shows seconds.
        stuck: Keeps the progress of this host's partitions; it is told every event too.
    """

    def __init__(
        self,
        *,
        group: str,
        source: str,
        host_id: str,
        clock: Callable[[], float],
        stuck: Stuck,
    ) -> None:
        self._group = group
        self._source = source
        self._host_id = host_id
        self._clock = clock
        self._stuck = stuck
        self._known: Known | None = None
        self._session_id: str | None = None
        self._leases: tuple[LeaseItem, ...] = ()
        self._sessions: tuple[SessionItem, ...] = ()
        self._view = LiveView.empty()
        self._changes = Changes()
        self._own: dict[str, tuple[int, str | None]] = {}
        """Partition → token and owner, as this host has written them since: a look may be older."""
        self._saved: dict[str, tuple[int, str]] = {}
        """Partition → token and position, as this host has stored them since; looks may be an audit apart."""
        self._lock = threading.Lock()

    @property
    def now_s(self) -> float:
        """The host's clock."""
        return self._clock()

    def follow(self, known: Known) -> None:
        """Take the items from there, each time that `GroupSeen` is told."""
        self._known = known

    def on_event(self, event: Event) -> None:
        """Note what a host tells; what means nothing here is ignored."""
        if isinstance(event, GroupSeen):
            if self._known is not None:
                self.look(self._known.leases.values(), self._known.sessions)
            return
        with self._lock:
            now_s = self._clock()
            match event:
                case SessionBegan(session_id=session_id):
                    self._session_id = session_id
                case SessionEnded(session_id=session_id) if session_id == self._session_id:
                    self._session_id = None
                case LeaseAcquired():
                    self._note_acquired(event, now_s)
                case CheckpointSaved(partition=partition, token=token, position=position):
                    self._saved[partition] = token, position
                case LeaseReleased(partition=partition, token=token, position=position):
                    if position is not None:
                        self._saved[partition] = token, position
                    self._own[partition] = (token, None)
                    self._changes = note_freed(self._changes, partition=partition, token=token, now_s=now_s)

    def look(self, leases: Collection[LeaseItem], sessions: Collection[SessionItem]) -> None:
        """
        Note what is known of the group.

        Args:
            leases: All leases, as last read.
            sessions: All sessions, as last read; after the leases.
        """
        with self._lock:
            now_s = self._clock()
            tokens = {lease.partition: lease.token for lease in leases}
            # What the store has gone beyond is not this host's any more.
            self._own = {
                partition: (token, owner)
                for partition, (token, owner) in self._own.items()
                if token >= tokens.get(partition, token + 1)
            }
            self._saved = {
                partition: (token, position)
                for partition, (token, position) in self._saved.items()
                if token >= tokens.get(partition, token + 1)
            }
            self._leases = tuple(self._with_own(lease) for lease in leases)
            self._sessions = tuple(sessions)
            self._view = observe(self._view, self._sessions, now_s)
            self._changes = note_look(self._changes, self._leases, self._sessions, now_s)

    def material(self) -> Material:
        """Return all that a picture is made of, as of this moment."""
        with self._lock:
            return Material(
                group=self._group,
                source=self._source,
                host_id=self._host_id,
                session_id=self._session_id,
                leases=tuple(self._with_own(lease) for lease in self._leases),
                sessions=self._sessions,
                view=self._view,
                progress=self._stuck.progress(),
                changes=self._changes.last,
                has_looked=self._changes.has_looked,
                now_s=self._clock(),
                stall_limit_s=self._stuck.limit_s,
            )

    def without_progress(self) -> list[Mapping[str, Any]]:
        """Return the partitions of this host that do not move while records wait, the longest first, for a person."""
        return self._stuck.named()

    def _note_acquired(self, event: LeaseAcquired, now_s: float) -> None:
        self._own[event.partition] = (event.token, self._session_id)
        self._changes = note_taken(
            self._changes,
            partition=event.partition,
            token=event.token,
            host=self._host_id,
            before=None if event.previous_owner is None else event.previous_owner.rpartition(":")[0],
            how=event.reason,
            now_s=now_s,
        )

    def _with_own(self, lease: LeaseItem) -> LeaseItem:
        token, owner = self._own.get(lease.partition, (-1, None))
        if token > lease.token or (token == lease.token and owner != lease.owner and not lease.finished):
            lease = replace(lease, token=token, owner=owner, last_host=self._host_id)
        token, position = self._saved.get(lease.partition, (-1, ""))
        # Nobody else stores anything under this token, so the look cannot have a later one.
        return replace(lease, position=position) if token == lease.token and not lease.finished else lease
