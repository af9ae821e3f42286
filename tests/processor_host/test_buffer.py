"""
The buffer of one partition and the byte budget of a host: both bounded, both given back in full.
"""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.sources.base import Record
from processor_host.buffer import ByteBudget, Chunk, RecordBuffer
from tests.stage import VIRTUAL_TIME
from tests.world.diary import passes
from tests.world.loop import run_virtual

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def chunk(*sizes: int, ended: bool = False) -> Chunk:
    records = [Record(partition="p0", position=str(n), key=None, data=bytes(size)) for n, size in enumerate(sizes, 1)]
    return Chunk(records, lag_s=None, ended=ended)


def buffer(budget: ByteBudget | None = None, *, records_max: int = 100, bytes_max: int = 1000) -> RecordBuffer:
    return RecordBuffer(budget or ByteBudget(10_000), records_max=records_max, bytes_max=bytes_max)


async def has_room(waiting: RecordBuffer | ByteBudget) -> bool:
    with anyio.move_on_after(1) as scope:
        await waiting.wait_for_room()
    return not scope.cancelled_caught


async def test_buffer_hands_on_chunks_in_their_order() -> None:
    """The order of a partition's records is the one thing a stream promises."""
    full = buffer()
    first, second = chunk(1, 2), chunk(3)
    full.put(first)
    full.put(second)
    got = [await full.get(), await full.get()]
    full.done()
    got.append(await full.get())

    # The oldest stays until it is done, so that one that was not handled is not lost to the count.
    assert got == [first, first, second]


async def test_get_waits_for_a_chunk() -> None:
    """An idle partition costs nothing."""
    empty = buffer()
    late = chunk(1)
    got: list[Chunk | None] = []

    async def get() -> None:
        got.append(await empty.get())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(get)
        await passes(1)
        before = list(got)
        empty.put(late)

    assert (before, got) == ([], [late])


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "room"), [(3, 1000, False), (4, 1000, True), (100, 60, False), (100, 61, True)]
)
async def test_buffer_has_room_below_both_of_its_bounds(records_max: int, bytes_max: int, room: bool) -> None:
    """A partition whose processor is slow stops being read, whether its records are many or large."""
    filled = buffer(records_max=records_max, bytes_max=bytes_max)
    filled.put(chunk(10, 20))
    filled.put(chunk(30))

    assert await has_room(filled) is room


@pytest.mark.parametrize(("records_max", "bytes_max", "budget_max"), [(2, 99, 99), (99, 2, 99), (99, 99, 2)])
async def test_reader_goes_on_once_a_chunk_is_done(records_max: int, bytes_max: int, budget_max: int) -> None:
    """It is woken, it does not poll, whichever bound it waits for."""
    filled = buffer(ByteBudget(budget_max), records_max=records_max, bytes_max=bytes_max)
    filled.put(chunk(1, 1))
    went_on: list[float] = []

    async def read() -> None:
        await filled.wait_for_room()
        went_on.append(anyio.current_time())

    began_s = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await passes(5)
        filled.done()

    assert [at_s - began_s for at_s in went_on] == [5]


async def test_budget_stops_every_buffer_of_the_host_and_lets_each_go_on() -> None:
    """Many partitions must not take the memory of many full buffers."""
    budget = ByteBudget(100)
    mine, other = buffer(budget), buffer(budget)
    mine.put(chunk(60))
    other.put(chunk(40))
    full = [await has_room(mine), await has_room(other), await has_room(budget)]
    mine.done()

    assert full == [False, False, False]
    assert ([await has_room(mine), await has_room(other)], budget.used) == ([True, True], 40)


@pytest.mark.parametrize("handled", [0, 1, 2])
async def test_close_gives_everything_back_to_the_budget(handled: int) -> None:
    """Bytes that a drained partition kept would starve the others for the life of the host."""
    budget = ByteBudget(10_000)
    closed, other = buffer(budget), buffer(budget)
    other.put(chunk(5))
    closed.put(chunk(60, 1))
    closed.put(chunk(40))
    for _ in range(handled):
        closed.done()

    closed.close()
    closed.close()

    assert (budget.used, await closed.get()) == (5, None)


async def test_close_wakes_who_waits_for_a_chunk() -> None:
    """A drain must not wait for a record that may never come."""
    empty = buffer()
    got: list[Chunk | None] = []

    async def get() -> None:
        got.append(await empty.get())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(get)
        await passes(1)
        empty.close()

    assert got == [None]


async def test_closed_buffer_never_has_room() -> None:
    """A reader that went on would read the whole stream into nothing while the last batch is at work."""
    closed, waiting = buffer(), buffer(records_max=1)
    waiting.put(chunk(1))
    results: list[bool] = []

    async def wait() -> None:
        results.append(await has_room(waiting))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await passes(0.5)
        waiting.close()
        closed.close()

    assert (results, await has_room(closed)) == ([False], False)


async def test_closed_buffer_takes_nothing_more() -> None:
    """A read that is answered after the drain began is read again by the next owner."""
    budget = ByteBudget(10_000)
    closed = buffer(budget)
    closed.close()

    closed.put(chunk(60))

    assert (budget.used, await closed.get()) == (0, None)


def test_chunk_counts_its_payload() -> None:
    """Bytes are what memory is made of."""
    assert [chunk(3, 4).bytes, chunk(ended=True).bytes] == [7, 0]


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["put", "put", "done", "close"]), st.integers(0, 50)), max_size=60
)


@given(steps)
def test_budget_counts_exactly_what_all_buffers_hold(steps: list[tuple[int, str, int]]) -> None:
    """A byte that is lost in the count is lost for the life of the host."""

    async def scenario() -> None:
        budget = ByteBudget(10_000)
        buffers = [buffer(budget) for _ in range(3)]
        held: list[list[int]] = [[], [], []]
        closed: set[int] = set()
        for which, step, size in steps:
            if step == "put":
                buffers[which].put(chunk(size, 1))
                held[which] += [] if which in closed else [size + 1]
            elif step == "done" and held[which]:
                buffers[which].done()
                held[which].pop(0)
            elif step == "close":
                buffers[which].close()
                held[which].clear()
                closed.add(which)

            assert budget.used == sum(map(sum, held))

    run_virtual(scenario)
