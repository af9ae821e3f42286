"""
Carry the leases of a group out of a store and into one: as a value that JSON can hold, and back through the protocol.

An import overwrites nothing: what is absent is created, tokens are raised to where they were, and then each lease is
taken under an operator's session, checkpointed or completed, and released. So a token never falls, and an import that
was cut short goes on where it was when it is run again. All hosts of the group must be stopped: a lease that is absent
because its partition ended long ago must not come back under them.

Locks are carried as their tokens, so that no fence elsewhere meets a lower one; one that does not expire stays with its
holder, whose half-done work may be what it stands for.

Not carried: owners, the hosts that had the leases last, counts of failed tries. The format (fields may be added):

    format "processor-host leases", version, group, item {…the group's item…}, leases [{…a lease…}], locks [{…a lock…}]

A group that has locks alone has no item: null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from partitions.items import SCHEMA_VERSION, GroupItem, LeaseItem, LockItem, Prepared
from partitions.leases import Lease
from partitions.rules import PAUSE_REASON
from partitions.unreadable import is_stand_in
from partitions.verbs import Applied, Create, Pause, Prepare, SaveCheckpoint, SetUp
from processor_host.errors import UserError
from processor_host.operating.locking import carry_lock
from processor_host.operating.operator import Operator, Snapshot
from processor_host.operating.restoring import raise_to
from processor_host.operating.seen import under_session
from processor_host.operating.stopped import fence_the_dead
from processor_host.operating.taking import patience_of, take

__all__ = ["Export", "Imported", "export_leases", "import_leases", "parse_export"]

T = TypeVar("T", GroupItem, LeaseItem, LockItem)

FORMAT: Final = "processor-host leases"
VERSION: Final = 1

Outcome = Literal["created", "moved", "unchanged", "not done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The items of a group but its sessions."""

    group: str
    item: GroupItem | None
    """None for a group that has locks alone."""
    leases: tuple[LeaseItem, ...]
    """By partition, in order."""
    locks: tuple[LockItem, ...] = ()
    """By name, in order."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "group": self.group,
            "item": None if self.item is None else _as_json(self.item),
            "leases": [_as_json(lease) for lease in self.leases],
            "locks": [_as_json(lock) for lock in self.locks],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of one partition."""

    partition: str
    outcome: Outcome
    """"moved": it was there, at another place. "not done": it was not got in time; run the import again."""
    token: int
    """As it is stored now."""


async def export_leases(operator: Operator) -> Export:
    """
    Read the group's item and all leases; beside hosts at work, each lease is as it was at one moment of the read.

    Raises:
        UserError: there is no such group.
        StoreError: the store is away or broken.
    """
    item = await operator.item_if_any()
    leases = (await operator.snapshot()).leases
    locks = sorted((lock for lock in await operator.locks() if not is_stand_in(lock)), key=lambda lock: lock.name)
    return Export(
        group=operator.group,
        item=item,
        leases=tuple(lease for _, lease in sorted(leases.items())),
        locks=tuple(locks),
    )


def parse_export(value: object) -> Export:
    """
    Read what `Export.as_json` wrote.

    Raises:
        UserError: it is something else, or of a later version.
    """
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise UserError(f"this is no export of leases: 'format' is not {FORMAT!r}; make one with 'leases export'")
    if value.get("version") != VERSION:
        raise UserError(f"the export is of version {value.get('version')!r}, expected {VERSION}; use the product's own")
    try:
        is_set_up = value["item"] is not None or bool(value["leases"])
        item = _from_json(GroupItem, value["item"]) if is_set_up else None
        leases = tuple(_lease_from(each) for each in value["leases"])
        # An earlier version had none.
        locks = tuple(_lock_from(each) for each in value.get("locks", ()))
        group = value["group"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"the export is broken ({type(error).__name__}: {error}); export the group again") from error
    if item is not None and item.schema_version != SCHEMA_VERSION:
        raise UserError(f"the export has items of version {item.schema_version}, expected {SCHEMA_VERSION}")
    if len({lease.partition for lease in leases}) < len(leases):
        raise UserError("the export has a partition twice; export the group again")
    return Export(group=str(group), item=item, leases=leases, locks=locks)


async def import_leases(operator: Operator, export: Export) -> tuple[Imported, ...]:
    """
    Bring a group to what an export says; leases that the export lacks stay as they are.

    Raises:
        UserError: a host of the group lives, the group is of another stream, a token would fall, or a partition that
            has ended here has not in the export; nothing is changed.
        StoreError: the store is away or broken; some leases may be done. Run it again.
    """
    await fence_the_dead(operator)
    before = await operator.snapshot()
    wanted = {lease.partition: lease for lease in export.leases}
    await _check(operator, export, before)
    if export.item is not None:
        await operator.submit(SetUp(item=export.item))
    for lock in export.locks:
        await carry_lock(operator, lock)
    here = {name: before.leases.get(name) or await _create(operator, lease) for name, lease in wanted.items()}
    to_take = [name for name, lease in wanted.items() if not _is_as(here[name], lease)]
    for name in to_take:
        # The acquire that follows raises it by one more.
        if (token := wanted[name].token - 1) > here[name].token:
            await raise_to(operator, here[name], token)
    done = await _take(operator, wanted, to_take)
    after = await operator.some_leases(wanted)
    return tuple(
        Imported(partition=name, outcome=_outcome(name, before, to_take, done), token=after[name].token)
        for name in wanted
    )


