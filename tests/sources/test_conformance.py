"""The contract of a source, held by every source that numbers its records: one suite for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from partitions.errors import SourceMisconfigured
from partitions.positions import EARLIEST, END, at_time
from partitions.sources.base import Fetched, PartitionInfo, Reader, Record
from tests.sources.drivers import Driver, driver_of

__all__: list[str] = []

NOTHING = Fetched(records=(), lag_s=0.0)
ENDED = Fetched(records=(), lag_s=0.0, ended=True)
LONG_S = 30.0
"""A wait that no passing test sits out."""


@pytest.fixture(params=["memory", "local"])
async def driver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Driver]:
    with driver_of(request.param, tmp_path, partitions=4) as made:
        await made.source.open()
        yield made
        await made.source.close()


async def read(reader: Reader, *, records_max: int = 100, bytes_max: int = 1 << 20, wait_s: float = 0.0) -> Fetched:
    return await reader.read(records_max=records_max, bytes_max=bytes_max, wait_s=wait_s)


def put_many(driver: Driver, partition: str, number: int) -> tuple[Record, ...]:
    """Records one second apart."""
    records = []
    for n in range(number):
        driver.time_s += 1.0
        records.append(driver.put(partition, f"{n}".encode()))
    return tuple(records)


async def test_partitions_are_listed_in_the_order_of_their_births(driver: Driver) -> None:
    """Every host computes from this list; an order that changes would look like change."""
    open_ones = [PartitionInfo(partition=f"p{n}") for n in range(4)]

    before = await driver.source.list_partitions()
    a, b = driver.split("p1")
    child = driver.merge("p2", "p3")

    assert before == tuple(open_ones)
    assert await driver.source.list_partitions() == (
        open_ones[0],
        PartitionInfo(partition="p1", closed=True),
        PartitionInfo(partition="p2", closed=True),
        PartitionInfo(partition="p3", closed=True),
        PartitionInfo(partition=a, parents=("p1",)),
        PartitionInfo(partition=b, parents=("p1",)),
        PartitionInfo(partition=child, parents=("p2", "p3")),
    )


async def test_reader_returns_whole_records_in_order_and_goes_on_after_them(driver: Driver) -> None:
    """What a producer wrote is what a processor gets; a second read neither repeats nor skips."""
    records = put_many(driver, "p0", 5)
    put_many(driver, "p1", 2)
    reader = driver.source.reader("p0", EARLIEST)

    assert [await read(reader, records_max=3), await read(reader, records_max=3), await read(reader)] == [
        Fetched(records=records[:3], lag_s=2.0),
        Fetched(records=records[3:], lag_s=0.0),
        NOTHING,
    ]


@pytest.mark.parametrize("resumed", range(6))
async def test_reader_resumes_after_the_position_of_any_record(driver: Driver, resumed: int) -> None:
    """A checkpoint at a record means that it and all before it are done."""
    records = put_many(driver, "p0", 5)
    position = records[resumed - 1].position if resumed else await driver.source.first_position("p0", EARLIEST)

    assert await read(driver.source.reader("p0", position)) == Fetched(records=records[resumed:], lag_s=0.0)


async def test_reader_stops_before_too_many_bytes_but_returns_one_record_however_large(driver: Driver) -> None:
    """Memory is bounded by bytes; a record above the bound must still get through."""
    records = tuple(driver.put("p0", data) for data in (b"x" * 100, b"y" * 10, b"z" * 10, b"", b"w"))
    reader = driver.source.reader("p0", EARLIEST)

    assert [(await read(reader, bytes_max=20)).records for _ in range(4)] == [
        records[:1],
        records[1:4],
        records[4:],
        (),
    ]


async def test_reader_refuses_to_read_no_records(driver: Driver) -> None:
    """It would return nothing for ever, and look like an idle partition."""
    with pytest.raises(ValueError, match="records_max=0"):
        await read(driver.source.reader("p0", EARLIEST), records_max=0)


async def test_reader_that_waits_returns_as_soon_as_there_is_a_record(driver: Driver) -> None:
    """The wait is a bound, not a period."""
    reader = driver.source.reader("p2", EARLIEST)
    answers: list[Fetched] = []

    async def wait_for_it() -> None:
        answers.append(await read(reader, wait_s=LONG_S))

    for _ in range(2):  # The second wait starts from what the first one saw.
        with anyio.fail_after(LONG_S / 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait_for_it)
                await anyio.wait_all_tasks_blocked()
                driver.put("p1", b"not for it")
                record = driver.put("p2", b"for it")
        assert answers.pop() == Fetched(records=(record,), lag_s=0.0)


async def test_reader_that_waits_returns_empty_when_the_time_is_over(driver: Driver) -> None:
    """The caller has other things to do, such as to see that it must stop."""
    reader = driver.source.reader("p0", EARLIEST)

    with anyio.fail_after(LONG_S / 3):
        assert [await read(reader, wait_s=0.05) for _ in range(3)] == [NOTHING] * 3


async def test_reader_that_was_cancelled_while_it_waited_loses_nothing(driver: Driver) -> None:
    """C18: stop must not wait for a poll; and the next read goes on where the last answer ended."""
    records = [driver.put("p0", b"1")]
    reader = driver.source.reader("p0", EARLIEST)
    await read(reader)

    with anyio.fail_after(LONG_S / 3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: read(reader, wait_s=LONG_S))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    records.append(driver.put("p0", b"2"))

    assert await read(reader, wait_s=LONG_S) == Fetched(records=(records[1],), lag_s=0.0)


async def test_reader_of_a_closed_partition_ends_with_its_last_record(driver: Driver) -> None:
    """`ended` completes the lease and lets the children start; too early loses records, too late keeps them waiting."""
    records = put_many(driver, "p0", 3)
    driver.close_partition("p0")
    reader = driver.source.reader("p0", EARLIEST)

    assert [await read(reader, records_max=2), await read(reader), await read(reader, wait_s=LONG_S)] == [
        Fetched(records=records[:2], lag_s=1.0),
        Fetched(records=records[2:], lag_s=0.0, ended=True),
        ENDED,
    ]


@pytest.mark.parametrize("change", ["close", "split", "merge"])
async def test_reader_that_waits_is_told_when_its_partition_is_closed(driver: Driver, change: str) -> None:
    """Else the children of a partition without traffic would wait for a whole poll."""
    answers: list[Fetched] = []

    async def wait_for_it() -> None:
        answers.append(await read(driver.source.reader("p1", EARLIEST), wait_s=LONG_S))

    with anyio.fail_after(LONG_S / 3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_it)
            await anyio.wait_all_tasks_blocked()
            if change == "close":
                driver.close_partition("p1")
            elif change == "split":
                driver.split("p1")
            else:
                driver.merge("p1", "p2")

    assert answers == [ENDED]


async def test_reader_says_that_records_were_trimmed_once_and_goes_on_at_the_oldest(driver: Driver) -> None:
    """Records that nobody will ever see again must not vanish without a word."""
    records = put_many(driver, "p0", 5)
    behind = driver.source.reader("p0", records[0].position)
    in_time = driver.source.reader("p0", records[2].position)
    driver.trim("p0", records[3].position)

    assert [await read(behind, records_max=1), await read(behind), await read(in_time)] == [
        Fetched(records=records[3:4], lag_s=1.0, trimmed=True),
        Fetched(records=records[4:], lag_s=0.0),
        Fetched(records=records[3:], lag_s=0.0),
    ]
    assert await read(driver.source.reader("p0", EARLIEST)) == Fetched(records=records[3:], lag_s=0.0)


async def test_reader_says_at_once_that_everything_was_trimmed(driver: Driver) -> None:
    """There is nothing to return, but something to tell."""
    records = put_many(driver, "p0", 3)
    reader = driver.source.reader("p0", records[0].position)
    driver.trim("p0", "4")

    assert [await read(reader, wait_s=LONG_S), await read(reader)] == [
        Fetched(records=(), lag_s=0.0, trimmed=True),
        NOTHING,
    ]
    assert await read(driver.source.reader("p0", EARLIEST)) == NOTHING


async def test_trim_is_bounded_by_what_is_there(driver: Driver) -> None:
    """Positions never start anew, and never move by a trim."""
    put_many(driver, "p0", 2)
    driver.trim("p0", "100")
    driver.trim("p0", "1")

    record = driver.put("p0", b"next")

    assert record.position == "3"
    assert await read(driver.source.reader("p0", "2")) == Fetched(records=(record,), lag_s=0.0)


async def test_delisted_partition_is_not_listed_and_has_ended(driver: Driver) -> None:
    """A host may still hold its lease; it must be able to complete it, knowing what it missed."""
    records = put_many(driver, "p0", 2)
    children = driver.split("p0")
    behind = driver.source.reader("p0", records[0].position)
    done = driver.source.reader("p0", records[1].position)
    driver.delist("p0")

    assert [info.partition for info in await driver.source.list_partitions()] == ["p1", "p2", "p3", *children]
    assert [await read(behind), await read(done)] == [
        Fetched(records=(), lag_s=0.0, ended=True, trimmed=True),
        ENDED,
    ]


async def test_partition_is_not_delisted_while_it_is_open(driver: Driver) -> None:
    """Records that come later would be lost."""
    with pytest.raises(ValueError, match="'p0' is open"):
        driver.delist("p0")


@pytest.mark.parametrize("change", ["append", "close", "split", "merge"])
async def test_closed_partition_takes_no_record_and_no_change(driver: Driver, change: str) -> None:
    """A closed one that moved on would break the order of its keys."""
    key = driver.key_of("p0")
    driver.close_partition("p0")
    before = await driver.source.list_partitions()

    changes: dict[str, Callable[[], object]] = {
        "append": lambda: driver.append_to("p0", key),
        "close": lambda: driver.close_partition("p0"),
        "split": lambda: driver.split("p0"),
        "merge": lambda: driver.merge("p1", "p0"),
    }
    with pytest.raises((ValueError, SourceMisconfigured), match="closed"):
        changes[change]()
    assert await driver.source.list_partitions() == before


async def test_earliest_starts_at_the_oldest_record(driver: Driver) -> None:
    """A new group sees all that is left."""
    records = put_many(driver, "p0", 2)

    point = await driver.source.resolve_start("earliest")

    assert await started(driver, "p0", point) == records


async def test_latest_is_the_same_moment_in_every_partition(driver: Driver) -> None:
    """A record that comes between the start of a group and the lease of its partition is after the start (issue 2)."""
    put_many(driver, "p0", 3)
    put_many(driver, "p1", 1)
    point = await driver.source.resolve_start("latest")
    later = {partition: put_many(driver, partition, 2) for partition in ("p0", "p1", "p2")}

    assert {partition: await started(driver, partition, point) for partition in ("p0", "p1", "p2")} == later


async def test_latest_of_an_empty_stream_starts_at_its_first_record(driver: Driver) -> None:
    """The group was there before the records."""
    point = await driver.source.resolve_start("latest")

    assert await started(driver, "p0", point) == ()
    records = put_many(driver, "p0", 2)
    assert await started(driver, "p0", point) == records


async def test_partition_born_after_the_start_is_read_from_its_beginning(driver: Driver) -> None:
    """Its records are all later than the start, also those that came before anybody saw it."""
    put_many(driver, "p0", 2)
    point = await driver.source.resolve_start("latest")
    a, b = driver.split("p0")
    records = put_many(driver, a, 2)
    driver.trim(a, "2")

    assert [await started(driver, "p0", point), await started(driver, a, point), await started(driver, b, point)] == [
        (),
        records[1:],
        (),
    ]


async def test_time_starts_at_the_first_record_of_that_time_or_later(driver: Driver) -> None:
    """The record at the very time belongs to it."""
    records = put_many(driver, "p0", 4)  # At 1001, 1002, 1003 and 1004.
    driver.trim("p0", "2")
    starts = {
        time_s: await started(driver, "p0", await driver.source.resolve_start(at_time(time_s)))
        for time_s in (0.0, 1001.0, 1002.0, 1002.5, 1004.0, 1004.5)
    }

    assert starts == {
        0.0: records[1:],
        1001.0: records[1:],
        1002.0: records[1:],
        1002.5: records[2:],
        1004.0: records[3:],
        1004.5: (),
    }


async def test_time_that_is_still_to_come_skips_what_comes_before_it(driver: Driver) -> None:
    """The start is a fixed point, whenever the lease is made: nothing before it is read."""
    point = await driver.source.resolve_start(at_time(1002.5))
    reader = driver.source.reader("p0", await driver.source.first_position("p0", point))
    records = put_many(driver, "p0", 2)

    assert await read(reader) == NOTHING
    records += put_many(driver, "p0", 2)
    assert await read(reader) == Fetched(records=records[2:], lag_s=0.0)


async def test_time_after_the_last_record_of_a_closed_partition_ends_it(driver: Driver) -> None:
    """Nothing of that time can come any more; the children must not wait for it."""
    put_many(driver, "p0", 2)
    driver.close_partition("p0")

    position = await driver.source.first_position("p0", at_time(5000.0))

    assert await read(driver.source.reader("p0", position), wait_s=LONG_S) == ENDED


async def test_start_that_is_none_is_refused(driver: Driver) -> None:
    """It would be stored and be wrong for ever."""
    with pytest.raises(ValueError, match="'now' is not a start"):
        await driver.source.resolve_start("now")


@pytest.mark.parametrize("point", ["change:99", "change:", "change:x", "17", "latest"])
async def test_point_of_another_stream_is_refused(driver: Driver, point: str) -> None:
    """A point after the present would pass over records until it is reached."""
    put_many(driver, "p0", 2)

    with pytest.raises(SourceMisconfigured, match="start point"):
        await driver.source.first_position("p0", point)


async def test_finished_position_has_nothing_after_it(driver: Driver) -> None:
    """END is a position that every source knows."""
    put_many(driver, "p0", 1)

    assert await read(driver.source.reader("p0", END)) == ENDED


@pytest.mark.parametrize("position", ["3", "x", "-1", "", "1.0"])
async def test_position_that_the_partition_cannot_have_is_refused(driver: Driver, position: str) -> None:
    """Reading on after the end of an older copy of a stream would pass over new records without a word."""
    put_many(driver, "p0", 2)

    with pytest.raises(SourceMisconfigured, match=f"position '{position}'"):
        await read(driver.source.reader("p0", position))


async def test_partition_that_is_not_there_is_refused(driver: Driver) -> None:
    """It looks like an idle one otherwise."""
    with pytest.raises(SourceMisconfigured, match="'p9'"):
        await read(driver.source.reader("p9", EARLIEST))
    with pytest.raises(SourceMisconfigured, match="'p9'"):
        await driver.source.first_position("p9", EARLIEST)


async def test_close_may_be_called_twice(driver: Driver) -> None:
    """A stop that fails half-way closes again."""
    reader = driver.source.reader("p0", EARLIEST)

    await reader.close()
    await reader.close()
    await driver.source.close()
    await driver.source.close()


async def started(driver: Driver, partition: str, point: str) -> tuple[Record, ...]:
    """What a group that started at `point` reads of a partition."""
    position = await driver.source.first_position(partition, point)
    return (await read(driver.source.reader(partition, position))).records


@pytest.mark.parametrize("name", ["", "p" * 1025, "é" * 513])
def test_partition_whose_id_no_store_can_keep_is_refused_where_it_is_listed(name: str) -> None:
    """Found at the first listing, before any lease is made; a store would refuse each write of it for ever."""
    with pytest.raises(SourceMisconfigured, match=r"has \d+ bytes, expected 1 to 1024, because it is the key"):
        PartitionInfo(partition=name)


@pytest.mark.parametrize("name", ["p", "p" * 1024, "é" * 512])
def test_partition_id_may_be_as_long_as_a_key(name: str) -> None:
    """A name that fits is nobody's business."""
    assert PartitionInfo(partition=name).partition == name
