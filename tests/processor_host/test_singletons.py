"""
Singletons of hosts on the memory store, in virtual time: one host of the group runs each, through stops and losses.

What a lock is, and what a leader, is tested where they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from partitions.current import current_lease
from partitions.errors import LeaseLost
from partitions.events import Event
from partitions.lock_verbs import ReleaseLock
from partitions.locks import LockLease, LockReleased, run_as_leader
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from partitions.verbs import Leave, Register
from processor_host import Batch, HostSettings, ProcessorHost, SettingsError
from processor_host.events import SingletonEnded, SingletonFailed, SingletonStarted
from tests.world.clocks import PlaceClock
from tests.world.diary import passes
from tests.world.loop import run_virtual, running_loop

__all__: list[str] = []

D_S = 6.0
LOOK_S = 1.0
"""A little more than what a contender waits between two looks."""


class Scene:
    """A store, a stream, and what the singletons of every host on them have done."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.source = MemorySource(lambda: running_loop().time(), partitions=1)
        self.events: list[tuple[str, Event]] = []
        self.working: list[str] = []
        """The hosts on which "nightly" runs at this moment."""
        self.terms: list[tuple[str, int]] = []

    def host(self, host_id: str, **more: Any) -> ProcessorHost:
        async def process(batch: Batch) -> None:
            return None

        given: dict[str, Any] = {
            "group": "g",
            "source": self.source,
            "store": self.store,
            "processor": process,
            "settings": HostSettings(host_id=host_id, lease_duration_s=D_S),
            "on_event": lambda event: self.events.append((host_id, event)),
            "clock": PlaceClock(),
            "singletons": {"nightly": self.nightly(host_id)},
        }
        return ProcessorHost(**(given | more))

    def nightly(self, host_id: str) -> Callable[[LockLease], Awaitable[None]]:
        """A singleton that works until it is cancelled."""

        async def work(lease: LockLease) -> None:
            async with self.at_work(host_id, lease):
                await anyio.sleep_forever()

        return work

    @asynccontextmanager
    async def at_work(self, host_id: str, lease: LockLease) -> AsyncIterator[None]:
        assert current_lease() is lease
        self.working.append(host_id)
        self.terms.append((host_id, lease.token))
        assert len(self.working) == 1
        try:
            yield
        finally:
            self.working.remove(host_id)

    def told(self, kind: type[Event], host_id: str = "a") -> list[Any]:
        return [event for name, event in self.events if name == host_id and isinstance(event, kind)]


