"""A host on which everything fails: it gives its partitions to those that are well, and does not pass them round."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from partitions.events import LeaseAcquired
from processor_host import Batch
from processor_host.events import BatchCut, HostDraining, HostReady, HostResting, ProcessorFailed
from tests.cases.virtual import virtual
from tests.world.checks import check_safety, lost
from tests.world.processors import WorldProcessor
from tests.world.world import World

__all__: list[str] = []

SICK_AFTER_S = 20.0
TOLD_S = 8.0
"""What it takes beyond that until everything is given away: two beats of 2 s, a look, and the hand-off."""


@dataclass(slots=True)
class Ward:
    """A world whose hosts can be made unable to handle anything, or anything of some partitions."""

    world: World
    broken: set[str] = field(default_factory=set)
    """Places."""
    bad: set[str] = field(default_factory=set)
    """Partitions."""
    batch_s: float = 0.0

    def start(self, *places: str) -> None:
        """Start hosts."""
        for place in places:
            self.world.start(place, processor=lambda place=place: _Patient(self, place), sick_after_s=SICK_AFTER_S)

    async def runs(self, time_s: float) -> None:
        """Let time pass, with a record for each partition every second."""
        for _ in range(int(time_s)):
            self.world.put(1)
            await self.world.wait(1.0)

    def drained(self) -> list[tuple[str, str]]:
        """Who gave everything away, and why."""
        return [(place, event.reason) for _, place, event in self.world.diary if isinstance(event, HostDraining)]

    def taken(self, place: str, *, since_s: float) -> list[float]:
        """When a host acquired something after a time."""
        return [
            at_s
            for at_s, at, event in self.world.diary
            if at == place and isinstance(event, LeaseAcquired) and at_s > since_s
        ]


class _Patient(WorldProcessor):
    def __init__(self, ward: Ward, place: str) -> None:
        super().__init__(ward.world, place, 0.0)
        self._ward = ward
        self._at = place

    async def process(self, batch: Batch) -> None:
        if self._at in self._ward.broken or batch.lease.partition in self._ward.bad:
            raise RuntimeError("its database is away")
        await anyio.sleep(self._ward.batch_s)
        await super().process(batch)


@virtual
async def test_sick_host_gives_everything_away_and_takes_again_after_its_rest() -> None:
    """Its database is down, its neighbours' is not: they go on with its partitions, and it comes back once mended."""
    ward = Ward(World(partitions=6))
    world = ward.world
    ward.start("a", "b", "c")
    await ward.runs(15)
    ward.broken.add("a")
    broke_s = world.now_s

    await ward.runs(SICK_AFTER_S + TOLD_S)

    assert ward.drained() == [("a", "sick")]
    assert set(world.owners().values()) == {"b", "c"}
    health = world.hosts["a"].host.health()
    assert (health.healthy, health.ready) == (True, False)
    assert "it takes part again in" in health.detail["sick"]
    (resting,) = [(at_s, event.pause_s) for at_s, _, event in world.diary if isinstance(event, HostResting)]
    assert SICK_AFTER_S / 2 <= resting[1] <= SICK_AFTER_S
    assert world.leases().keys() == {entry.partition for entry in world.journal if entry.start_s > resting[0]}

    ward.broken.clear()
    await ward.runs(SICK_AFTER_S + 10)

    assert min(ward.taken("a", since_s=broke_s)) >= sum(resting)
    assert sorted(world.shares()) == [2, 2, 2]
    assert world.hosts["a"].host.health().ready
    assert "sick" not in world.hosts["a"].host.health().detail
    assert len(world.events(HostReady, place="a")) == 2
    assert not any(session.sick for session in world.sessions().values())
    check_safety(world)
    assert lost(world) == []


@virtual
async def test_host_that_is_sick_again_rests_longer() -> None:
    """A database that stays away must not cost the partitions a hand-off every minute."""
    ward = Ward(World(partitions=4))
    ward.start("a", "b")
    ward.broken.add("a")

    await ward.runs(12 * SICK_AFTER_S)

    pauses_s = [event.pause_s for event in ward.world.events(HostResting)]
    assert len(pauses_s) == 4
    for number, pause_s in enumerate(pauses_s):
        assert 0.5 <= pause_s / (SICK_AFTER_S * 2**number) <= 1
    assert {place for place, _ in ward.drained()} == {"a"}


