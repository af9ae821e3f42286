"""The writer's side of a local stream: where records go, all or none, and how partitions change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partitions.errors import SourceMisconfigured
from partitions.positions import EARLIEST, at_time
from partitions.sources.base import Record
from partitions.sources.local import Entry, Imported, LocalSource, LocalStream, PartitionDescription, hash_of

__all__: list[str] = []


class Clock:
    """The stream's clock, moved by the test alone."""

    def __init__(self) -> None:
        self.time_s = 1_000.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def stream(path: Path, clock: Clock) -> Iterator[LocalStream]:
    with LocalStream.create(path, partitions=4, now_s=clock) as made:
        yield made


def entries(*keys: str | None) -> list[Entry]:
    return [Entry(data=f"{n}".encode(), key=key) for n, key in enumerate(keys)]


def counts(stream: LocalStream) -> dict[str, int]:
    return {each.partition: each.records for each in stream.describe().partitions}


async def records_of(path: Path, partition: str, position: str = EARLIEST) -> tuple[Record, ...]:
    source = LocalSource(path)
    await source.open()
    try:
        reader = source.reader(partition, position)
        return (await reader.read(records_max=100, bytes_max=10_000, wait_s=0.0)).records
    finally:
        await source.close()


def test_hash_of_a_key_never_changes() -> None:
    """Another hash would send the keys of a stream that exists to other partitions, and break their order."""
    assert [hash_of(key) for key in ("", "N14228", "NA", "é")] == [0x1271CF25, 0x964B01EB, 0x0B5AA260, 0x954544C2]


def test_description_shows_ranges_of_hashes_that_take_every_key_once(stream: LocalStream) -> None:
    """A gap would refuse keys, an overlap would send one key to two partitions."""
    (low, high), child = stream.split("p1"), stream.merge("p2", "p3")
    description = stream.describe()
    open_ones = sorted((each.hash_low, each.hash_high) for each in description.partitions if not each.closed)

    assert open_ones == [(0, 1 << 30), (1 << 30, 3 << 29), (3 << 29, 1 << 31), (1 << 31, 1 << 32)]
    assert (low, high, child) == ("p4", "p5", "p6")
    assert [(each.partition, each.parents, each.closed) for each in description.partitions] == [
        ("p0", (), False),
        ("p1", (), True),
        ("p2", (), True),
        ("p3", (), True),
        ("p4", ("p1",), False),
        ("p5", ("p1",), False),
        ("p6", ("p2", "p3"), False),
    ]


def test_description_of_a_partition_is_whole(stream: LocalStream, clock: Clock) -> None:
    """It is what a person decides by, before a split."""
    placed = stream.append(entries(*(f"{n}" for n in range(20))))
    in_p0 = [position for partition, position in placed if partition == "p0"]
    clock.time_s += 5
    stream.trim("p0", "3")

    assert stream.describe().partitions[0] == PartitionDescription(
        partition="p0",
        parents=(),
        closed=False,
        listed=True,
        hash_low=0,
        hash_high=1 << 30,
        records=len(in_p0) - 2,
        last=in_p0[-1],
        last_time_s=1_000.0,
    )


async def test_append_keeps_key_data_headers_and_time(stream: LocalStream, path: Path, clock: Clock) -> None:
    """What comes out is what went in, to the byte."""
    data = bytes(range(256))
    clock.time_s = 1_234.5
    headers = {"trace": "é\n"}
    ((partition, position),) = stream.append([Entry(data=data, key="NA\0é", headers=headers)])

    assert await records_of(path, partition) == (
        Record(partition=partition, position=position, key="NA\0é", data=data, time_s=1_234.5, headers=headers),
    )


def test_append_numbers_the_records_of_each_partition_without_a_gap(stream: LocalStream) -> None:
    """A gap is how a reader knows that records were trimmed."""
    placed = [*stream.append(entries("a", "a", "b", "a")), *stream.append(entries("b", "a"))]
    by_partition: dict[str, list[str]] = {}
    for partition, position in placed:
        by_partition.setdefault(partition, []).append(position)

    assert {tuple(positions) for positions in by_partition.values()} <= {
        tuple(str(n + 1) for n in range(length)) for length in range(7)
    }


def test_append_without_keys_goes_round_whoever_writes(stream: LocalStream, path: Path) -> None:
    """Short-lived producers that all began with the first partition would fill only that one."""
    for _ in range(4):
        with LocalStream.open(path) as other:
            other.append(entries(None))
    stream.append(entries(None, None, None, None))

    assert counts(stream) == {"p0": 2, "p1": 2, "p2": 2, "p3": 2}


@pytest.mark.parametrize("closed", [0, 1, 3])
def test_append_is_refused_as_a_whole_where_one_record_has_no_place(stream: LocalStream, closed: int) -> None:
    """Half a batch would be appended again by a producer that tries again; a neighbour must not take the key."""
    key = next(f"{n}" for n in range(100) if hash_of(f"{n}") >> 30 == closed)
    stream.close_partition(f"p{closed}")

    with pytest.raises(SourceMisconfigured, match=f"no open partition takes the key '{key}'"):
        stream.append(entries(None, key))
    assert counts(stream) == {"p0": 0, "p1": 0, "p2": 0, "p3": 0}


