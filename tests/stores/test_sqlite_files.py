"""The lease file: what is ours, what is not, where it may lie, and what a user is told."""

from __future__ import annotations

import json
import os
import pwd
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from partitions.errors import StoreGone, StoreMisconfigured, StoreUnavailable
from partitions.sources.local import LocalStream
from partitions.stores._sqlite_errors import translated
from partitions.stores._sqlite_file import APPLICATION_ID, FILE_VERSION, LeaseFile
from partitions.stores._sqlite_lane import Lane, Pace
from partitions.stores.sqlite import SqliteStore, decide
from partitions.verbs import Applied, Create, SaveCheckpoint
from tests.builders import a_beat, a_lease, a_register, an_acquire

__all__: list[str] = []

G = "group"
CREATE = Create(partition="p", position="@earliest")
NOBODY = 65534
"""The user id without rights, for tests that run as root: to root no file is read-only."""


async def made(path: Path) -> SqliteStore:
    store = SqliteStore(path, call_timeout_s=2.0)
    await store.create()
    await store.open()
    return store


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


# --- Names and places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b.db", "what?.db", "no#1.db", "100%.db", "%41?mode=ro#x.db", "ü&=;'\".db", "-v"])
async def test_file_may_have_any_name(name: str, tmp_path: Path) -> None:
    """SQLite is given the name in a URI, where these letters mean something else unless they are quoted."""
    store = await made(tmp_path / name)

    await store.submit(G, CREATE)

    assert sorted(os.listdir(tmp_path)) == sorted([name, f"{name}-wal", f"{name}-shm"])
    await store.close()
    assert os.listdir(tmp_path) == [name]
    await store.open()
    assert await store.read_leases(G) == (a_lease("p"),)
    await store.delete()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("url", "file"), [("sqlite:m.db", "m.db"), ("sqlite:///data/m.db", "/data/m.db")])
def test_url_is_no_name_of_a_file(url: str, file: str) -> None:
    """Hosts take it in the same place, and a file of that very name would be a second store."""
    said = re.escape(f"{url!r} is a URL, expected a file; use SqliteStore({file!r})")
    with pytest.raises(ValueError, match=f"^{said}$"):
        SqliteStore(url)


async def test_file_stays_the_same_when_the_process_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's code may change the folder while the host runs."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("leases.db")
    assert store.url == "sqlite:leases.db"
    await store.create()
    monkeypatch.chdir(elsewhere)
    await store.open()
    monkeypatch.chdir(tmp_path.parent)

    assert await store.submit(G, CREATE) == Applied(item=a_lease("p"))
    await store.close()
    assert SqliteStore(tmp_path / "leases.db").url == f"sqlite://{tmp_path}/leases.db"


async def test_connection_is_as_safe_as_the_design_asks(tmp_path: Path) -> None:
    """FULL (2): a power cut must not take tokens back (rule 17). A build of SQLite may have another default."""
    store = await made(tmp_path / "leases.db")
    await store.close()

    with closing(LeaseFile("leases.db", folder=tmp_path).connect(wait_s=1.0)) as connection:
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}

    assert found == {"journal_mode": "wal", "synchronous": 2}


# --- Files that are not ours ------------------------------------------------------------------------------------------


def text_file(path: Path) -> None:
    path.write_text("carrier,distance\nAA,1089\n" * 400)


def short_text_file(path: Path) -> None:
    path.write_text("no")


def database_of_another(path: Path) -> None:
    sql(path, "CREATE TABLE stream (x)", "PRAGMA application_id = 1234")


def database_without_a_name(path: Path) -> None:
    sql(path, "CREATE TABLE leases (x)")


def database_of_another_without_tables(path: Path) -> None:
    sql(path, "PRAGMA application_id = 1234")


def later_version(path: Path) -> None:
    anyio.from_thread.run(SqliteStore(path).create)
    sql(path, f"PRAGMA user_version = {FILE_VERSION + 1}")


def stream(path: Path) -> None:
    LocalStream.create(path, partitions=1).close()


def folder(path: Path) -> None:
    path.mkdir()


