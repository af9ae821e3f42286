"""
Steps: what one host does of a plan (DESIGN section 6, "plan for all, act for oneself").

Pure: no store, no clock. The plan gives every lease a target; a host takes only the steps that bring leases to itself
(acquire the free ones, ask for the others), resolves its own acquires whose answers were lost (rule 8), and leaves the
rest to the others. Conditional writes settle every race. Of its own steps some may have to wait
(`processor_host.delays`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.planner import Plan
from processor_host.delays import HeldBack

__all__ = ["AcquireStep", "Steps", "is_settled", "steps_of"]

NOTHING: Final = HeldBack()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireStep:
    """Acquire one lease, on condition that it is as it was seen."""

    lease: LeaseItem
    reason: str
    """"free", "expired" (its owner is gone) or "resolved" (one's own acquire whose answer was lost)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What this host does now."""

    acquire: tuple[AcquireStep, ...] = ()
    ask: Mapping[str, tuple[LeaseItem, ...]] = field(default_factory=dict)
    """Leases to ask for, by their owner's session id."""
    follow: tuple[tuple[LeaseItem, SessionItem], ...] = ()
    """Leases whose ask stands already, with their owner: wait for the release, or for the moment of force."""
    give_back: tuple[LeaseItem, ...] = ()
    """Leases that the store has as this session's, that are not held here and that the plan gives to another."""


def steps_of(
    plan: Plan,
    leases: Iterable[LeaseItem],
    sessions: Iterable[SessionItem],
    *,
    session_id: str,
    is_busy: Callable[[str], bool],
    waiting: HeldBack = NOTHING,
) -> Steps:
    """
    Return the steps of one host.

    Args:
        plan: The plan of exactly these leases and sessions.
        leases: All leases of the group.
        sessions: All sessions of the group, read after the leases: an owner that is not among them is gone.
        session_id: This host's session.
        is_busy: Says of a partition whether a term of it goes on here, or an acquire or release waits for its answer.
        waiting: The partitions that are not taken or asked for yet.
    """
    by_id = {session.session_id: session for session in sessions}
    acquire: list[AcquireStep] = []
    ask: dict[str, list[LeaseItem]] = {}
    follow: list[tuple[LeaseItem, SessionItem]] = []
    give_back: list[LeaseItem] = []
    for lease in leases:
        if is_busy(lease.partition):
            continue
        owner = None if lease.owner is None else by_id.get(lease.owner)
        if plan.targets.get(lease.partition) != session_id:
            if lease.owner == session_id:
                give_back.append(lease)
            continue
        if owner is None:
            if lease.partition in waiting.free:
                continue
            acquire.append(AcquireStep(lease=lease, reason="free" if lease.owner is None else "expired"))
        elif owner.session_id == session_id:
            acquire.append(AcquireStep(lease=lease, reason="resolved"))
        elif ask_key(lease.partition, lease.token) in owner.asks:
            # Whoever wrote it: the owner drains, and an ask cannot be written twice.
            follow.append((lease, owner))
        elif lease.partition not in waiting.asks:
            ask.setdefault(owner.session_id, []).append(lease)
    return Steps(
        acquire=tuple(acquire),
        ask={owner_id: tuple(wanted) for owner_id, wanted in ask.items()},
        follow=tuple(follow),
        give_back=tuple(give_back),
    )


def is_settled(
    plan: Plan, leases: Iterable[LeaseItem], sessions: Iterable[SessionItem], waiting: HeldBack = NOTHING
) -> bool:
    """
    Say whether the plan leaves no host a step but to wait for what it has asked for, or for what has to wait.

    While it does leave one, ownership is about to change and the leases must be read again.
    """
    by_id = {session.session_id: session for session in sessions}
    for lease in leases:
        target = plan.targets.get(lease.partition)
        owner = None if lease.owner is None else by_id.get(lease.owner)
        if target is None or (owner is not None and owner.session_id == target):
            continue
        if owner is not None and owner.asks.get(ask_key(lease.partition, lease.token)) == target:
            continue
        if lease.partition in (waiting.free if owner is None else waiting.asks):
            continue
        return False
    return True
