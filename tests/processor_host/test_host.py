"""The host as a program uses it: start, resources, events, metrics, stop, cancel, and the ways it refuses to start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from prometheus_client import CollectorRegistry

from partitions.errors import LeaseLost, SourceMismatch, StoreUnavailable
from partitions.events import Event, LeaseAcquired
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore
from processor_host import (
    Batch,
    CloseReason,
    HostSettings,
    PartitionProcessor,
    ProcessorContext,
    ProcessorHost,
    SettingsError,
    current_lease,
)
from processor_host.events import (
    BatchCut,
    GroupAdopted,
    HostReady,
    HostStopped,
    LoopStalled,
    ProcessorFailed,
    StartKept,
    StoreSlow,
)
from tests.world.clocks import PlaceClock
from tests.world.diary import passes
from tests.world.loop import run_virtual, running_loop


class Parts:
    """One stream and one store, and a host on them."""

    def __init__(self, partitions: int = 2, records: int = 3) -> None:
        self.store = MemoryStore()
        self.source = MemorySource(lambda: running_loop().time(), partitions=partitions)
        self.handled: list[tuple[str, str]] = []
        self.events: list[Event] = []
        for n in range(partitions):
            for _ in range(records):
                self.source.put(f"p{n}", b"x")

    async def handle(self, batch: Batch) -> None:
        self.handled += [(record.partition, record.position) for record in batch]

    def host(self, **more: Any) -> ProcessorHost:
        given: dict[str, Any] = {
            "group": "g",
            "source": self.source,
            "store": self.store,
            "processor": self.handle,
            "settings": HostSettings(host_id="a", lease_duration_s=6),
            "on_event": self.events.append,
            "clock": PlaceClock(),
        }
        return ProcessorHost(**(given | more))

    def owners(self) -> set[str | None]:
        return {lease.owner for lease in self.store.leases_now("g")}


async def until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    with anyio.fail_after(within_s):
        while not holds():
            await passes(0.01)


def virtually(test: Callable[[], Awaitable[None]]) -> None:
    run_virtual(test)


def test_host_handles_everything_and_frees_all_when_its_body_is_left() -> None:
    """`async with host` is how a program runs one beside its own work."""

    async def scenario() -> None:
        parts = Parts()
        async with parts.host() as host:
            await until(lambda: len(parts.handled) == 6)
            assert host.session is not None
        assert (parts.owners(), parts.store.sessions_now("g")) == ({None}, ())
        assert sorted(parts.handled) == [(p, n) for p in ("p0", "p1") for n in ("1", "2", "3")]
        assert {lease.position for lease in parts.store.leases_now("g")} == {"3"}

    virtually(scenario)


def test_host_whose_body_raises_is_cancelled_and_the_error_comes_out() -> None:
    """A program that fails must not wait for a drain, nor lose its own exception."""

    async def scenario() -> None:
        parts = Parts()

        async def program() -> None:
            async with parts.host():
                await until(lambda: len(parts.handled) == 6)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await program()

    virtually(scenario)


def test_stop_returns_zero_and_tells_its_end() -> None:
    """What a command line turns into its exit status."""

    async def scenario() -> None:
        parts = Parts()
        host = parts.host()
        statuses: list[int] = []

        async def run() -> None:
            statuses.append(await host.run())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: len(parts.handled) == 6)
            host.stop()
        assert (statuses, host.stopped.is_set()) == ([0], True)
        assert [event for event in parts.events if isinstance(event, HostStopped)] == [HostStopped(still_running=())]
        assert sum(isinstance(event, HostReady) for event in parts.events) == 1

    virtually(scenario)


def test_stop_during_the_first_try_to_register_ends_the_host() -> None:
    """A host that never got its session has nothing to give away."""

    async def scenario() -> None:
        parts = Parts()

        class Away(MemoryStore):
            async def submit(self, group: str, verb: Any) -> Any:
                if type(verb).__name__ == "Register":
                    raise StoreUnavailable("away")
                return await super().submit(group, verb)

        host = parts.host(store=Away())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run)
            await passes(3)
            host.stop()
            with anyio.fail_after(4):
                await host.stopped.wait()

    virtually(scenario)


def test_cancel_stops_a_processor_that_waits_and_closes_it() -> None:
    """A second signal must not wait for a record that takes an hour; what was opened is still closed."""
    closed: list[CloseReason] = []

    class Slow(PartitionProcessor):
        async def process(self, batch: Batch) -> None:
            await passes(3600)

        async def close(self, reason: CloseReason) -> None:
            closed.append(reason)

    async def scenario() -> None:
        parts = Parts()
        host = parts.host(processor=Slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run)
            await until(lambda: any(isinstance(event, LeaseAcquired) for event in parts.events))
            await passes(1)
            began_s = running_loop().time()
            host.cancel()
            await host.stopped.wait()
            assert running_loop().time() - began_s < 2
        assert len(closed) == 2

    virtually(scenario)


def test_lifespan_is_entered_once_and_is_the_context_of_every_processor() -> None:
    """A pool for all partitions is made once and closed once."""
    entered: list[str] = []
    seen: list[object] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        entered.append("in")
        yield "pool"
        entered.append("out")

    class Uses(PartitionProcessor):
        async def open(self, context: ProcessorContext) -> None:
            seen.append(context.resources)

        async def process(self, batch: Batch) -> None:
            assert current_lease() is batch.lease

    async def scenario() -> None:
        parts = Parts()
        async with parts.host(processor=Uses, lifespan=lifespan):
            await until(lambda: len(seen) == 2)
        assert (entered, seen) == (["in", "out"], ["pool", "pool"])
        assert current_lease() is None

    virtually(scenario)


def test_two_hosts_in_one_process_share_and_keep_their_metrics_apart() -> None:
    """Tests and small programs run several; a registry of each own keeps their figures from adding up."""

    async def scenario() -> None:
        parts = Parts(partitions=4)
        a, b = (parts.host(settings=HostSettings(host_id=name, lease_duration_s=6)) for name in "ab")

        def held(host: ProcessorHost) -> float:
            return sum(
                sample.value
                for metric in host.registry.collect()
                for sample in metric.samples
                if sample.name == "processor_host_leases_held"
            )

        async with a, b:
            await until(lambda: (held(a), held(b)) == (2, 2))

    virtually(scenario)


def test_registry_can_serve_one_host_after_another() -> None:
    """A program that makes a new host after each stop keeps its one registry."""

    async def scenario() -> None:
        registry = CollectorRegistry()
        for _ in range(2):
            parts = Parts()
            async with parts.host(registry=registry):
                await until(lambda parts=parts: len(parts.handled) == 6)  # type: ignore[misc]

    virtually(scenario)


def test_host_cannot_run_twice() -> None:
    """Its parts belong to one run; a second one would begin with the first one's end."""

    async def scenario() -> None:
        parts = Parts()
        async with parts.host() as host:
            await until(lambda: len(parts.handled) == 6)
        with pytest.raises(SettingsError, match="make a new one"):
            await host.run()

    virtually(scenario)


