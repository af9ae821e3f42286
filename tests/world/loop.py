"""
Running programs on virtual time, on simulated machines and in the world around them: what tests import.

It knows nothing of hosts, stores or networks; the rest of `tests.world` builds those on it. The loop is in
`virtual_time`, the rules of machines in `places`, what makes a run repeat exactly in `numbered`.

A function that a place calls, whoever wrote it, runs in that place, and freezes and dies with it. The work of a server,
which goes on without its client, is done through `in_world`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from .faults import Deadlock, Livelock, RealTimeExceeded, VirtualTimeError, listed, name_of
from .numbered import VirtualTask
from .places import PLACE, Killed
from .virtual_time import START_S, VirtualTimeLoop

__all__ = [
    "run_virtual",
    "running_loop",
    "run_in_place",
    "result_of",
    "in_world",
    "PLACE",
    "START_S",
    "Deadlock",
    "Killed",
    "Livelock",
    "RealTimeExceeded",
    "VirtualTask",
    "VirtualTimeError",
    "VirtualTimeLoop",
]

T = TypeVar("T")

WIND_UP_ROUNDS_MAX = 10
WIND_UP_ROUND_S = 60.0  # Virtual: longer than any clean-up that is not stuck.


def run_virtual(main: Callable[[], Awaitable[T]], *, real_time_limit_s: float | None = 60.0, trace: bool = False) -> T:
    """
    Run `main()` on a loop of its own; then kill what is frozen, cancel what is left and close the loop.

    Args:
        real_time_limit_s: As for `VirtualTimeLoop`.
        trace: As for `VirtualTimeLoop`; `main` reads `running_loop().digest`.

    Raises:
        BaseException: Whatever ends `main`, with a note for each error that nobody received.
        BaseExceptionGroup: `main` returned, but there were errors that nobody received.
    """
    loop = VirtualTimeLoop(real_time_limit_s=real_time_limit_s, trace=trace)
    try:
        result = loop.run_until_complete(loop.create_task(awaited(main), name="main"))
    except BaseException as failure:
        # Nothing is contained here: what fails later must not take the place of this failure.
        try:
            wind_up_and_close(loop)
        except BaseExceptionGroup as others:
            for other in others.exceptions:
                failure.add_note(f"Also, and received by nobody: {other!r}")
        raise
    wind_up_and_close(loop)
    return result


def running_loop() -> VirtualTimeLoop:
    """
    The loop that runs the caller.

    Raises:
        RuntimeError: None does, or one on real time.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        raise VirtualTimeError(f"the running loop is {loop!r}; expected a VirtualTimeLoop, as from run_virtual")
    return loop


def run_in_place(
    place: str, function: Callable[..., Coroutine[Any, Any, T]], *args: Any, name: str | None = None
) -> VirtualTask[T]:
    """
    Start `function(*args)` on a simulated machine; what it starts stays there.

    The task is nobody's child: no task group of the caller waits for it or cancels it. Its result comes by `result_of`,
    never by awaiting the task itself, which would cancel it with the caller and hang once it is killed.

    Args:
        place: Name of the machine; the first use makes it.
        name: Of the task; by default place and function.

    Raises:
        ValueError: The place is dead.
    """
    loop = running_loop()
    loop.places.enter(place)
    context = copy_context()
    context.run(PLACE.set, place)
    coro = context.run(function, *args)
    return loop.create_task(coro, name=name or f"{place}: {name_of(function)}", context=context)


async def result_of(task: VirtualTask[T]) -> T:
    """
    Wait for a task that may be in a place. A caller that is cancelled leaves the task alone.

    Raises:
        Killed: The place was killed before the task ended.
        BaseException: Whatever the task ended with.
    """
    loop, place = running_loop(), task.context.get(PLACE)
    waits: list[asyncio.Future[Any]] = [task]
    if place is not None:
        waits.append(loop.places.death_of(place, loop))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if place is not None and not task.done():
        raise Killed(place=place, task=task.get_name())
    return task.result()


async def in_world(
    work: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    name: str | None = None,
    expected: tuple[type[Exception], ...] = (),
) -> T:
    """
    Do `work(*args)` in the world and wait for its result, as a client does with a request that it has sent.

    Once this waits, the work goes on whether or not the caller is frozen, killed or cancelled. The answer wakes the
    caller as everything in its place does: not while it is frozen.

    Args:
        name: Of the task in the world; by default that of the function.
        expected: Errors of `work` that may be lost with a caller that is gone. Any other is in `world_errors` then.

    Raises:
        Exception: Whatever `work` raised.
    """
    loop = running_loop()
    context = copy_context()
    context.run(PLACE.set, None)
    task = loop.create_task(context.run(work, *args), name=name or f"world: {name_of(work)}", context=context)
    answered: asyncio.Future[None] = loop.create_future()

    def answer(task: asyncio.Task[T]) -> None:
        if isinstance(task._exception, expected):
            task._log_traceback = False
        if not answered.done():
            answered.set_result(None)

    task.add_done_callback(answer, context=context)
    await answered
    return task.result()


async def awaited(main: Callable[[], Awaitable[T]]) -> T:
    """A coroutine of any awaitable."""
    return await main()


def wind_up_and_close(loop: VirtualTimeLoop) -> None:
    """End everything on a loop that has stopped; raises what nobody received."""
    with contextlib.closing(loop):
        try:
            loop.run_until_complete(loop.create_task(end_everything(loop), name="wind up"))
        except VirtualTimeError as error:
            loop.keep_error({"exception": error})


async def end_everything(loop: VirtualTimeLoop) -> None:
    """Kill what is frozen, cancel the rest."""
    for place in loop.places.frozen:
        loop.kill(place)
    for _ in range(WIND_UP_ROUNDS_MAX):
        left = [task for task in loop.pending_tasks() if task is not asyncio.current_task()]
        if not left:
            await loop.shutdown_asyncgens()
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=WIND_UP_ROUND_S)
    raise VirtualTimeError(f"cancelled {WIND_UP_ROUNDS_MAX} times and did not end: {listed(loop.whereabouts())}")
