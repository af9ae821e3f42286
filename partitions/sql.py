"""
Fenced writes in an SQL database of your own: statements that take a holder's token and refuse one that is old.

Knows no database and no driver: it makes the text and the parameters of a statement, which any driver executes, and
judges the number of rows that were changed. docs/locks.md has the recipe.

- A lease says when it has ended, but a process that is frozen between that look and its write does not look again. So
  the database compares: it keeps the highest token that it was shown, and refuses a lower one.
- **A fence row for each name** (`SqlFence`). Each transaction of a term begins with `raised_to`. The row stays locked
  until the transaction ends, so that those of two holders come one after the other, whatever else they write.
- **A column in the row itself** (`fenced_update`). One statement, for holders that write single rows. A row is safe
  from an earlier holder only from the first write of a later one to that very row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from partitions.errors import LeaseLost

__all__ = ["FenceRefused", "SqlFence", "Statement", "Style", "fenced_update"]

Style = Literal["pyformat", "format", "named", "qmark", "numeric", "dollar"]
"""How a driver writes parameters: its `paramstyle` (PEP 249), or "dollar" for `$1`, as asyncpg has it."""

_PLACEHOLDERS: Final[Mapping[Style, str]] = {
    "pyformat": "%({name})s", "format": "%s", "named": ":{name}", "qmark": "?", "numeric": ":{number}",
    "dollar": "${number}",
}
_NAMED: Final = ("pyformat", "named")

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?", re.ASCII)


class FenceRefused(LeaseLost):
    """
    The database has seen a later token, or has no such row: roll the transaction back and stop working under the lease.

    Raised by `SqlFence.check`.
    """

    def __init__(self, name: str, token: int) -> None:
        super().__init__(name, held=token, reason="fence refused")
        self.args = (
            f"fence {name!r}: token {token} was not let through, so a later holder has written, or there is no such "
            "row; roll back and stop, and see that the row was made",
        )


class Statement(NamedTuple):
    """What a driver executes: `cursor.execute(*statement)`."""

    text: str
    parameters: Any
    """A dict for the styles "pyformat" and "named", else a tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFence:
    """
    A table with one row for each name that is guarded: `name`, and the highest token it was shown, `fence`.

    Raises:
        ValueError: the table's name is none, or the style is unknown.
    """

    table: str = "fences"
    """May be `schema.table`. It goes into the text as it is, so nothing but letters, digits and underscores."""
    style: Style = "pyformat"

    def __post_init__(self) -> None:
        _check(self.table)
        _placeholder(self.style, "name", 1)

    def created(self) -> Statement:
        """Make the table where it is not there."""
        return Statement(
            f"CREATE TABLE IF NOT EXISTS {self.table} (name varchar(255) PRIMARY KEY, fence bigint NOT NULL)",
            _parameters(self.style, {}),
        )

    def row_made(self, name: str) -> Statement:
        """Make a name's row where it has none; it lets every token through. For PostgreSQL and SQLite."""
        mark = _placeholder(self.style, "name", 1)
        return Statement(
            f"INSERT INTO {self.table} (name, fence) VALUES ({mark}, 0) ON CONFLICT (name) DO NOTHING",
            _parameters(self.style, {"name": name}),
        )

    def raised_to(self, name: str, token: int) -> Statement:
        """
        Let `token` through and no lower one from here on; give the number of changed rows to `check`.

        First in each transaction, which it makes wait for every other one of the same name.
        """
        return fenced_update(self.table, {}, {"name": name}, token=token, style=self.style)

    def check(self, rows: int, name: str, token: int) -> None:
        """
        Return if `raised_to` changed the row.

        Args:
            rows: How many rows it matched: `cursor.rowcount`. MySQL's drivers count only what differs from before
                unless they are told otherwise (`CLIENT_FOUND_ROWS`), which refuses the second write of a term.
            name: What is guarded.
            token: Of the term.

        Raises:
            FenceRefused: it did not.
        """
        if rows != 1:
            raise FenceRefused(name, token)


def fenced_update(
    table: str,
    values: Mapping[str, Any],
    where: Mapping[str, Any],
    *,
    token: int,
    column: str = "fence",
    style: Style = "pyformat",
) -> Statement:
    """
    Write values into the rows that `where` names and that no later holder has written: those with `column <= token`.

    Nothing else is written if the number of changed rows is not what it should be: roll back then.

    Args:
        table: Whose rows; it has an integer column `column` that is not null.
        values: By column. Those of read-modify-write must have been read under the same lease.
        where: By column; all of them must be equal.
        token: Of the term; it is stored in `column`.
        column: The rows' fence.
        style: How the driver writes parameters.

    Raises:
        ValueError: a name is none, or the style is unknown, or `where` is empty.
    """
    if not where:
        raise ValueError(f"fenced_update of {table!r}: no condition would write every row; name a column in where")
    given: dict[str, Any] = {}

    def mark(name: str, value: Any) -> str:
        given[name] = value
        return _placeholder(style, name, len(given))

    sets = [f"{_check(column)} = {mark('fence_set', token)}"]
    sets += [f"{_check(name)} = {mark(f'set_{name}', value)}" for name, value in values.items()]
    conditions = [f"{_check(name)} = {mark(f'where_{name}', value)}" for name, value in where.items()]
    conditions.append(f"{column} <= {mark('fence_most', token)}")
    text = f"UPDATE {_check(table)} SET {', '.join(sets)} WHERE {' AND '.join(conditions)}"
    return Statement(text, _parameters(style, given))


def _check(name: str) -> str:
    if not _IDENTIFIER.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a table or column; expected letters, digits and underscores")
    return name


def _placeholder(style: Style, name: str, number: int) -> str:
    if style not in _PLACEHOLDERS:
        raise ValueError(f"style {style!r}: expected one of {', '.join(_PLACEHOLDERS)}; see the driver's paramstyle")
    return _PLACEHOLDERS[style].format(name=name, number=number)


def _parameters(style: Style, given: Mapping[str, Any]) -> Any:
    return dict(given) if style in _NAMED else tuple(given.values())