def test_other_stream_under_the_same_group_is_refused_unless_adopted() -> None:
    """A stream that was made anew has other records at the same positions: going on would skip some."""

    async def scenario() -> None:
        parts = Parts()
        async with parts.host():
            await until(lambda: len(parts.handled) == 6)
        anew = MemorySource(lambda: running_loop().time(), partitions=2, incarnation=2)
        with pytest.raises(SourceMismatch, match="memory#1"):
            await parts.host(source=anew).run()
        adopted = parts.host(source=anew, settings=HostSettings(host_id="a", lease_duration_s=6, adopt_stream=True))
        async with adopted:
            await until(lambda: adopted.session is not None)
        group = parts.store.group_now("g")
        assert group is not None
        assert group.source == "memory#2"

    virtually(scenario)


def test_failing_beats_end_every_term_and_raise_out_of_the_host() -> None:
    """If the beat loop itself dies, a host must not go on as if it held anything (rule 15)."""

    async def scenario() -> None:
        parts = Parts()
        terms: list[Any] = []

        class Broken(MemoryStore):
            async def submit(self, group: str, verb: Any) -> Any:
                if type(verb).__name__ == "Beat":
                    raise KeyError("a bug")
                return await super().submit(group, verb)

        async def handle(batch: Batch) -> None:
            terms.append(batch.lease)

        with pytest.raises(KeyError, match="a bug"):
            await parts.host(store=Broken(), processor=handle).run()
        assert [lease.is_held() for lease in terms] == [False, False]
        with pytest.raises(LeaseLost):
            terms[0].ensure_held()

    virtually(scenario)


def test_slow_store_is_named_once_with_the_duration_that_would_do() -> None:
    """Without a word, a user would see nothing but lost sessions."""

    async def scenario() -> None:
        parts = Parts()

        class Slow(MemoryStore):
            async def submit(self, group: str, verb: Any) -> Any:
                await passes(1.2)
                return await super().submit(group, verb)

            async def read_group(self, group: str) -> Any:
                await passes(1.2)
                return await super().read_group(group)

        host = parts.host(store=Slow(), settings=HostSettings(host_id="a", lease_duration_s=3))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run)
            await passes(30)
            host.stop()
        (told,) = [event for event in parts.events if isinstance(event, StoreSlow)]
        assert (told.lease_duration_s, told.call_timeout_s, told.smallest_duration_s) == (3, 0.5, 11)
        assert told.latency_s == pytest.approx(1.2)
        assert not any(isinstance(event, LeaseAcquired) for event in parts.events)

    virtually(scenario)