def virtually(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    run_virtual(lambda: scenario(Scene()))


async def until(holds: Callable[[], object], within_s: float = 60.0) -> None:
    with anyio.fail_after(within_s):
        while not holds():
            await passes(0.01)


def test_singleton_runs_on_one_host_of_the_group() -> None:
    """However many hosts there are; the others wait, and can tell who has it."""

    async def scenario(scene: Scene) -> None:
        async with scene.host("a") as a, scene.host("b") as b, scene.host("c") as c:
            await passes(5 * D_S)
            assert (len(scene.working), len(scene.terms)) == (1, 1)
            leaders = [host.leader_of("nightly") for host in (a, b, c)]
            holders = [leader.holder.host_id for leader in leaders if leader is not None and leader.holder is not None]
            assert holders == scene.working * 3
        assert scene.working == []

    virtually(scenario)


def test_singleton_of_a_host_that_stops_runs_on_another_one_at_once() -> None:
    """A stop releases the lock before anything else waits, and every term has a token of its own."""

    async def scenario(scene: Scene) -> None:
        a = scene.host("a")
        async with a:
            await until(lambda: scene.working == ["a"])
            async with scene.host("b"):
                await passes(D_S)
                a.stop()
                await until(lambda: scene.working == ["b"], within_s=LOOK_S)
        assert scene.terms == [("a", 1), ("b", 2)]
        assert scene.told(SingletonStarted) == [SingletonStarted(singleton="nightly", token=1)]
        assert scene.told(SingletonEnded) == [SingletonEnded(singleton="nightly", token=1, reason="stopped")]
        assert [event.lock for event in scene.told(LockReleased)] == ["nightly"]

    virtually(scenario)


def test_singleton_goes_on_under_the_next_session_of_its_host() -> None:
    """A host that loses its session loses the lock with it, and is a contender like all others then."""

    async def scenario(scene: Scene) -> None:
        async with scene.host("a") as a:
            await until(lambda: scene.working == ["a"])
            assert a.session is not None
            await scene.store.submit("g", Leave(session_id=a.session.session_id))
            await until(lambda: len(scene.terms) == 2, within_s=2 * D_S)
        assert scene.terms == [("a", 1), ("a", 2)]

    virtually(scenario)


def test_singleton_that_raises_leaves_the_lock_to_others_and_tries_again_after_growing_pauses() -> None:
    """A host on which it cannot work must not keep it from the others, nor fill its own log, nor stop itself."""

    async def scenario(scene: Scene) -> None:
        async def broken(lease: LockLease) -> None:
            async with scene.at_work("a", lease):
                raise KeyError("mine")

        async with scene.host("a", singletons={"nightly": broken}):
            await until(lambda: len(scene.terms) == 5)
            failures = scene.told(SingletonFailed)[:4]
            async with scene.host("b"):
                await until(lambda: scene.working == ["b"])
        assert [(event.token, event.attempt, event.error) for event in failures] == [
            (number, number, "KeyError: 'mine'") for number in range(1, 5)
        ]
        assert all("KeyError: 'mine'" in event.traceback for event in failures)
        for event, full_s in zip(failures, (1.0, 2.0, 4.0, 8.0), strict=True):
            assert full_s / 2 <= event.pause_s <= full_s
        assert {event.reason for event in scene.told(SingletonEnded)} == {"failed"}

    virtually(scenario)


def test_singleton_that_failed_after_a_long_term_begins_with_the_first_pause_again() -> None:
    """One that fails once a day is not one that fails again and again."""

    async def scenario(scene: Scene) -> None:
        async def broken(lease: LockLease) -> None:
            async with scene.at_work("a", lease):
                await passes(0.1 if len(scene.terms) < 4 else 20.0)
                raise KeyError("mine")

        async with scene.host("a", singletons={"nightly": broken}):
            await until(lambda: len(scene.told(SingletonFailed)) == 5, within_s=120)
        assert [event.attempt for event in scene.told(SingletonFailed)] == [1, 2, 3, 1, 1]

    virtually(scenario)


def test_singleton_that_returns_runs_again_after_a_pause() -> None:
    """It is done for now; on which host it goes on does not matter."""

    async def scenario(scene: Scene) -> None:
        async def brief(lease: LockLease) -> None:
            async with scene.at_work("a", lease):
                await passes(0.1)

        async with scene.host("a", singletons={"nightly": brief}):
            began_s = running_loop().time()
            await until(lambda: len(scene.terms) == 3)
            assert running_loop().time() - began_s >= 1.5
        assert [event.reason for event in scene.told(SingletonEnded)[:2]] == ["returned", "returned"]
        assert scene.told(SingletonFailed) == []

    virtually(scenario)


def test_singleton_that_releases_its_lease_runs_again_after_a_pause() -> None:
    """It was done with its term, whatever it still does after; without the pause it would cost writes without end."""

    async def scenario(scene: Scene) -> None:
        async def brief(lease: LockLease) -> None:
            async with scene.at_work("a", lease):
                await lease.release()
                await anyio.sleep_forever()

        async with scene.host("a", singletons={"nightly": brief}):
            began_s = running_loop().time()
            await until(lambda: len(scene.terms) == 3)
            assert running_loop().time() - began_s >= 1.5
        assert [event.reason for event in scene.told(SingletonEnded)[:2]] == ["returned", "returned"]
        assert scene.told(SingletonFailed) == []

    virtually(scenario)


@pytest.mark.parametrize("how", ["plainly", "in a task group", "as the end of something else"])
def test_singleton_that_finds_its_lock_lost_has_not_failed(how: str) -> None:
    """It contends again at once, without a pause and without a word of failure."""

    async def scenario(scene: Scene) -> None:
        async def find_out(lease: LockLease) -> None:
            with anyio.CancelScope(shield=True):
                await lease.ended.wait()
                lease.ensure_held()

        async def work(lease: LockLease) -> None:
            async with scene.at_work("a", lease):
                if lease.token > 1:
                    await anyio.sleep_forever()
                await scene.store.submit("g", ReleaseLock(name="nightly", owner=lease.owner, token=1))
                if how == "in a task group":
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(find_out, lease)
                with anyio.CancelScope(shield=True):
                    await lease.ended.wait()
                    if how == "as the end of something else":
                        raise LeaseLost("p0", held=1, reason="session ended")
                    lease.ensure_held()

        async with scene.host("a", singletons={"nightly": work}):
            await until(lambda: len(scene.terms) == 2, within_s=D_S)
        assert [event.reason for event in scene.told(SingletonEnded)] == ["lock lost", "stopped"]
        assert scene.told(SingletonFailed) == []

    virtually(scenario)


def test_singleton_that_does_not_end_keeps_its_lock_and_is_told_by_the_status() -> None:
    """The lock must not be free while its work goes on; the host's session is left to run out."""

    async def scenario(scene: Scene) -> None:
        release = anyio.Event()

        async def stubborn(lease: LockLease) -> None:
            async with scene.at_work("a", lease):
                with anyio.CancelScope(shield=True):
                    await release.wait()

        statuses: list[int] = []
        host = scene.host("a", singletons={"nightly": stubborn})

        async def run() -> None:
            statuses.append(await host.run())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: scene.working == ["a"])
            host.stop()
            await host.stopped.wait()
            lock = await scene.store.read_lock("g", "nightly")
            assert (host.still_running, len(scene.store.sessions_now("g"))) == (("nightly",), 1)
            assert lock is not None
            assert lock.owner is not None
            async with scene.host("b"):
                await passes(D_S / 2)
                assert scene.working == ["a"]
                release.set()
                await until(lambda: scene.working == ["b"], within_s=3 * D_S)
        assert statuses == [4]

    virtually(scenario)


