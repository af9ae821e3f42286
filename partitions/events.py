"""
What the library tells its user: one frozen event each, given to `on_event`.

The library neither logs nor counts; `processor_host` turns these into log lines and metrics. An exception that
`on_event` raises is contained: observing must not change what is observed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "AcquireRefused",
    "Asked",
    "BeatAnswered",
    "BeatFailed",
    "CheckpointFailed",
    "CheckpointRefused",
    "CheckpointSaved",
    "EndReason",
    "Event",
    "LeaseAcquired",
    "LeaseEnded",
    "LeaseReleased",
    "OnEvent",
    "ReleaseFailed",
    "SessionBegan",
    "SessionEnded",
    "SessionFenced",
    "tell",
]


class EndReason(Enum):
    """Why a term ended on this host."""

    RELEASED = "released"
    """Given back on purpose: handed to an asker, or at a stop."""
    COMPLETED = "completed"
    """The partition was processed to its end."""
    SESSION_ENDED = "session ended"
    """The session ran out, was fenced or left."""
    ASK_DEADLINE = "ask deadline"
    """Asked for, and not released in time: the asker takes it by force from here on."""
    REFUSED = "write refused"
    """The store holds another owner or token."""
    SEEN_TAKEN = "seen taken"
    """A read of the store showed another owner or token, or no item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBegan(Event):
    """The session was registered; beats begin."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Event):
    """The session is over on this host and all its terms have ended. `reason` is for people."""

    session_id: str
    reason: str
    lost: bool
    """False where it left on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFenced(Event):
    """This host found another session dead and deleted its item; its leases are free."""

    session_id: str
    host_id: str
    unchanged_s: float
    """How long its beat had not moved on this host's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatAnswered(Event):
    """A beat was applied and answered in time."""

    session_id: str
    beat: int
    latency_s: float
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatFailed(Event):
    """A beat was not answered, or with a fault; it is tried again while the session has time left."""

    session_id: str
    error: str
    attempt: int
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Event):
    """Another host (or nobody, "") asks for a lease; the term must have ended in `left_s`."""

    partition: str
    token: int
    asker: str
    left_s: float
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAcquired(Event):
    """A term began here. `reason`: "free", "expired" (its owner was fenced), "asked", "forced" or "resolved"."""

    partition: str
    token: int
    reason: str
    previous_owner: str | None
    position: str
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireRefused(Event):
    """Another host was faster, or the lease is not as it was seen. Nothing is wrong."""

    partition: str
    seen_token: int
    found_token: int | None
    found_owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded(Event):
    """A term ended on this host; nothing more is handled or written under it."""

    partition: str
    token: int
    reason: EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased(Event):
    """The store has the lease as free, with this checkpoint (None: the stored one was left)."""

    partition: str
    token: int
    position: str | None
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFailed(Event):
    """The release was not answered; a snapshot will show whether it was applied. Nothing is handled meanwhile."""

    partition: str
    token: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint is stored; an attempt at the record after it is one too."""

    partition: str
    token: int
    position: str
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused(Event):
    """The fence held: another owner or token is stored, and this term has ended."""

    partition: str
    token: int
    position: str
    found_token: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed(Event):
    """A checkpoint, or what stands beside one, was not answered; it is tried again while the lease is held."""

    partition: str
    token: int
    error: str
    attempt: int


OnEvent = Callable[[Event], None]


def tell(on_event: OnEvent | None, event: Event) -> None:
    """Give `event` to `on_event`, and contain what it raises."""
    if on_event is None:
        return
    try:
        on_event(event)
    except Exception:  # Containment: a broken observer must not end a lease.
        return