def test_blocked_loop_is_told_when_it_goes_on() -> None:
    """A processor that blocks is the commonest cause of lost leases, so it must be named."""

    class JumpingClock:
        jumped_s = 0.0

        def now_s(self) -> float:
            return running_loop().time() + self.jumped_s

    async def scenario() -> None:
        parts = Parts()
        clock = JumpingClock()
        async with parts.host(clock=clock):
            await until(lambda: len(parts.handled) == 6)
            clock.jumped_s = 15.0
            await until(lambda: any(isinstance(event, LoopStalled) for event in parts.events))
        (stall,) = [event for event in parts.events if isinstance(event, LoopStalled)]
        assert stall.stall_s == pytest.approx(15.0, abs=0.3)

    virtually(scenario)


def test_error_at_the_start_comes_out_of_the_async_with_as_it_is() -> None:
    """Who writes `except SourceMismatch` around a host must catch it, whatever runs inside."""

    async def scenario() -> None:
        parts = Parts()
        async with parts.host():
            await until(lambda: len(parts.handled) == 6)
        anew = MemorySource(lambda: running_loop().time(), partitions=2, incarnation=2)
        with pytest.raises(SourceMismatch):
            async with parts.host(source=anew):
                raise AssertionError("the body must not run")

    virtually(scenario)


def test_adopting_a_stream_and_keeping_a_start_are_told() -> None:
    """Both change what a user sees of the records, so neither may happen without a word."""

    async def scenario() -> None:
        parts = Parts()
        async with parts.host():
            await until(lambda: len(parts.handled) == 6)
        anew = MemorySource(lambda: running_loop().time(), partitions=2, incarnation=2)
        settings = HostSettings(host_id="a", lease_duration_s=6, adopt_stream=True, start="latest")
        async with parts.host(source=anew, settings=settings):
            pass
        told = [event for event in parts.events if isinstance(event, GroupAdopted | StartKept)]
        assert told == [StartKept(start="@earliest", asked="latest"), GroupAdopted(old="memory#1", new="memory#2")]

    virtually(scenario)


class Odd(BaseException):
    """Derived from what hardly anybody catches, and without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def cancels_itself(batch: Batch) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.lowlevel.checkpoint()


async def cancels_itself_and_returns(batch: Batch) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def exits(batch: Batch) -> None:
    raise SystemExit(3)


async def raises_odd(batch: Batch) -> None:
    raise Odd


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (exits, "SystemExit: 3"),
        (raises_odd, "Odd"),
        (cancels_itself, "CancelledError: "),
    ],
)
def test_odd_processor_is_a_failure_of_its_partition_alone(wrong: Any, error: str) -> None:
    """Whatever user code raises in one partition must not end its neighbours, nor the host, nor its stop."""

    async def scenario() -> None:
        parts = Parts()

        class Wrong(PartitionProcessor):
            async def process(self, batch: Batch) -> None:
                await (wrong(batch) if batch.partition == "p0" else parts.handle(batch))

        async with parts.host(processor=Wrong) as host:
            await until(lambda: sum(isinstance(event, ProcessorFailed) for event in parts.events) >= 3)
            assert host.session is not None
            assert set(host.session.held) == {"p0", "p1"}
        assert {event.error for event in parts.events if isinstance(event, ProcessorFailed)} == {error}
        assert parts.handled == [("p1", "1"), ("p1", "2"), ("p1", "3")]
        assert parts.owners() == {None}

    virtually(scenario)


def test_cancellation_that_a_processor_leaves_behind_hits_nobody() -> None:
    """Asked for and not delivered, it would end the pump at its next await, and the stop with it."""

    async def scenario() -> None:
        parts = Parts()
        async with parts.host(processor=cancels_itself_and_returns):
            await until(lambda: {lease.position for lease in parts.store.leases_now("g")} == {"3"})
        assert parts.owners() == {None}

    virtually(scenario)


def test_batch_that_is_cut_at_a_stop_is_told() -> None:
    """An exit status of 0 with records that are handled again must leave a line."""

    async def scenario() -> None:
        parts = Parts(partitions=1)

        async def handle(batch: Batch) -> None:
            await passes(600.0)

        settings = HostSettings(host_id="a", lease_duration_s=6, drain_timeout_s=3)
        async with parts.host(processor=handle, settings=settings):
            await until(lambda: any(isinstance(event, LeaseAcquired) for event in parts.events))
            await passes(1.0)
        assert [event for event in parts.events if isinstance(event, BatchCut)] == [
            BatchCut(partition="p0", token=1, records=3)
        ]

    virtually(scenario)
