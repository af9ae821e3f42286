"""
Where a replay ends: what a user may write, and at which record a partition is over.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.positions import at_time
from partitions.sources.base import Record
from partitions.sources.memory import MemorySource
from processor_host.ends import (
    CLOCKS_APART_S,
    AtPosition,
    BeforeTime,
    Cut,
    End,
    UntilLatest,
    UntilPositions,
    UntilTime,
    cut,
    end_at,
    end_of,
    parse_until,
)
from processor_host.errors import SettingsError

__all__: list[str] = []

SIX_O_CLOCK_S = 1769839200.0
"""2026-01-31T06:00:00Z."""
EXPECTED = "use latest-at-start, a time such as 2026-01-31T06:00:00Z, or PARTITION=POSITION for each partition"


def records(*times_s: float | None) -> tuple[Record, ...]:
    """Records at the positions 1, 2, …, written at these times."""
    return tuple(
        Record(partition="p0", position=str(n), key=None, data=b"", time_s=time_s)
        for n, time_s in enumerate(times_s, 1)
    )


def cut_of(end: End, after: str, *times_s: float | None, nothing_left: bool = False, now_s: float = 0.0) -> Cut:
    return cut(end, after, records(*times_s), nothing_left=nothing_left, now_s=now_s)


@pytest.mark.parametrize(
    ("value", "until"),
    [
        ("latest-at-start", UntilLatest()),
        (("latest-at-start",), UntilLatest()),
        ("2026-01-31T06:00:00Z", UntilTime(time_s=SIX_O_CLOCK_S)),
        ("2026-01-31T06:00:00", UntilTime(time_s=SIX_O_CLOCK_S)),
        ("2026-01-31T07:00:00+01:00", UntilTime(time_s=SIX_O_CLOCK_S)),
        ({"p0": "4"}, UntilPositions(positions={"p0": "4"})),
        (("p0=4", "shard-1=49=57"), UntilPositions(positions={"p0": "4", "shard-1": "49=57"})),
    ],
)
def test_until_is_read_from_what_a_user_writes(value: Any, until: object) -> None:
    """The same value as a flag, as a repeated flag and in a program."""
    assert parse_until(value) == until


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("latest", f"until: 'latest' is no end; {EXPECTED}"),
        ("earliest", f"until: 'earliest' is no end; {EXPECTED}"),
        ("tomorrow", f"until: 'tomorrow' is no end; {EXPECTED}"),
        ((), f"until: nothing is no end; {EXPECTED}"),
        (("p0=4", "latest-at-start"), f"until: 'p0=4', 'latest-at-start' is no end; {EXPECTED}"),
        (("p0=4", "p0=5"), f"until: p0=5 has two ends; {EXPECTED}"),
        ({"p0": ""}, f"until: p0= is no PARTITION=POSITION; {EXPECTED}"),
        ({}, f"until: no partition is named; {EXPECTED}"),
    ],
)
def test_until_that_means_no_end_is_refused(value: Any, text: str) -> None:
    """A host that takes it for something else would replay too much, or run for ever."""
    with pytest.raises(SettingsError) as refused:
        parse_until(value)

    assert str(refused.value) == text


def test_partition_that_no_position_names_is_over_at_once() -> None:
    """Whoever lists partitions means those; without an end the host would never be done."""
    until = UntilPositions(positions={"p0": "4"})

    assert [end_of(until, "p0"), end_of(until, "p1")] == [AtPosition(position="4"), AtPosition(position=None)]
    assert cut_of(end_of(until, "p1"), "0", 1.0, 2.0) == Cut(count=0, is_over=True)


@pytest.mark.parametrize(
    ("after", "times", "nothing_left", "expected"),
    [
        ("0", (1.0, 1.0), False, Cut(count=2, is_over=False)),
        ("0", (1.0, 1.0, 1.0), False, Cut(count=3, is_over=True)),
        ("0", (1.0, 1.0, 1.0, 1.0, 1.0), False, Cut(count=3, is_over=True)),
        ("3", (1.0,), False, Cut(count=0, is_over=True)),
        ("9", (), False, Cut(count=0, is_over=False)),
        ("9", (), True, Cut(count=0, is_over=True)),
    ],
)
def test_position_ends_a_partition_with_its_own_record(
    after: str, times: tuple[float, ...], nothing_left: bool, expected: Cut
) -> None:
    """The record at the position is the last one handled, also where a fail-over begins right behind it."""
    assert cut_of(AtPosition(position="3"), after, *times, nothing_left=nothing_left) == expected


@pytest.mark.parametrize(
    ("times", "nothing_left", "now_s", "expected"),
    [
        ((97.0, 99.9), False, 0.0, Cut(count=2, is_over=False)),
        ((97.0, 100.0, 98.0), False, 0.0, Cut(count=1, is_over=True)),
        ((), True, 100.0 + CLOCKS_APART_S - 0.1, Cut(count=0, is_over=False)),
        ((), True, 100.0 + CLOCKS_APART_S, Cut(count=0, is_over=True)),
        ((97.0,), True, 200.0, Cut(count=1, is_over=True)),
        ((97.0,), False, 200.0, Cut(count=1, is_over=False)),
    ],
)
def test_time_ends_a_partition_before_the_first_record_of_that_time(
    times: tuple[float, ...], nothing_left: bool, now_s: float, expected: Cut
) -> None:
    """An idle partition is over once no earlier record can come any more, and not while one may."""
    assert cut_of(BeforeTime(time_s=100.0), "0", *times, nothing_left=nothing_left, now_s=now_s) == expected


def test_time_is_refused_where_the_records_have_none() -> None:
    """Such a replay would go on for ever."""
    with pytest.raises(SettingsError) as refused:
        cut_of(BeforeTime(time_s=100.0), "0", 1.0, None)

    assert str(refused.value) == (
        "until: the record at '2' of 'p0' has no time, so no time can end the replay; use latest-at-start or positions"
    )


def test_end_at_a_position_that_is_a_time_is_that_time() -> None:
    """Some sources know no other name for the present end of a partition."""
    assert [end_at(at_time(5.5)), end_at("7"), end_at(None)] == [
        BeforeTime(time_s=5.5),
        AtPosition(position="7"),
        AtPosition(position=None),
    ]


async def test_latest_at_start_ends_with_the_last_record_that_was_there() -> None:
    """What comes while the replay runs is not of it, and an empty partition is over at once."""
    source = MemorySource(lambda: 1.0, partitions=2)
    for _ in range(3):
        source.put("p0", b"before")
    point = await source.resolve_start("latest")
    source.put("p0", b"after")
    source.put("p1", b"after")
    handled = {}
    for partition in ("p0", "p1"):
        end = end_of(UntilLatest(), partition, latest=await source.first_position(partition, point))
        fetched = await source.reader(partition, "0").read(records_max=9, bytes_max=999, wait_s=0)
        found = cut(end, "0", fetched.records, nothing_left=True, now_s=0.0)
        handled[partition] = (found.is_over, [record.data for record in fetched.records[: found.count]])

    assert handled == {"p0": (True, [b"before"] * 3), "p1": (True, [])}


@given(count=st.integers(0, 12), end=st.integers(1, 12), size=st.integers(1, 5), start=st.integers(0, 12))
def test_position_ends_the_same_however_the_records_are_read(count: int, end: int, size: int, start: int) -> None:
    """Reads of any size hand on exactly the records up to the end; one that was passed before ends with the stream."""
    stream = records(*[1.0] * count)
    after, handled, is_over = min(start, count), list[str](), False
    while not is_over:
        read = stream[after : after + size]
        found = cut(AtPosition(position=str(end)), str(after), read, nothing_left=after + len(read) == count, now_s=0.0)
        handled += [record.position for record in read[: found.count]]
        is_over = found.is_over
        after += found.count

    last = end if min(start, count) <= end <= count else count
    assert handled == [str(n) for n in range(min(start, count) + 1, last + 1)]
