"""Stuck partitions of one host: what is told of them and when, and which of them are paused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from partitions.events import EndReason, Event, LeaseAcquired, LeaseEnded
from processor_host.events import (
    BatchHandled,
    LagSeen,
    PartitionMoved,
    PartitionStuck,
    ProcessorFailed,
    PumpStarted,
    ReadFailed,
)
from processor_host.stuck import LOOK_MAX_S, Stuck
from tests.stage import VIRTUAL_TIME, JumpingClock, about, beside
from tests.world.diary import passes

__all__: list[str] = []

LIMIT_S = 12.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Every test here runs in virtual time."""
    return VIRTUAL_TIME


class Watch:
    """A watch, what it told, and what it paused."""

    def __init__(self, *, limit_s: float = LIMIT_S, pauses: bool = False) -> None:
        self.told: list[Event] = []
        self.paused: list[tuple[str, int, str]] = []
        self.clock = JumpingClock()
        self.of = Stuck(host_id="a", clock=self.clock, on_event=self.told.append, limit_s=limit_s, pauses=pauses)
        self.of.follow(self.pause)

    async def pause(self, partition: str, token: int, reason: str) -> None:
        """Note it, and take a while."""
        self.paused.append((partition, token, reason))
        await passes(100.0)

    def tell(self, *events: Event) -> None:
        """What the host tells."""
        for event in events:
            self.of.on_event(event)

    def hold(self, *partitions: str, token: int = 1) -> None:
        """Acquire leases and open their processors."""
        for partition in partitions:
            self.tell(
                LeaseAcquired(
                    partition=partition, token=token, reason="free", previous_owner=None, position="0", duration_s=0.1
                ),
                PumpStarted(partition=partition, token=token, position="0", since_acquired_s=0.1),
            )

    def read(self, *partitions: str) -> None:
        """A record of each comes in."""
        self.tell(*(LagSeen(partition=partition, lag_s=0.0, records=1) for partition in partitions))

    def handled(self, *partitions: str) -> None:
        """A record of each is done."""
        self.tell(*(BatchHandled(partition=each, records=1, bytes=1, duration_s=0.1, lag_s=0.0) for each in partitions))


@asynccontextmanager
async def watching(watch: Watch) -> AsyncIterator[Watch]:
    async with beside(watch.of.run):
        yield watch


def stuck(partition: str = "p0", token: int = 1, stuck_s: float = LIMIT_S, **more: object) -> PartitionStuck:
    values = {"stage": "process", "is_failing": False, "lag_s": 0.0} | more
    return PartitionStuck(partition=partition, token=token, stuck_s=about(stuck_s), **values)  # type: ignore[arg-type]


async def test_episode_is_told_once_as_it_begins_and_once_as_it_ends() -> None:
    """A line in each look would fill the log for as long as nobody mends it."""
    async with watching(Watch()) as watch:
        watch.hold("p0", "p1")
        watch.read("p0")
        await passes(LIMIT_S - 0.1)
        early = list(watch.told)
        await passes(100.1)
        during = list(watch.told)
        watch.handled("p0")
        await passes(2.0)
        after = watch.told[1:]
        watch.read("p0")
        await passes(LIMIT_S + 1.5)

    assert (early, during) == ([], [stuck()])
    assert after == [PartitionMoved(partition="p0", token=1, stuck_s=about(LIMIT_S + 100.0))]
    assert watch.told[2:] == [stuck()]


@pytest.mark.parametrize(("limit_s", "late_s"), [(1.2, 0.1), (600.0, LOOK_MAX_S)])
async def test_partition_is_named_soon_after_the_limit_whatever_the_limit_is(limit_s: float, late_s: float) -> None:
    """Whoever chose a second wants to hear of it in a second, and a thousand partitions are looked at each time."""
    async with watching(Watch(limit_s=limit_s)) as watch:
        watch.hold("p0")
        await passes(0.01)
        watch.read("p0")
        await passes(limit_s - 0.001)
        early = len(watch.told)
        await passes(late_s + 0.002)

    assert (early, len(watch.told)) == (0, 1)


async def test_partition_that_is_gone_is_told_no_more_and_counts_anew_elsewhere() -> None:
    """Its next owner sees its own time; a line that it moves would be a guess."""
    async with watching(Watch()) as watch:
        watch.hold("p0")
        watch.read("p0")
        await passes(LIMIT_S + 2.0)
        watch.tell(LeaseEnded(partition="p0", token=1, reason=EndReason.RELEASED))
        watch.hold("p0", token=3)
        await passes(2.0)
        named = watch.of.named()
        watch.read("p0")
        await passes(LIMIT_S + 1.5)

    assert named == []
    assert watch.told == [stuck(), stuck(token=3)]


