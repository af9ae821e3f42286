"""
A user's SQL in the lease file: what it may not touch, that it is bounded, and what it does to others that write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from partitions.errors import StoreUnavailable
from partitions.items import LeaseItem
from partitions.stores import _sqlite_rows as rows
from partitions.stores.sqlite import SqliteStore
from partitions.transactions import Commit, Failed, Outcome, TransactionInvalid
from partitions.verbs import Acquire, Applied, Create, SaveCheckpoint
from tests.builders import a_lease

__all__: list[str] = []

GROUP = "g"
OWNED = a_lease("p0", owner="a:1", token=1, last_host="a")
SAVED = replace(OWNED, position="10", seq=1)
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


class File:
    """A lease file with two held leases, and a table of the user's own."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.store = SqliteStore(path, **options)

    def ask(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as beside:
            return beside.execute(sql).fetchall()

    def script(self, sql: str) -> None:
        with closing(sqlite3.connect(self.path)) as beside:
            beside.executescript(sql)

    async def commit(self, *statements: str | tuple[str, Any], partition: str = "p0", **save: Any) -> Outcome:
        tx = self.store.transactions.begin()
        for statement in statements:
            tx.execute(*((statement,) if isinstance(statement, str) else statement))
        checkpoint = SaveCheckpoint(
            partition=partition, **{"owner": "a:1", "token": 1, "position": "10", "seq": 1, **save}
        )
        return await self.store.transactions.commit(
            GROUP, Commit(save=checkpoint, previous="@earliest", operations=tx.taken())
        )

    async def lease(self, partition: str = "p0") -> LeaseItem | None:
        return await self.store.read_lease(GROUP, partition)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[File]:
    """See `File`."""
    file = File(tmp_path / "leases.db")
    await file.store.create()
    file.script("CREATE TABLE mine (id INTEGER PRIMARY KEY, text TEXT UNIQUE)")
    await file.store.open()
    try:
        for partition in ("p0", "p1"):
            await file.store.submit(GROUP, Create(partition=partition, position="@earliest"))
            acquire = Acquire(partition=partition, seen_owner=None, seen_token=0, session_id="a:1", host_id="a")
            assert isinstance(await file.store.submit(GROUP, acquire), Applied)
        yield file
    finally:
        await file.store.close()


async def test_statements_run_in_order_with_their_parameters(file: File) -> None:
    """Both ways in which `sqlite3` takes them; a table may be made on the way."""
    outcome = await file.commit(
        "CREATE TABLE IF NOT EXISTS sums (name TEXT PRIMARY KEY, total INTEGER)",
        ("INSERT INTO sums VALUES (?, ?)", ["late", 3]),
        ("UPDATE sums SET total = total * :by WHERE name = :name", {"by": 4, "name": "late"}),
        ("INSERT INTO mine (text) SELECT name || total FROM sums RETURNING id", ()),
    )

    assert outcome == Applied(item=SAVED)
    assert (file.ask("SELECT * FROM sums"), file.ask("SELECT text FROM mine")) == ([("late", 12)], [("late12",)])


async def test_statements_may_shape_tables_of_the_users_own(file: File) -> None:
    """Also where a column is called as one of our tables is."""
    outcome = await file.commit(
        "CREATE TABLE old (id INTEGER PRIMARY KEY, groups TEXT)",
        "ALTER TABLE old RENAME TO new",
        "ALTER TABLE new ADD COLUMN leases TEXT",
        "CREATE INDEX by_groups ON new (groups)",
        "CREATE VIEW seen AS SELECT leases FROM new",
        "INSERT INTO new (groups, leases) VALUES ('g', 'l')",
        "UPDATE new SET groups = (SELECT leases FROM seen)",
    )

    assert outcome == Applied(item=SAVED)
    assert file.ask("SELECT * FROM new") == [(1, "l", "l")]


async def test_parameters_are_those_of_the_call(file: File) -> None:
    """A handler fills one list again and again; what it holds at the end of the block was not meant."""
    row: list[Any] = ["first"]
    tx = file.store.transactions.begin()
    tx.execute("INSERT INTO mine (text) VALUES (?)", row)
    row[0] = "second"
    tx.execute("INSERT INTO mine (text) VALUES (?)", row)
    save = SaveCheckpoint(partition="p0", owner="a:1", token=1, position="10", seq=1)
    await file.store.transactions.commit(GROUP, Commit(save=save, previous="@earliest", operations=tx.taken()))

    assert file.ask("SELECT text FROM mine ORDER BY id") == [("first",), ("second",)]


@pytest.mark.parametrize(
    ("statement", "kind", "text"),
    [
        ("INSERT INTO mine VALUES (1, 'again')", sqlite3.IntegrityError, "UNIQUE constraint failed: mine.id"),
        ("INSERT INTO nowhere VALUES (1)", sqlite3.OperationalError, "no such table: nowhere"),
        ("INSERT INTO", sqlite3.OperationalError, "incomplete input"),
        (("INSERT INTO mine VALUES (?, ?)", (1,)), sqlite3.ProgrammingError, "ncorrect number of bindings"),
        (("INSERT INTO mine (text) VALUES (?)", (object(),)), sqlite3.InterfaceError, "Error binding parameter"),
        (("INSERT INTO mine VALUES (?, '')", (2**70,)), OverflowError, "Python int too large"),
    ],
)
async def test_failing_statement_is_the_users_error_and_undoes_the_others(
    file: File, statement: str | tuple[str, Any], kind: type[Exception], text: str
) -> None:
    """As `sqlite3` raises it, with a note of which it was: never taken for a broken lease file."""
    outcome = await file.commit("INSERT INTO mine VALUES (1, 'first')", statement)

    assert isinstance(outcome, Failed)
    # Python 3.12 calls what cannot be bound a ProgrammingError.
    assert isinstance(outcome.error, (kind, sqlite3.ProgrammingError))
    assert text in str(outcome.error)
    assert outcome.error.__notes__[0].startswith("statement 1 of the transaction, nothing of which was applied: INSERT")
    assert (file.ask("SELECT * FROM mine"), await file.lease()) == ([], OWNED)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE leases SET owner = 'b:1'",
        "UPDATE LEASES SET token = 0",
        'DELETE FROM main."leases"',
        "INSERT INTO sessions SELECT * FROM sessions",
        "DROP TABLE leases",
        "CREATE TABLE named_locks (mine TEXT)",
        "ALTER TABLE leases ADD COLUMN mine TEXT",
        "ALTER TABLE leases RENAME TO other",
        "CREATE INDEX i ON leases (owner)",
        "CREATE TRIGGER t AFTER UPDATE ON leases BEGIN DELETE FROM mine; END",
        "INSERT INTO mine (text) SELECT owner FROM leases",
        "SELECT source FROM groups",
        "UPDATE by_view SET owner = 'b:1'",
        "SELECT * FROM by_view",
        "INSERT INTO triggering VALUES (1)",
        "CREATE TEMP TABLE leases (owner TEXT)",
        "CREATE TEMP VIEW leases AS SELECT 1",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "END",
        "SAVEPOINT mine",
        "RELEASE one",
        "ROLLBACK TO one",
        "PRAGMA synchronous = OFF",
        "PRAGMA user_version = 9",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = ''",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "VACUUM",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "UPDATE mine SET text = ''; DELETE FROM leases",
    ],
)
async def test_statement_cannot_touch_what_is_ours_nor_end_the_transaction(file: File, statement: str) -> None:
    """A lease that SQL can change fences nothing; a transaction that SQL can end keeps nothing together."""
    file.script(
        "CREATE VIEW by_view AS SELECT * FROM leases;"
        "CREATE TABLE triggering (x); CREATE TRIGGER t0 AFTER INSERT ON triggering BEGIN"
        " UPDATE leases SET token = 99; END"
    )
    before = (file.ask("SELECT * FROM leases"), file.ask("SELECT * FROM sqlite_master ORDER BY name"))

    outcome = await file.commit("INSERT INTO mine VALUES (1, 'first')", statement)

    assert isinstance(outcome, Failed)
    assert (file.ask("SELECT * FROM leases"), file.ask("SELECT * FROM sqlite_master ORDER BY name")) == before
    assert file.ask("SELECT * FROM mine") == []
    # And the connection is as it was.
    assert await file.commit() == Applied(item=SAVED)


