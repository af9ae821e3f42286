"""
A table of SQLite whose rows are items: its statements, and what all translations of rows share.

Knows no kind of item and no connection. A key is the group id, then the item's own id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from partitions.errors import StoreMisconfigured
from partitions.items import GroupItem, LeaseItem, LockItem, Scalar, SessionItem

__all__ = ["Column", "Row", "Table", "extra_from", "table_of", "text_of"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

Row = tuple[Any, ...]
"""The values of one row, in the order of the table's columns."""

Column = tuple[str, str]
"""A column: its name and its type, with NOT NULL where it is never NULL."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "TEXT NOT NULL": (str,),
    "TEXT": (str, type(None)),
    "INTEGER NOT NULL": (int,),
    "INTEGER": (int, type(None)),
    "REAL NOT NULL": (int, float),
}

_NO_EXTRA: Final[Mapping[str, Scalar]] = MappingProxyType({})


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
    create: str
    """Make the table."""


def table_of(
    name: str,
    named: tuple[Column, ...],
    keys: tuple[str, ...],
    *,
    to_row: Callable[[str, T], Row],
    from_row: Callable[[Row], T],
    in_place: Callable[[str, str], T] | None,
) -> Table[T]:
    """
    Return a table.

    Args:
        name: Its name.
        named: Its columns, in the order of a row's values.
        keys: Those of the primary key; the group id is the first.
        to_row: See `Table`.
        from_row: Makes the item of a row; may raise on one that somebody has spoilt.
        in_place: Makes what stands for such an item, of its id and what is wrong; None where nothing can.
    """
    columns = ", ".join(column for column, _ in named)
    marks = ", ".join("?" for _ in named)
    typed = ", ".join(f"{column} {kind}" for column, kind in named)
    where = " AND ".join(f"{key} = ?" for key in keys)
    changes = ", ".join(f"{column} = excluded.{column}" for column, _ in named if column not in keys)
    insert = f"INSERT INTO {name} ({columns}) VALUES ({marks}) ON CONFLICT ({', '.join(keys)})"
    return Table(
        name=name,
        select_one=f"SELECT {columns} FROM {name} WHERE {where}",
        select_all=f"SELECT {columns} FROM {name} WHERE group_id = ?",
        write=f"{insert} DO UPDATE SET {changes}",
        write_if_absent=f"{insert} DO NOTHING",
        delete=f"DELETE FROM {name} WHERE {where}",
        to_row=to_row,
        from_row=lambda row: _read(name, named, row, from_row, in_place),
        # Without a rowid the row lies in the primary key's own tree: one page is written for it instead of two.
        create=f"CREATE TABLE {name} ({typed}, PRIMARY KEY ({', '.join(keys)})) WITHOUT ROWID",
    )


def _read(
    name: str,
    named: tuple[Column, ...],
    row: Row,
    from_row: Callable[[Row], T],
    in_place: Callable[[str, str], T] | None,
) -> T:
    """
    Return the item of a row.

    Raises:
        StoreMisconfigured: the row of a group's own item has been spoilt.
    """
    try:
        for (column, kind), value in zip(named, row, strict=True):
            if not isinstance(value, _TYPES[kind]):
                # SQLite keeps a value of any type in a column of any other.
                raise TypeError(f"{column} is {value!r}")
        return from_row(row)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"the row {row[:2]} of table {name!r} cannot be read: {error}; repair or delete it"
        if in_place is None:
            raise StoreMisconfigured(why) from error
        return in_place(str(row[1]), why)


def text_of(value: Mapping[str, Any] | tuple[str, ...]) -> str:
    """Return the JSON of a mapping or of a list, as it lies in a row."""
    # Compact, and letters as they are: the row is read on every beat, and by people.
    plain = dict(value) if isinstance(value, Mapping) else list(value)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def extra_from(text: str, names: tuple[str, ...] = ()) -> tuple[Mapping[str, Scalar], tuple[Any, ...]]:
    """Return `extra`, and beside it the fields of these names; None for one that is not there."""
    if text == "{}":
        return _NO_EXTRA, (None,) * len(names)
    extra = json.loads(text)
    added = tuple(extra.pop(name, None) for name in names)
    return MappingProxyType(extra), added
