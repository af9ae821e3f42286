"""The virtual-time loop: time jumps, a run ends with its errors told, and it repeats exactly."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import random
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio._backends import _asyncio as anyio_asyncio

from tests.world.diary import HOUR_S, Diary, answers, passes, run_python, ticks, until
from tests.world.loop import (
    START_S,
    Deadlock,
    Livelock,
    RealTimeExceeded,
    VirtualTimeLoop,
    run_in_place,
    run_virtual,
    running_loop,
)

__all__: list[str] = []


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture
def diary() -> Diary:
    return Diary()


# Time.


async def test_time_jumps_to_the_next_timer(diary: Diary) -> None:
    """A scenario of hours must cost no more than its callbacks."""
    real_s = time.monotonic()

    await passes(HOUR_S)
    diary.note("an hour")
    await passes(24 * HOUR_S)
    diary.note("a day")

    assert diary.entries == [(HOUR_S, "an hour"), (25 * HOUR_S, "a day")]
    assert time.monotonic() - real_s < 60


async def test_time_stands_still_while_something_is_ready(diary: Diary) -> None:
    """Code takes no virtual time, however many steps it needs."""
    async with anyio.create_task_group() as group:
        group.start_soon(ticks, diary)
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
        diary.note("1000 steps")
        await until(1.5)
        group.cancel_scope.cancel()

    assert diary.entries == [(0.0, "1000 steps"), (1.0, "tick 1")]


async def test_timers_of_one_instant_fire_in_the_order_they_were_set() -> None:
    """A heap of timers alone is not stable: equal ones come out in an order that nobody chose."""
    loop, fired = running_loop(), list[int]()
    for number in range(50):
        loop.call_at(START_S + (2 if number % 3 else 1), fired.append, number)

    await until(2)

    assert fired == [n for n in range(50) if n % 3 == 0] + [n for n in range(50) if n % 3]


async def test_due_timers_run_after_what_was_ready_before_and_in_front_of_what_comes_next() -> None:
    """The order is that of the stock loop, or tests would pass on an order that production never has."""
    loop, ran = running_loop(), list[str]()

    def first() -> None:
        ran.append("ready")
        loop.call_soon(ran.append, "next")

    loop.call_soon(first)
    loop.call_later(0, ran.append, "due")
    await passes(1)

    assert ran == ["ready", "due", "next"]


def test_cancelled_timers_do_not_stop_time_on_its_way() -> None:
    """With one at the head of the heap, a loop sleeps for real or finds a deadlock only after it."""

    async def main() -> None:
        running_loop().call_later(HOUR_S, print, "never").cancel()
        await anyio.sleep_forever()

    with pytest.raises(Deadlock) as caught:
        run_virtual(main)

    assert caught.value.at_s == START_S


async def test_cancelled_timers_do_not_fill_the_heap() -> None:
    """Every request of a long run has a time-out that is cancelled when the answer comes."""
    for _ in range(10_000):
        with anyio.fail_after(HOUR_S):
            await passes(0.001)

    assert len(running_loop()._timers) < 1000


async def test_timer_at_infinity_never_fires_and_one_at_nan_is_refused() -> None:
    """Time that has jumped to infinity never comes back."""
    loop = running_loop()
    loop.call_at(math.inf, print, "never")

    await passes(1)

    assert loop.time() == START_S + 1
    with pytest.raises(ValueError, match="nan"):
        loop.call_at(math.nan, print)


async def test_time_outs_of_anyio_strike_in_virtual_time(diary: Diary) -> None:
    """The product's time-outs are those of anyio."""
    with pytest.raises(TimeoutError), anyio.fail_after(5):
        await passes(6)
    diary.note("failed")
    with anyio.move_on_after(5) as scope:
        await passes(4)
    diary.note(f"cancelled {scope.cancelled_caught}")
    with anyio.move_on_after(5) as scope:
        await passes(6)
    diary.note(f"cancelled {scope.cancelled_caught}")

    assert diary.entries == [(5.0, "failed"), (9.0, "cancelled False"), (14.0, "cancelled True")]


# Runs that cannot go on.


