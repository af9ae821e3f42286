"""
Liveness: which sessions this host has seen beat, and which it may fence (DESIGN section 5, rule 12).

Knows no store and reads no clock: the caller says when an answer arrived. Nothing here looks at a time that another
host wrote, so skew between hosts' clocks cannot fence a session.

Observed time: an observer notes on its own clock when the *answer* that showed a changed beat arrived. Once the
session's own duration, stretched by `CLOCK_DRIFT`, has gone by without another change, it may fence, on condition of
the very beat it saw. The session counts from before its beat was sent and shrinks by the same ratio, so its terms have
ended by then. One that is seen for the first time gets a whole duration: nobody can tell how old its last beat is.

Lower beats: a read that may be stale can show a beat that is lower than one already seen. That is not a change, or a
dead session would be kept alive by two replicas that answer in turn. The exception is an item from the answer to a
write, which is never stale (`observe_one`): a register that arrives late re-creates a fenced session with beat 0, and
an observer that missed the gap between would otherwise try for ever to fence it on the old beat.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from partitions.items import SessionItem

__all__ = [
    "CLOCK_DRIFT",
    "LiveView",
    "Seen",
    "expired",
    "expires_at_s",
    "forget",
    "is_silent",
    "may_have_died",
    "observe",
    "observe_one",
]

CLOCK_DRIFT: Final = 0.01
"""
How far the rates of two hosts' clocks may differ, as a ratio.

Crystals differ by 1e-4 at most and a clock that is being slewed by 5e-4; 1 % leaves room for a virtual machine under
steal and costs 0.1 s of fail-over at a duration of 10 s. A holder counts less, an observer counts more by it.
"""

SILENT_SHARE: Final = 0.5
"""A session whose beat has not moved for this part of its duration has missed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The latest change of one session's beat that this host saw."""

    beat: int
    duration_s: float
    """The session's own duration, seconds."""
    since_s: float
    """This host's clock when the answer that first showed this beat arrived, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """What one host has seen of the sessions of its group."""

    at_s: float
    """This host's clock at the last look, seconds."""
    seen: Mapping[str, Seen]
    """By session id."""

    @classmethod
    def empty(cls) -> LiveView:
        """Return the view of a host that has seen nobody yet."""
        return cls(at_s=-math.inf, seen=MappingProxyType({}))


def observe(view: LiveView, sessions: Iterable[SessionItem], now_s: float) -> LiveView:
    """
    Note which sessions have beaten since the last look.

    Args:
        view: The previous result, or `LiveView.empty()` at start.
        sessions: All sessions of the group, in any order; the read may be eventually consistent.
        now_s: This host's clock when the answer arrived, seconds; must not be before `view.at_s`.

    Returns:
        A view with one entry per session in `sessions`; those gone are dropped. A newcomer is alive from `now_s` on, as
        is one whose beat has risen; for any other the time of its last change stays.

    Raises:
        ValueError: `now_s` runs backwards.

    Source: observed-time rule of Kubernetes leader election (client-go, package comment).
    """
    _check_order(view, now_s)
    seen: dict[str, Seen] = {}
    for session in sessions:
        before = view.seen.get(session.session_id)
        if before is None or session.beat > before.beat:
            seen[session.session_id] = _fresh(session, now_s)
        else:
            seen[session.session_id] = before
    return LiveView(at_s=now_s, seen=MappingProxyType(seen))


def observe_one(view: LiveView, session: SessionItem, now_s: float) -> LiveView:
    """
    Note one session's item from the answer to a write, as from a refused fence.

    Args:
        view: The previous result.
        session: The item as a write or a consistent read returned it; never from a read that may be stale.
        now_s: This host's clock when the answer arrived, seconds; must not be before `view.at_s`.

    Returns:
        The same view but for this session: any other beat than the one seen, also a lower one, makes it alive from
        `now_s` on. Where answers overtake one another that is a delay of one duration, never a wrong fence.

    Raises:
        ValueError: `now_s` runs backwards.
    """
    _check_order(view, now_s)
    before = view.seen.get(session.session_id)
    if before is not None and before.beat == session.beat:
        return replace(view, at_s=now_s)
    return LiveView(at_s=now_s, seen=MappingProxyType({**view.seen, session.session_id: _fresh(session, now_s)}))


def forget(view: LiveView, session_id: str) -> LiveView:
    """Return the view without a session that a fence deleted, or found deleted; one that is not in it is no error."""
    return replace(view, seen=MappingProxyType({name: seen for name, seen in view.seen.items() if name != session_id}))


def expires_at_s(seen: Seen) -> float:
    """Return the moment from which a session may be fenced unless another beat shows, seconds of this host's clock."""
    return seen.since_s + seen.duration_s * (1 + CLOCK_DRIFT)


def expired(view: LiveView, now_s: float, *, besides: str | None = None) -> tuple[tuple[str, int], ...]:
    """
    Return whom to fence.

    Args:
        view: What was seen.
        now_s: This host's clock, seconds.
        besides: One's own session id: a host that is late itself registers anew, it does not fence itself.

    Returns:
        (session id, the beat that was seen last: the condition of the fence), the longest expired first.
    """
    due = sorted(
        (expires_at_s(seen), name, seen.beat)
        for name, seen in view.seen.items()
        if name != besides and now_s >= expires_at_s(seen)
    )
    return tuple((name, beat) for _, name, beat in due)


def is_silent(seen: Seen, now_s: float) -> bool:
    """Say whether a session has missed a beat: none has shown for half of the time in which three come."""
    return now_s - seen.since_s >= SILENT_SHARE * seen.duration_s


def _fresh(session: SessionItem, now_s: float) -> Seen:
    return Seen(beat=session.beat, duration_s=session.duration_s, since_s=now_s)


def _check_order(view: LiveView, now_s: float) -> None:
    if now_s < view.at_s:
        raise ValueError(f"now_s={now_s} is before the last look at {view.at_s}; pass one clock that never runs back")


def may_have_died(owner: str | None, mine: Collection[str]) -> bool:
    """
    Say whether the record that an owner was handed may have killed its process, from what its lease shows.

    Whoever released did not die of it; and whoever asks lives. So neither an acquire of one's own whose answer was lost
    (rule 8) nor an earlier session of the same process says anything of a record: where the store is away for a while,
    all sessions run out, and every partition would be suspected at once. Everybody else may have died: a session that
    was fenced, also one of this very host before it was started again, and an owner that was asked in vain.

    A session that never came to process anything is suspected too, as one whose acquire was applied in its last moment.
    That costs a slow beginning; the other error would leave a record that kills uncounted.

    Args:
        owner: The owner in the item that is to be acquired; None where it is free.
        mine: The ids of all sessions of this process.
    """
    return owner is not None and owner not in mine
