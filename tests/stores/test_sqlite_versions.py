"""
Lease files of an earlier version: they open as they are, and a host of either version keeps what the other wrote.

The file here is what the first version made, word for word; a change of the tables would turn this red.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from partitions.items import GroupItem, Prepared
from partitions.stores._sqlite_file import APPLICATION_ID
from partitions.stores._sqlite_rows import LEASES, SCHEMA, SESSIONS
from partitions.stores.sqlite import SqliteStore
from partitions.verbs import Applied, Attempt, Prepare, Refused, Register, SaveCheckpoint
from tests.builders import a_beat, a_lease, a_lock, a_register, a_session, an_acquire, an_acquire_of_lock

__all__: list[str] = []

G = "g"
FIRST_SCHEMA: Final = (
    "CREATE TABLE groups (group_id TEXT NOT NULL, schema_version INTEGER NOT NULL, source TEXT NOT NULL, "
    "start TEXT NOT NULL, plan_mode TEXT NOT NULL, restore_count INTEGER NOT NULL, extra TEXT NOT NULL, "
    "PRIMARY KEY (group_id)) WITHOUT ROWID",
    "CREATE TABLE sessions (group_id TEXT NOT NULL, session_id TEXT NOT NULL, host_id TEXT NOT NULL, "
    "beat INTEGER NOT NULL, duration_s REAL NOT NULL, handoff_s REAL NOT NULL, owned INTEGER NOT NULL, "
    "load REAL NOT NULL, capacity REAL NOT NULL, max_leases INTEGER, draining INTEGER NOT NULL, "
    "drain_asked INTEGER NOT NULL, known_count INTEGER, known_checksum INTEGER, asks TEXT NOT NULL, "
    "extra TEXT NOT NULL, PRIMARY KEY (group_id, session_id)) WITHOUT ROWID",
    "CREATE TABLE leases (group_id TEXT NOT NULL, partition TEXT NOT NULL, owner TEXT, token INTEGER NOT NULL, "
    "position TEXT NOT NULL, seq INTEGER NOT NULL, parents TEXT NOT NULL, finished INTEGER NOT NULL, "
    "paused INTEGER NOT NULL, weight REAL NOT NULL, last_host TEXT, extra TEXT NOT NULL, "
    "PRIMARY KEY (group_id, partition)) WITHOUT ROWID",
)
FIRST_ROWS: Final = (
    "INSERT INTO groups VALUES('g',1,'local:s.db@1','@earliest','count',0,'{}')",
    "INSERT INTO leases VALUES('g','p','a:1',1,'7',1,'[]',0,0,0.5,'a','{}')",
    "INSERT INTO sessions VALUES('g','a:1','a',0,10.0,30.0,0,0.0,1.0,NULL,0,0,NULL,NULL,'{}','{\"pid\":7}')",
)
OF_FIRST = a_lease("p", owner="a:1", token=1, position="7", seq=1, weight=0.5, last_host="a")
PREPARED = Prepared(state="", position="9")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lease file that the first version made, with one session and what it owns."""
    path = tmp_path / "leases.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (
            *FIRST_SCHEMA,
            *FIRST_ROWS,
            f"PRAGMA application_id = {APPLICATION_ID}",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
    return path


def rows(path: Path, *columns: str, table: str = "sqlite_master") -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()


def test_tables_are_those_of_the_first_version() -> None:
    """A host of an earlier version opens the file too; a field that is added lies in `extra`."""
    assert SCHEMA == FIRST_SCHEMA


async def test_file_of_the_first_version_opens_and_takes_every_field(path: Path) -> None:
    """An upgrade makes no new file and changes none: hosts of both versions run side by side."""
    store = SqliteStore(path, call_timeout_s=20.0)
    await store.open()

    found = (await store.read_leases(G), await store.read_sessions(G, consistent=True), await store.read_group(G))
    suspected = await store.submit(G, an_acquire(OF_FIRST, "b:1", is_suspect=True))
    attempted = await store.submit(G, Attempt(partition="p", owner="b:1", token=2, seq=1))
    prepared = await store.submit(G, Prepare(partition="p", owner="b:1", token=2, seq=2, prepared=PREPARED))
    sick = await store.submit(G, a_beat(sick=True))
    await store.close()

    first = (OF_FIRST,), (a_session(extra={"pid": 7}),), GroupItem(source="local:s.db@1", start="@earliest")
    new = replace(OF_FIRST, owner="b:1", token=2, last_host="b", seq=0, suspects=1)
    assert found == first
    assert [suspected, attempted, prepared, sick] == [
        Applied(item=new),
        Applied(item=replace(new, seq=1, attempts=1)),
        Applied(item=replace(new, seq=2, attempts=1, prepared=PREPARED)),
        Applied(item=a_session(extra={"pid": 7}, beat=1, sick=True)),
    ]