@pytest.mark.parametrize(
    "statement",
    [
        (rows.LEASES.write, rows.LEASES.to_row(GROUP, replace(OWNED, token=99))),
        (rows.LEASES.select_one, (GROUP, "p0")),
        "SAVEPOINT one",
        "RELEASE one",
    ],
)
async def test_statement_in_our_own_words_is_denied_too(file: File, statement: Any) -> None:
    """SQLite keeps statements that it has prepared; one that was prepared for us must be asked about again."""
    await file.store.submit(GROUP, SaveCheckpoint(partition="p1", owner="a:1", token=1, position="1", seq=1))

    outcome = await file.commit(statement)

    assert isinstance(outcome, Failed)
    assert await file.lease() == OWNED


async def test_our_own_statements_are_not_denied_after_a_users(file: File) -> None:
    """The connection serves everybody's checkpoints."""
    await file.commit("INSERT INTO mine VALUES (1, 'first')")
    await file.commit("UPDATE leases SET token = 0", seq=2)

    result = await file.store.submit(GROUP, SaveCheckpoint(partition="p1", owner="a:1", token=1, position="1", seq=1))

    assert isinstance(result, Applied)


async def test_bound_of_a_users_statements_is_no_bound_of_what_follows(file: File) -> None:
    """The connection serves everybody's checkpoints; a bound that stayed would interrupt them once it is past."""
    assert await file.commit("INSERT INTO mine VALUES (1, 'first')") == Applied(item=SAVED)
    _, lane, _ = file.store._opened()
    count = f"SELECT count(*) FROM ({ENDLESS.replace('FROM n)', 'FROM n WHERE x < 3000000)')})"

    # Longer than the statements of a transaction may take.
    assert await lane.write(lambda connection: connection.execute(count).fetchone()) == (1,)


