"""
Drain a host by hand, and forget one that is dead.

A drain is a wish in the host's session item: the host sees it with its next beat, hands everything over and leaves; no
beat clears it. To forget is to fence: the sessions of the host are watched for as long as each may live without a beat,
and deleted on condition of the very beat that was seen (rule 12). One that beats is never forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from partitions.items import SessionItem
from partitions.liveness import CLOCK_DRIFT, LiveView, expired, observe, observe_one
from partitions.verbs import Applied, Drain, Fence
from processor_host.errors import UserError
from processor_host.operating.operator import LOOK_S, Operator
from processor_host.plurals import count_of

__all__ = ["Drained", "Forgotten", "drain", "forget_host", "sessions_of", "takers_besides"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What became of one session of the host."""

    session_id: str
    host_id: str
    has_left: bool
    """Whether its item is gone; False where nobody waited for it, too."""
    owned: int
    """The leases that it still owns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """One session that was fenced, or was gone before."""

    session_id: str
    host_id: str
    fenced: bool
    """False where another host has fenced it, or it has left, while it was watched."""
    freed: tuple[str, ...]
    """The partitions that it owned, in order."""


async def drain(operator: Operator, host: str, *, wait_s: float = 0.0) -> tuple[Drained, ...]:
    """
    Ask every session of a host to give everything away and leave.

    Args:
        operator: Who asks.
        host: A host id, or one session id.
        wait_s: How long to wait until they are gone, seconds; infinity for as long as it takes.

    Raises:
        UserError: there is no such session; nothing is changed.
        StoreError: the store is away or broken.
    """
    chosen = sessions_of(host, await operator.sessions(), operator.group)
    for session_id in chosen:
        await operator.submit(Drain(session_id=session_id))
    until_s = operator.clock.now_s() + wait_s
    while True:
        snapshot = await operator.snapshot()
        left = chosen.keys() & snapshot.sessions.keys()
        if not left or operator.clock.now_s() >= until_s:
            break
        await anyio.sleep(min(LOOK_S, max(0.01, until_s - operator.clock.now_s())))
    owners = [lease.owner for lease in snapshot.leases.values()]
    return tuple(
        Drained(
            session_id=session_id,
            host_id=session.host_id,
            has_left=session_id not in left,
            owned=owners.count(session_id) if session_id in left else 0,
        )
        for session_id, session in chosen.items()
    )


async def forget_host(operator: Operator, host: str) -> tuple[Forgotten, ...]:
    """
    Watch the sessions of a host for as long as they may live without a beat, and fence them.

    Args:
        operator: Who watches.
        host: A host id, or one session id.

    Raises:
        UserError: there is no such session, or one of them beats: then none is fenced.
        StoreError: the store is away or broken.
    """
    snapshot = await operator.snapshot()
    chosen = dict(sessions_of(host, snapshot.sessions, operator.group))
    first = dict(chosen)
    longest_s = max(each.duration_s for each in chosen.values()) * (1 + CLOCK_DRIFT)
    operator.tell(f"watching {count_of(len(chosen), 'session')} of {host!r} for {longest_s:.0f} s whether one beats")
    view = observe(LiveView.empty(), chosen.values(), operator.clock.now_s())
    gone: dict[str, bool] = {}
    while chosen:
        due = dict(expired(view, operator.clock.now_s()))
        if chosen.keys() <= due.keys():
            # All of them, or none: a host of which one session lives is not dead.
            for session_id in list(chosen):
                gone[session_id] = await _fence(operator, session_id, view)
                del chosen[session_id]
            break
        await anyio.sleep(LOOK_S)
        sessions = await operator.sessions()
        _refuse_if_alive(host, first, sessions)
        for session_id in [name for name in chosen if name not in sessions]:
            gone[session_id] = False
            del chosen[session_id]
        view = observe(view, [sessions[name] for name in chosen], operator.clock.now_s())
    return tuple(
        Forgotten(
            session_id=session_id,
            host_id=session.host_id,
            fenced=gone[session_id],
            freed=tuple(sorted(name for name, lease in snapshot.leases.items() if lease.owner == session_id)),
        )
        for session_id, session in first.items()
    )


def sessions_of(host: str, sessions: Mapping[str, SessionItem], group: str) -> Mapping[str, SessionItem]:
    """
    Return the sessions that a host id, or one session id, names; by session id, in order.

    Raises:
        UserError: there is none.
    """
    chosen = {name: each for name, each in sorted(sessions.items()) if host in (each.host_id, name)}
    if not chosen:
        there = ", ".join(sorted({each.host_id for each in sessions.values()})) or "none"
        raise UserError(f"group {group!r} has no host {host!r}; its hosts are: {there}")
    return chosen


def takers_besides(chosen: Mapping[str, SessionItem], sessions: Mapping[str, SessionItem]) -> int:
    """Return how many other sessions could take what the chosen ones give away."""
    return sum(
        each.capacity > 0 and not each.draining and not each.drain_asked and math.isfinite(each.capacity)
        for name, each in sessions.items()
        if name not in chosen
    )


async def _fence(operator: Operator, session_id: str, view: LiveView) -> bool:
    """
    Delete a session that was seen dead; say whether this did it.

    Raises:
        UserError: it has beaten in the last moment.
    """
    seen = view.seen[session_id].beat
    result = await operator.submit(Fence(session_id=session_id, seen_beat=seen))
    if isinstance(result, Applied):
        return True
    if result.current is None:
        # Another host was faster, or this is the echo of an earlier try.
        return False
    view = observe_one(view, result.current, operator.clock.now_s())
    raise _alive(result.current.host_id, session_id, seen, view.seen[session_id].beat)


def _refuse_if_alive(host: str, first: Mapping[str, SessionItem], sessions: Mapping[str, SessionItem]) -> None:
    for session_id, session in sessions.items():
        if session_id in first and session.beat != first[session_id].beat:
            raise _alive(session.host_id, session_id, first[session_id].beat, session.beat)
        if session_id not in first and session.host_id == host:
            raise UserError(f"host {host!r} has begun a new session, {session_id!r}, while it was watched: it is alive")


def _alive(host_id: str, session_id: str, before: int, after: int) -> UserError:
    return UserError(
        f"host {host_id!r} is alive: the beat of its session {session_id!r} went from {before} to {after}; "
        f"stop it, or let it hand over with 'processor-host drain {host_id}'"
    )
