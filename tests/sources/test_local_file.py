"""The file of a local stream: recognised, never mixed up, and every fault of it told in one clear line."""

from __future__ import annotations

import os
import pwd
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from partitions.errors import PartitionsError, SourceMisconfigured, SourceUnavailable
from partitions.positions import EARLIEST
from partitions.sources.local import Entry, LocalSource, LocalStream
from partitions.sources.local._faults import translated
from partitions.stores._sqlite_file import LeaseFile

__all__: list[str] = []

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user whom the modes of files bind: root may write anything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that any user may reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def content(path: Path) -> bytes | str | None:
    """What is under a path."""
    if not path.exists():
        return None
    return "a folder" if path.is_dir() else path.read_bytes()


def replaced(path: Path) -> Path:
    """Put another stream in the place of one, and return where that one is now."""
    moved = path.rename(path.with_name("moved.db"))
    LocalStream.create(path, partitions=1).close()
    return moved


async def identity_of(path: Path) -> str:
    source = LocalSource(path)
    await source.open()
    try:
        return await source.identity()
    finally:
        await source.close()


async def test_identity_stays_while_the_file_moves_and_differs_after_it_was_made_anew(path: Path) -> None:
    """A group must go on with its stream under another path, and never with another stream under the same one."""
    LocalStream.create(path, partitions=1).close()
    first = await identity_of(path)
    moved = replaced(path)

    assert first.startswith("s.db/")
    assert await identity_of(moved) == first
    assert await identity_of(path) != first


async def test_source_refuses_a_file_that_is_not_there_and_makes_none(path: Path) -> None:
    """A source that makes its stream hides every misspelt path."""
    with pytest.raises(
        SourceMisconfigured, match=r"s\.db' is not there; create it with 'processor-host stream create'"
    ):
        await LocalSource(path).open()
    with pytest.raises(SourceMisconfigured, match="is not there"):
        LocalStream.open(path)
    assert content(path) is None


