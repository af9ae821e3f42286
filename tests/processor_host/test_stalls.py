"""
The watch of the main loop: what blocks it is told meanwhile, and beats are held back beyond the limit. Virtual time.

A loop that is blocked while another goes on is played by a watch without ticks: that is all that the watch can see.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from partitions.beating import SameLoop
from partitions.events import Event
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.memory import MemoryStore
from partitions.stores.sqlite import SqliteStore
from processor_host.beat_loop import beat_place
from processor_host.events import BeatsHeld, BeatsNotApart, LoopBlocked
from processor_host.observed import ObservedStore
from processor_host.stalls import Aside, LoopWatch, Pulse, stack_of
from tests.stage import VIRTUAL_TIME, JumpingClock
from tests.world.diary import passes

__all__: list[str] = []

LIMIT_S = 5.0
PATIENCE_S = 10.0
"""For a thread that has only to run."""


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Watched:
    """A watch whose main loop ticks only while it is told to."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.events: list[Event] = []
        self.pulse = Pulse()
        self.watch = LoopWatch(
            self.clock,
            pulse=self.pulse,
            limit_s=LIMIT_S,
            on_event=self.events.append,
            on_blocked=self.events.append,
            stack_of=lambda _: "in time.sleep",
        )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch.watch)
            yield
            tasks.cancel_scope.cancel()

    async def goes_round_for(self, time_s: float) -> None:
        with anyio.move_on_after(time_s):
            await self.watch.tick()


async def test_blocked_loop_is_told_once_with_its_stack_and_once_more_beyond_the_limit() -> None:
    """One line names the culprit while it is at it; a line a look would bury it."""
    watched = Watched()
    async with watched.watching():
        await passes(LIMIT_S - 0.3)
        within = watched.watch.why_held()
        await passes(3.0)
        beyond = watched.watch.why_held()

    assert watched.events == [
        LoopBlocked(stall_s=1.0, stack="in time.sleep"),
        BeatsHeld(stall_s=LIMIT_S + 0.25, limit_s=LIMIT_S, stack="in time.sleep"),
    ]
    assert (within, beyond) == (None, "the main loop has been blocked for 7.5 s, longer than 5 s")


async def test_loop_that_goes_on_may_beat_again_and_its_next_stall_is_told_anew() -> None:
    """Code that blocks now and then is a fault each time, and costs no session if it ends in time."""
    watched = Watched()
    async with watched.watching():
        await passes(LIMIT_S + 1.0)
        await watched.goes_round_for(1.0)
        again = watched.watch.why_held()
        await passes(2.0)

    assert again is None
    assert [type(event) for event in watched.events] == [LoopBlocked, BeatsHeld, LoopBlocked]


async def test_calls_in_a_row_are_not_one_call_that_hangs() -> None:
    """Where many partitions are ready, the loop comes round only after the last of their calls."""
    watched = Watched()
    async with watched.watching():
        for _ in range(4):
            await passes(LIMIT_S - 1.0)
            watched.pulse.note()
        held = watched.watch.why_held()
        await passes(LIMIT_S / 2)
        # What another thread notes says nothing of this loop.
        stranger = threading.Thread(target=watched.pulse.note)
        stranger.start()
        stranger.join()
        await passes(LIMIT_S / 2 + 0.5)
        beyond = watched.watch.why_held()

    assert (held, beyond is None) == (None, False)


async def test_loop_that_goes_round_is_never_told() -> None:
    """The watch looks as often as the loop ticks; neither may wait for the other."""
    watched = Watched()
    async with watched.watching():
        await watched.goes_round_for(100.0)

    assert watched.events == []


async def test_time_in_which_both_loops_stood_still_is_no_fault_of_the_main_one() -> None:
    """A process that was suspended wakes up in both at once; its stack would name somebody innocent."""
    watched = Watched()
    async with watched.watching():
        await watched.goes_round_for(1.1)
        watched.clock.jump(60.0)
        # The watch may look before the main loop has come round.
        await passes(0.2)
        held = watched.watch.why_held()
        await watched.goes_round_for(1.0)

    assert (held, watched.events) == (None, [])


def test_stack_names_what_the_thread_is_at() -> None:
    """Somebody must find the line from the log."""
    entered, leave = threading.Event(), threading.Event()

    def culprit() -> None:
        entered.set()
        leave.wait()

    thread = threading.Thread(target=culprit)
    thread.start()
    entered.wait()
    assert thread.ident is not None
    found = stack_of(thread.ident)
    leave.set()
    thread.join()

    assert "in culprit\n    leave.wait()" in found
    assert stack_of(-1) == ""


def test_observer_that_hangs_is_waited_for_by_nobody() -> None:
    """It is told on the loop of the beats, which must go on; and stall after stall, threads must not pile up."""
    told: list[Event] = []
    entered, leave = threading.Event(), threading.Event()

    def hangs(event: Event) -> None:
        told.append(event)
        entered.set()
        leave.wait(PATIENCE_S)

    first, second, third = (LoopBlocked(stall_s=stall_s, stack="") for stall_s in (1.0, 2.0, 3.0))
    aside = Aside(hangs)
    aside.on_event(first)
    assert entered.wait(PATIENCE_S)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "stalls"]
    aside.on_event(second)
    hung = (leave.is_set(), thread.is_alive(), thread.daemon)
    leave.set()
    thread.join()
    entered.clear()
    aside.on_event(third)
    assert entered.wait(PATIENCE_S)

    assert hung == (False, True, True)
    assert told == [first, third]


async def test_store_that_serves_one_loop_only_is_told_of_and_beats_go_on_there() -> None:
    """Such a host loses its leases to every stall; its owner can mend that, if told."""
    events: list[Event] = []
    clock = JumpingClock()
    store = ObservedStore(MemoryStore("memory:here"), clock=clock.now_s, on_event=events.append)
    place_of = partial(beat_place, clock=clock, pulse=Pulse(), limit_s=LIMIT_S, is_apart=True)
    async with place_of(store, on_event=events.append) as place:
        assert isinstance(place, SameLoop)
        assert place.store is store
    assert events == [BeatsNotApart(store="memory:here")]


def test_store_for_beats_is_another_one_only_where_a_store_serves_one_loop() -> None:
    """Clients and sessions of the SDK belong to one loop; a lease file does not."""
    file = SqliteStore("leases.db")
    table = DynamoDBStore("leases")
    given = DynamoDBStore("leases", clients={"beats": object(), "writes": object(), "reads": object()})
    apart = table.for_beats()

    assert file.for_beats() is file
    assert apart is not None
    assert (apart is table, apart.url) == (False, table.url)
    assert given.for_beats() is None
