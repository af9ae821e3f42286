"""
When to read all leases: the costly read, which a group at rest must not do (DESIGN section 6).

Pure: no store, no clock. Every round reads the sessions, which is cheap; the leases are read only when something in
them must have changed. A trigger that a read does not mend waits longer each time, at most the audit interval, so that
nothing that stays odd makes every host read for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from partitions.items import Known, LeaseItem, SessionItem

__all__ = [
    "ODD_ROUNDS",
    "Evidence",
    "ReadState",
    "Signature",
    "due",
    "is_news",
    "note_round",
    "read_done",
    "signature_of",
]

ODD_ROUNDS = 2
"""Rounds for which the sums may differ: a session publishes what it took one beat later."""

Signature = frozenset[tuple[str, bool, float, int | None]]
"""What of the sessions enters a plan: who is there, draining, capacity, most leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one round shows, with the sessions just read and the leases as last read."""

    signature: Signature
    is_settled: bool
    """The plan leaves no host a step."""
    planned: int
    """Leases that the plan gives to somebody."""
    owned: int
    """Leases that all sessions say they own."""
    known: Known
    """One's own."""
    others_known: frozenset[Known]
    """What the other sessions publish; those that publish nothing are left out."""
    loads_differ: bool = False
    """In load mode: some session's load is not what its leases weighed when they were last read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    pause_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """What is remembered from round to round."""

    last_s: float = -math.inf
    signature: Signature | None = None
    """That of the last full read; None before the first."""
    odd_rounds: int = 0
    waits: Mapping[str, _Wait] = field(default_factory=dict)
    """By trigger: how long it waits, because a read did not mend it."""


def signature_of(sessions: Iterable[SessionItem]) -> Signature:
    """Return what of the sessions enters a plan."""
    return frozenset(
        (session.session_id, session.draining or session.drain_asked, session.capacity, session.max_leases)
        for session in sessions
    )


def is_news(before: Mapping[str, LeaseItem], after: Mapping[str, LeaseItem]) -> bool:
    """
    Say whether a read showed something new to a plan, given all leases by partition before and after it.

    Checkpoints are no news: they move in every group that works, and would make every trigger look mended for ever.
    """
    return _planned_from(before) != _planned_from(after)


def due(state: ReadState, evidence: Evidence | None, now_s: float, *, audit_s: float) -> str | None:
    """
    Say why all leases must be read now; None if they need not.

    Args:
        state: The state after the last round.
        evidence: What this round shows; None before the first read.
        now_s: This host's clock.
        audit_s: The longest time between two reads.
    """
    if evidence is None or state.signature is None:
        return "first"
    for trigger in _fired(state, evidence):
        wait = state.waits.get(trigger)
        if wait is None or now_s >= wait.until_s:
            return trigger
    return "audit" if now_s - state.last_s >= audit_s else None


def note_round(state: ReadState, evidence: Evidence) -> ReadState:
    """Return the state with what a round shows before it decides whether to read."""
    odd_rounds = state.odd_rounds + 1 if evidence.owned != evidence.planned else 0
    after = replace(state, odd_rounds=odd_rounds)
    standing = frozenset(_fired(after, evidence))
    return replace(after, waits={name: wait for name, wait in state.waits.items() if name in standing})


def read_done(
    state: ReadState, evidence: Evidence, now_s: float, *, mended: bool, interval_s: float, audit_s: float
) -> ReadState:
    """
    Return the state after a full read.

    Args:
        state: The state before it.
        evidence: What the fresh leases and sessions show.
        now_s: This host's clock when the answer arrived.
        mended: The read showed something new (`is_news`), so whatever still stands is on its way.
        interval_s: The time between two rounds, which is the first wait.
        audit_s: The longest wait.
    """
    odd_rounds = state.odd_rounds if evidence.owned != evidence.planned else 0
    after = replace(state, last_s=now_s, signature=evidence.signature, odd_rounds=odd_rounds)
    waits = {}
    for trigger in _fired(after, evidence):
        before = state.waits.get(trigger)
        pause_s = interval_s if before is None or mended else min(audit_s, 2 * before.pause_s)
        # A quarter of a round early, or a wait of one round would miss every other one.
        waits[trigger] = _Wait(pause_s=pause_s, until_s=now_s + pause_s - interval_s / 4)
    return replace(after, waits=waits)


def _planned_from(leases: Mapping[str, LeaseItem]) -> dict[str, tuple[str | None, int, bool, bool]]:
    return {name: (lease.owner, lease.token, lease.finished, lease.paused) for name, lease in leases.items()}


def _fired(state: ReadState, evidence: Evidence) -> tuple[str, ...]:
    fired = {
        "sessions changed": evidence.signature != state.signature,
        "steps are left": not evidence.is_settled,
        "sums differ": evidence.owned != evidence.planned and state.odd_rounds >= ODD_ROUNDS,
        "others know more": any(known != evidence.known for known in evidence.others_known),
        "loads differ": evidence.loads_differ,
    }
    return tuple(name for name, is_so in fired.items() if is_so)
