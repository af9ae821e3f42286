"""
Items as rows of SQLite: the tables, and the pure translation both ways.

Knows no connection, no file and no rule. A known field is a column; `extra` is one column of JSON, and there a later
version puts a field that it adds without an incompatible change, so that this one keeps it. `known` is two columns that
are both NULL or neither. Every text, JSON too, is what a person reads with the `sqlite3` program.

The fields that were added since the first version lie in `extra` under their own names, and only where they say
something: these tables are the same for every version, and a host of an earlier one keeps what a later one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from partitions.items import GroupItem, Known, LeaseItem, LockItem, Prepared, Scalar, SessionItem
from partitions.stores._sqlite_table import Column, Row, Table, extra_from, table_of, text_of
from partitions.unreadable import lease_in_place, session_in_place

__all__ = ["GROUPS", "LEASES", "SCHEMA", "SCHEMA_TABLES", "SESSIONS"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "groups": (
        ("group_id", "TEXT NOT NULL"),
        ("schema_version", "INTEGER NOT NULL"),
        ("source", "TEXT NOT NULL"),
        ("start", "TEXT NOT NULL"),
        ("plan_mode", "TEXT NOT NULL"),
        ("restore_count", "INTEGER NOT NULL"),
        ("extra", "TEXT NOT NULL"),
    ),
    "sessions": (
        ("group_id", "TEXT NOT NULL"),
        ("session_id", "TEXT NOT NULL"),
        ("host_id", "TEXT NOT NULL"),
        ("beat", "INTEGER NOT NULL"),
        ("duration_s", "REAL NOT NULL"),
        ("handoff_s", "REAL NOT NULL"),
        ("owned", "INTEGER NOT NULL"),
        ("load", "REAL NOT NULL"),
        ("capacity", "REAL NOT NULL"),
        ("max_leases", "INTEGER"),
        ("draining", "INTEGER NOT NULL"),
        ("drain_asked", "INTEGER NOT NULL"),
        ("known_count", "INTEGER"),
        ("known_checksum", "INTEGER"),
        ("asks", "TEXT NOT NULL"),
        ("extra", "TEXT NOT NULL"),
    ),
    "leases": (
        ("group_id", "TEXT NOT NULL"),
        ("partition", "TEXT NOT NULL"),
        ("owner", "TEXT"),
        ("token", "INTEGER NOT NULL"),
        ("position", "TEXT NOT NULL"),
        ("seq", "INTEGER NOT NULL"),
        ("parents", "TEXT NOT NULL"),
        ("finished", "INTEGER NOT NULL"),
        ("paused", "INTEGER NOT NULL"),
        ("weight", "REAL NOT NULL"),
        ("last_host", "TEXT"),
        ("extra", "TEXT NOT NULL"),
    ),
}

_IN_PLACE: Final[dict[str, Callable[[str, str], Any]]] = {"leases": lease_in_place, "sessions": session_in_place}

_KEYS: Final = {
    "groups": ("group_id",),
    "sessions": ("group_id", "session_id"),
    "leases": ("group_id", "partition"),
}


def _table(name: str, *, to_row: Callable[[str, T], Row], from_row: Callable[[Row], T]) -> Table[T]:
    return table_of(name, _COLUMNS[name], _KEYS[name], to_row=to_row, from_row=from_row, in_place=_IN_PLACE.get(name))


SCHEMA_TABLES: Final = frozenset(_COLUMNS)
"""The names of our tables, in small letters."""


_NO_ASKS: Final[Mapping[str, str]] = MappingProxyType({})


def _asks_from(text: str) -> Mapping[str, str]:
    return _NO_ASKS if text == "{}" else MappingProxyType(json.loads(text))


def _extra_of(extra: Mapping[str, Scalar], added: Mapping[str, Scalar]) -> str:
    """
    Return the text of `extra` with the fields that have no column, as far as they differ from their defaults.

    Raises:
        ValueError: `extra` has a name of theirs.
    """
    if taken := sorted(extra.keys() & added.keys()):
        raise ValueError(f"extra has {taken}, which are names of known fields; choose others")
    return text_of({**extra, **{name: value for name, value in added.items() if value not in (None, 0)}})


_ADDED_TO_LEASES: Final = ("attempts", "suspects", "prepared_state", "prepared_position")
_ADDED_TO_SESSIONS: Final = ("sick",)
_ADDED_TO_GROUPS: Final = ("load_threshold", "moves_max", "weighed_by")


def _lease_to_row(group: str, lease: LeaseItem) -> Row:
    prepared = (None, None) if lease.prepared is None else (lease.prepared.state, lease.prepared.position)
    added = (lease.attempts, lease.suspects, *prepared)
    return (
        group,
        lease.partition,
        lease.owner,
        lease.token,
        lease.position,
        lease.seq,
        text_of(lease.parents),
        lease.finished,
        lease.paused,
        lease.weight,
        lease.last_host,
        _extra_of(lease.extra, dict(zip(_ADDED_TO_LEASES, added, strict=True))),
    )


def _lease_from_row(row: Row) -> LeaseItem:
    _, partition, owner, token, position, seq, parents, finished, paused, weight, last_host, extra_text = row
    extra, (attempts, suspects, state, pending) = extra_from(extra_text, _ADDED_TO_LEASES)
    return LeaseItem(
        partition=partition,
        owner=owner,
        token=token,
        position=position,
        seq=seq,
        parents=tuple(json.loads(parents)),
        finished=bool(finished),
        paused=bool(paused),
        weight=weight,
        last_host=last_host,
        attempts=attempts or 0,
        suspects=suspects or 0,
        prepared=None if pending is None else Prepared(state=state, position=pending),
        extra=extra,
    )


def _session_to_row(group: str, session: SessionItem) -> Row:
    known = session.known
    return (
        group,
        session.session_id,
        session.host_id,
        session.beat,
        session.duration_s,
        session.handoff_s,
        session.owned,
        session.load,
        session.capacity,
        session.max_leases,
        session.draining,
        session.drain_asked,
        None if known is None else known.count,
        None if known is None else known.checksum,
        text_of(session.asks),
        _extra_of(session.extra, dict(zip(_ADDED_TO_SESSIONS, (session.sick,), strict=True))),
    )


def _session_from_row(row: Row) -> SessionItem:
    (
        _, session_id, host_id, beat, duration_s, handoff_s, owned, load, capacity, max_leases, draining, drain_asked,
        known_count, known_checksum, asks, extra_text,
    ) = row  # fmt: skip
    extra, (sick,) = extra_from(extra_text, _ADDED_TO_SESSIONS)
    return SessionItem(
        session_id=session_id,
        host_id=host_id,
        beat=beat,
        duration_s=duration_s,
        handoff_s=handoff_s,
        owned=owned,
        load=load,
        capacity=capacity,
        max_leases=max_leases,
        draining=bool(draining),
        drain_asked=bool(drain_asked),
        known=None if known_count is None else Known(count=known_count, checksum=known_checksum),
        sick=bool(sick),
        asks=_asks_from(asks),
        extra=extra,
    )


def _group_to_row(group: str, item: GroupItem) -> Row:
    # All of them, whatever they hold: a threshold of 0 says something.
    added = {name: getattr(item, name) for name in _ADDED_TO_GROUPS}
    if taken := sorted(item.extra.keys() & added.keys()):
        raise ValueError(f"extra has {taken}, which are names of known fields; choose others")
    extra = text_of({**item.extra, **added})
    return (group, item.schema_version, item.source, item.start, item.plan_mode, item.restore_count, extra)


def _group_from_row(row: Row) -> GroupItem:
    _, schema_version, source, start, plan_mode, restore_count, extra_text = row
    extra, values = extra_from(extra_text, _ADDED_TO_GROUPS)
    # A group that an earlier version set up has none of them: it keeps the defaults.
    added = {name: value for name, value in zip(_ADDED_TO_GROUPS, values, strict=True) if value is not None}
    return GroupItem(
        schema_version=schema_version,
        source=source,
        start=start,
        plan_mode=plan_mode,
        restore_count=restore_count,
        extra=extra,
        **added,
    )


GROUPS: Final = _table("groups", to_row=_group_to_row, from_row=_group_from_row)
SESSIONS: Final = _table("sessions", to_row=_session_to_row, from_row=_session_from_row)
LEASES: Final = _table("leases", to_row=_lease_to_row, from_row=_lease_from_row)

SCHEMA: Final = (GROUPS.create, SESSIONS.create, LEASES.create)
"""The statements that make the tables in an empty file."""
