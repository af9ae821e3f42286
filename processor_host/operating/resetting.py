"""
Reset partitions to another position, and have owners release them: both by taking the lease for a moment.

Reset is not a verb: the operator asks for the lease, acquires it, and releases it with the new position as its last
checkpoint. If the command dies, the lease is free again at the latest when its session is fenced, at the old position
or at the new one. Positions are resolved, and tried on the source, before anything is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitions.leases import Lease
from partitions.lineage import is_eligible
from partitions.positions import END, parse_start
from partitions.sources.base import Source
from processor_host.errors import UserError
from processor_host.operating.operator import Operator, Snapshot
from processor_host.operating.seen import be_seen, under_session
from processor_host.operating.taking import patience_of, take
from processor_host.places import fault_of_place

__all__ = ["Released", "Reset", "positions_of", "release", "reset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What became of one partition."""

    partition: str
    done: bool
    """False where it was not got in time; then nothing of it was changed, or it was done without an answer."""
    before: str
    """The position as it was when the command began; an owner at work may have gone on from it until it released."""
    position: str
    """The position as it is to be."""
    owner: str | None
    """The host that has it now; None where none has yet."""
    paused: bool
    """It is paused, as it was before: nobody goes on from there until it is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What became of one partition."""

    partition: str
    done: bool
    """False where its owner could not be made to release it in time."""
    was_owned_by: str | None
    """The host that had it; None where it was free."""
    owner: str | None
    """The host that has it now."""


async def reset(operator: Operator, source: Source, partitions: Sequence[str], to: str) -> tuple[Reset, ...]:
    """
    Let partitions go on from another position.

    Args:
        operator: Who does it.
        source: The group's own stream, open.
        partitions: Which; each must have a lease, not have ended, and not wait for its parents.
        to: "earliest", "latest", an ISO 8601 time, or a position of the source: the last record that counts as done.

    Raises:
        UserError: a partition or `to` cannot be used; nothing is changed.
        StoreError, SourceError: as the store and the source raise them.
    """
    await operator.check_source(source)
    snapshot = await operator.snapshot()
    listed = frozenset(info.partition for info in await source.list_partitions())
    _check(operator, partitions, snapshot, listed)
    positions = await positions_of(source, partitions, to)

    async def work(lease: Lease) -> bool:
        return await lease.release(positions[lease.partition], is_reset=True)

    done = await under_session(
        operator,
        snapshot.sessions,
        lambda session: take(operator, session, partitions, work, within_s=patience_of(partitions, snapshot)),
    )
    await be_seen(operator, done)
    after = await operator.snapshot()
    return tuple(
        Reset(
            partition=name,
            done=name in done,
            before=snapshot.leases[name].position,
            position=positions[name],
            owner=_host_of(name, after),
            paused=name in after.leases and after.leases[name].paused,
        )
        for name in partitions
    )


async def release(operator: Operator, partitions: Sequence[str]) -> tuple[Released, ...]:
    """
    Have the owners of partitions finish with them and let go, so that the plan places them anew.

    Raises:
        UserError: a partition has no lease; nothing is changed.
        StoreError: the store is away or broken.
    """
    snapshot = await operator.snapshot()
    operator.check_partitions(partitions, snapshot.leases)
    owned = [name for name in partitions if _host_of(name, snapshot) is not None]
    done: frozenset[str] = frozenset()
    if owned:
        done = await under_session(
            operator,
            snapshot.sessions,
            lambda session: take(operator, session, owned, Lease.release, within_s=patience_of(owned, snapshot)),
        )
        await be_seen(operator, done)
    after = await operator.snapshot()
    return tuple(
        Released(
            partition=name,
            done=name in done or name not in owned,
            was_owned_by=_host_of(name, snapshot),
            owner=_host_of(name, after),
        )
        for name in partitions
    )


async def positions_of(source: Source, partitions: Sequence[str], to: str) -> dict[str, str]:
    """
    Return the position of the source that `to` means in each partition.

    Raises:
        UserError: it means none: it is neither a word nor a time nor a position from which the source can read.
        SourceError: the source is away or broken.
    """
    # Digits alone are a position of every source that has them; Python would take eight of them for a day.
    if to.isdecimal() or not _is_start(to):
        for name in partitions:
            await _try(source, name, to)
        return dict.fromkeys(partitions, to)
    point = await source.resolve_start(parse_start(to))
    return {name: await source.first_position(name, point) for name in partitions}


def _is_start(text: str) -> bool:
    try:
        parse_start(text)
    except ValueError:
        return False
    return True


async def _try(source: Source, partition: str, position: str) -> None:
    if position.startswith("@"):
        raise _no_place(partition, position, f"words that begin with @, such as {END}, are not for people")
    if (why := await fault_of_place(source, partition, position)) is not None:
        raise _no_place(partition, position, why)


def _no_place(partition: str, position: str, why: str) -> UserError:
    return UserError(
        f"--to {position!r} means nothing in partition {partition!r} ({why}); use earliest, latest, a time such as "
        "2026-01-31T06:00:00Z, or a position as 'processor-host status --json' shows it"
    )


def _check(operator: Operator, partitions: Sequence[str], snapshot: Snapshot, listed: frozenset[str]) -> None:
    operator.check_partitions(partitions, snapshot.leases)
    for name in partitions:
        lease = snapshot.leases[name]
        if lease.finished:
            raise UserError(f"partition {name!r} has ended: its children go on from it, and it cannot be read again")
        if not is_eligible(lease, snapshot.leases, listed):
            parents = ", ".join(lease.parents)
            raise UserError(
                f"partition {name!r} waits for its parents ({parents}) and was never started; a reset would start it "
                "before their last records; reset them, or wait until they have ended"
            )


def _host_of(partition: str, snapshot: Snapshot) -> str | None:
    lease = snapshot.leases.get(partition)
    owner = None if lease is None else snapshot.owner_of(lease)
    return None if owner is None else owner.host_id