def test_deadlock_names_tasks_where_they_wait_and_frozen_places() -> None:
    """Without a timer nothing ever happens again; a test must not hang, and its reader must see who waits."""

    async def stuck() -> None:
        await anyio.Event().wait()

    async def main() -> None:
        run_in_place("a", partial(passes, 7))
        await passes(5)
        running_loop().freeze("a")
        async with anyio.create_task_group() as group:
            group.start_soon(stuck, name="pump p-1")

    with pytest.raises(Deadlock, match=r"pump p-1 \(.*stuck:\d+ > Event\.wait:\d+") as caught:
        run_virtual(main)

    assert caught.value.at_s == START_S + 7
    assert [name.split(" (")[0] for name in caught.value.tasks] == ["main", "a: partial", "pump p-1"]
    assert caught.value.frozen == ("a",)


def test_deadlock_cancels_what_waits_so_that_its_clean_up_runs(diary: Diary) -> None:
    """A fixture that holds a file must close it, also after a failed test."""

    async def main() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await passes(1)
            diary.note("cleaned up")

    with pytest.raises(Deadlock):
        run_virtual(main)

    assert diary.entries == [(1.0, "cleaned up")]


def test_livelock_at_one_instant_names_the_task() -> None:
    """Two tasks that wake each other keep time from moving: the run would never end."""

    async def spin() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        await passes(5)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, HOUR_S)
            group.start_soon(spin, name="spinner")

    with pytest.raises(Livelock) as caught:
        run_virtual(main)

    assert (caught.value.at_s, caught.value.tasks) == (START_S + 5, ("spinner",))
    assert 200_000 < caught.value.steps < 200_100


async def test_livelock_does_not_count_steps_between_which_time_moves() -> None:
    """A long run is not a livelock."""
    loop = running_loop()
    loop._steps_per_instant_max = 100

    for _ in range(1000):
        await passes(0.001)

    assert loop.steps > 1000


def test_real_time_limit_ends_a_run_that_virtual_time_does_not_end(diary: Diary) -> None:
    """A loop that polls for something that never comes has timers for ever; its clean-up still has its time."""

    async def main() -> None:
        try:
            while True:
                await passes(1)
        finally:
            with anyio.CancelScope(shield=True):
                await passes(1)
            diary.note("cleaned up")

    with pytest.raises(RealTimeExceeded, match=r"0\.02 s .* pending: main \(") as caught:
        run_virtual(main, real_time_limit_s=0.02)

    assert [what for _, what in diary.entries] == ["cleaned up"]
    assert caught.value.at_s > START_S


# The end of a run.


def test_run_ends_by_killing_what_is_frozen_and_cancelling_the_rest_in_order(diary: Diary) -> None:
    """A task that outlives its run would tell its errors in the next one."""

    async def home(what: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            diary.note(what)

    async def main() -> str:
        for place in ("c", "a", "b"):
            run_in_place(place, home, place)
        await passes(1)
        running_loop().freeze("a")
        return "result"

    assert run_virtual(main) == "result"
    assert diary.entries == [(1.0, "c"), (1.0, "b")]


def test_run_that_cannot_be_ended_says_who_stays() -> None:
    """Code that swallows its cancellation holds up every stop, also in production."""

    async def stubborn() -> None:
        while True:
            try:
                await passes(1)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        run_in_place("a", stubborn, name="stubborn")
        await passes(1)

    with pytest.raises(BaseExceptionGroup) as caught:
        run_virtual(main)

    assert [str(error).split(" (")[0] for error in caught.value.exceptions] == [
        "cancelled 10 times and did not end: stubborn"
    ]


def test_runner_of_asyncio_closes_the_loop_although_places_were_killed(diary: Diary) -> None:
    """It cancels all tasks at its end and waits for them; those of a dead place never end."""

    async def home(what: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            diary.note(what)

    async def main() -> str:
        run_in_place("a", home, "a")
        run_in_place("b", home, "b")
        await passes(1)
        running_loop().kill("a")
        return "result"

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) == "result"
        loop = runner.get_loop()

    assert loop.is_closed()
    assert diary.entries == [(1.0, "b")]
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)


@pytest.fixture
async def started_at_s() -> AsyncIterator[float]:
    """When a fixture of anyio's plugin ran, on the loop of the test."""
    loop = running_loop()
    await passes(1)
    yield loop.time()
    assert running_loop() is loop


async def test_plugin_of_anyio_runs_fixtures_and_test_on_one_virtual_loop(started_at_s: float) -> None:
    """Tests of hosts are written as async functions with async fixtures."""
    assert (started_at_s, running_loop().time()) == (START_S + 1, START_S + 1)


# What virtual time refuses.