def test_singleton_gets_its_lease_and_the_resources_of_the_host_or_less() -> None:
    """It takes what it needs, as a processor does."""

    async def scenario(scene: Scene) -> None:
        seen: dict[str, Any] = {}

        async def none() -> None:
            seen["none"] = current_lease()
            await anyio.sleep_forever()

        async def one(lease: LockLease) -> None:
            seen["one"] = lease.name
            await anyio.sleep_forever()

        async def two(lease: LockLease, resources: str, mine: int = 7) -> None:
            seen["two"] = (lease.name, resources, mine)
            await anyio.sleep_forever()

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[str]:
            yield "pool"

        given = {"none": none, "one": one, "two": two}
        async with scene.host("a", singletons=given, lifespan=lifespan):
            await until(lambda: len(seen) == 3)
        assert seen["none"].name == "none"
        assert (seen["one"], seen["two"]) == ("one", ("two", "pool", 7))

    virtually(scenario)


@pytest.mark.parametrize("given", [7, lambda a, b, c: None])
def test_singleton_that_cannot_be_called_is_refused_at_once(given: object) -> None:
    """A slip must not show only on the host that becomes the leader."""
    with pytest.raises(SettingsError, match=r"singletons: 'nightly' is .*; give an async def that takes nothing"):
        Scene().host("a", singletons={"nightly": given})


async def proper() -> None:
    raise AssertionError


def plain(lease: LockLease) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nightly": plain}, r"singletons: 'nightly' is <function plain .*>; give an async def"),
        ({"": proper}, r"singletons: lock '' has a name of 0 bytes, expected 1 to 1024"),
        ({7: proper}, r"singletons: lock 7 is not a text"),
        ([proper], r"singletons=\[<function proper .*>\] is not a mapping; give a dict of names to async defs"),
    ],
)
def test_singletons_that_are_no_names_of_coroutines_are_refused_at_once(given: object, text: str) -> None:
    """The first would do its work once a pause and be told as a failure; the others fail later, elsewhere."""
    with pytest.raises(SettingsError, match=text):
        Scene().host("a", singletons=given)


