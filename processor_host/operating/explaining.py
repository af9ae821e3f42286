"""
What each host would do next, and why: the plan of the hosts, told without doing any of it.

Pure: made of items that somebody else read. It is the plan and the steps of the hosts themselves
(`partitions.planner`, `processor_host.steps`); here only the reasons are added. What a host keeps to itself, such as a
delay before it asks for the sake of balance, is in no item and not told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.lineage import is_eligible
from partitions.planner import plan
from partitions.rules import PAUSE_REASON
from partitions.weights import LoadRule
from processor_host.steps import steps_of

__all__ = ["Explained", "HostPlan", "Resting", "Step", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that a host does next."""

    partition: str
    what: Literal["acquire", "ask", "wait"]
    """"wait": it is asked for already, and its owner has not released it yet."""
    owner: str | None
    """The host that has it now; None where it is free."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """One session: what it has, what it is to have, and the steps to there."""

    host_id: str
    session_id: str
    owned: int
    planned: int
    state: str
    """"works", "drains", or "operator", which is given nothing."""
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting:
    """A partition that no host is to have."""

    partition: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The next round of a whole group."""

    hosts: tuple[HostPlan, ...]
    resting: tuple[Resting, ...]

    @property
    def is_settled(self) -> bool:
        """Say whether no host has anything to do."""
        return not any(host.steps for host in self.hosts)


def explain(
    leases: Iterable[LeaseItem],
    sessions: Iterable[SessionItem],
    *,
    listed: frozenset[str] | None = None,
    load: LoadRule | None = None,
) -> Explained:
    """
    Plan as every host does, and say what each would do of it and why.

    Args:
        leases: All leases of a group, in any order.
        sessions: All of its sessions, read after them, in any order.
        listed: The partitions in a source listing read after `leases`, or None where there was none.
        load: How the group balances weights; None where it shares out partitions by number.
    """
    by_partition = {lease.partition: lease for lease in sorted(leases, key=lambda lease: lease.partition)}
    by_id = {session.session_id: session for session in sorted(sessions, key=lambda session: session.session_id)}
    targets = plan(by_partition.values(), by_id.values(), listed=listed, load=load)
    shares = Counter(target for target in targets.targets.values() if target is not None)
    owned = Counter(lease.owner for lease in by_partition.values() if lease.owner is not None)
    hosts = []
    for session_id, session in by_id.items():
        mine = steps_of(
            targets,
            by_partition.values(),
            by_id.values(),
            session_id=session_id,
            # Seen from outside, a host holds what the store says that it owns.
            is_busy=lambda partition, me=session_id: by_partition[partition].owner == me,  # type: ignore[misc]
        )
        steps = [
            Step(
                partition=step.lease.partition,
                what="acquire",
                owner=None,
                why=_why_free(step.lease, session, by_partition),
            )
            for step in mine.acquire
        ]
        for owner_id, wanted in mine.ask.items():
            why = _why_asked(by_id[owner_id], owned[owner_id], shares[owner_id])
            steps += [
                Step(partition=each.partition, what="ask", owner=by_id[owner_id].host_id, why=why) for each in wanted
            ]
        steps += [
            Step(partition=each.partition, what="wait", owner=owner.host_id, why=_why_waited(each, owner, by_id))
            for each, owner in mine.follow
        ]
        hosts.append(
            HostPlan(
                host_id=session.host_id,
                session_id=session_id,
                owned=owned[session_id],
                planned=shares[session_id],
                state=_state(session),
                steps=tuple(sorted(steps, key=lambda step: step.partition)),
            )
        )
    resting = [
        Resting(partition=name, why=_why_resting(lease, by_partition, listed))
        for name, lease in by_partition.items()
        if targets.targets.get(name) is None
    ]
    return Explained(hosts=tuple(hosts), resting=tuple(resting))


def _state(session: SessionItem) -> str:
    if session.draining or session.drain_asked:
        return "drains"
    return "works" if session.capacity > 0 else "operator"


def _why_free(lease: LeaseItem, taker: SessionItem, by_partition: Mapping[str, LeaseItem]) -> str:
    why = "it is free" if lease.owner is None else f"its owner, session {lease.owner}, is gone"
    if lease.last_host == taker.host_id:
        return f"{why}, and this host had it last"
    parents = [by_partition[parent].last_host for parent in lease.parents if parent in by_partition]
    if taker.host_id in parents:
        return f"{why}, and this host had its parent"
    return f"{why}, and this host has room for it"


def _why_asked(owner: SessionItem, owned: int, share: int) -> str:
    if owner.draining or owner.drain_asked:
        return f"{owner.host_id} drains"
    return f"{owner.host_id} has {owned}, and its share is {share}"


def _why_waited(lease: LeaseItem, owner: SessionItem, by_id: Mapping[str, SessionItem]) -> str:
    asker = by_id.get(owner.asks.get(ask_key(lease.partition, lease.token), ""))
    who = "nobody in particular" if asker is None else asker.host_id
    return f"{who} has asked {owner.host_id}, which has not released it yet"


def _why_resting(lease: LeaseItem, by_partition: Mapping[str, LeaseItem], listed: frozenset[str] | None) -> str:
    if lease.finished:
        return "it has ended"
    if lease.paused:
        reason = lease.extra.get(PAUSE_REASON)
        return "it is paused" if reason is None else f"it is paused: {reason}"
    if not is_eligible(lease, by_partition, listed):
        return f"it waits for the end of {', '.join(lease.parents)}"
    return "no host may take it: there is none, or all are full or draining"