async def test_file_of_the_first_version_has_no_locks_until_one_is_acquired(path: Path) -> None:
    """The table is made by whoever needs it first, also where two do at once; the file is one of the first version."""
    stores = [SqliteStore(path, call_timeout_s=20.0) for _ in range(2)]
    for store in stores:
        await store.open()

    before = (await stores[0].read_lock(G, "p"), await stores[0].read_some_locks(G, ["p"]), rows(path, "name"))
    answers = await asyncio.gather(*(store.submit(G, an_acquire_of_lock(None, name="p")) for store in stores))
    after = (await stores[0].read_locks(G), [name for (name,) in rows(path, "name")])
    for store in stores:
        await store.close()

    lock = a_lock("p", owner="a:1", holder="a")
    tables = [(name,) for name in ("groups", "sessions", "leases")]
    assert before == (None, (), tables)
    assert sorted(answers, key=repr) == [Applied(item=lock), Refused(current=lock)]
    assert after == ((lock,), ["groups", "sessions", "leases", "named_locks"])


async def test_fields_that_were_added_lie_where_the_first_version_keeps_what_it_does_not_know(path: Path) -> None:
    """It writes `extra` back as it read it; a field that says nothing is not there, and leaves nothing behind."""
    store = SqliteStore(path, call_timeout_s=20.0)
    await store.open()
    await store.submit(G, an_acquire(OF_FIRST, is_suspect=True))
    for seq in (1, 2):
        await store.submit(G, Attempt(partition="p", owner="a:1", token=2, seq=seq))
    await store.submit(G, Prepare(partition="p", owner="a:1", token=2, seq=3, prepared=PREPARED))
    await store.submit(G, a_beat(sick=True))
    written = [json.loads(extra) for table in ("leases", "sessions") for (extra,) in rows(path, "extra", table=table)]
    await store.submit(G, SaveCheckpoint(partition="p", owner="a:1", token=2, position="9", seq=4))
    await store.submit(G, a_beat())
    ended = [extra for table in ("leases", "sessions") for (extra,) in rows(path, "extra", table=table)]
    await store.close()

    assert written == [
        {"attempts": 2, "suspects": 1, "prepared_state": "", "prepared_position": "9"},
        {"pid": 7, "sick": True},
    ]
    assert ended == ["{}", '{"pid":7}']


async def test_field_for_people_may_not_have_the_name_of_one_that_was_added(path: Path) -> None:
    """It would be read as that field; whoever sends it is told, and nobody else's write goes with it."""
    store = SqliteStore(path, call_timeout_s=20.0)
    await store.open()
    register: Register = a_register("b:1", extra={"sick": "a cold"})

    with pytest.raises(ValueError, match=r"extra has \['sick'\], which are names of known fields; choose others"):
        await store.submit(G, register)
    after = await store.submit(G, a_register("c:1"))
    await store.close()

    assert after == Applied(item=a_session("c:1"))


def test_rows_come_back_as_the_items_were() -> None:
    """Every value of the fields without a column, alone and together; `extra` is as it was."""
    for lease in (
        replace(OF_FIRST, attempts=2),
        replace(OF_FIRST, suspects=3, extra={"note": "kept"}),
        replace(OF_FIRST, prepared=Prepared(state='ü"\\', position="")),
        replace(OF_FIRST, attempts=2, suspects=3, prepared=PREPARED, extra={"note": None}),
    ):
        assert LEASES.from_row(LEASES.to_row(G, lease)) == lease
    for session in (a_session(sick=True), a_session(sick=True, extra={"pid": 7})):
        assert SESSIONS.from_row(SESSIONS.to_row(G, session)) == session