def test_singleton_may_be_whatever_is_awaited_when_it_is_called() -> None:
    """A part of a coroutine function, or an object with one as its call, is no other thing."""

    async def scenario(scene: Scene) -> None:
        seen: set[str] = set()

        async def work(name: str, lease: LockLease) -> None:
            seen.add(name)
            await anyio.sleep_forever()

        class Works:
            async def __call__(self, lease: LockLease) -> None:
                await work("object", lease)

        async with scene.host("a", singletons={"partial": partial(work, "partial"), "object": Works()}):
            await until(lambda: seen == {"partial", "object"})

    virtually(scenario)


def test_session_of_a_host_acquires_locks_of_the_group() -> None:
    """What a program does beside its partitions is fenced by the same session, and ends with it."""

    async def scenario(scene: Scene) -> None:
        led: list[int] = []

        async def work(lease: LockLease) -> None:
            led.append(lease.token)
            await anyio.sleep_forever()

        async with scene.host("a") as a, scene.host("b") as b:
            assert a.session is not None
            assert b.session is not None
            async with await a.session.acquire("migrate") as lease:
                assert await b.session.try_acquire("migrate") is None
            assert lease.ended.is_set()
            kept = await b.session.try_acquire("migrate", expires=False)
            assert kept is not None
            assert (kept.token, await a.session.release_lock("migrate"), await b.session.release_lock("migrate")) == (
                2,
                False,
                True,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_as_leader, a.session, "report", work)
                await until(lambda: led)
                # The wait outlives the session it began under.
                await scene.store.submit("g", Leave(session_id=a.session.session_id))
                await until(lambda: len(led) == 2)
                tasks.cancel_scope.cancel()

    virtually(scenario)


def test_session_of_a_host_acquires_locks_from_the_first_line_of_the_body_on() -> None:
    """The first session is registered beside the body; whoever wants a lock must not have to know that."""

    async def scenario(scene: Scene) -> None:
        async with scene.host("a") as host:
            assert host.session is not None
            async with await host.session.acquire("migrate", timeout_s=D_S) as lease:
                assert (lease.name, lease.is_held()) == ("migrate", True)

    virtually(scenario)


class SlowToBegin(MemoryStore):
    """A store on which a session takes a while to begin."""

    async def submit(self, group: str, verb: Any) -> Any:
        if isinstance(verb, Register):
            await passes(D_S / 12)
        return await super().submit(group, verb)


def test_session_of_a_host_waits_for_the_next_one_where_it_is_lost() -> None:
    """Also one that somebody has kept, and one that is looked up between two."""

    async def scenario(scene: Scene) -> None:
        async with scene.host("a", store=(store := SlowToBegin())) as host:
            lost = host.session
            assert lost is not None
            await lost.acquire("warm-up")
            await store.submit("g", Leave(session_id=lost.session_id))
            await until(lambda: not lost.is_valid)
            between = host.session
            assert between is not None
            assert not between.is_valid
            for session in (lost, between):
                assert await session.try_acquire("migrate") is None
            for session in (lost, between):
                async with await session.acquire("migrate", timeout_s=D_S) as lease:
                    assert lease.owner != lost.session_id
        with pytest.raises(RuntimeError, match="session 'a' of group 'g' is over"):
            await lost.acquire("migrate")

    virtually(scenario)


def test_lock_wanted_from_a_host_that_was_cancelled_is_refused() -> None:
    """A task beside the host would wait for ever for a session that nobody begins."""

    async def scenario(scene: Scene) -> None:
        host = scene.host("a")
        async with host:
            assert host.session is not None
            async with await host.session.acquire("migrate"):
                host.cancel()
                await host.stopped.wait()
            with pytest.raises(RuntimeError, match="session 'a' of group 'g' is over"), anyio.fail_after(D_S):
                await host.session.acquire("migrate")

    virtually(scenario)
