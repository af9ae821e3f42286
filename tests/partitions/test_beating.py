"""
Beats on a loop of their own: real threads, a clock that the store moves, and a main loop that is really blocked.

No test waits for time to pass. A step of the beats is one beat that the store has answered, and each moves the clock.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from partitions.beating import THREAD, OwnLoop
from partitions.beats import Pace
from partitions.errors import StoreUnavailable
from partitions.events import Event, SessionEnded
from partitions.held import HeldTerms
from partitions.items import ask_key
from partitions.leases import Lease
from partitions.sessions import Session
from partitions.stores.memory import MemoryStore
from partitions.table import SessionTable
from partitions.verbs import Ask, Beat, Create, Result, Verb
from tests.stage import HandClock

__all__: list[str] = []

GROUP = "g"
PACE = Pace(duration_s=3.0, handoff_s=6.0, beat_interval_s=0.0, call_timeout_s=0.5)
"""One beat after the other: the clock stands still between them."""
PATIENCE_S = 10.0
"""For a thread that has only to run; a loaded machine may let it wait."""


class Stepping:
    """A store for two loops: each beat moves the clock by `step_s`, and who is blocked can count them."""

    def __init__(self, clock: HandClock, step_s: float) -> None:
        self.table = MemoryStore()
        self.clock = clock
        self.step_s = step_s
        self.beats = 0
        self.threads: set[str] = set()
        self.calls: list[str] = []
        self._changed = threading.Condition()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")

    def write(self, verb: Verb[Any]) -> None:
        """What somebody else writes."""
        with self._changed:
            self.table.apply_now(GROUP, verb)

    async def submit(self, group: str, verb: Verb[Any]) -> Result[Any]:
        # Between two beats the thread's loop must go round, for whoever wants to end it.
        await anyio.lowlevel.checkpoint()
        with self._changed:
            result = self.table.apply_now(group, verb)
            if isinstance(verb, Beat):
                self.threads.add(threading.current_thread().name)
                self.beats += 1
                self.clock.at_s += self.step_s
                self._changed.notify_all()
        return result

    def block_for(self, beats: int) -> None:
        """Block the calling thread, with its loop, until so many more beats have been answered."""
        with self._changed:
            wanted = self.beats + beats
            if not self._changed.wait_for(lambda: self.beats >= wanted, PATIENCE_S):
                raise AssertionError(f"{self.beats} beats while the main loop was blocked, {wanted} were wanted")


class Aside:
    """The session's own way to the same items, on the main loop; no beat may come along it."""

    def __init__(self, store: Stepping) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def submit(self, group: str, verb: Verb[Any]) -> Result[Any]:
        assert not isinstance(verb, Beat)
        return await self._store.submit(group, verb)


class Scene:
    """One session whose beats have a loop of their own."""

    def __init__(self, step_s: float = 0.5, beside: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self.clock = HandClock(100.0)
        self.store = Stepping(self.clock, step_s)
        self.events: list[Event] = []
        self.held_back: str | None = None
        self.looks = 0
        self.place = OwnLoop(self.store, is_shared=False, why_held=self.why_held, beside=beside)
        self.session = Session(
            store=Aside(self.store),
            group=GROUP,
            host_id="a",
            session_id="a:1",
            clock=self.clock,
            random=Random(1),
            pace=PACE,
            place=self.place,
            on_event=self.events.append,
        )

    def why_held(self) -> str | None:
        self.looks += 1
        return self.held_back

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        await self.place.open()
        try:
            assert await self.session.register()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.session.run)
                await passes_until(lambda: self.store.beats > 0)
                yield
                tasks.cancel_scope.cancel()
        finally:
            await self.place.close()

    async def lease(self) -> Lease:
        self.store.write(Create(partition="p0", position="0"))
        (item,) = self.store.table.leases_now(GROUP)
        lease = await self.session.acquire(item, reason="test")
        assert lease is not None
        return lease


class _Term:
    """As much of a term as its session's list of them looks at."""

    partition, token, key = "p0", 1, ask_key("p0", 1)


