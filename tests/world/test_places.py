"""Places: machines freeze, thaw and die, and the world goes on without them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio
import pytest

from tests.world.diary import HOUR_S, Diary, answers, fails, notes_after, passes, run_python, ticks, until
from tests.world.loop import (
    PLACE,
    START_S,
    Deadlock,
    Killed,
    VirtualTask,
    VirtualTimeLoop,
    in_world,
    result_of,
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


# Freeze and thaw.


async def test_frozen_place_does_nothing_while_the_world_goes_on(diary: Diary) -> None:
    """SIGSTOP of one machine stops no other, and no server."""
    loop = running_loop()
    run_in_place("a", ticks, diary, 1.0)
    run_in_place("b", ticks, diary, 2.0)
    run_in_place("c", ticks, diary, 6.0)
    await until(1.5)
    loop.freeze("a")
    loop.freeze("c")
    diary.note(f"frozen {loop.places.is_frozen('a')} {loop.places.is_frozen('b')}")
    await until(5.5)
    loop.thaw("a")
    diary.note(f"frozen {loop.places.is_frozen('a')} {loop.places.is_frozen('b')}")
    await until(7)
    loop.kill("c")

    assert diary.entries == [
        (1.0, "tick 1"),
        (1.5, "frozen True False"),
        (2.0, "tick 1"),
        (4.0, "tick 2"),
        (5.5, "frozen False False"),
        # The timer struck at 2 and was set aside; the next counts from the moment at which it was handled.
        (5.5, "tick 2"),
        (6.0, "tick 3"),
        (6.5, "tick 3"),
    ]


async def test_thawed_place_runs_in_order_what_was_set_aside_before_anything_newer(diary: Diary) -> None:
    """Timers that struck, answers that came and messages keep their order, as in the queues of a stopped process."""
    loop = running_loop()
    futures = [loop.create_future() for _ in range(3)]

    async def awaits(future: asyncio.Future[None], what: str) -> None:
        await future
        diary.note(what)

    async def home() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(awaits, futures[0], "future at 3")
            group.start_soon(awaits, futures[1], "future at 1")
            group.start_soon(awaits, futures[2], "future at the thaw")
            loop.call_at(START_S + 2, diary.note, "timer at 2")

    task = run_in_place("a", home)
    await until(0.5)
    loop.freeze("a")
    await until(1)
    futures[1].set_result(None)
    await until(3)
    futures[0].set_result(None)
    await until(4)
    # Newer, and in the queue of ready callbacks already when the older ones come back.
    futures[2].set_result(None)
    loop.call_soon(diary.note, "the world")
    loop.thaw("a")
    await result_of(task)

    assert diary.entries == [
        (4.0, "the world"),
        (4.0, "future at 1"),
        (4.0, "timer at 2"),
        (4.0, "future at 3"),
        (4.0, "future at the thaw"),
    ]


async def test_timer_cancelled_while_set_aside_does_not_run(diary: Diary) -> None:
    """What a thawed machine cancels first must not happen after that."""
    loop = running_loop()
    timers: list[asyncio.TimerHandle] = []

    async def home() -> None:
        timers.append(loop.call_later(2, diary.note, "cancelled"))
        timers.append(loop.call_later(2, diary.note, "kept"))

    run_in_place("a", home)
    await until(1)
    loop.freeze("a")
    await until(3)
    timers[0].cancel()
    loop.thaw("a")
    await until(4)

    assert diary.entries == [(3.0, "kept")]


async def test_place_can_be_frozen_again(diary: Diary) -> None:
    """A schedule freezes the same machine many times, also with what the first freeze left undone."""
    loop = running_loop()
    run_in_place("a", ticks, diary)
    for second in (2, 6):
        await until(second + 0.7)
        loop.freeze("a")
        await until(second + 3)
        loop.thaw("a")
        loop.freeze("a")
        await until(second + 3.5)
        loop.thaw("a")
    await until(10)

    assert diary.entries == [(1.0, "tick 1"), (2.0, "tick 2"), (5.5, "tick 3"), (6.5, "tick 4"), (9.5, "tick 5")]


async def test_place_started_while_frozen_begins_after_the_thaw(diary: Diary) -> None:
    """A process that is started on a stopped machine waits as well."""
    loop = running_loop()
    run_in_place("a", passes, 0)
    await until(1)
    loop.freeze("a")
    run_in_place("a", ticks, diary)
    await until(3)
    loop.thaw("a")
    await until(4.5)

    assert diary.entries == [(4.0, "tick 1")]


async def test_place_is_inherited_by_everything_that_its_code_starts() -> None:
    """A task group, a timer or a callback that escaped its place would go on after the kill."""
    seen: dict[str, str | None] = {}

    def note(what: str, *_: object) -> None:
        seen[what] = PLACE.get()

    async def child() -> None:
        note("child of a task group")

    async def generates() -> AsyncIterator[int]:
        note("generator")
        yield 1

    async def home() -> None:
        note("task")
        loop, future = running_loop(), running_loop().create_future()
        loop.call_soon(note, "callback")
        loop.call_later(1, note, "timer")
        future.add_done_callback(partial(note, "callback of a future"))
        loop.call_later(1, future.set_result, None)
        async with anyio.create_task_group() as group:
            group.start_soon(child)
        async for _ in generates():
            pass
        await passes(2)

    await result_of(run_in_place("a", home))
    note("world")

    assert seen == {
        "task": "a",
        "callback": "a",
        "child of a task group": "a",
        "generator": "a",
        "timer": "a",
        "callback of a future": "a",
        "world": None,
    }


# Kill.


async def test_kill_runs_no_finally_block_and_nothing_else(diary: Diary, recwarn: pytest.WarningsRecorder) -> None:
    """After SIGKILL a process releases nothing: a release in a finally block would hide every fault of a take-over."""
    loop = running_loop()
    held_by_the_world: list[object] = []
    gates = {place: loop.create_future() for place in ("a", "b")}

    async def generates() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            diary.note("generator closed")

    async def child(what: str) -> None:
        try:
            async for _ in generates():
                # Nothing but the task itself knows this future: a cycle that the garbage collector finds.
                await loop.create_future()
        except BaseException as error:
            diary.note(f"{what} got {error!r}")
            raise
        finally:
            diary.note(f"{what} ended")

    async def home(place: str) -> None:
        loop.call_later(3, diary.note, "timer")
        gates[place].add_done_callback(partial(ignore, child("never awaited, in a callback")))
        loop.call_later(3, ignore, child("never awaited, in a timer"))
        generator = generates()
        held_by_the_world.append(generator)
        await anext(generator)
        del generator
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(child, f"{place}'s child")
                await child(place)
        finally:
            diary.note(f"{place} ended")

    run_in_place("a", home, "a")
    run_in_place("b", home, "b")
    # anyio itself holds on to tasks in its cancel scopes; this one is in none.
    run_in_place("a", child, "alone")
    await until(1)
    loop.freeze("b")
    gates["b"].set_result(None)
    await until(2)
    gates["a"].set_result(None)
    run_in_place("a", child, "never started")
    loop.kill("a")
    loop.kill("b")
    places = {task.context.get(PLACE) for task in asyncio.all_tasks() if isinstance(task, VirtualTask)}
    gates.clear()
    held_by_the_world.clear()
    gc.collect()
    await until(5)
    await loop.shutdown_asyncgens()
    gc.collect()

    assert diary.entries == []
    assert places == {None}
    assert [str(warning.message) for warning in recwarn] == []


def ignore(*_: object) -> None:
    pass


def test_kill_leaves_no_timer_at_which_time_would_stop() -> None:
    """A deadlock of the living is found at once, not when the time-outs of the dead have struck."""

    async def main() -> None:
        run_in_place("a", passes, HOUR_S)
        await passes(1)
        running_loop().kill("a")
        await anyio.sleep_forever()

    with pytest.raises(Deadlock) as caught:
        run_virtual(main)

    assert caught.value.at_s == START_S + 1


def test_kill_runs_no_finally_block_when_the_process_exits() -> None:
    """The interpreter clears its modules then, and would close every coroutine that they still hold."""
    done = run_python("from tests.world.test_places import leaves_a_dead_place; leaves_a_dead_place()", seed="0")

    assert (done.returncode, done.stdout, done.stderr) == (0, "at the end\n", "")


def leaves_a_dead_place() -> None:
    async def home() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            print("finally", flush=True)

    async def main() -> None:
        run_in_place("a", home)
        await passes(1)
        run_in_place("a", home)
        running_loop().kill("a")

    run_virtual(main)
    print("at the end", flush=True)


async def test_kill_of_one_place_leaves_the_others_their_order(diary: Diary) -> None:
    """The callbacks of a dead place stand between those of others, in the queue and among the timers."""
    loop = running_loop()
    for number in range(30):
        run_in_place("abc"[number % 3], notes_after, diary, 1 + number % 2, f"{'abc'[number % 3]}{number}")
    await until(0.5)
    loop.kill("b")
    await until(3)

    kept = [number for number in range(30) if number % 3 != 1]
    assert [what for _, what in diary.entries] == [
        f"{'abc'[number % 3]}{number}" for odd in (0, 1) for number in kept if number % 2 == odd
    ]


async def test_killed_place_is_never_used_again(diary: Diary) -> None:
    """A machine that starts anew under its old name would wake what the dead one left in the queues of the world."""
    loop, contexts = running_loop(), list[Any]()

    async def home() -> None:
        contexts.append(copy_context())

    await result_of(run_in_place("a", home))
    loop.kill("a")

    assert (loop.places.is_dead("a"), loop.places.is_dead("b")) == (True, False)
    with pytest.raises(ValueError, match="'a' is dead"):
        run_in_place("a", ticks, diary)
    with pytest.raises(ValueError, match="'a' is dead"):
        loop.create_task(ticks(diary), context=contexts[0])


@pytest.mark.parametrize(
    ("act", "place", "says"),
    [
        (VirtualTimeLoop.freeze, "unknown", r"nothing ever ran .* known are \['dead', 'frozen', 'running'\]"),
        (VirtualTimeLoop.kill, "unknown", "nothing ever ran"),
        (VirtualTimeLoop.thaw, "unknown", r"not frozen; frozen are \['frozen'\]"),
        (VirtualTimeLoop.thaw, "running", "not frozen"),
        (VirtualTimeLoop.thaw, "dead", "not frozen"),
        (VirtualTimeLoop.freeze, "frozen", "frozen already"),
        (VirtualTimeLoop.freeze, "dead", "is dead"),
        (VirtualTimeLoop.kill, "dead", "is dead"),
    ],
)
async def test_place_that_cannot_be_stopped_so_is_an_error(
    act: Callable[[VirtualTimeLoop, str], None], place: str, says: str
) -> None:
    """A schedule with a misspelt place would inject no fault and pass."""
    loop = running_loop()
    for known in ("running", "frozen", "dead"):
        run_in_place(known, anyio.sleep_forever)
    loop.freeze("frozen")
    loop.kill("dead")

    with pytest.raises(ValueError, match=says):
        act(loop, place)

    loop.kill("frozen")


@pytest.mark.parametrize("act", [VirtualTimeLoop.freeze, VirtualTimeLoop.kill])
async def test_place_stops_itself_only_through_the_world(
    act: Callable[[VirtualTimeLoop, str], None], diary: Diary
) -> None:
    """Done directly, its code would run on to the next await, as no signal allows."""

    async def stops() -> None:
        act(running_loop(), "a")

    async def home() -> None:
        with pytest.raises(ValueError, match="cannot stop itself; do it through in_world"):
            await stops()
        diary.note("goes on")
        await in_world(stops)
        diary.note("not reached")

    run_in_place("a", home)
    await passes(5)

    assert diary.entries == [(0.0, "goes on")]
    if act is VirtualTimeLoop.freeze:
        running_loop().kill("a")


# Results across places.


async def test_result_of_a_task_is_its_value_or_its_error() -> None:
    """A test starts a host and asks how it ended."""
    assert await result_of(run_in_place("a", answers, 2, "yes")) == "yes"
    with pytest.raises(KeyError, match="no such"):
        await result_of(run_in_place("a", fails, KeyError("no such")))


@pytest.mark.parametrize("kill_at_s", [1, 3])
async def test_result_of_a_killed_task_is_an_error_at_once(kill_at_s: float, diary: Diary) -> None:
    """The task never ends, so whoever waited for it would wait for ever."""
    loop = running_loop()
    task = run_in_place("a", anyio.sleep_forever, name="host a")
    loop.call_at(START_S + kill_at_s, loop.kill, "a")
    await until(2)

    with pytest.raises(Killed) as caught:
        await result_of(task)
    diary.note("killed")

    assert (caught.value.place, caught.value.task) == ("a", "host a")
    assert diary.entries == [(max(2, kill_at_s), "killed")]


async def test_result_that_came_before_the_kill_is_kept() -> None:
    """A host that stopped in good order is not called killed afterwards."""
    task = run_in_place("a", answers, 1, "yes")
    await passes(2)
    running_loop().kill("a")

    assert await result_of(task) == "yes"


async def test_result_that_nobody_waits_for_any_more_leaves_its_task_alone() -> None:
    """A test that stops waiting for a host does not stop the host."""
    task = run_in_place("a", answers, 3, "yes")
    with anyio.move_on_after(1) as scope:
        await result_of(task)

    assert scope.cancelled_caught
    assert await result_of(task) == "yes"


async def test_in_world_gives_its_result_or_error_to_the_caller(diary: Diary) -> None:
    """A request to a server looks like a call."""

    async def server(answer: str) -> str:
        diary.note(f"served in {PLACE.get()}")
        return await answers(2, answer)

    async def home() -> None:
        diary.note(await in_world(server, "yes"))
        with pytest.raises(KeyError):
            await in_world(fails, KeyError("no such"))
        diary.note(f"back in {PLACE.get()}")

    await result_of(run_in_place("a", home))

    assert diary.entries == [(0.0, "served in None"), (2.0, "yes"), (2.0, "back in a")]


@pytest.mark.parametrize("fault", ["none", "frozen", "killed", "cancelled"])
async def test_in_world_goes_on_whatever_happens_to_the_caller(fault: str, diary: Diary) -> None:
    """A request that was sent is served, although its client is stopped, dead, or has given up."""
    loop = running_loop()

    async def server() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(notes_after, diary, 2, "written")
        return "answer"

    async def home() -> None:
        try:
            with anyio.move_on_after(1 if fault == "cancelled" else HOUR_S) as scope:
                diary.note(await in_world(server))
            if scope.cancelled_caught:
                diary.note("gave up")
        finally:
            diary.note("done")

    run_in_place("a", home)
    await until(1)
    if fault == "frozen":
        loop.freeze("a")
    if fault == "killed":
        loop.kill("a")
    await until(3)
    if fault == "frozen":
        loop.thaw("a")
    await until(5)

    expected = {
        "none": [(2.0, "written"), (2.0, "answer"), (2.0, "done")],
        "frozen": [(2.0, "written"), (3.0, "answer"), (3.0, "done")],
        "killed": [(2.0, "written")],
        "cancelled": [(1.0, "gave up"), (1.0, "done"), (2.0, "written")],
    }
    assert diary.entries == expected[fault]


# Errors that nobody receives.


@pytest.mark.parametrize("fault", ["killed", "cancelled", "frozen at the end"])
def test_error_of_a_server_without_its_caller_ends_the_run(fault: str) -> None:
    """A bug in a simulated server must not vanish with the client that met it."""
    bug = KeyError("bug")

    async def server() -> None:
        await passes(2)
        raise bug

    async def home() -> None:
        with anyio.move_on_after(1 if fault == "cancelled" else HOUR_S):
            await in_world(server)

    async def main() -> None:
        run_in_place("a", home)
        await until(1)
        if fault == "killed":
            running_loop().kill("a")
        if fault == "frozen at the end":
            running_loop().freeze("a")
        await until(5)

    with pytest.raises(BaseExceptionGroup) as caught:
        run_virtual(main)

    assert caught.value.exceptions == (bug,)


def test_expected_error_of_a_server_may_be_lost_with_its_caller() -> None:
    """A refusal that a network injects is no bug when the client has timed out by then."""

    async def server() -> None:
        await passes(2)
        raise ConnectionError

    async def home() -> None:
        with anyio.move_on_after(1):
            await in_world(server, expected=(ConnectionError,))

    async def main() -> None:
        run_in_place("a", home)
        await until(5)

    run_virtual(main)


def test_errors_of_tasks_and_callbacks_end_the_run() -> None:
    """With asyncio's own handling they are a line in a log that no test reads."""
    errors = {"task": KeyError("task"), "callback": ValueError("callback")}

    def call_back() -> None:
        raise errors["callback"]

    async def main() -> None:
        task = run_in_place("a", fails, errors["task"])
        # A cycle, as real errors often have: asyncio would tell of it when the garbage collector comes.
        errors["task"].__dict__["task"] = task
        del task
        running_loop().call_later(1, call_back)
        # So many tasks end afterwards that finished ones are dropped.
        for _ in range(200):
            await result_of(run_in_place("a", passes, 0.01))
        errors.pop("task")

    gc.disable()
    try:
        with pytest.raises(BaseExceptionGroup) as caught:
            run_virtual(main)
    finally:
        gc.enable()

    assert sorted(map(repr, caught.value.exceptions)) == ["KeyError('task')", "ValueError('callback')"]


def test_failure_of_main_is_raised_and_the_others_are_noted_on_it() -> None:
    """The failed assertion is what a reader wants to see first, a bug elsewhere is often its cause."""

    async def main() -> None:
        run_in_place("a", fails, KeyError("bug"))
        await passes(1)
        raise AssertionError("first")

    with pytest.raises(AssertionError, match="first") as caught:
        run_virtual(main)

    assert caught.value.__notes__ == ["Also, and received by nobody: KeyError('bug')"]
