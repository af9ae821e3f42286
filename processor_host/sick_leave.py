"""
When a session ends because its host is sick: tells the others how the host is, looks at how they are, and decides.

Knows no drain: whoever waits here gives everything away once this returns.
"""

from __future__ import annotations

from typing import Final

import anyio

from partitions.errors import StoreError
from partitions.sessions import Session
from processor_host.balancer import Balancer
from processor_host.sickness import Other
from processor_host.wellness import Wellness

__all__ = ["until_sick"]

SILENT_SHARE: Final = 0.5
"""Of its duration: who has not beaten for so long has missed a beat, and may be dead."""


async def until_sick(session: Session, balancer: Balancer, wellness: Wellness, *, interval_s: float) -> None:
    """
    Tell the others, by the session's beats, how this host is; return once it is to give everything away.

    Args:
        session: The present one of this host.
        balancer: Knows the others as they were last read.
        wellness: How this host is.
        interval_s: Between two looks; that of the beats.
    """
    while True:
        session.publish_sick(wellness.is_told)
        # What was read last costs nothing and says so first; only then is asked what is true now.
        if _is_to_leave(session, balancer, wellness):
            try:
                await balancer.refresh_sessions(session)
            except StoreError:
                # Nobody can be seen; a later look will show whether somebody is well.
                pass
            else:
                if _is_to_leave(session, balancer, wellness):
                    return
        await anyio.sleep(interval_s)


def _is_to_leave(session: Session, balancer: Balancer, wellness: Wellness) -> bool:
    others = (
        Other(
            is_alive=balancer.silent_s(item.session_id) < SILENT_SHARE * item.duration_s,
            is_draining=item.draining or item.drain_asked,
            is_sick=item.sick,
            can_take=item.capacity > 0 and (item.max_leases is None or item.owned < item.max_leases),
        )
        for item in balancer.sessions
        if item.session_id != session.session_id
    )
    return wellness.should_drain(told_beats=session.beats.told_sick, others=others)
