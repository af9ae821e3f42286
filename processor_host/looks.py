"""
When a host looks at its group again.

Pure: no store, no clock.

Theory: every host sees the last beat of a dead one at a look of its own, so each has another moment from which it may
fence. Whoever comes first fences; the others find that at their next look, and until then the leases that fall to them
rest. So while a session is silent and nobody may have fenced it yet, looks come more often. That lasts for half of its
duration at most, and ends where this host may fence it itself: what a store does not let it fence costs no more looks.
"""

from __future__ import annotations

from typing import Final

from partitions.liveness import LiveView, expires_at_s, is_silent

__all__ = ["MANY", "QUICK_SHARE", "next_look_s"]

QUICK_SHARE: Final = 0.25
"""Of the usual time between two looks, while a session is silent: as often as an asker looks, at a duration of 3 s."""

MANY: Final = 100
"""
So many other hosts, and nobody looks more often; fewer do in proportion. What the looks of a group cost grows with the
square of its hosts: 100, with a duration of 10 s and items of 1 KB, read 375 of the 3,000 units a second of one key.
"""


def next_look_s(view: LiveView, *, began_s: float, now_s: float, interval_s: float, besides: str) -> float:
    """
    Return when to look again, seconds of this host's clock; may lie in the past, for a look that is to follow at once.

    Args:
        view: What was seen last, as `observe` returned it at the answer.
        began_s: When the last look began, also one that had no answer.
        now_s: This host's clock.
        interval_s: The usual time between the beginnings of two looks, seconds.
        besides: One's own session id.
    """
    others = [seen for name, seen in view.seen.items() if name != besides]
    # What came due between the answer and now was not fenced: it was not due yet. Only after an answer, or a store that
    # fails would be asked without a pause.
    judged_s = view.at_s if view.at_s >= began_s else now_s
    pending = [seen for seen in others if expires_at_s(seen) > judged_s]
    moments = [began_s + interval_s, *(expires_at_s(seen) for seen in pending)]
    if any(is_silent(seen, now_s) for seen in pending):
        # From the end of the last look on: a store that is slow is not asked without a pause.
        moments.append(now_s + interval_s * max(QUICK_SHARE, len(others) / MANY))
    return min(moments)
