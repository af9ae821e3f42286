"""
How a host is, as its health checks tell it: whether its loops go round, and whether it takes part in its group.

Knows no loop: what the parts of the host say is put together here.
"""

from __future__ import annotations

from partitions.sessions import Session
from processor_host.http import Health
from processor_host.wellness import Wellness

__all__ = ["health_of"]

HEALTHY_DURATIONS = 2
"""A host whose loops have not come round for so long is unhealthy. One whose store is away is not: no restart helps."""


def health_of(
    session: Session | None,
    wellness: Wellness,
    *,
    host_id: str,
    progressed_before_s: float,
    lease_duration_s: float,
    is_ready: bool,
    is_stopping: bool,
) -> Health:
    """
    Say how a host is.

    Args:
        session: The present one; None between two.
        wellness: What its partitions say.
        host_id: Its name.
        progressed_before_s: How long ago its loops last came round.
        lease_duration_s: Of its settings.
        is_ready: It has found its place in the group.
        is_stopping: It was told to stop.
    """
    is_progressing = progressed_before_s < HEALTHY_DURATIONS * lease_duration_s
    takes_part = session is not None and session.is_valid and not session.draining
    detail: dict[str, object] = {
        "host_id": host_id,
        "session_id": None if session is None else session.session_id,
        "leases": 0 if session is None else len(session.held),
        "stopping": is_stopping,
        "progressed_before_s": round(progressed_before_s, 3),
    }
    if (sick := wellness.text()) is not None:
        detail["sick"] = sick
    return Health(
        healthy=is_progressing or is_stopping, ready=is_ready and takes_part and not is_stopping, detail=detail
    )
