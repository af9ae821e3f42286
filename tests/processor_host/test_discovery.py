"""
Discovery: every partition gets a lease once, no lease that was deleted comes back, and a source delays nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import anyio
import pytest

from partitions.errors import SourceMisconfigured, SourceUnavailable, StoreUnavailable
from partitions.items import SessionItem
from partitions.positions import EARLIEST, END
from partitions.verbs import Acquire, Child, Complete, Create, Delete
from processor_host.discovery import JITTER, SOURCE_CALL_S, Discovery, GroupView, is_first
from processor_host.events import LeasesCreated, RoundFailed
from processor_host.retirement import UNLISTED_S
from tests.builders import a_lease, a_session
from tests.stage import GROUP, VIRTUAL_TIME, Stage, about, beside, verb_of
from tests.world.diary import passes
from tests.world.network import Call

__all__: list[str] = []

INTERVAL_S = 30.0
ME, OTHER = a_session("b:1"), a_session("a:1")


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


def lists(call: Call) -> bool:
    return call.operation == "source.list"


def empty(partitions: int = 3) -> Stage:
    """A stage whose partitions have no leases yet."""
    stage = Stage(partitions=0)
    stage.source = type(stage.source)(lambda: stage.now_s, partitions=partitions)
    stage.network.source = stage.source
    return stage


@dataclass
class Looking:
    """The discovery of host b, and the group as its balancer sees it: read anew whenever leases may have been made."""

    stage: Stage
    discovery: Discovery
    sessions: tuple[SessionItem, ...]
    seen: dict[str, Any] = field(default_factory=dict)
    told: list[bool] = field(default_factory=list)

    def view(self) -> GroupView:
        return GroupView(leases=self.seen, sessions=self.sessions)

    def listed(self, is_new: bool) -> None:
        self.told.append(is_new)
        if is_new:
            self.read()

    def read(self) -> None:
        self.seen = {lease.partition: lease for lease in self.stage.store.leases_now(GROUP)}

    async def run(self) -> None:
        await self.discovery.run("b:1", self.view, self.listed)


@asynccontextmanager
async def looking(
    stage: Stage, *, sessions: tuple[SessionItem, ...] = (ME,), point: str = EARLIEST
) -> AsyncIterator[Looking]:
    it = Looking(stage, discovery_of(stage, point), sessions)
    async with beside(it.run):
        yield it


def discovery_of(stage: Stage, point: str = EARLIEST) -> Discovery:
    return Discovery(
        store=stage.store_of_a_host(),
        source=stage.source_of_a_host(),
        group=GROUP,
        point=point,
        clock=stage.clock,
        random=Random(1),
        interval_s=INTERVAL_S,
        call_timeout_s=1.0,
        on_event=stage.tell,
    )


def leases(stage: Stage) -> dict[str, Any]:
    return {lease.partition: lease for lease in stage.store.leases_now(GROUP)}


# --- Making leases --------------------------------------------------------------------------------------------------


async def test_discovery_makes_a_lease_for_every_partition_at_once() -> None:
    """A new group has work to do."""
    stage = empty(3)
    async with looking(stage) as it:
        await passes(1)

        assert leases(stage) == {name: a_lease(name) for name in ("p0", "p1", "p2")}
        assert (it.told, stage.events) == ([True], [LeasesCreated(partitions=("p0", "p1", "p2"))])


async def test_leases_begin_where_the_group_did() -> None:
    """A fixed point of the stream, however late a partition's lease is made; one born later starts at its beginning."""
    stage = empty(2)
    for _ in range(5):
        stage.source.put("p0", b"x")
    point = await stage.source.resolve_start("latest")
    stage.source.put("p0", b"x")
    stage.source.put("p1", b"x")
    stage.source.split("p1")
    async with looking(stage, point=point):
        await passes(1)

    assert {name: (lease.position, lease.parents) for name, lease in leases(stage).items()} == {
        "p0": ("5", ()),
        "p1": ("0", ()),
        "p1.0": ("0", ("p1",)),
        "p1.1": ("0", ("p1",)),
    }


async def test_discovery_finds_a_partition_that_is_born_later() -> None:
    """Within an interval, whoever was at work on its parent."""
    stage = empty(1)
    async with looking(stage) as it:
        await passes(5)
        stage.source.split("p0")
        await passes(INTERVAL_S * (1 + JITTER))

        assert (set(leases(stage)), it.told) == ({"p0", "p0.0", "p0.1"}, [True, True])


async def test_group_at_rest_pays_for_one_listing_an_interval() -> None:
    """The leases are not read, however many there are."""
    stage = empty(3)
    async with looking(stage) as it:
        await passes(5)
        before = len(stage.network.calls)
        await passes(10 * INTERVAL_S)

    operations = [call.operation for _, call in stage.network.calls[before:]]
    assert set(operations) == {"source.list"}
    assert 9 <= len(operations) <= 11
    assert it.told[1:] == [False] * (len(it.told) - 1)


