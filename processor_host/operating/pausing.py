"""
Pause and resume partitions: one conditional write each, and what makes the hosts act on it at once.

A pause stands in the lease, so whoever takes over after a fail-over keeps to it. After the write nobody can acquire the
partition; its owner is asked to release it to nobody, and drains. Where the ask cannot be written, as where 64 stand
already, the owner sees the pause in its next read, for which the operator shows itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from partitions.clocks import CLOCK_DRIFT
from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.verbs import Applied, Ask, Pause, Resume
from processor_host.errors import UserError
from processor_host.operating.operator import LOOK_S, Operator
from processor_host.operating.seen import be_seen, is_let_go
from processor_host.plurals import count_of

__all__ = ["Paused", "Resumed", "pause", "resume"]

TRIES: Final = 8
"""Of a write whose condition is the token: a lease that moves on in between is looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """What became of one partition."""

    partition: str
    was_paused: bool
    """It was paused before."""
    owner: str | None
    """The host that is still at it, because its running batch has not ended; None where it rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What became of one partition."""

    partition: str
    was_paused: bool
    owner: str | None
    """The host that has taken it; None where none has yet."""


async def pause(
    operator: Operator, partitions: Sequence[str], *, reason: str | None = None, waits: bool = True
) -> tuple[Paused, ...]:
    """
    Pause partitions until they are resumed, and have their owners let go.

    Args:
        operator: Who does it.
        partitions: Which; each must have a lease that is not finished.
        reason: For people; None leaves the one that is there.
        waits: Whether to wait until the owners have let go, at most for as long as they may take.

    Raises:
        UserError: a partition has no lease, or has ended; nothing is changed.
        StoreError: the store is away or broken; some may be paused.
    """
    snapshot = await operator.snapshot()
    operator.check_partitions(partitions, snapshot.leases)
    for name in partitions:
        if snapshot.leases[name].finished:
            raise UserError(f"partition {name!r} has ended; there is nothing left to pause")
    paused = {name: await _pause(operator, snapshot.leases[name], reason) for name in partitions}
    owned = {name: lease for name, lease in paused.items() if lease.owner in snapshot.sessions}
    unasked = [lease for lease in owned.values() if not await _ask_for_nobody(operator, lease)]
    if unasked:
        # The owners see the pause itself once they read the leases, which a new session makes them do.
        await be_seen(operator, {lease.partition for lease in unasked}, is_let_go)
    left = await _left(operator, owned, snapshot.sessions) if waits else owned
    return tuple(
        Paused(
            partition=name,
            was_paused=snapshot.leases[name].paused,
            owner=None if name not in left else snapshot.sessions[left[name].owner or ""].host_id,
        )
        for name in partitions
    )


async def resume(operator: Operator, partitions: Sequence[str]) -> tuple[Resumed, ...]:
    """
    Put paused partitions back into the plan, and make the hosts look.

    Raises:
        UserError: a partition has no lease; nothing is changed.
        StoreError: the store is away or broken; some may be resumed.
    """
    snapshot = await operator.snapshot()
    operator.check_partitions(partitions, snapshot.leases)
    were = [name for name in partitions if snapshot.leases[name].paused]
    for name in were:
        await _resume(operator, snapshot.leases[name])
    await be_seen(operator, were)
    after = await operator.some_leases(partitions)
    sessions = await operator.sessions()
    owners = {name: sessions.get(lease.owner or "") for name, lease in after.items()}
    return tuple(
        Resumed(
            partition=name,
            was_paused=name in were,
            owner=None if (owner := owners.get(name)) is None else owner.host_id,
        )
        for name in partitions
    )


async def _pause(operator: Operator, lease: LeaseItem, reason: str | None) -> LeaseItem:
    """Return the lease as it is paused, with the owner that it has then."""
    for _ in range(TRIES):
        result = await operator.submit(Pause(partition=lease.partition, seen_token=lease.token, reason=reason))
        found = result.item if isinstance(result, Applied) else result.current
        if found is None:
            raise UserError(f"partition {lease.partition!r} was deleted meanwhile; there is nothing left to pause")
        if isinstance(result, Applied):
            return found
        lease = found
    raise UserError(f"partition {lease.partition!r} has changed its owner {TRIES} times meanwhile; try again")


async def _resume(operator: Operator, lease: LeaseItem) -> None:
    for _ in range(TRIES):
        result = await operator.submit(Resume(partition=lease.partition, seen_token=lease.token))
        if isinstance(result, Applied) or result.current is None or not result.current.paused:
            return
        lease = result.current
    raise UserError(f"partition {lease.partition!r} has changed its owner {TRIES} times meanwhile; try again")


async def _ask_for_nobody(operator: Operator, lease: LeaseItem) -> bool:
    """Ask the owner to release a lease to nobody; say whether an ask for this term stands, or its session is gone."""
    key = ask_key(lease.partition, lease.token)
    assert lease.owner is not None  # Only what is owned is asked for.
    result = await operator.submit(Ask(session_id=lease.owner, keys=(key,), asker=""))
    return isinstance(result, Applied) or result.current is None or key in result.current.asks


async def _left(
    operator: Operator, owned: Mapping[str, LeaseItem], sessions: Mapping[str, SessionItem]
) -> Mapping[str, LeaseItem]:
    """Wait until the owners have let go, or are gone; return what is still theirs when their time is over."""
    left = dict(owned)
    if not left:
        return left
    # An owner has its hand-off time from when it sees the ask, which its next beat shows; the drift is on its side.
    longest_s = max(each.handoff_s + each.duration_s for each in _owners(left, sessions)) * (1 + CLOCK_DRIFT)
    until_s = operator.clock.now_s() + longest_s
    operator.tell(
        f"waiting for the owners of {count_of(len(left), 'partition')} to end their running batches, "
        f"at most {longest_s:.0f} s"
    )
    while True:
        now = await operator.some_leases(left)
        living = await operator.sessions()
        left = {
            name: lease
            for name, lease in left.items()
            if name in now
            and (now[name].owner, now[name].token) == (lease.owner, lease.token)
            and lease.owner in living
        }
        if not left or operator.clock.now_s() >= until_s:
            return left
        await anyio.sleep(LOOK_S)


def _owners(leases: Mapping[str, LeaseItem], sessions: Mapping[str, SessionItem]) -> list[SessionItem]:
    return [sessions[lease.owner] for lease in leases.values() if lease.owner is not None and lease.owner in sessions]