async def passes_until(holds: Any) -> None:
    """Let the main loop go round until this holds."""
    with anyio.fail_after(PATIENCE_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def test_beats_go_on_while_the_main_loop_is_blocked_for_longer_than_the_duration() -> None:
    """Rule 16: a processor that blocks must not cost the host its leases."""
    scene = Scene()
    async with scene.living():
        lease = await scene.lease()
        began_s = scene.clock.at_s
        scene.store.block_for(20)

        assert scene.clock.at_s - began_s > 3 * PACE.duration_s
        assert (scene.session.is_valid, lease.is_held(), lease.ended.is_set()) == (True, True, False)
    assert scene.store.threads == {THREAD}


async def test_deadline_of_an_ask_is_in_the_table_before_the_blocked_loop_is_told() -> None:
    """Rule 16: otherwise blocking code goes on under an ask that it has not seen, while the asker takes the lease."""
    scene = Scene(step_s=0.01)
    async with scene.living():
        lease = await scene.lease()
        scene.store.write(Ask(session_id="a:1", keys=(lease.key,), asker="b:1"))
        scene.store.block_for(2)

        assert lease.ask_deadline_s() < scene.clock.at_s + PACE.handoff_s
        assert not lease.asked.is_set()
        scene.store.step_s = 0.5
        scene.store.block_for(20)
        assert (scene.session.is_valid, lease.is_held()) == (True, False)
        await passes_until(lease.asked.is_set)


async def test_session_ends_by_itself_once_beats_are_held_back() -> None:
    """A host whose main loop never goes on must lose its leases, and say why."""
    scene = Scene()
    await scene.place.open()
    try:
        assert await scene.session.register()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.session.run)
            await passes_until(lambda: scene.store.beats >= 3)
            scene.held_back = "the main loop is blocked"
            # One that is under way may still be answered; the second look comes after that.
            looked = scene.looks
            with anyio.fail_after(PATIENCE_S):
                while scene.looks < looked + 2:
                    scene.session.beats.hurry()
                    await anyio.lowlevel.checkpoint()
            sent = scene.store.beats
            scene.clock.at_s += PACE.duration_s
            scene.session.beats.hurry()
        assert scene.store.beats == sent
    finally:
        await scene.place.close()
    ended = scene.events[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.reason == "its duration ran out before a beat was answered: the main loop is blocked"


async def test_events_of_beats_arrive_in_order_on_the_sessions_loop() -> None:
    """Metrics and logs are made on the main loop; from two threads they would be mixed up."""
    scene = Scene(step_s=0.001)
    told: list[int] = []
    scene.session._beats._on_event = lambda _: told.append(threading.get_ident())
    async with scene.living():
        before = len(told)
        scene.store.block_for(5)
        assert len(told) == before
        await passes_until(lambda: len(told) >= before + 5)
    assert set(told) == {threading.get_ident()}


async def test_cancelled_session_leaves_no_beat_and_closed_place_no_thread() -> None:
    """A stop may come at any moment; what goes on beating after it would keep leases that nobody works on."""
    scene = Scene(step_s=0.001)
    async with scene.living():
        scene.store.block_for(3)
        assert scene.store.calls == ["open"]
    sent = scene.store.beats

    assert scene.store.calls == ["open", "close"]
    assert [thread.name for thread in threading.enumerate() if thread.name == THREAD] == []
    assert (scene.session.is_over, scene.store.beats) == (True, sent)
    # Whoever still holds the session may call these; there is nothing left to reach.
    scene.session.drain()
    await scene.place.close()


async def test_store_that_cannot_be_opened_for_the_beats_leaves_no_thread() -> None:
    """The error goes to whoever started the host, who may try again for ever."""
    scene = Scene()

    async def away() -> None:
        raise StoreUnavailable("away")

    scene.store.open = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="away"):
        await scene.place.open()
    assert [thread.name for thread in threading.enumerate() if thread.name == THREAD] == []


async def test_what_fails_beside_the_beats_ends_the_session() -> None:
    """Whatever watches the main loop may not die unseen: beats that nobody holds back would go on for ever."""

    async def fails() -> None:
        raise RuntimeError("the watch is broken")

    scene = Scene(beside=fails)
    await scene.place.open()
    try:
        assert await scene.session.register()
        broken = pytest.RaisesExc(RuntimeError, match="the watch is broken")
        with pytest.RaisesGroup(broken, flatten_subgroups=True), anyio.fail_after(PATIENCE_S):
            await scene.session.run()
    finally:
        await scene.place.close()
    assert scene.session.is_over


async def test_death_of_the_thread_ends_the_session_with_an_error_that_names_it() -> None:
    """Rule 15: then the host exits non-zero; the end of a loop alone looks like a cancellation of who waits for it."""
    scene = Scene()
    died = pytest.RaisesExc(RuntimeError, match="the thread 'partitions beats' has died")
    with pytest.RaisesGroup(died, flatten_subgroups=True), anyio.fail_after(PATIENCE_S):
        async with scene.living():
            # Whatever runs on that loop, such as a client of the store, may do so.
            scene.place.reach(sys.exit, "not a host's business")
            (thread,) = (thread for thread in threading.enumerate() if thread.name == THREAD)
            thread.join(PATIENCE_S)
            # Its loop is closed by now, and whoever still calls there must not be the one who fails.
            scene.session.drain()
            await anyio.sleep_forever()

    assert isinstance(scene.events[-1], SessionEnded)
    assert (scene.session.is_over, scene.store.calls) == (True, ["open"])
    assert [thread.name for thread in threading.enumerate() if thread.name == THREAD] == []


def test_table_that_was_closed_is_not_extended_by_a_late_answer() -> None:
    """The end comes from the main loop, an answer from the thread; a term must not come back to life between them."""
    table = SessionTable(HandClock(0.0))
    table.extend(10.0)
    table.close()
    table.extend(20.0)

    assert not table.is_valid("p0@1")


def test_term_is_never_found_between_two_states() -> None:
    """Rule 11: a beat removes the ask of a term that is not open, and the asker would wait for nothing."""
    held = HeldTerms("a:1", SessionTable(HandClock(0.0)), None)
    term = _Term()
    looked, has_ended = threading.Event(), threading.Event()

    class Releasing(set[str]):
        """Not yet releasing, says this; and the main loop does the rest before the next thing is looked at."""

        def __contains__(self, partition: object) -> bool:
            found = super().__contains__(partition)
            looked.set()
            has_ended.wait(0.1)
            return found

    def end() -> None:
        looked.wait()
        held.releasing.add("p0")
        held.ended(term)  # type: ignore[arg-type]
        has_ended.set()

    held.begin(term)  # type: ignore[arg-type]
    held.releasing = Releasing()
    main = threading.Thread(target=end)
    main.start()
    is_open = held.is_open("p0", 1)
    main.join()

    assert (is_open, held.leases) == (True, {})