@virtual
async def test_hosts_that_are_all_sick_keep_what_they_have() -> None:
    """Where the database of all is away, no other host would do better; each goes on trying."""
    ward = Ward(World(partitions=6))
    ward.start("a", "b", "c")
    await ward.runs(15)
    ward.broken |= {"a", "b", "c"}
    began_s = ward.world.now_s

    await ward.runs(10 * SICK_AFTER_S)

    assert ward.drained() == []
    assert not [place for place in "abc" if ward.taken(place, since_s=began_s)]
    assert [session.sick for session in ward.world.sessions().values()] == [True, True, True]

    ward.broken.clear()
    await ward.runs(15)

    assert lost(ward.world) == []
    assert [session.sick for session in ward.world.sessions().values()] == [False, False, False]


@virtual
async def test_hosts_that_fall_sick_one_after_the_other_keep_what_they_have() -> None:
    """The first sees in time that the second is no better."""
    ward = Ward(World(partitions=4))
    ward.start("a", "b")
    await ward.runs(15)
    ward.broken.add("a")
    await ward.runs(SICK_AFTER_S / 4)
    ward.broken.add("b")

    await ward.runs(6 * SICK_AFTER_S)

    assert ward.drained() == []


@virtual
async def test_host_that_comes_back_is_no_host_to_give_everything_to() -> None:
    """Else two sick hosts, the second seen as sick only while the first rested, would pass everything to and fro."""
    ward = Ward(World(partitions=4))
    ward.start("a", "b")
    await ward.runs(15)
    ward.broken.add("a")
    await ward.runs(SICK_AFTER_S + TOLD_S)
    ward.broken.add("b")

    await ward.runs(10 * SICK_AFTER_S)

    assert ward.drained() == [("a", "sick")]


@virtual
async def test_lone_host_that_is_sick_keeps_everything() -> None:
    """Nobody else would take it."""
    ward = Ward(World(partitions=3))
    ward.start("a")
    ward.broken.add("a")

    await ward.runs(5 * SICK_AFTER_S)

    assert ward.drained() == []
    assert ward.world.owners() == {"p0": "a", "p1": "a", "p2": "a"}
    assert ward.world.hosts["a"].host.health().ready


@virtual
async def test_bad_partition_alone_makes_no_host_sick() -> None:
    """Another host would fail at it too; the neighbours on the same host are well."""
    ward = Ward(World(partitions=6))
    ward.start("a", "b", "c")
    ward.bad.add("p1")

    await ward.runs(5 * SICK_AFTER_S)

    assert ward.drained() == []
    assert {event.partition for event in ward.world.events(ProcessorFailed)} == {"p1"}
    assert not any(session.sick for session in ward.world.sessions().values())


@virtual
async def test_sick_host_gives_nothing_to_one_that_is_dead() -> None:
    """Its session is still there for a while, but it does not beat."""
    ward = Ward(World(partitions=4))
    world = ward.world
    ward.start("a", "b")
    await ward.runs(15)
    ward.broken.add("a")
    await ward.runs(SICK_AFTER_S - 4)
    world.kill("b")

    await ward.runs(3 * SICK_AFTER_S)

    assert ward.drained() == []
    assert set(world.owners().values()) == {"a"}


@virtual
async def test_stop_ends_the_rest_of_a_sick_host() -> None:
    """It has nothing to give away, and a deployment must not wait for it."""
    ward = Ward(World(partitions=4))
    world = ward.world
    ward.start("a", "b")
    ward.broken.add("a")
    await ward.runs(SICK_AFTER_S + TOLD_S + 5)
    session = world.hosts["a"].host.session
    assert session is not None
    assert not session.is_valid

    world.stop("a")

    status, took_s = await world.until_ended("a", within_s=1.0)
    assert (status, took_s < 1.0) == (0, True)


@virtual
async def test_drain_of_a_sick_host_sets_its_deadline_for_that_drain_alone() -> None:
    """A hand-off after its rest leaves the running batch its time, as if nothing had been."""
    ward = Ward(World(partitions=6))
    world = ward.world
    ward.start("a", "b")
    ward.broken.add("a")
    await ward.runs(SICK_AFTER_S + TOLD_S + 5)
    ward.broken.clear()
    await ward.runs(2 * SICK_AFTER_S)
    assert world.shares() == [3, 3]
    ward.batch_s = 3.0

    ward.start("c")
    await ward.runs(20)

    assert "c" in world.owners().values()
    assert world.events(BatchCut) == []