def test_append_says_that_the_whole_stream_is_closed(stream: LocalStream) -> None:
    """It is not the record that is wrong."""
    for partition in ("p0", "p1", "p2", "p3"):
        stream.close_partition(partition)

    with pytest.raises(SourceMisconfigured, match="every partition of the stream is closed"):
        stream.append(entries(None))
    with pytest.raises(SourceMisconfigured, match="no open partition takes the key 'a'"):
        stream.append(entries("a"))


def test_append_refuses_a_key_that_is_no_text(stream: LocalStream) -> None:
    """SQLite could not store it, and its own error does not say which."""
    with pytest.raises(ValueError, match=r"key '\\ud800' is no text that can be stored"):
        stream.append(entries("a", "\ud800"))
    assert sum(counts(stream).values()) == 0


async def test_time_of_records_never_runs_backwards(stream: LocalStream, path: Path, clock: Clock) -> None:
    """Starts at a time are found by halving, which a clock that was set back would lead astray."""
    times = (1_000.0, 2_000.0, 1_500.0, 2_500.0)
    for time_s in times:
        clock.time_s = time_s
        stream.append(entries("a"))
    ((partition, _),) = stream.append(entries("a"))

    assert [record.time_s for record in await records_of(path, partition)] == [
        1_000.0,
        2_000.0,
        2_000.0,
        2_500.0,
        2_500.0,
    ]
    assert [record.position for record in await records_of(path, partition, at_time(1_500.0))] == ["2", "3", "4", "5"]


def test_import_is_one_change_that_other_readers_see_whole(stream: LocalStream, path: Path) -> None:
    """Whatever stops it, nothing of it must be there: it is done again as a whole."""
    seen: list[int] = []

    def many() -> Iterator[Entry]:
        for n in range(12_000):
            yield Entry(data=b"x", key=f"{n}")
            if n == 11_000:
                with LocalStream.open(path) as other:
                    seen.append(sum(counts(other).values()))

    progress: list[int] = []
    imported = stream.import_entries(many(), progress=progress.append)

    assert (seen, progress) == ([0], [5_000, 10_000, 12_000])
    assert imported == Imported(records=12_000, by_partition=counts(stream))
    assert sum(imported.by_partition.values()) == 12_000


def test_import_leaves_nothing_where_its_input_fails(stream: LocalStream) -> None:
    """A bad line in the middle of a file."""

    def failing() -> Iterator[Entry]:
        yield from entries(*(f"{n}" for n in range(7_000)))
        raise ValueError("line 7001")

    before = stream.append(entries("a"))
    with pytest.raises(ValueError, match="line 7001"):
        stream.import_entries(failing())

    assert sum(counts(stream).values()) == 1
    assert stream.append(entries("a")) == ((before[0][0], "2"),)


def test_import_of_nothing_writes_nothing(stream: LocalStream) -> None:
    """An empty file is no error."""
    assert stream.import_entries([]) == Imported(records=0, by_partition={"p0": 0, "p1": 0, "p2": 0, "p3": 0})


@pytest.mark.parametrize("by", ["split", "close", "merge", "trim", "delist"])
def test_change_of_a_partition_that_is_not_there_is_refused(stream: LocalStream, by: str) -> None:
    """A misspelt name."""
    changes: dict[str, Callable[[], object]] = {
        "split": lambda: stream.split("p9"),
        "close": lambda: stream.close_partition("p9"),
        "merge": lambda: stream.merge("p0", "p9"),
        "trim": lambda: stream.trim("p9", "1"),
        "delist": lambda: stream.delist("p9"),
    }
    before = stream.describe()

    with pytest.raises(ValueError, match="has no partition 'p9'"):
        changes[by]()
    assert stream.describe() == before


@pytest.mark.parametrize(
    ("a", "b", "match"),
    [("p0", "p2", "'p0' and 'p2' are not neighbours"), ("p0", "p3", "not neighbours"), ("p1", "p1", "with itself")],
)
def test_merge_joins_only_neighbours(stream: LocalStream, a: str, b: str, match: str) -> None:
    """A partition takes one range of hashes; two ranges apart would take keys of those between."""
    before = stream.describe()

    with pytest.raises(ValueError, match=match):
        stream.merge(a, b)
    assert stream.describe() == before


def test_split_stops_at_a_single_hash(path: Path) -> None:
    """A half of it would take no key at all."""
    with LocalStream.create(path, partitions=1) as stream:
        name = "p0"
        for _ in range(32):
            name, _ = stream.split(name)

        assert (stream.describe().partitions[-2].hash_low, stream.describe().partitions[-2].hash_high) == (0, 1)
        with pytest.raises(ValueError, match=f"'{name}' takes one hash value and cannot be split"):
            stream.split(name)


def test_dropped_partition_keeps_its_name_and_shows_as_dropped(stream: LocalStream) -> None:
    """A name that is used again would be taken for the finished lease of the old one."""
    stream.append(entries(*(f"{n}" for n in range(20))))
    stream.split("p3")
    dropped = stream.delist("p3")
    after = stream.describe().partitions[3]
    stream.split("p4")

    assert dropped == int(after.last)
    assert (after.listed, after.closed, after.records, after.last_time_s) == (False, True, 0, None)
    assert [each.partition for each in stream.describe().partitions] == [f"p{n}" for n in range(8)]