async def test_host_that_is_not_first_looks_half_as_often() -> None:
    """One is enough; the others are its back-up."""
    stage = empty(3)
    async with looking(stage, sessions=(ME, OTHER)):
        await passes(5)
        before = len(stage.network.calls)
        await passes(10 * INTERVAL_S)

    assert 4 <= len(stage.network.calls) - before <= 6


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([ME], True),
        ([ME, OTHER], False),
        ([ME, a_session("c:1")], True),
        ([ME, a_session("a:1", draining=True)], True),
        ([ME, a_session("a:1", capacity=0.0)], True),
        ([], True),
    ],
)
def test_first_is_the_lowest_of_those_that_may_work(sessions: list[SessionItem], expected: bool) -> None:
    """Every host comes to the same result without a word; one that leaves, or a person's command, is passed over."""
    assert is_first(sessions, "b:1") is expected


async def test_wanted_look_comes_at_once_and_reads_the_leases_too() -> None:
    """Whoever has read a partition to its end knows that something has changed."""
    stage = empty(2)
    async with looking(stage) as it:
        await passes(5)
        stage.apply(Acquire(partition="p0", seen_owner=None, seen_token=0, session_id="b:1", host_id="b"))
        stage.source.close_partition("p0")
        before = len(stage.network.calls)
        it.discovery.want()
        await passes(1)

        operations = [call.operation for _, call in stage.network.calls[before:]]
        assert operations == ["source.list", "read_leases", "source.list"]
        # Nothing was there to be made: the balancer need not read the leases for it.
        assert it.told == [True, False]


async def test_lease_that_another_host_makes_at_the_same_moment_stays_its_own() -> None:
    """A lost race is a value; the lease is there, which is all that was wanted."""
    stage = empty(2)
    stage.disturb(verb_of(Create, partition="p0"), before_s=0.5)
    async with looking(stage) as it:
        await passes(0.2)
        stage.apply(Create(partition="p0", position="77"))
        await passes(1)

        assert leases(stage)["p0"].position == "77"
        assert stage.events == [LeasesCreated(partitions=("p1",))]
        assert it.told == [True]


async def test_hosts_that_start_together_share_the_making_of_many_leases() -> None:
    """Each host making all of them is a storm that a slow store answers too late, beats included."""
    stage = empty(500)
    hosts = [discovery_of(stage) for _ in range(5)]
    async with anyio.create_task_group() as tasks:
        for n, discovery in enumerate(hosts):
            view = GroupView(leases={}, sessions=())
            tasks.start_soon(discovery.run, f"h{n}:1", lambda view=view: view, lambda _: None)
        await passes(5)
        tasks.cancel_scope.cancel()

    made = [event.partitions for event in stage.events_of(LeasesCreated)]
    assert len(leases(stage)) == sum(len(partitions) for partitions in made) == 500
    assert len(stage.sent(Create)) <= 2 * 500


async def test_lease_that_was_deleted_at_its_end_is_not_made_again() -> None:
    """The rule of `create`: the listing that counts is asked for after the read that lacks the lease."""
    stage = empty(1)
    lease = stage.apply(Create(partition="p0", position=EARLIEST))
    taken = stage.take("p0", by="x:1")
    stage.apply(Complete(partition="p0", owner="x:1", token=taken.token))
    stage.source.close_partition("p0")
    # This host's listing is an old one when it arrives; the lease and the partition go meanwhile.
    stage.disturb(lists, before_s=0.5, times=1)

    def go(call: Call) -> bool:
        if call.operation == "read_leases" and "p0" in leases(stage):
            stage.source.delist("p0")
            stage.apply(Delete(partition="p0", seen_token=1))
        return False

    stage.disturb(go)
    async with looking(stage):
        await passes(5)

    assert (leases(stage), stage.sent(Create), lease.token) == ({}, [], 0)


# --- Faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [SourceUnavailable("throttled"), SourceMisconfigured("denied"), asyncio.CancelledError()]
)
async def test_source_that_fails_is_asked_again_soon_with_growing_pauses(error: BaseException) -> None:
    """It must neither end the discovery nor be asked in a storm; a cancellation of its own is a fault like others."""
    stage = empty(2)
    stage.disturb(lists, raises=error, times=4)
    async with looking(stage):
        await passes(20)

        times = [at_s for at_s, call in stage.network.calls if lists(call)]
        pauses = [later - earlier for earlier, later in pairwise(times[:5])]
        assert [full / 2 <= pause_s <= full for pause_s, full in zip(pauses, (0.5, 1, 2, 4), strict=True)] == [True] * 4
        assert (set(leases(stage)), len(stage.events_of(RoundFailed))) == ({"p0", "p1"}, 4)


async def test_listing_that_is_never_answered_is_given_up() -> None:
    """A hanging connection must not end the discovery for ever."""
    stage = empty(1)
    stage.disturb(lists, lose_answer=True, times=1)
    async with looking(stage):
        await passes(SOURCE_CALL_S + 1)

        assert set(leases(stage)) == {"p0"}
        assert [event.error for event in stage.events_of(RoundFailed)] == ["memory:: no answer within 10 s"]