NOT_OURS: dict[Callable[[Path], None], str] = {
    text_file: "is not a lease file or is damaged: file is not a database; name another file",
    short_text_file: "is not a lease file or is damaged: file is not a database; name another file",
    database_of_another: "is a database of another application (application_id 0x4d2, expected 0x50484c53); "
    "name another file",
    database_without_a_name: "is a database of another application (application_id 0x0, expected 0x50484c53); "
    "name another file",
    database_of_another_without_tables: "is a database of another application (application_id 0x4d2, "
    "expected 0x50484c53); name another file",
    later_version: "has layout version 2, expected 1; use the version of this program that made it, "
    "or name another file",
    stream: "is a stream, not a lease file; name another file with --store",
    folder: "is a folder, expected a file in it; name the file",
}


@pytest.mark.parametrize("make", NOT_OURS, ids=lambda make: make.__name__)
async def test_file_that_is_not_ours_is_named_and_left_alone(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A mistyped path must not cost another application its data, whatever is tried on it."""
    path = tmp_path / "other.db"
    await anyio.to_thread.run_sync(make, path)
    before = path.read_bytes() if path.is_file() else None
    store = SqliteStore(path, call_timeout_s=2.0)

    for attempt in (store.exists, store.create, store.open, store.delete):
        with pytest.raises(StoreMisconfigured) as raised:
            await attempt()
        assert str(raised.value) == f"lease file {str(path)!r} {NOT_OURS[make]}"

    assert (path.read_bytes() if path.is_file() else None) == before


async def test_file_that_is_missing_is_not_made_by_open(tmp_path: Path) -> None:
    """A mistyped path would begin an empty group beside the real one."""
    path = tmp_path / "leases.db"

    with pytest.raises(StoreMisconfigured) as raised:
        await SqliteStore(path).open()

    assert str(raised.value) == (
        f"lease file {str(path)!r} does not exist; check the path, or start a host: 'processor-host run' makes it"
    )
    assert os.listdir(tmp_path) == []


async def test_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """It may be a disk that is not mounted."""
    path = tmp_path / "gone" / "leases.db"
    store = SqliteStore(path)
    expected = f"lease file {str(path)!r}: folder {str(path.parent)!r} does not exist; make it, or name another file"

    assert await store.exists() is False
    for attempt in (store.create, store.open):
        with pytest.raises(StoreMisconfigured) as raised:
            await attempt()
        assert str(raised.value) == expected


async def test_empty_file_is_no_store_until_it_is_created(tmp_path: Path) -> None:
    """Another process is making it at this moment, or somebody reserved the name."""
    path = tmp_path / "leases.db"
    path.touch()
    store = SqliteStore(path)

    assert await store.exists() is False
    with pytest.raises(StoreMisconfigured, match="is empty, expected a lease file; create it first"):
        await store.open()
    await store.create()
    assert await store.exists() is True


async def test_log_that_an_earlier_file_left_behind_is_not_read(tmp_path: Path) -> None:
    """A host was killed and its file removed by hand, but not the log beside it: old leases must not come back."""
    path, log = tmp_path / "leases.db", tmp_path / "leases.db-wal"
    store = await made(path)
    await store.submit(G, CREATE)
    left = log.read_bytes()
    await store.close()
    path.unlink()
    log.write_bytes(left)

    again = await made(path)

    assert await again.read_leases(G) == ()
    await again.submit(G, Create(partition="q", position="@earliest"))
    assert await again.read_leases(G) == (a_lease("q"),)
    await again.close()


# --- Files that change under a running host ---------------------------------------------------------------------------


def unlinked(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replaced(path: Path) -> None:
    new = path.with_name("new.db")
    anyio.from_thread.run(SqliteStore(new).create)
    new.replace(path)


@pytest.mark.parametrize("change", [unlinked, moved, replaced], ids=lambda change: change.__name__)
async def test_file_that_is_gone_ends_every_use_of_it(change: Callable[[Path], None], tmp_path: Path) -> None:
    """The next host begins at token 0 in a new file; one that goes on in the old one would own the same partitions."""
    path = tmp_path / "leases.db"
    store = await made(path)
    await store.submit(G, CREATE)
    await store.submit(G, a_register())

    await anyio.to_thread.run_sync(change, path)

    for call in (
        partial(store.submit, G, a_beat()),
        partial(store.submit, G, Create(partition="q", position="@earliest")),
        partial(store.read_leases, G),
        partial(store.read_sessions, G, consistent=True),
    ):
        with pytest.raises(StoreGone, match="was deleted, moved or replaced while in use; stop every host"):
            await call()
    await store.close()


async def test_delete_is_refused_while_another_host_uses_the_store(tmp_path: Path) -> None:
    """Its hosts would end at once, and lose what they had not checkpointed."""
    path = tmp_path / "leases.db"
    running = await made(path)
    await running.submit(G, CREATE)

    with pytest.raises(StoreUnavailable, match=r"is in use.*; stop them, then delete it again"):
        await SqliteStore(path, call_timeout_s=0.2).delete()

    assert await running.read_leases(G) == (a_lease("p"),)
    assert isinstance(await running.submit(G, an_acquire(a_lease("p"))), Applied)
    await running.close()
    await SqliteStore(path).delete()
    assert os.listdir(tmp_path) == []


# --- What the file system denies --------------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a user without rights can reach; the folders of pytest belong to who runs it alone."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        os.chmod(name, 0o700)


@contextmanager
def without_rights(*paths: Path) -> Iterator[None]:
    """Give the paths to a user without rights, and be that user where we are root."""
    if os.geteuid() != 0:
        yield
        return
    for path in paths:
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_read_only_file_is_misconfigured(open_folder: Path) -> None:
    """SQLite opens it without a word, and the first beat would fail."""
    path = open_folder / "leases.db"
    await SqliteStore(path).create()
    os.chmod(path, 0o444)

    with without_rights(open_folder, path), pytest.raises(StoreMisconfigured) as raised:
        await SqliteStore(path, call_timeout_s=2.0).open()

    expected = "cannot be written: it is read-only for this user; allow writing, or name another file"
    assert str(raised.value) == f"lease file {str(path)!r} {expected}"


async def test_read_only_folder_is_misconfigured(open_folder: Path) -> None:
    """The log lies beside the file, so a writable file is not enough; nor can a file be made there."""
    path = open_folder / "leases.db"
    await SqliteStore(path).create()
    os.chmod(open_folder, 0o555)
    expected = (
        f"cannot be written: its folder {str(open_folder)!r} is read-only for this user; allow writing, or move it"
    )

    with without_rights(open_folder, path):
        for attempt, name in (
            (SqliteStore(path).open, path),
            (SqliteStore(open_folder / "new").create, open_folder / "new"),
        ):
            with pytest.raises(StoreMisconfigured) as raised:
                await attempt()
            assert str(raised.value) == f"lease file {str(name)!r} {expected}"


async def test_file_where_this_user_may_not_look_is_misconfigured(open_folder: Path) -> None:
    """A folder of another user hides whether there is a file at all; that is one line, and no fault of the program."""
    hidden = open_folder / "hidden"
    hidden.mkdir(mode=0o700)
    path = hidden / "leases.db"
    await SqliteStore(path).create()
    hidden.chmod(0o000)
    expected = "cannot be reached: Permission denied; check the path, and that this user may enter each folder of it"

    with without_rights(open_folder):
        for name in (path, hidden / "new.db"):
            store = SqliteStore(name, call_timeout_s=2.0)
            for attempt in (store.exists, store.create, store.open, store.delete):
                with pytest.raises(StoreMisconfigured) as raised:
                    await attempt()
                assert str(raised.value) == f"lease file {str(name)!r} {expected}"
    hidden.chmod(0o700)


@pytest.mark.parametrize("name", ["exists", "create", "open", "delete"])
async def test_refusal_of_a_read_only_file_leaves_nothing_beside_it(name: str, open_folder: Path) -> None:
    """A log made by who may only read the file would keep its owner out, long after the refusal."""
    path = open_folder / "leases.db"
    await SqliteStore(path).create()
    path.chmod(0o444)
    os.chmod(open_folder, 0o777)

    with without_rights(path), pytest.raises(StoreMisconfigured, match="is read-only for this user"):
        await getattr(SqliteStore(path, call_timeout_s=2.0), name)()

    assert os.listdir(open_folder) == ["leases.db"]


async def test_file_beside_that_belongs_to_another_user_is_named(open_folder: Path) -> None:
    """ "Read-only" of a file whose modes are right sends its owner looking in the wrong place."""
    path, beside = open_folder / "leases.db", open_folder / "leases.db-shm"
    await SqliteStore(path).create()
    beside.touch()
    beside.chmod(0o444)

    with without_rights(open_folder, path), pytest.raises(StoreMisconfigured) as raised:
        await SqliteStore(path, call_timeout_s=2.0).open()

    owner = pwd.getpwuid(os.getuid()).pw_name
    assert str(raised.value) == (
        f"lease file {str(path)!r} cannot be written: {str(beside)!r} belongs to user {owner!r} and is read-only for "
        "this user; give it the owner of the lease file, as 'chown --reference' does"
    )


async def test_full_disk_is_unavailable_while_running_and_passes(tmp_path: Path) -> None:
    """Somebody may make room; until then the host's session runs out by itself. Reads go on, and so does the lane."""
    path = tmp_path / "leases.db"
    await SqliteStore(path).create()

    class SmallDisk(LeaseFile):
        def connect(self, *, wait_s: float) -> sqlite3.Connection:
            connection = super().connect(wait_s=wait_s)
            connection.execute("PRAGMA max_page_count = 12")
            return connection

    lane = Lane(
        "leases", SmallDisk(path, folder=tmp_path), wait_max_s=2.0, pace=Pace(together_max=8, poll_s=0.001, gap_s=0.0)
    )
    await lane.open()

    def create(number: int, position: str) -> Callable[[sqlite3.Connection], Any]:
        return lambda connection: decide(connection, G, Create(partition=f"p-{number}", position=position))

    await lane.write(create(0, "small"))
    with pytest.raises(StoreUnavailable, match="the disk is full; make room in"):
        await lane.write(create(1, "x" * 100_000))
    assert await lane.read(lambda connection: connection.execute("SELECT count(*) FROM leases").fetchone()) == (1,)
    assert isinstance(await lane.write(create(2, "small")), Applied)
    lane.stop()
    await lane.stopped()


def test_full_disk_is_misconfigured_at_the_start(tmp_path: Path) -> None:
    """Nobody waits for a host that never began; a person must act."""
    with closing(sqlite3.connect(tmp_path / "full.db")) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.executescript("CREATE TABLE a (x); CREATE TABLE b (x); CREATE TABLE c (x)")

    meant = translated(full.value, tmp_path / "leases.db", at_start=True)

    expected = f"lease file '{tmp_path}/leases.db': the disk is full; make room in '{tmp_path}'"
    assert (type(meant), str(meant)) == (StoreMisconfigured, expected)


# --- What is in it ----------------------------------------------------------------------------------------------------


async def test_fields_of_a_later_version_are_kept(tmp_path: Path) -> None:
    """Hosts of two versions share a group during an upgrade; the older must not erase what the newer one notes."""
    path = tmp_path / "leases.db"
    store = await made(path)
    await store.submit(G, CREATE)
    await store.submit(G, an_acquire(a_lease("p")))
    later = {"colour": 3, "shapes": ["a", {"deep": [1, None]}]}
    sql(path, f"UPDATE leases SET extra = '{json.dumps(later)}'")

    await store.submit(G, SaveCheckpoint(partition="p", owner="a:1", token=1, position="7", seq=1))

    lease = await store.read_lease(G, "p")
    assert lease is not None
    assert (lease.position, dict(lease.extra)) == ("7", later)
    await store.close()


def test_file_is_known_by_the_id_that_sqlite_keeps_in_its_header() -> None:
    """`file` and other programs show it, so it must never change."""
    assert (APPLICATION_ID.to_bytes(4, "big"), FILE_VERSION) == (b"PHLS", 1)