async def test_threads_are_refused() -> None:
    """A thread takes real time, in which the loop would run through all of virtual time."""
    for way in (
        lambda: asyncio.to_thread(print),
        lambda: anyio.to_thread.run_sync(print),
        lambda: asyncio.open_connection("localhost", 1),
    ):
        with pytest.raises(RuntimeError, match="threads cannot run on virtual time"):
            await way()


async def test_other_threads_are_refused() -> None:
    """What they call would come at a moment that differs from run to run."""
    loop, caught = running_loop(), list[Exception]()

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    ran: list[str] = []
    loop.call_soon_threadsafe(ran.append, "from this thread")
    await passes(1)

    assert [str(error)[:32] for error in caught] == ["threads cannot run on virtual ti"]
    assert ran == ["from this thread"]


async def test_sockets_are_refused() -> None:
    """The loop never looks at one, so a reader would wait for ever."""
    read, write = os.pipe()
    try:
        with pytest.raises(RuntimeError, match="virtual time waits for no socket"):
            running_loop().add_reader(read, print)
    finally:
        os.close(read)
        os.close(write)


def test_anyio_is_left_as_it_was() -> None:
    """Tests on real time run in the same process, and use threads."""
    scope = anyio_asyncio.CancelScope

    async def main() -> bool:
        return anyio_asyncio.CancelScope is scope

    async def in_thread() -> int:
        return await anyio.to_thread.run_sync(threading.get_ident)

    assert run_virtual(main) is False
    assert anyio_asyncio.CancelScope is scope
    assert anyio.run(in_thread) != threading.get_ident()


async def test_loop_without_trace_has_no_digest() -> None:
    """Two empty digests would be equal."""
    with pytest.raises(ValueError, match="trace=True"):
        _ = running_loop().digest


def test_running_loop_is_an_error_on_real_time() -> None:
    """A test that forgot the fixture would sleep for real."""

    async def main() -> None:
        running_loop()

    with pytest.raises(RuntimeError, match="expected a VirtualTimeLoop"):
        asyncio.run(main())


# A run repeats exactly.


def scrambled(seed: int) -> tuple[int, str, str]:
    """Steps, digest of the loop and digest of what was noted, of a program that cancels many siblings at once."""
    diary = Diary()

    async def sibling(draw: random.Random, depth: int, name: str) -> None:
        try:
            with anyio.move_on_after(draw.random() * 5):
                async with anyio.create_task_group() as group:
                    for number in range(draw.randrange(1, 4) if depth else 0):
                        group.start_soon(sibling, draw, depth - 1, f"{name}.{number}")
                    await passes(draw.random() * 4)
                    if draw.random() < 0.3:
                        group.cancel_scope.cancel()
                    await anyio.sleep_forever()
        finally:
            # Whoever is cancelled first draws first: an order that differs changes everything after it.
            diary.note(f"{name} {draw.random()}")

    async def waits_for_any(draw: random.Random) -> None:
        tasks = {running_loop().create_task(answers(draw.randrange(3), str(number))) for number in range(9)}
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            diary.note(" ".join(task.result() for task in done))

    async def main() -> tuple[int, str]:
        draw = random.Random(seed)
        for place in ("a", "b", "c"):
            run_in_place(place, sibling, draw, 3, place)
        run_in_place("d", waits_for_any, draw)
        await until(1)
        running_loop().freeze("a")
        await until(1.5)
        running_loop().kill("b")
        await until(3)
        running_loop().thaw("a")
        await until(60)
        return running_loop().steps, running_loop().digest

    steps, digest = run_virtual(main, trace=True)
    return steps, digest, hashlib.sha256(repr(diary.entries).encode()).hexdigest()


def test_run_repeats_exactly_in_other_processes() -> None:
    """A seed that failed in CI must fail in the same way on the desk of whoever mends it."""
    # Other memory before the run moves every address that is taken in it.
    program = "b = [object() for _ in range({})]; from tests.world.test_loop import scrambled; print(scrambled(7))"
    runs = [run_python(program.format(1000 * seed), seed=str(seed)) for seed in (1, 2, 3)]

    assert [run.stderr for run in runs] == ["", "", ""]
    assert {run.stdout for run in runs} == {f"{scrambled(7)}\n"}


def test_run_repeats_exactly_in_one_process_and_differs_by_its_seed() -> None:
    """A failing schedule is shrunk by running it again and again; one digest for all would prove nothing."""
    runs = [scrambled(seed) for seed in (1, 1, 1, 2)]

    assert runs[0] == runs[1] == runs[2]
    assert all(one != other for one, other in zip(runs[0], runs[3], strict=True))
