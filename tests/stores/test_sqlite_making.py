"""The lease file in the hands of many: who makes it at once, who closes it last, and the log that all of them write."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from partitions.errors import StoreMisconfigured
from partitions.stores._sqlite_file import APPLICATION_ID, FILE_VERSION, LeaseFile
from partitions.stores._sqlite_log import FOLD_COMMITS
from partitions.stores._sqlite_rows import SCHEMA
from partitions.stores.sqlite import SqliteStore
from partitions.verbs import Applied, Create, Refused, SaveCheckpoint
from tests.builders import a_beat, a_lease, a_register, an_acquire

__all__: list[str] = []

G = "group"
CREATE = Create(partition="p", position="@earliest")


async def made(path: Path) -> SqliteStore:
    store = SqliteStore(path, call_timeout_s=20.0)
    await store.create()
    await store.open()
    return store


class Overtaken(LeaseFile):
    """A lease file that somebody else makes right after it was seen to be empty, and before the lock is asked for."""

    __slots__ = ("statements",)

    statements: tuple[str, ...]

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        ours = super()._is_ours(connection)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            for statement in self.statements:
                other.execute(statement)
        self.statements = ()
        return ours


def test_create_finds_what_another_process_has_made_meanwhile(tmp_path: Path) -> None:
    """Both saw an empty file; who gets the lock second finds the tables and adds nothing."""
    file = Overtaken(tmp_path / "leases.db", folder=tmp_path)
    ids = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {FILE_VERSION}")
    file.statements = ("BEGIN", *SCHEMA, *ids, "COMMIT")

    file.create(wait_s=5.0)

    assert LeaseFile("leases.db", folder=tmp_path).exists(wait_s=5.0) is True


def test_create_refuses_what_another_application_has_made_meanwhile(tmp_path: Path) -> None:
    """The file was empty when it was looked at; what stands there now is not ours, and is left alone."""
    file = Overtaken(tmp_path / "leases.db", folder=tmp_path)
    file.statements = ("CREATE TABLE stream (x)",)

    with pytest.raises(StoreMisconfigured, match="is a database of another application"):
        file.create(wait_s=5.0)

    with closing(sqlite3.connect(tmp_path / "leases.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("stream",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize("name", ["create", "open"])
async def test_change_to_the_log_waits_for_those_who_read(name: str, tmp_path: Path) -> None:
    """One of several who make a file changes it to WAL; SQLite tells the others "database is locked" at once."""
    path = tmp_path / "leases.db"
    await SqliteStore(path).create()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    store = SqliteStore(path, call_timeout_s=20.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM leases").fetchall()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(getattr(store, name))
            await tried_for_a_while()
            reader.execute("COMMIT")

    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_file_is_made_by_many_threads_at_once(tmp_path: Path) -> None:
    """Closer together than processes can start: several hosts in one process, on a new file."""
    for number in range(10):
        stores = [SqliteStore(tmp_path / f"{number}.db", call_timeout_s=20.0) for _ in range(8)]
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(store.create)
        for store in stores:
            await store.open()
        answers = [await store.submit(G, CREATE) for store in stores]
        assert [type(answer) for answer in answers] == [Applied] + [Refused] * 7
        for store in stores:
            await store.close()


async def test_log_goes_with_the_last_who_closes(tmp_path: Path) -> None:
    """A person who copies the file alone, with every host stopped, has everything."""
    path = tmp_path / "leases.db"
    await SqliteStore(path).create()
    for _ in range(40):
        store = SqliteStore(path, call_timeout_s=20.0)
        await store.open()
        await store.close()
        assert os.listdir(tmp_path) == ["leases.db"]


async def tried_for_a_while() -> None:
    """Let a thread that waits for the file try a few times; it does so every few milliseconds."""
    await anyio.sleep(0.04)


async def test_log_does_not_grow_with_the_number_of_commits(tmp_path: Path) -> None:
    """It is folded back from time to time, though readers come and go; else a year of beats fills the disk."""
    path = tmp_path / "leases.db"
    store = await made(path)
    await store.submit(G, CREATE)
    await store.submit(G, an_acquire(a_lease("p")))

    async def commits(first: int) -> int:
        for seq in range(first, first + FOLD_COMMITS):
            await store.submit(G, SaveCheckpoint(partition="p", owner="a:1", token=1, position=str(seq), seq=seq))
            await store.read_leases(G)
        return os.stat(f"{path}-wal").st_size

    sizes = [await commits(1 + turn * FOLD_COMMITS) for turn in range(3)]

    assert max(sizes) <= 2 * sizes[0]
    await store.close()


async def test_log_is_folded_by_beats_alone(tmp_path: Path) -> None:
    """A group without traffic beats for months. The lane of the beats leaves it to the idle one."""
    path = tmp_path / "leases.db"
    store = await made(path)
    await store.submit(G, a_register())

    def salt() -> bytes:
        """Of the log: another one whenever the log begins anew."""
        with Path(f"{path}-wal").open("rb") as log:
            return log.read(32)[16:20]

    for _ in range(FOLD_COMMITS):
        await store.submit(G, a_beat())
    first = salt()
    with anyio.fail_after(20):
        while salt() == first:
            await store.submit(G, a_beat())
            await anyio.sleep(0.01)
    await store.close()
