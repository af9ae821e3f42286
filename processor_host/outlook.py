"""
The outlook of one host: the plan of what it has read last, what of that waits, and what the round shows.

Pure: no store, no clock. Whatever is decided about the leases of a group between two reads is decided from this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from partitions.items import LeaseItem, SessionItem, known_of
from partitions.planner import Plan, plan
from partitions.weights import LoadRule
from processor_host.delays import Comings, Delays, HeldBack, held_back
from processor_host.reads import Evidence, signature_of
from processor_host.steps import is_settled

__all__ = ["Outlook", "has_target_besides", "loads_differ", "outlook_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one host makes of what it knows."""

    plan: Plan
    waiting: HeldBack
    evidence: Evidence


def outlook_of(
    leases: Collection[LeaseItem],
    sessions: Collection[SessionItem],
    *,
    session_id: str,
    held: int,
    listed: frozenset[str] | None,
    load: LoadRule | None,
    comings: Comings,
    delays: Delays,
    now_s: float,
) -> Outlook:
    """
    Plan, and say what that shows.

    Args:
        leases: All leases as last read.
        sessions: All sessions as last read.
        session_id: This host's session.
        held: How many leases it holds.
        listed: As for `partitions.planner.plan`.
        load: The rule of the group's item; None in count mode.
        comings: Who came and went, by these sessions.
        delays: The waits in force.
        now_s: This host's clock.
    """
    current = plan(leases, sessions, listed=listed, load=load)
    waiting = held_back(current, leases, sessions, comings, now_s, delays)
    others = [item for item in sessions if item.session_id != session_id]
    evidence = Evidence(
        signature=signature_of(sessions),
        is_settled=is_settled(current, leases, sessions, waiting),
        # What waits for its last host is nobody's meanwhile, and nothing is odd about that.
        planned=sum(
            target is not None and partition not in waiting.free for partition, target in current.targets.items()
        ),
        owned=sum(item.owned for item in others) + held,
        known=known_of(leases),
        others_known=frozenset(item.known for item in others if item.known is not None),
        loads_differ=load is not None and loads_differ(leases, sessions, load),
    )
    return Outlook(plan=current, waiting=waiting, evidence=evidence)


def loads_differ(leases: Iterable[LeaseItem], sessions: Iterable[SessionItem], rule: LoadRule) -> bool:
    """
    Say whether what some session publishes as its load is another one than its leases weighed when they were read.

    By more than the threshold: what differs less moves nothing. Sessions that hold nothing by either account, and those
    without capacity, are left out.
    """
    weighed: dict[str | None, float] = {}
    for lease in leases:
        weighed[lease.owner] = weighed.get(lease.owner, 0.0) + lease.weight
    takers = [session for session in sessions if session.capacity > 0 and not session.draining]
    fair = sum(max(session.load, 0.0) for session in takers) / sum((session.capacity for session in takers), 1e-9)
    return any(
        abs(session.load - weighed.get(session.session_id, 0.0)) > rule.threshold * fair * session.capacity
        for session in takers
        if session.load > 0
    )


def has_target_besides(session_id: str, sessions: Iterable[SessionItem]) -> bool:
    """Say whether some other session could take a lease."""
    return any(
        item.session_id != session_id
        and item.capacity > 0
        and not item.draining
        and not item.drain_asked
        and (item.max_leases is None or item.owned < item.max_leases)
        for item in sessions
    )
