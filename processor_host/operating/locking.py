"""
The locks of a group, as an operator sees them, and the release of one whose holder does not do it.

A lock is not asked for as a lease is: nobody tells its holder to let go. So one whose owner is still registered is
released only where the operator insists: its holder may be at work, and finds out no sooner than at its next beat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from partitions.items import LockItem, SessionItem
from partitions.lock_verbs import AcquireLock, RaiseLock, ReleaseLock
from partitions.unreadable import is_stand_in
from partitions.verbs import Applied
from processor_host.errors import UserError
from processor_host.lock_rows import LockRow, holder_of, row_of, rows_of
from processor_host.operating.operator import Operator

__all__ = [
    "ReleasedLock",
    "all_locks",
    "carry_lock",
    "lock_of",
    "look_before_release",
    "raise_lock",
    "release_lock",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedLock:
    """What became of a lock that was to be released."""

    name: str
    was_held_by: str | None
    """The host that held it; None where it was free."""
    token: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


async def all_locks(operator: Operator) -> tuple[LockRow, ...]:
    """
    Read all locks of the group.

    Raises:
        UserError: there is nothing at all of the group.
        StoreError: as `Operator.submit`.
    """
    found = await operator.locks()
    if not found:
        await operator.item_if_any()
    return rows_of(found, await operator.sessions())


async def lock_of(operator: Operator, name: str) -> LockRow:
    """
    Read one lock.

    Raises:
        UserError: the group has no such lock.
        StoreError: as `Operator.submit`.
    """
    lock, sessions = await _read(operator, name)
    return row_of(lock, sessions)


async def release_lock(operator: Operator, name: str, *, force: bool = False) -> ReleasedLock:
    """
    Free a lock, on condition of the owner and the token that were seen.

    Args:
        operator: Who does so.
        name: The lock.
        force: Also where the session that owns it is registered, and may be at work.

    Raises:
        UserError: there is no such lock, or it is in use, or somebody else has changed it meanwhile.
        StoreError: as `Operator.submit`.
    """
    lock, _ = await look_before_release(operator, name, force=force)
    if lock.owner is None:
        return ReleasedLock(name=name, was_held_by=None, token=lock.token)
    result = await operator.submit(ReleaseLock(name=name, owner=lock.owner, token=lock.token))
    # An earlier try may have been applied without an answer; then it is free under the very token (rule 9).
    if not isinstance(result, Applied):
        current = result.current
        if current is not None and (current.token != lock.token or current.owner is not None):
            raise UserError(
                f"lock {name!r} of {operator.group!r} has changed hands meanwhile: {holder_of(current) or 'nobody'} "
                f"has it under token {current.token}, and it was not touched; look at it and run the command again"
            )
    return ReleasedLock(name=name, was_held_by=holder_of(lock), token=lock.token)


async def look_before_release(operator: Operator, name: str, *, force: bool = False) -> tuple[LockItem, LockRow]:
    """
    Read a lock that is to be released; arguments as `release_lock`.

    Returns:
        Its item, and who holds it.

    Raises:
        UserError: there is no such lock, or it cannot be read, or it is in use.
        StoreError: as `Operator.submit`.
    """
    lock, sessions = await _read(operator, name)
    if is_stand_in(lock):
        raise UserError(
            f"lock {name!r} of {operator.group!r} cannot be read ({lock.extra.get('unreadable')}); mend its item, or "
            "delete it: its next token is then 1 again"
        )
    if lock.owner in sessions and not force:
        raise UserError(
            f"lock {name!r} of {operator.group!r} is held by {holder_of(lock)} ({lock.owner}), which is registered and "
            "may be at work; stop that process, or wait until a dead one is fenced; with --force it is released all "
            "the same, and the holder finds out at its next beat at the earliest"
        )
    return lock, row_of(lock, sessions)


async def raise_lock(operator: Operator, name: str, token: int, *, seen_token: int | None) -> None:
    """
    Raise one lock's token, and make the lock where it is not there.

    Raises:
        UserError: the lock has moved on meanwhile: somebody lives.
        StoreError: as `Operator.submit`.
    """
    result = await operator.submit(RaiseLock(name=name, seen_token=seen_token, token=token))
    # Refused at the very token that is wanted, it is the echo of an earlier try (rule 9).
    if not isinstance(result, Applied) and (result.current is None or result.current.token != token):
        raise UserError(
            f"lock {name!r} of group {operator.group!r} was changed meanwhile, so somebody is alive; stop all hosts of "
            "the group, and whatever else holds its locks, and run the command again"
        )


async def carry_lock(operator: Operator, wanted: LockItem) -> None:
    """
    Bring a lock's token to what it was elsewhere, and give one that does not expire to the holder it had there.

    Run again, it goes on where it was cut short.

    Raises:
        UserError: as `raise_lock`.
        StoreError: as `Operator.submit`.
    """
    there = await operator.lock(wanted.name)
    is_kept = wanted.owner is not None and not wanted.expires
    token = wanted.token - 1 if is_kept else wanted.token
    if token > (0 if there is None else there.token):
        await raise_lock(operator, wanted.name, token, seen_token=None if there is None else there.token)
        there = await operator.lock(wanted.name)
    if is_kept and wanted.owner is not None and (there is None or there.token == token):
        verb = AcquireLock(
            name=wanted.name,
            seen_owner=None if there is None else there.owner,
            seen_token=None if there is None else there.token,
            session_id=wanted.owner,
            host_id=holder_of(wanted) or wanted.owner,
            expires=False,
            extra=wanted.extra,
        )
        # Refused where an earlier try was applied: it has the wanted token then.
        await operator.submit(verb)


async def _read(operator: Operator, name: str) -> tuple[LockItem, Mapping[str, SessionItem]]:
    lock = await operator.lock(name)
    if lock is None:
        raise UserError(
            f"group {operator.group!r} in {operator.store.url} has no lock {name!r}; 'processor-host lock list' has "
            "those there are"
        )
    return lock, await operator.sessions()