def make_other_kind(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 7")
        db.execute("CREATE TABLE leases (partition TEXT)")
        db.commit()
    return r"not a stream but an SQLite file of another kind \(application id 0x7\)"


def make_lease_file(path: Path) -> str:
    LeaseFile(path, folder=path.parent).create(wait_s=5.0)
    return r"s\.db' is a lease file, not a stream; name a file that 'processor-host stream create' made"


def make_other_version(path: Path) -> str:
    LocalStream.create(path, partitions=1).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    return "has schema version 2, expected 1; use the version of processor-host that made it"


def make_text(path: Path) -> str:
    path.write_bytes(b"id,carrier\n" * 100)
    return "is no SQLite file at all"


def make_empty(path: Path) -> str:
    path.touch()
    return "not a stream"


def make_folder(path: Path) -> str:
    path.mkdir()
    return "is a folder; expected the file of a stream"


def make_damaged(path: Path) -> str:
    with LocalStream.create(path, partitions=1) as stream:
        stream.append([Entry(data=b"x" * 2000) for _ in range(20)])
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    return r"is damaged \(.*\); restore it from a copy"


@pytest.mark.parametrize(
    "make", [make_other_kind, make_lease_file, make_other_version, make_text, make_empty, make_folder, make_damaged]
)
async def test_file_that_is_no_stream_is_refused_with_one_line_and_left_as_it_is(path: Path, make: object) -> None:
    """A lease file given as --source must not be written into, and a stream of a later version not misread."""
    assert callable(make)
    match = make(path)
    before = content(path)
    source = LocalSource(path)

    with pytest.raises(SourceMisconfigured, match=match) as of_source:
        await source.open()
    await source.close()
    with pytest.raises(SourceMisconfigured, match=match) as of_stream, LocalStream.open(path) as stream:
        stream.describe()
    assert [len(str(each.value).splitlines()) for each in (of_source, of_stream)] == [1, 1]
    assert content(path) == before


@pytest.mark.parametrize("make", [make_other_kind, make_text, make_empty, make_folder])
def test_create_leaves_what_is_there(path: Path, make: object) -> None:
    """A second `stream create` must not cost the stream."""
    assert callable(make)
    make(path)
    before = content(path)

    with pytest.raises(FileExistsError, match=r"s\.db' exists already; delete it or use another name"):
        LocalStream.create(path, partitions=1)
    assert content(path) == before


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_create_refuses_an_impossible_number_of_partitions_and_leaves_no_file(path: Path, partitions: int) -> None:
    """What is refused changes nothing."""
    with pytest.raises(ValueError, match=f"partitions={partitions} is not possible; use 1 to 10000"):
        LocalStream.create(path, partitions=partitions)
    assert list(path.parent.iterdir()) == []


def test_create_says_that_the_folder_is_missing(path: Path) -> None:
    """SQLite's own text names neither the folder nor what to do."""
    with pytest.raises(SourceMisconfigured, match="No such file or directory; create the folder first"):
        LocalStream.create(path.parent / "none" / "s.db", partitions=1)


def test_create_is_not_disturbed_by_the_rest_of_a_deleted_stream(path: Path) -> None:
    """Whoever deletes a stream often leaves its -wal file; its pages must not get into the new one."""
    wal = Path(f"{path}-wal")
    with LocalStream.create(path, partitions=1) as old:
        old.append([Entry(data=b"old")])
        left = wal.read_bytes()
    path.unlink()
    wal.write_bytes(left)

    with LocalStream.create(path, partitions=2) as new:
        assert [each.records for each in new.describe().partitions] == [0, 0]


async def test_file_that_may_only_be_read_is_read_and_not_written(shared: Path) -> None:
    """A reader needs no right to write the stream."""
    path = shared / "s.db"
    with LocalStream.create(path, partitions=1) as writer:
        writer.append([Entry(data=b"1")])
        path.chmod(0o444)
        with unprivileged():
            source = LocalSource(path)
            await source.open()
            fetched = await source.reader("p0", EARLIEST).read(records_max=9, bytes_max=99, wait_s=0.0)
            await source.close()
            with (
                LocalStream.open(path) as denied,
                pytest.raises(SourceMisconfigured, match=r"s\.db' is read-only for this user; allow writing"),
            ):
                denied.append([Entry(data=b"2")])

    assert [record.data for record in fetched.records] == [b"1"]


async def test_file_that_must_not_be_read_is_told_with_the_remedy(shared: Path) -> None:
    """'unable to open database file' tells nobody what to do."""
    path = shared / "s.db"
    LocalStream.create(path, partitions=1).close()
    path.chmod(0o000)
    with unprivileged(), pytest.raises(SourceMisconfigured, match=r"cannot be opened .*; allow this user to read it"):
        await LocalSource(path).open()


async def test_folder_that_must_not_be_written_is_told_with_the_remedy(shared: Path) -> None:
    """Reading in WAL mode needs a file beside the stream, unless a writer has it open; nobody would guess that."""
    path = shared / "s.db"
    LocalStream.create(path, partitions=1).close()
    path.chmod(0o444)
    with unprivileged(), pytest.raises(SourceMisconfigured, match=r"must write 's\.db-shm' beside it"):
        await LocalSource(path).open()


async def test_reader_that_may_only_read_leaves_nothing_that_keeps_the_owner_out(shared: Path) -> None:
    """Reading makes files beside the stream; as those of the reader they would end all writing, without a sign why."""
    path = shared / "s.db"
    LocalStream.create(path, partitions=1).close()
    path.chmod(0o444)
    os.chmod(shared, 0o777)
    with unprivileged():
        with pytest.raises(SourceMisconfigured, match=r"no writer has it open: .* would keep its owner out"):
            await LocalSource(path).open()
        with pytest.raises(SourceMisconfigured, match=r"no writer has it open: .* would keep its owner out"):
            LocalStream.open(path)

    assert os.listdir(shared) == ["s.db"]


async def test_file_beside_that_belongs_to_another_user_is_named(shared: Path) -> None:
    """ "Read-only" of a file whose modes are right sends its owner looking in the wrong place."""
    path, beside = shared / "s.db", shared / "s.db-shm"
    LocalStream.create(path, partitions=1).close()
    beside.touch()
    beside.chmod(0o444)
    path.chmod(0o666)
    os.chmod(shared, 0o777)
    owner = pwd.getpwuid(os.getuid()).pw_name

    with unprivileged(), pytest.raises(SourceMisconfigured) as raised:
        await LocalSource(path).open()

    assert str(raised.value) == (
        f"stream {str(path)!r} cannot be used: {str(beside)!r} belongs to user {owner!r} and is read-only for this "
        "user; give it the owner of the stream, as 'chown --reference' does"
    )


def test_what_cannot_be_made_beside_the_stream_is_not_blamed_on_the_stream(path: Path) -> None:
    """SQLite says only that it cannot open the file, which may be read very well; as in an immutable folder."""
    LocalStream.create(path, partitions=1).close()
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN

    with (
        pytest.raises(SourceMisconfigured, match=r"cannot make or open 's\.db-shm' and 's\.db-wal' beside it"),
        translated(path),
    ):
        raise error


async def test_source_whose_file_was_replaced_says_so(path: Path) -> None:
    """A position in one file means nothing in another: reading on would pass over records without a word."""
    with LocalStream.create(path, partitions=1) as old:
        old.append([Entry(data=b"old")])
    source = LocalSource(path)
    await source.open()
    reader = source.reader("p0", EARLIEST)
    await reader.read(records_max=9, bytes_max=99, wait_s=0.0)
    replaced(path)
    with LocalStream.open(path) as new:
        new.append([Entry(data=b"new"), Entry(data=b"new")])
        errors: list[PartitionsError] = []
        for wait_s in (0.0, 30.0):
            try:
                await reader.read(records_max=9, bytes_max=99, wait_s=wait_s)
            except PartitionsError as error:
                errors.append(error)
    await source.close()

    assert [(type(error), "was replaced by another file" in str(error)) for error in errors] == [
        (SourceMisconfigured, True)
    ] * 2


async def test_source_says_that_it_is_not_open(path: Path) -> None:
    """Each misuse has its own text; 'NoneType' has none."""
    LocalStream.create(path, partitions=1).close()
    source = LocalSource(path)

    with pytest.raises(SourceUnavailable, match="is not open; call open"):
        await source.list_partitions()
    await source.open()
    await source.close()
    with pytest.raises(SourceUnavailable, match="was closed by this process"):
        await source.list_partitions()


def test_full_disk_is_told_and_writes_nothing(path: Path) -> None:
    """SQLite's own limit of pages stands for a full disk: the same fault, from the same place."""
    LocalStream.create(path, partitions=1).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA max_page_count = 10")
        with pytest.raises(SourceUnavailable, match="the disk is full; nothing was written"), translated(path):
            db.execute("INSERT INTO records VALUES (1, 1, 0, NULL, NULL, ?)", (b"x" * 100_000,))
    with LocalStream.open(path) as stream:
        assert stream.describe().partitions[0].records == 0


def test_fault_of_the_program_is_not_taken_for_one_of_the_file(path: Path) -> None:
    """A misspelt statement must be seen as what it is, not be tried again for ever."""
    LocalStream.create(path, partitions=1).close()
    with (
        closing(sqlite3.connect(path)) as db,
        pytest.raises(sqlite3.OperationalError, match="no such table"),
        translated(path),
    ):
        db.execute("SELECT * FROM missing")


def test_writer_does_not_wait_for_ever_for_another_one(path: Path) -> None:
    """A long import must not make a producer hang without a word."""
    LocalStream.create(path, partitions=1).close()
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        LocalStream.open(path, busy_timeout_s=0.01) as stream,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SourceUnavailable, match="is locked by another writer"):
            stream.append([Entry(data=b"1")])
        other.execute("ROLLBACK")

        assert stream.append([Entry(data=b"1")]) == (("p0", "1"),)