async def _take(operator: Operator, wanted: Mapping[str, LeaseItem], to_take: list[str]) -> frozenset[str]:
    if not to_take:
        return frozenset()
    snapshot = await operator.snapshot()

    async def run(session: Any) -> frozenset[str]:
        async def work(lease: Lease) -> bool:
            return await _fill(operator, session.session_id, lease, wanted[lease.partition])

        return await take(operator, session, to_take, work, within_s=patience_of(to_take, snapshot))

    return await under_session(operator, snapshot.sessions, run)


async def _fill(operator: Operator, owner: str, lease: Lease, wanted: LeaseItem) -> bool:
    """Bring a lease that is held to what is wanted, and release it."""
    if wanted.finished:
        return await lease.complete(())
    name, token = lease.partition, lease.token
    save = SaveCheckpoint(
        partition=name, owner=owner, token=token, position=wanted.position, seq=1, weight=wanted.weight
    )
    result = await operator.submit(save)
    if not isinstance(result, Applied) and (result.current is None or result.current.token != token):
        return False
    if wanted.prepared is not None:
        await operator.submit(Prepare(partition=name, owner=owner, token=token, seq=2, prepared=wanted.prepared))
    if wanted.paused:
        await operator.submit(Pause(partition=name, seen_token=token, reason=_reason_of(wanted)))
    return await lease.release()


async def _create(operator: Operator, lease: LeaseItem) -> LeaseItem:
    """Make a lease that is absent: free, token 0; one that was never started is done by that."""
    verb = Create(partition=lease.partition, position=lease.position, parents=lease.parents)
    result = await operator.submit(verb)
    found = result.item if isinstance(result, Applied) else result.current
    if found is not None and lease.paused and lease.token == 0:
        paused = await operator.submit(Pause(partition=lease.partition, seen_token=0, reason=_reason_of(lease)))
        found = paused.item if isinstance(paused, Applied) else paused.current
    if found is None:
        raise UserError(f"partition {lease.partition!r} was deleted meanwhile: a host is alive; stop all and try again")
    return found


async def _check(operator: Operator, export: Export, before: Snapshot) -> None:
    item = await operator.store.read_group(operator.group)
    if item is not None and export.item is not None and item.source != export.item.source:
        raise UserError(
            f"group {operator.group!r} belongs to the stream {item.source!r}, and the export to "
            f"{export.item.source!r}; import it into another group"
        )
    locks = {lock.name: lock for lock in await operator.locks()}
    for lock in export.locks:
        if lock.name in locks and locks[lock.name].token > lock.token:
            raise UserError(
                f"lock {lock.name!r} has token {locks[lock.name].token}, and the export {lock.token}: a token never "
                "falls; leave it out of the export"
            )
    for lease in export.leases:
        there = before.leases.get(lease.partition)
        if there is None:
            continue
        if there.token > lease.token:
            raise UserError(
                f"partition {lease.partition!r} has token {there.token}, and the export {lease.token}: "
                "a token never falls; move its checkpoint with 'processor-host reset'"
            )
        if there.finished and not lease.finished:
            raise UserError(f"partition {lease.partition!r} has ended here, and in the export it has not; leave it out")
        if lease.token == 0 and there.position != lease.position:
            raise UserError(
                f"partition {lease.partition!r} was never started, and is at another position here than in the export; "
                "move it with 'processor-host reset'"
            )


def _is_as(there: LeaseItem, wanted: LeaseItem) -> bool:
    """Say whether a lease is as it is wanted, in all that is carried."""
    return _carried(there) == _carried(wanted)


def _carried(lease: LeaseItem) -> tuple[object, ...]:
    position = "" if lease.finished else lease.position
    return (lease.token, position, lease.finished, lease.paused, lease.weight, lease.prepared)


def _outcome(name: str, before: Snapshot, to_take: list[str], done: frozenset[str]) -> Outcome:
    if name in to_take and name not in done:
        return "not done"
    if name not in before.leases:
        return "created"
    return "moved" if name in to_take else "unchanged"


def _reason_of(lease: LeaseItem) -> str | None:
    reason = lease.extra.get(PAUSE_REASON)
    return reason if isinstance(reason, str) else None


def _as_json(item: GroupItem | LeaseItem | LockItem) -> dict[str, Any]:
    # `asdict` copies mappings by their own type, which a read-only one does not allow.
    values = asdict(replace(item, extra={}))
    return {**values, "extra": dict(item.extra)}


def _from_json(make: type[T], value: Mapping[str, Any]) -> T:
    """Make an item of the fields that this version knows; those of a later one are left out."""
    known = {field.name for field in fields(make)}
    return make(
        **{**{name: each for name, each in value.items() if name in known}, "extra": MappingProxyType(value["extra"])}
    )


def _lease_from(value: Mapping[str, Any]) -> LeaseItem:
    partition, position, token = value["partition"], value["position"], value["token"]
    if not isinstance(partition, str) or not isinstance(position, str):
        raise TypeError(f"partition {partition!r} and position {position!r} are not both text")
    if not isinstance(token, int) or isinstance(token, bool) or token < 0:
        raise ValueError(f"token {token!r} of {partition!r} is not a whole number from 0 on")
    prepared = None if value.get("prepared") is None else Prepared(**value["prepared"])
    return replace(_from_json(LeaseItem, value), owner=None, seq=0, parents=tuple(value["parents"]), prepared=prepared)


def _lock_from(value: Mapping[str, Any]) -> LockItem:
    name, token = value["name"], value["token"]
    if not isinstance(name, str) or not isinstance(token, int) or isinstance(token, bool) or token < 0:
        raise ValueError(f"lock {name!r} with token {token!r} is not a name and a whole number from 0 on")
    return _from_json(LockItem, value)
