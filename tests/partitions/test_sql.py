"""The statements of fenced writes, run by SQLite; PostgreSQL runs them in `tests/processes/locks`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from partitions.errors import LeaseLost
from partitions.sql import FenceRefused, SqlFence, Statement, Style, fenced_update

__all__: list[str] = []

FENCE = SqlFence(style="named")


@pytest.fixture
def base() -> Iterator[sqlite3.Connection]:
    """A database with the fence of "nightly" and a counter."""
    with closing(sqlite3.connect(":memory:")) as base:
        for statement in (FENCE.created(), FENCE.created(), FENCE.row_made("nightly"), FENCE.row_made("nightly")):
            base.execute(*statement)
        base.execute("CREATE TABLE counters (name TEXT, value INTEGER, fence INTEGER NOT NULL)")
        base.execute("INSERT INTO counters VALUES ('a', 0, 0), ('b', 0, 0)")
        yield base


def passes(base: sqlite3.Connection, token: int, name: str = "nightly") -> bool:
    rows = base.execute(*FENCE.raised_to(name, token)).rowcount
    try:
        FENCE.check(rows, name, token)
    except FenceRefused:
        return False
    return True


def test_fence_lets_a_token_through_until_it_has_seen_a_later_one(base: sqlite3.Connection) -> None:
    """Many transactions of one term pass; one of an earlier term never does again."""
    assert [passes(base, token) for token in (7, 7, 9, 7, 8, 9, 10)] == [True, True, True, False, False, True, True]
    assert base.execute("SELECT name, fence FROM fences").fetchall() == [("nightly", 10)]


def test_fence_of_a_name_is_not_that_of_another(base: sqlite3.Connection) -> None:
    """Tokens of two locks have nothing to do with one another."""
    base.execute(*FENCE.row_made("hourly"))

    assert [passes(base, 7), passes(base, 3, "hourly"), passes(base, 3)] == [True, True, False]


def test_fence_without_a_row_refuses_and_says_so(base: sqlite3.Connection) -> None:
    """A slip in the name must not let everything through."""
    with pytest.raises(FenceRefused) as caught:
        FENCE.check(base.execute(*FENCE.raised_to("nigthly", 7)).rowcount, "nigthly", 7)

    assert isinstance(caught.value, LeaseLost)
    assert str(caught.value) == (
        "fence 'nigthly': token 7 was not let through, so a later holder has written, or there is no such row; "
        "roll back and stop, and see that the row was made"
    )


def test_update_writes_its_row_alone_and_only_under_a_token_that_is_not_old(base: sqlite3.Connection) -> None:
    """The row keeps the token, so that it is its own fence."""

    def write(value: int, token: int) -> int:
        statement = fenced_update("counters", {"value": value}, {"name": "a"}, token=token, style="qmark")
        return base.execute(*statement).rowcount

    assert [write(1, 4), write(2, 4), write(3, 5), write(4, 4)] == [1, 1, 1, 0]
    assert base.execute("SELECT * FROM counters ORDER BY name").fetchall() == [("a", 3, 5), ("b", 0, 0)]


@pytest.mark.parametrize(
    ("style", "text", "parameters"),
    [
        ("qmark", "SET f = ?, value = ? WHERE id = ? AND f <= ?", (7, 1, 2, 7)),
        ("format", "SET f = %s, value = %s WHERE id = %s AND f <= %s", (7, 1, 2, 7)),
        ("numeric", "SET f = :1, value = :2 WHERE id = :3 AND f <= :4", (7, 1, 2, 7)),
        ("dollar", "SET f = $1, value = $2 WHERE id = $3 AND f <= $4", (7, 1, 2, 7)),
        (
            "named",
            "SET f = :fence_set, value = :set_value WHERE id = :where_id AND f <= :fence_most",
            {"fence_set": 7, "set_value": 1, "where_id": 2, "fence_most": 7},
        ),
        (
            "pyformat",
            "SET f = %(fence_set)s, value = %(set_value)s WHERE id = %(where_id)s AND f <= %(fence_most)s",
            {"fence_set": 7, "set_value": 1, "where_id": 2, "fence_most": 7},
        ),
    ],
)
def test_statement_is_in_the_style_of_the_driver(style: Style, text: str, parameters: object) -> None:
    """Every driver writes parameters in its own way, and a mark twice in a text is not a parameter twice in each."""
    found = fenced_update("app.rows", {"value": 1}, {"id": 2}, token=7, column="f", style=style)

    assert found == Statement(f"UPDATE app.rows {text}", parameters)


@pytest.mark.parametrize(
    ("table", "values", "where", "column", "style", "text"),
    [
        ("rows; --", {}, {"id": 1}, "fence", "qmark", "'rows; --' is no name of a table or column"),
        ("rows", {"a b": 1}, {"id": 1}, "fence", "qmark", "'a b' is no name"),
        ("rows", {}, {"id=1 OR 1": 1}, "fence", "qmark", "'id=1 OR 1' is no name"),
        ("rows", {}, {"id": 1}, "f'", "qmark", "\"f'\" is no name"),
        ("rows", {}, {}, "fence", "qmark", "no condition would write every row; name a column in where"),
        ("rows", {}, {"id": 1}, "fence", "percent", "style 'percent': expected one of pyformat, format"),
    ],
)
def test_statement_refuses_what_would_write_something_else(
    table: str, values: dict[str, int], where: dict[str, int], column: str, style: Style, text: str
) -> None:
    """Names go into the text as they are, and an update without a condition writes all there is."""
    with pytest.raises(ValueError, match=r"expected|name") as caught:
        fenced_update(table, values, where, token=1, column=column, style=style)

    assert text in str(caught.value)


def test_fence_refuses_a_table_that_is_no_name_and_an_unknown_style() -> None:
    """At once, and not at the first write."""
    with pytest.raises(ValueError, match="no name of a table"):
        SqlFence(table="fences where true")
    with pytest.raises(ValueError, match="expected one of"):
        SqlFence(style="percent")  # type: ignore[arg-type]
