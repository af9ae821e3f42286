"""
Items as rows of SQLite: the tables, and the pure translation both ways.

Knows no connection, no file and no rule. A known field is a column; `extra` is one column of JSON, and there a later
version puts a field that it adds without an incompatible change, so that this one keeps it. `known` is two columns that
are both NULL or neither. Every text, JSON too, is what a person reads with the `sqlite3` program.

The fields that were added since the first version lie in `extra` under their own names, and only where they say
something: the tables are one and the same for every version, and a host of an earlier one keeps what a later one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from partitions.errors import StoreMisconfigured
from partitions.items import GroupItem, Known, LeaseItem, Prepared, Scalar, SessionItem
from partitions.unreadable import lease_in_place, session_in_place

__all__ = ["GROUPS", "LEASES", "SCHEMA", "SCHEMA_TABLES", "SESSIONS", "Row", "Table"]

T = TypeVar("T", LeaseItem, SessionItem, GroupItem)

Row = tuple[Any, ...]
"""The values of one row, in the order of the table's columns."""

_COLUMNS: Final = {
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

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "TEXT NOT NULL": (str,),
    "TEXT": (str, type(None)),
    "INTEGER NOT NULL": (int,),
    "INTEGER": (int, type(None)),
    "REAL NOT NULL": (int, float),
}

_IN_PLACE: Final[dict[str, Callable[[str, str], Any]]] = {"leases": lease_in_place, "sessions": session_in_place}

_KEYS: Final = {
    "groups": ("group_id",),
    "sessions": ("group_id", "session_id"),
    "leases": ("group_id", "partition"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[T]):
    """One kind of item: its statements, and the translation of a row. A key is the group id, then the item's own id."""

    name: str
    select_one: str
    """The columns of the row with this key."""
    select_all: str
    """The columns of every row of the group."""
    write: str
    """Make the row, or replace it."""
    write_if_absent: str
    """Make the row; leave one that is there."""
    delete: str
    to_row: Callable[[str, T], Row]
    """The row of an item in the group of this id."""
    from_row: Callable[[Row], T]
    """The item of a row, or what stands for one that somebody has spoilt (`partitions.unreadable`)."""


def _table(name: str, *, to_row: Callable[[str, T], Row], from_row: Callable[[Row], T]) -> Table[T]:
    columns = ", ".join(column for column, _ in _COLUMNS[name])
    marks = ", ".join("?" for _ in _COLUMNS[name])
    keys = _KEYS[name]
    where = " AND ".join(f"{key} = ?" for key in keys)
    changes = ", ".join(f"{column} = excluded.{column}" for column, _ in _COLUMNS[name] if column not in keys)
    insert = f"INSERT INTO {name} ({columns}) VALUES ({marks}) ON CONFLICT ({', '.join(keys)})"
    return Table(
        name=name,
        select_one=f"SELECT {columns} FROM {name} WHERE {where}",
        select_all=f"SELECT {columns} FROM {name} WHERE group_id = ?",
        write=f"{insert} DO UPDATE SET {changes}",
        write_if_absent=f"{insert} DO NOTHING",
        delete=f"DELETE FROM {name} WHERE {where}",
        to_row=to_row,
        from_row=lambda row: _read(name, row, from_row),
    )


def _read(name: str, row: Row, from_row: Callable[[Row], T]) -> T:
    """
    Return the item of a row.

    Raises:
        StoreMisconfigured: the row of a group's own item has been spoilt.
    """
    try:
        for (column, kind), value in zip(_COLUMNS[name], row, strict=True):
            if not isinstance(value, _TYPES[kind]):
                # SQLite keeps a value of any type in a column of any other.
                raise TypeError(f"{column} is {value!r}")
        return from_row(row)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"the row {row[:2]} of table {name!r} cannot be read: {error}; repair or delete it"
        spoilt = _IN_PLACE.get(name)
        if spoilt is None:
            raise StoreMisconfigured(why) from error
        item: T = spoilt(str(row[1]), why)
        return item


def _create_table(name: str) -> str:
    columns = ", ".join(f"{column} {kind}" for column, kind in _COLUMNS[name])
    # Without a rowid the row lies in the primary key's own tree: one page is written for it instead of two.
    return f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({', '.join(_KEYS[name])})) WITHOUT ROWID"


SCHEMA: Final = tuple(_create_table(name) for name in _COLUMNS)
"""The statements that make the tables in an empty file."""

SCHEMA_TABLES: Final = frozenset(_COLUMNS)
"""The names of our tables, in small letters."""


def _text_of(value: Mapping[str, Any] | tuple[str, ...]) -> str:
    # Compact, and letters as they are: the row is read on every beat, and by people.
    plain = dict(value) if isinstance(value, Mapping) else list(value)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


_NO_ASKS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_EXTRA: Final[Mapping[str, Scalar]] = MappingProxyType({})


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
    return _text_of({**extra, **{name: value for name, value in added.items() if value not in (None, 0)}})


def _extra_from(text: str, names: tuple[str, ...] = ()) -> tuple[Mapping[str, Scalar], tuple[Any, ...]]:
    """Return `extra`, and beside it the fields of these names; None for one that is not there."""
    if text == "{}":
        return _NO_EXTRA, (None,) * len(names)
    extra = json.loads(text)
    added = tuple(extra.pop(name, None) for name in names)
    return MappingProxyType(extra), added


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
        _text_of(lease.parents),
        lease.finished,
        lease.paused,
        lease.weight,
        lease.last_host,
        _extra_of(lease.extra, dict(zip(_ADDED_TO_LEASES, added, strict=True))),
    )


def _lease_from_row(row: Row) -> LeaseItem:
    _, partition, owner, token, position, seq, parents, finished, paused, weight, last_host, extra_text = row
    extra, (attempts, suspects, state, pending) = _extra_from(extra_text, _ADDED_TO_LEASES)
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
        _text_of(session.asks),
        _extra_of(session.extra, dict(zip(_ADDED_TO_SESSIONS, (session.sick,), strict=True))),
    )


def _session_from_row(row: Row) -> SessionItem:
    (
        _, session_id, host_id, beat, duration_s, handoff_s, owned, load, capacity, max_leases, draining, drain_asked,
        known_count, known_checksum, asks, extra_text,
    ) = row  # fmt: skip
    extra, (sick,) = _extra_from(extra_text, _ADDED_TO_SESSIONS)
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
    extra = _text_of({**item.extra, **added})
    return (group, item.schema_version, item.source, item.start, item.plan_mode, item.restore_count, extra)


def _group_from_row(row: Row) -> GroupItem:
    _, schema_version, source, start, plan_mode, restore_count, extra_text = row
    extra, values = _extra_from(extra_text, _ADDED_TO_GROUPS)
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