async def test_stuck_partitions_are_listed_with_what_they_wait_in_the_longest_first() -> None:
    """A person with `/healthz?verbose` has nothing else to go by."""
    failed = ProcessorFailed(
        partition="p1", token=1, stage="decode", error="boom", traceback="", attempt=1, pause_s=1.0
    )
    async with watching(Watch()) as watch:
        watch.hold("p0", "p1", "p2", "p3")
        watch.tell(ReadFailed(partition="p2", error="boom", attempt=1, pause_s=1.0))
        await passes(3.0)
        watch.read("p0", "p1")
        watch.tell(failed)
        await passes(LIMIT_S + 1.0)
        named = watch.of.named()

    assert named == [
        {"partition": "p2", "stalled_s": 16.0, "lag_s": None, "stage": "read", "failed_in": "read"},
        {"partition": "p0", "stalled_s": 13.0, "lag_s": 0.0, "stage": "process", "failed_in": None},
        {"partition": "p1", "stalled_s": 13.0, "lag_s": 0.0, "stage": "decode", "failed_in": "decode"},
    ]
    assert {(event.partition, event.is_failing) for event in watch.told if isinstance(event, PartitionStuck)} == {
        ("p0", False),
        ("p1", True),
        ("p2", True),
    }


async def test_only_who_chose_it_has_partitions_paused_and_each_once() -> None:
    """A pause takes a partition out of work until a person comes; one in a term is enough."""
    async with watching(Watch(pauses=True)) as watch, watching(Watch()) as other:
        for each in (watch, other):
            each.hold("p0", "p1", token=7)
            each.read("p0")
        await passes(LIMIT_S + 20.0)

    reason = "stuck: nothing was done for 12 s while records wait, waiting in process on host a (stall_limit_s=12)"
    assert (watch.paused, other.paused) == ([("p0", 7, reason)], [])


async def test_partition_is_not_paused_while_others_wait_too_and_is_once_one_of_them_moves() -> None:
    """A database that is away holds up everything here; when it is back, the one that still hangs is to blame."""
    async with watching(Watch(pauses=True)) as watch:
        watch.hold("p0", "p1", "p2")
        watch.read("p0", "p1")
        await passes(10 * LIMIT_S)
        before = (len(watch.told), list(watch.paused))
        watch.handled("p1")
        await passes(2.0)

    assert before == (2, [])
    assert [partition for partition, _, _ in watch.paused] == ["p0"]


async def test_looks_go_on_while_a_pause_waits_for_the_store() -> None:
    """The store may be what is slow, and the others must still be named."""
    async with watching(Watch(pauses=True)) as watch:
        watch.hold("p0", "p1")
        watch.read("p0")
        await passes(LIMIT_S + 2.0)
        watch.read("p1")
        await passes(LIMIT_S + 2.0)

    assert [event.partition for event in watch.told if isinstance(event, PartitionStuck)] == ["p0", "p1"]


async def test_time_in_which_the_host_stood_still_makes_no_partition_stuck() -> None:
    """A loop that was blocked left all of them waiting; one that is paused for that waits until a person resumes it."""
    async with watching(Watch(pauses=True)) as watch:
        watch.hold("p0", "p1")
        watch.read("p0", "p1")
        await passes(0.5)
        watch.clock.jump(10 * LIMIT_S)
        # The one that blocked the loop is done first, and so seems to have left the other one behind.
        watch.handled("p0")
        await passes(LIMIT_S - 1.0)
        within = (list(watch.told), list(watch.paused))
        await passes(2.0)
        paused = [(partition, token) for partition, token, _ in watch.paused]
        watch.clock.jump(10 * LIMIT_S)
        await passes(2.0)
        during = watch.told[1:]
        watch.handled("p1")
        await passes(2.0)

    assert within == ([], [])
    assert (watch.told[0], paused) == (stuck("p1"), [("p1", 1)])
    # The episode goes on through it.
    assert during == []
    assert [type(event) for event in watch.told] == [PartitionStuck, PartitionMoved]


async def test_what_comes_in_as_the_host_goes_on_waits_from_then_on() -> None:
    """Its time is not that of the others: counted from the future, it would be named late."""
    async with watching(Watch()) as watch:
        watch.hold("p0")
        await passes(0.5)
        watch.clock.jump(10 * LIMIT_S)
        watch.read("p0")
        await passes(LIMIT_S + 2.0)

    assert watch.told == [stuck()]
