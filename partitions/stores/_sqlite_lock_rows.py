"""
Locks as rows of SQLite; see `partitions.stores._sqlite_rows`, which has all the other items.

Knows no file and no rule. The table is made by the first write that is about a lock, not with the file: so a file of an
earlier version is as good as a new one, and one whose group uses no lock is as that version would have made it. Its
name is one that a user's own table in that file hardly has.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from partitions.items import LockItem
from partitions.stores._sqlite_table import Row, extra_from, table_of, text_of
from partitions.unreadable import lock_in_place

__all__ = ["LOCKS", "has_locks", "make_locks"]


def _to_row(group: str, lock: LockItem) -> Row:
    return (group, lock.name, lock.owner, lock.token, lock.expires, lock.holder, text_of(lock.extra))


def _from_row(row: Row) -> LockItem:
    _, name, owner, token, expires, holder, extra_text = row
    extra, _ = extra_from(extra_text)
    return LockItem(name=name, owner=owner, token=token, expires=bool(expires), holder=holder, extra=extra)


LOCKS: Final = table_of(
    "named_locks",
    (
        ("group_id", "TEXT NOT NULL"),
        ("name", "TEXT NOT NULL"),
        ("owner", "TEXT"),
        ("token", "INTEGER NOT NULL"),
        ("expires", "INTEGER NOT NULL"),
        ("holder", "TEXT"),
        ("extra", "TEXT NOT NULL"),
    ),
    ("group_id", "name"),
    to_row=_to_row,
    from_row=_from_row,
    in_place=lock_in_place,
)

_MAKE: Final = LOCKS.create.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
_FIND: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"


def has_locks(connection: sqlite3.Connection) -> bool:
    """Say whether the file has the table."""
    return connection.execute(_FIND, (LOCKS.name,)).fetchone() is not None


def make_locks(connection: sqlite3.Connection) -> None:
    """Make the table where it is not there, inside an open write transaction."""
    if not has_locks(connection):
        connection.execute(_MAKE)
