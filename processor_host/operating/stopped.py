"""
See that no host of a group lives: what must be so before anything is changed that hosts take for fixed.

Sessions are watched for as long as the longest of them may live without a beat, and fenced (rule 12), so that what they
owned is free. It is an observation, not a lock: a host that starts afterwards is not kept out, so whoever asks must
have stopped what would start one.
"""

from __future__ import annotations

import anyio

from partitions.items import SessionItem
from partitions.liveness import CLOCK_DRIFT
from partitions.verbs import Fence, Refused
from processor_host.errors import UserError
from processor_host.operating.operator import LOOK_S, Operator
from processor_host.plurals import count_of

__all__ = ["fence_the_dead"]


async def fence_the_dead(operator: Operator) -> None:
    """
    Watch the sessions of the group, and fence them once all were seen to be dead.

    Raises:
        UserError: one of them beats, or a new one began.
        StoreError: the store is away or broken.
    """
    first = await operator.sessions()
    if not first:
        return
    longest_s = max(each.duration_s for each in first.values()) * (1 + CLOCK_DRIFT)
    operator.tell(
        f"group {operator.group!r} has {count_of(len(first), 'session')}; "
        f"watching for {longest_s:.0f} s whether one beats"
    )
    until_s = operator.clock.now_s() + longest_s
    while operator.clock.now_s() < until_s:
        await anyio.sleep(min(LOOK_S, max(0.01, until_s - operator.clock.now_s())))
        for session_id, session in (await operator.sessions()).items():
            if session_id not in first or session.beat != first[session_id].beat:
                raise _alive(operator, session)
    for session_id, session in first.items():
        result = await operator.submit(Fence(session_id=session_id, seen_beat=session.beat))
        if isinstance(result, Refused) and result.current is not None:
            raise _alive(operator, session)


def _alive(operator: Operator, session: SessionItem) -> UserError:
    return UserError(
        f"host {session.host_id!r} of group {operator.group!r} is alive (session {session.session_id!r}); "
        "stop all hosts of the group first"
    )
