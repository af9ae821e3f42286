"""
An operator's session: capacity 0, so that no plan gives it anything, alive while something is done under it.

Knows no command. Two uses: to hold leases for a moment, and to be seen. Hosts at rest read the leases only when the set
of sessions has changed; so whoever freed work writes first, then registers and stays one beat period, and every host
looks (DESIGN section 6). It goes earlier once somebody has taken the work: nobody is left to be woken.

If the operator dies, its session is fenced like any other and what it held is free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

import anyio

from partitions.beats import Pace
from partitions.errors import StoreUnavailable
from partitions.items import LeaseItem, SessionItem
from partitions.sessions import Session
from processor_host.errors import only_error
from processor_host.operating.operator import LOOK_S, Operator

__all__ = ["be_seen", "is_let_go", "is_taken", "under_session"]

R = TypeVar("R")

Until = Callable[[LeaseItem, Mapping[str, SessionItem]], bool]

DURATION_S: Final = 10.0
"""Of an operator's session where no host is there to go by: the default of hosts."""
DURATION_MAX_S: Final = 30.0
"""What a killed command holds is free after about this time, however long hosts may live without a beat."""
BEAT_SHARE: Final = 1 / 3
CALL_SHARE: Final = 1 / 6
"""Of the duration, as for hosts."""
SEEN_SHARE: Final = BEAT_SHARE + CALL_SHARE
"""A beat period of the hosts, and a call's time beyond it: their looks may be a moment old and take a moment."""


async def under_session(
    operator: Operator, sessions: Mapping[str, SessionItem], work: Callable[[Session], Awaitable[R]]
) -> R:
    """
    Register a session, do `work` with it, and leave, whatever becomes of the work.

    Args:
        operator: Whose session.
        sessions: All sessions of the group: the new one lives as long without a beat as theirs do, within a bound.
        work: Gets the session while it lives, and is cancelled when it does not.

    Returns:
        What `work` returned.

    Raises:
        StoreUnavailable: the session could not be begun, or was lost before the work was done.
        BaseException: what `work` raised.
    """
    longest_s = max((each.duration_s for each in sessions.values()), default=DURATION_S)
    duration_s = min(longest_s, DURATION_MAX_S)
    session = Session(
        store=operator.store,
        group=operator.group,
        host_id=operator.host_id,
        session_id=f"{operator.host_id}:{operator.random.getrandbits(64):016x}",
        clock=operator.clock,
        random=operator.random,
        pace=Pace(
            duration_s=duration_s,
            handoff_s=duration_s,
            beat_interval_s=duration_s * BEAT_SHARE,
            call_timeout_s=min(duration_s * CALL_SHARE, operator.call_timeout_s),
        ),
        capacity=0.0,
        extra=operator.about,
    )
    done: list[R] = []
    lost = ""

    async def live(scope: anyio.CancelScope) -> None:
        nonlocal lost
        lost = await session.run()
        scope.cancel()

    try:
        if not await session.register():
            raise StoreUnavailable(
                f"{operator.store.url}: an operator's session could not be begun within its duration"
            )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live, tasks.cancel_scope, name=f"session {session.session_id}")
            done.append(await work(session))
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_error(group) from group
    finally:
        await session.leave()
    if not done:
        raise StoreUnavailable(
            f"{operator.store.url}: the operator's session was lost ({lost}); what it held is free; run it again"
        )
    return done[0]


def is_taken(lease: LeaseItem, sessions: Mapping[str, SessionItem]) -> bool:
    """Say whether nobody is left to take a lease: a living session has it, or none may."""
    return lease.finished or lease.paused or lease.owner in sessions


def is_let_go(lease: LeaseItem, sessions: Mapping[str, SessionItem]) -> bool:
    """Say whether no living session has a lease."""
    return lease.owner not in sessions


async def be_seen(operator: Operator, partitions: Iterable[str], until: Until = is_taken) -> None:
    """
    Register for a beat period of the hosts, so that each of them reads the leases; less once all is as wanted.

    Args:
        operator: Who has written before.
        partitions: What the hosts are to act on; none is no reason to be seen.
        until: Says of a lease and the sessions whether the hosts have acted on it.

    Raises:
        StoreUnavailable: as `under_session`.
    """
    names = sorted(partitions)
    sessions = await operator.sessions()
    hosts = [each for each in sessions.values() if each.capacity > 0]
    if not names or not hosts:
        return
    period_s = SEEN_SHARE * max(each.duration_s for each in hosts)

    async def stay(session: Session) -> None:
        until_s = operator.clock.now_s() + period_s
        while operator.clock.now_s() < until_s:
            leases = await operator.some_leases(names)
            living = await operator.sessions()
            if all(until(lease, living) for lease in leases.values()):
                return
            await anyio.sleep(min(LOOK_S, max(0.01, until_s - operator.clock.now_s())))

    await under_session(operator, sessions, stay)