@pytest.mark.parametrize("statement", [ENDLESS, f"INSERT INTO mine (text) {ENDLESS}"])
async def test_endless_statement_is_interrupted(tmp_path: Path, statement: str) -> None:
    """Everybody who writes to the file waits for it, beats too."""
    file = File(tmp_path / "leases.db", call_timeout_s=0.5)
    await file.store.create()
    file.script("CREATE TABLE mine (id INTEGER PRIMARY KEY, text TEXT UNIQUE)")
    await file.store.open()
    try:
        await file.store.submit(GROUP, Create(partition="p0", position="@earliest"))
        await file.store.submit(
            GROUP, Acquire(partition="p0", seen_owner=None, seen_token=0, session_id="a:1", host_id="a")
        )
        outcome = await file.commit("INSERT INTO mine VALUES (1, 'first')", statement)

        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, TransactionInvalid)
        assert str(outcome.error).startswith(
            "the statements of the transaction took longer than 0.1 s together (at statement 1); make them smaller"
        )
        assert (file.ask("SELECT * FROM mine"), await file.lease()) == ([], OWNED)
        assert await file.commit() == Applied(item=SAVED)
    finally:
        await file.store.close()


async def test_transaction_whose_caller_has_gone_is_not_applied_late(tmp_path: Path) -> None:
    """Its statements are interrupted, and what they wrote is undone."""
    file = File(tmp_path / "leases.db", call_timeout_s=600)
    await file.store.create()
    file.script("CREATE TABLE mine (id INTEGER PRIMARY KEY, text TEXT UNIQUE)")
    await file.store.open()
    try:
        await file.store.submit(GROUP, Create(partition="p0", position="@earliest"))
        await file.store.submit(
            GROUP, Acquire(partition="p0", seen_owner=None, seen_token=0, session_id="a:1", host_id="a")
        )
        with anyio.move_on_after(0.2) as scope:
            await file.commit("INSERT INTO mine VALUES (1, 'first')", ENDLESS)

        assert scope.cancelled_caught
        # Waits for the lane, which would be busy for 120 s otherwise.
        with anyio.fail_after(30):
            assert await file.commit() == Applied(item=SAVED)
        assert file.ask("SELECT * FROM mine") == []
    finally:
        await file.store.close()


@pytest.mark.parametrize(
    "statement",
    ["INSERT OR ROLLBACK INTO mine VALUES (1, 'again')", "INSERT INTO rolling VALUES (1)"],
    ids=["conflict clause", "trigger"],
)
async def test_statement_that_rolls_everything_back_fails_and_others_try_again(file: File, statement: str) -> None:
    """Only its sender did wrong; a checkpoint that waited together with it must not be told of it as its own fault."""
    file.script(
        "CREATE TABLE rolling (x); CREATE TRIGGER t0 AFTER INSERT ON rolling BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    )
    outcomes: list[Any] = []

    async def commit() -> None:
        outcomes.append(await file.commit("INSERT INTO mine VALUES (1, 'first')", statement))

    async def save(seq: int) -> None:
        try:
            outcomes.append(
                await file.store.submit(
                    GROUP, SaveCheckpoint(partition="p1", owner="a:1", token=1, position="1", seq=seq)
                )
            )
        except StoreUnavailable as error:
            outcomes.append(str(error).split(": ", 1)[-1])

    # The lock is held elsewhere, so that they wait together.
    with closing(sqlite3.connect(file.path, isolation_level=None)) as beside:
        beside.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save, 1)
            tasks.start_soon(commit)
            tasks.start_soon(save, 2)
            await anyio.sleep(0.04)
            beside.execute("COMMIT")

    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    told = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert [type(outcome.error) for outcome in failed] == [sqlite3.IntegrityError]
    assert told == ["a user's statement rolled back the transaction in which this was to be written"] * 2
    assert (file.ask("SELECT * FROM mine"), await file.lease(), (await file.lease("p1"))) == (
        [],
        OWNED,
        replace(OWNED, partition="p1"),
    )
    await save(1)
    assert isinstance(outcomes[-1], Applied)


async def test_transactions_that_wait_together_see_one_another(file: File) -> None:
    """They are committed together, each decided on what the one before it left."""
    outcomes: list[Outcome] = []

    async def commit(partition: str) -> None:
        outcomes.append(await file.commit("INSERT INTO mine (text) SELECT count(*) FROM mine", partition=partition))

    async with anyio.create_task_group() as tasks:
        for partition in ("p0", "p1", "p0", "p1"):
            tasks.start_soon(commit, partition)

    kinds = sorted(type(outcome).__name__ for outcome in outcomes)
    assert kinds == ["Applied", "Applied", "Refused", "Refused"]
    assert file.ask("SELECT text FROM mine ORDER BY id") == [("0",), ("1",)]