@pytest.mark.parametrize("where", ["source.first", "Create"])
async def test_partition_that_cannot_be_made_holds_up_no_other_and_is_tried_again(where: str) -> None:
    """Failures of single partitions stay single."""
    stage = empty(3)
    stage.disturb(
        lambda call: call.operation == where and call.partition == "p1", raises=SourceUnavailable("odd"), times=2
    )
    async with looking(stage) as it:
        await passes(0.3)
        first = set(leases(stage))
        await passes(5)

        assert (first, set(leases(stage))) == ({"p0", "p2"}, {"p0", "p1", "p2"})
        assert [event.error for event in stage.events_of(RoundFailed)] == ["p1: SourceUnavailable: odd"] * 2
        assert it.told[0] is True


async def test_create_whose_answer_was_lost_is_done_all_the_same() -> None:
    """The next look finds the lease there."""
    stage = empty(1)
    stage.disturb(verb_of(Create), lose_answer=True, times=1)
    async with looking(stage) as it:
        await passes(5)

        assert (set(leases(stage)), set(it.seen)) == ({"p0"}, {"p0"})


# --- Children -------------------------------------------------------------------------------------------------------


async def test_children_are_those_that_name_the_partition_as_a_parent() -> None:
    """All that the source lists, with all of their parents and their own first position."""
    stage = empty(3)
    point = await stage.source.resolve_start("earliest")
    stage.source.split("p0")
    stage.source.merge("p1", "p2")
    discovery = discovery_of(stage, point)

    assert list(await discovery.children_of("p0")) == [
        Child(partition="p0.0", parents=("p0",), position=EARLIEST),
        Child(partition="p0.1", parents=("p0",), position=EARLIEST),
    ]
    assert list(await discovery.children_of("p1")) == [
        Child(partition="p1+p2", parents=("p1", "p2"), position=EARLIEST)
    ]
    assert list(await discovery.children_of("p0.0")) == []


async def test_children_raise_where_the_source_hangs() -> None:
    """The pump completes without them then; it must not keep the lease for a listing."""
    stage = empty(1)
    stage.disturb(lists, lose_answer=True)
    began_s = stage.now_s

    with pytest.raises(SourceUnavailable):
        await discovery_of(stage).children_of("p0")
    assert stage.now_s - began_s == about(SOURCE_CALL_S)


# --- Listings and retirement ----------------------------------------------------------------------------------------


async def test_listing_carries_the_moment_at_which_it_was_asked_for() -> None:
    """It tells of leases that were read before; counted from its answer it would tell of later ones too."""
    stage = empty(1)
    stage.disturb(lists, before_s=3.0)
    began_s = stage.clock.now_s()
    async with looking(stage) as it:
        await passes(3.5)
        listing = it.discovery.listing
        assert listing is not None
        assert (listing.partitions, listing.asked_s) == (frozenset({"p0"}), about(began_s))


def finished(stage: Stage, partition: str = "p0") -> None:
    """Let a partition be done, and the source drop it."""
    taken = stage.take(partition, by="x:1")
    stage.apply(Complete(partition=partition, owner="x:1", token=taken.token))
    stage.source.close_partition(partition)
    stage.source.delist(partition)


async def run_for(stage: Stage, time_s: float, *, sessions: tuple[SessionItem, ...] = (ME,)) -> None:
    """Finish a partition that the source then drops, and look for so long after."""
    async with looking(stage, sessions=sessions) as it:
        await passes(1)
        finished(stage)
        it.read()
        await anyio.sleep(time_s)


async def test_finished_lease_is_deleted_an_hour_after_the_source_stopped_listing_it() -> None:
    """A stream that reshards for years must not grow the table; and one that is listed again is not replayed."""
    stage = empty(2)
    await run_for(stage, UNLISTED_S - INTERVAL_S)
    before = set(leases(stage))

    again = empty(2)
    await run_for(again, UNLISTED_S + 3 * INTERVAL_S)

    assert (before, set(leases(again))) == ({"p0", "p1"}, {"p1"})
    assert len(again.sent(Delete)) == 1
    assert leases(stage)["p0"].position == END


async def test_only_the_first_host_deletes() -> None:
    """One write is enough."""
    stage = empty(2)
    await run_for(stage, UNLISTED_S + 5 * INTERVAL_S, sessions=(ME, OTHER))

    assert (set(leases(stage)), stage.sent(Delete)) == ({"p0", "p1"}, [])


async def test_delete_that_fails_is_tried_again() -> None:
    """And is told meanwhile."""
    stage = empty(2)
    stage.disturb(verb_of(Delete), raises=StoreUnavailable("throttled"), times=1)
    await run_for(stage, UNLISTED_S + 3 * INTERVAL_S)

    first_s, second_s = stage.sent_at_s(Delete)
    assert (set(leases(stage)), second_s - first_s < 1.0) == ({"p1"}, True)
    assert [event.error for event in stage.events_of(RoundFailed)] == ["p0: StoreUnavailable: throttled"]
