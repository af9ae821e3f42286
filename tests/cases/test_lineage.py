"""Splits, merges and closes under several hosts: C33, the order of keys, who waits for whom, and what is deleted."""

from __future__ import annotations

from collections import Counter
from itertools import count
from random import Random

import pytest

from partitions.positions import END
from partitions.sources.memory import MemorySource
from partitions.verbs import Acquire, Beat, Complete, Create, Delete, Pause, Resume
from processor_host.events import PlanRound
from tests.cases.virtual import repeats_of, seeded, virtual
from tests.world.checks import check_no_overlap, check_safety, lost
from tests.world.loop import run_virtual
from tests.world.network import Write
from tests.world.world import GROUP, World

__all__: list[str] = []

D = 6.0
B = 2.0
AUDIT_S = 60.0
HOUR_S = 3600.0


# --- What must hold of every history --------------------------------------------------------------------------------


def check_parents_first(world: World) -> None:
    """Fail where a partition was acquired, or a record of it started, before each of its parents was complete."""
    parents = {lease.partition: lease.parents for lease in world.leases().values()}
    done_s = {write.verb.partition: write.at_s for write in world.network.applied(Complete)}
    begun = [(write.verb.partition, write.at_s) for write in world.network.applied(Acquire)]
    begun += [(entry.partition, entry.start_s) for entry in world.handled()]
    for partition, at_s in begun:
        for parent in parents[partition]:
            assert done_s.get(parent, float("inf")) <= at_s, f"{partition} at {at_s} before {parent} was complete"


def check_order_of_keys(world: World, written: dict[str, list[int]]) -> None:
    """Fail unless the records of each key were finished for the first time in the order in which they were written."""
    seen: dict[str, list[int]] = {key: [] for key in written}
    known: set[bytes] = set()
    ends = [(entry.end_s, n, entry.data) for n, entry in enumerate(world.handled()) if entry.end_s is not None]
    for _, _, data in sorted(ends):
        if data not in known:
            known.add(data)
            key, _, number = data.decode().partition("#")
            seen[key].append(int(number))
    assert seen == written


class Writer:
    """Writes records of some keys, each into whichever partition its key belongs to at that time."""

    def __init__(self, world: World, random: Random, keys: int) -> None:
        self._world = world
        self._random = random
        self._homes = {f"k{n}": f"p{n % world.partitions}" for n in range(keys)}
        self._numbers = {key: count() for key in self._homes}
        self.written: dict[str, list[int]] = {key: [] for key in self._homes}

    def write(self, records: int) -> None:
        """Write so many records, each of a random key."""
        for _ in range(records):
            key = self._random.choice(sorted(self._homes))
            number = next(self._numbers[key])
            self._world.source.put(self._homes[key], f"{key}#{number}".encode(), key=key)
            self.written[key].append(number)

    def reshard(self) -> None:
        """Split one partition, or merge two."""
        homes = sorted(set(self._homes.values()))
        if len(homes) > 1 and self._random.random() < 0.5:
            parents = self._random.sample(homes, 2)
            children: tuple[str, ...] = (self._world.source.merge(*parents),)
        else:
            parents = [self._random.choice(homes)]
            children = self._world.source.split(parents[0])
        for key, home in self._homes.items():
            if home in parents:
                self._homes[key] = self._random.choice(children)


def is_at_the_end(world: World) -> bool:
    """Say whether everything that was ever written is stored as done."""
    return all(
        lease.position == END or world.source.fetch_now(lease.partition, lease.position, 1, 1).records == ()
        for lease in world.leases().values()
    ) and world.leases().keys() == {info.partition for info in world.source.list_now()}


def test_order_of_every_key_survives_splits_merges_a_kill_and_a_newcomer() -> None:
    """Whatever happens to hosts and partitions, a key's records are handled in the order in which they were written."""
    for seed in repeats_of(50):
        with seeded(seed):
            run_virtual(lambda seed=seed: reshard_under_kills(seed))  # type: ignore[misc]


async def reshard_under_kills(seed: int) -> None:
    random = Random(seed)
    discovery_interval_s = random.choice([1.0, 5.0, 30.0])
    settings = {"batch_records_max": 5, "discovery_interval_s": discovery_interval_s}
    world = World(partitions=4, seed=seed, settings=settings)
    writer = Writer(world, random, keys=12)
    for name in "abc":
        world.start(name, record_s=0.03)
        await world.wait(random.uniform(0, 1))
    for step in range(12):
        writer.write(60)
        await world.wait(random.uniform(0.1, 3))
        writer.reshard()
        if step == 4:
            world.kill("b")
        if step == 7:
            world.start("d", record_s=0.03)
        if step == 9:
            world.stop("a")
    writer.write(60)
    await world.until(lambda: is_at_the_end(world), within_s=120)

    assert len({entry.place for entry in world.handled()}) >= 3
    check_order_of_keys(world, writer.written)
    check_parents_first(world)
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


# --- Who waits for whom -----------------------------------------------------------------------------------------------


async def settled(hosts: int, **of_world: object) -> World:
    """Return a world at rest, its records handled, at a random moment of its rounds."""
    world = World(**of_world)  # type: ignore[arg-type]
    for name in "abcdefgh"[:hosts]:
        world.start(name)
        await world.wait(world.random.uniform(0, 1))
    await world.until(lambda: world.is_balanced(hosts), within_s=4 * world.duration_s)
    world.put(10)
    await world.wait(2 * world.duration_s + world.random.uniform(0, B))
    return world


def completed_at_s(world: World, partition: str) -> float:
    [write] = [write for write in world.network.applied(Complete) if write.verb.partition == partition]
    return write.at_s


def opened_at_s(world: World, partition: str) -> float:
    """When the first processor of a partition was open."""
    return min(at for at, _, what in world.notes if what[:2] == ("open", partition))


def first_acquire(world: World, partition: str) -> Write:
    return min(
        (write for write in world.network.applied(Acquire) if write.verb.partition == partition),
        key=lambda write: write.at_s,
    )


@virtual
async def test_children_are_made_in_the_very_write_that_completes_their_parent() -> None:
    """Between two writes a host may die, and nobody would look after the children before the next discovery."""
    world = await settled(2, partitions=2)
    there: dict[str, set[str]] = {}
    witness = world.network.on_write

    def see(write: Write) -> None:
        witness(write)
        if isinstance(write.verb, Complete):
            there[write.verb.partition] = {*world.leases()}

    world.network.on_write = see
    children = world.source.split("p0")
    await world.until(lambda: world.running().keys() == {"p1", *children}, within_s=2 * B)

    [complete] = world.network.applied(Complete)
    assert there == {"p0": {"p0", "p1", *children}}
    assert {child.partition: child.parents for child in complete.verb.children} == dict.fromkeys(children, ("p0",))
    assert {write.verb.partition for write in world.network.applied(Create)} == {"p0", "p1"}
    assert (world.leases()["p0"].finished, world.leases()["p0"].position) == (True, END)


@pytest.mark.parametrize("slow", ["p0", "p1"])
@virtual
async def test_child_of_a_merge_waits_for_both_of_its_parents(slow: str) -> None:
    """With one parent still being read, the records of its keys would be overtaken."""
    world = await settled(3, partitions=5)
    quick = "p1" if slow == "p0" else "p0"

    async def linger(handled: object) -> None:
        if getattr(handled, "partition", "") == slow:
            await world.wait(0.5)

    world.on_record = linger
    world.put(40, partitions=[slow])
    child = world.source.merge("p0", "p1")
    world.put(20, partitions=[child])
    await world.until(lambda: len(world.handled(child)) == 20, within_s=60)

    assert completed_at_s(world, slow) >= completed_at_s(world, quick) + 15.0
    # It was there all the time, free.
    assert child in {made.partition for write in world.network.applied(Complete) for made in write.verb.children}
    assert first_acquire(world, child).at_s >= completed_at_s(world, slow)
    assert opened_at_s(world, child) <= completed_at_s(world, slow) + B + 0.1
    assert len(world.handled(slow)) == 50
    check_parents_first(world)
    check_safety(world)


def test_children_start_within_one_round_of_their_parents_end() -> None:
    """Also those that go to other hosts, which must hear of them."""
    figures = []
    elsewhere = 0
    for seed in range(20):
        with seeded(seed):
            waits_s, took_elsewhere = run_virtual(lambda seed=seed: children_wait_s(seed))  # type: ignore[misc]
            figures += waits_s
            elsewhere += took_elsewhere

    print(f"{len(figures)} children, {elsewhere} of them elsewhere, started within {max(figures):.2f} s")
    assert max(figures) <= B + 0.1
    assert elsewhere >= 5


async def children_wait_s(seed: int) -> tuple[list[float], int]:
    """Split a partition, or merge two; return how long each child waited, and how many went to another host."""
    world = await settled(3, partitions=3 + seed % 5, seed=seed)
    children = [world.source.merge("p0", "p1")] if seed % 4 == 0 else [*world.source.split("p0")]
    await world.until(lambda: world.running().keys() >= {*children}, within_s=3 * B)

    ends = world.network.applied(Complete)
    ended_s = max(write.at_s for write in ends)
    check_parents_first(world)
    return (
        [opened_at_s(world, name) - ended_s for name in children],
        sum(first_acquire(world, name).place not in {write.place for write in ends} for name in children),
    )


def test_second_child_does_not_wait_for_the_audit_where_the_first_was_taken_before_a_beat() -> None:
    """The parent's host owns as many leases as before, so no sum tells the others that there is one more."""
    reasons = []
    for seed in range(20):
        with seeded(seed):
            reasons.append(run_virtual(lambda seed=seed: why_the_second_was_read(seed)))  # type: ignore[misc]

    # With other seeds one host takes both, or the other one looks by chance right after the parent's end.
    assert reasons.count("others know more") >= 3


async def why_the_second_was_read(seed: int) -> str | None:
    """Split; return why the host of the second child read the leases, None where the first was not taken like that."""
    world = await settled(3, partitions=3, seed=seed)
    owner = world.owners()["p0"]
    world.network.disturb(
        lambda call: call.operation == "Beat" and call.place == owner and world.leases()["p0"].finished,
        fail_before=True,
        times=1,
    )
    children = world.source.split("p0")
    await world.until(lambda: world.running().keys() >= {*children}, within_s=2 * B)

    first, second = sorted((first_acquire(world, name) for name in children), key=lambda write: write.at_s)
    beats = [write.verb.owned for write in world.network.applied(Beat) if write.place == owner]
    # The beat that tells of it had to be repeated.
    assert second.at_s <= completed_at_s(world, "p0") + B + 0.3
    if first.place != owner or second.place == owner or {*beats[-4:]} != {1}:
        return None
    reason: str | None = world.events(PlanRound, place=second.place)[-1].full_read
    return reason


@virtual
async def test_split_while_the_parents_host_is_down_goes_on_where_the_host_had_come() -> None:
    """Its successor finds a closed partition with a checkpoint in the middle, and children that wait."""
    # Listed so often that the children are found long before their parent's end.
    world = World(partitions=3, settings={"batch_records_max": 5, "discovery_interval_s": 1.0})
    for name in "abc":
        world.start(name, record_s=0.1)
    await world.until(lambda: world.is_balanced(3), within_s=20)
    world.put(100)
    await world.wait(5.0)
    owner = world.owners()["p0"]
    assert owner is not None
    world.kill(owner)
    children = world.source.split("p0")
    world.put(20, partitions=[*children])
    await world.until(lambda: len({entry.position for entry in world.handled("p0")}) == 100, within_s=D + 2 * B + 12)
    await world.until(lambda: is_at_the_end(world), within_s=10)

    assert completed_at_s(world, "p0") > 0
    assert [len(world.handled(child)) for child in children] == [20, 20]
    assert max(opened_at_s(world, child) for child in children) <= completed_at_s(world, "p0") + B + 0.1
    check_parents_first(world)
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@virtual
async def test_children_of_a_host_that_died_as_it_completed_their_parent_start_with_its_fence() -> None:
    """They were made with the parent's end; nobody but the dead host has heard of them."""
    world = await settled(3, partitions=3)
    owner = world.owners()["p0"]
    assert owner is not None
    answer = world.network.disturb(lambda call: call.operation == "Complete", lose_answer=True)
    children = world.source.split("p0")
    await world.until(lambda: world.leases()["p0"].finished, within_s=1)
    world.kill(owner)
    killed_s = world.now_s
    await world.until(lambda: world.running().keys() == {"p1", "p2", *children}, within_s=D + 2 * B)

    assert answer.hits == 1
    print(f"children run {world.now_s - killed_s:.2f} s after the kill")
    check_parents_first(world)
    check_safety(world)


@virtual
async def test_closed_partition_without_children_is_finished_and_its_host_takes_another_share() -> None:
    """A partition that just ends leaves one lease less to share."""
    world = await settled(2, partitions=6)
    ended = [name for name, owner in world.owners().items() if owner == "a"][:2]
    for name in ended:
        world.source.close_partition(name)
    await world.until(lambda: all(world.leases()[name].finished for name in ended), within_s=1)
    await world.until(lambda: world.shares() == [2, 2], within_s=5 * B)

    assert [write.verb.children for write in world.network.applied(Complete)] == [(), ()]
    assert world.is_balanced(2)
    check_safety(world)


# --- Who counts for nobody --------------------------------------------------------------------------------------------


async def four_that_became_eight(hosts: int) -> World:
    """Return a world of four partitions that were split into eight, the four read to their end."""
    world = await settled(hosts, partitions=4)
    for n in range(4):
        world.source.split(f"p{n}")
    world.put(10)
    await world.until(lambda: sum(lease.finished for lease in world.leases().values()) == 4, within_s=B)
    return world


def open_shares(world: World) -> dict[str | None, int]:
    """How many open leases each host owns."""
    owners = world.owners()
    counted = [owners[lease.partition] for lease in world.leases().values() if not lease.finished]
    return {owner: counted.count(owner) for owner in counted}


@virtual
async def test_c33_finished_partitions_count_for_nobody_and_are_never_acquired_again() -> None:
    """Closed shards stay listed for days; counted, they would fill up a host that then has no room for live ones."""
    world = await four_that_became_eight(4)
    ended_s = world.now_s
    await world.until(lambda: open_shares(world) == dict.fromkeys("abcd", 2), within_s=10 * B)
    await world.wait(10 * B)
    assert open_shares(world) == dict.fromkeys("abcd", 2)
    finished = {name for name, lease in world.leases().items() if lease.finished}
    assert finished == {"p0", "p1", "p2", "p3"}
    assert {info.partition for info in world.source.list_now()} >= finished

    # A fresh cluster on the same table, while the four are still listed.
    for name in "abcd":
        world.stop(name)
    await world.wait(10.0)
    assert world.sessions() == {}
    for name in "efgh":
        world.start(name)
    await world.until(lambda: open_shares(world) == dict.fromkeys("efgh", 2), within_s=10 * B)
    await world.wait(10 * B)

    assert open_shares(world) == dict.fromkeys("efgh", 2)
    again = [write for write in world.network.history if isinstance(write.verb, Acquire) and write.at_s > ended_s]
    assert [write for write in again if write.verb.partition in finished] == []
    assert len(world.handled()) == 4 * 10 + 8 * 10
    check_parents_first(world)
    check_safety(world)


def pause(world: World, partition: str) -> None:
    world.store.apply_now(GROUP, Pause(partition=partition, seen_token=world.leases()[partition].token))


@virtual
async def test_paused_partitions_count_for_nobody() -> None:
    """A host whose partitions are paused has room for others."""
    world = await settled(2, partitions=8)
    paused = [name for name, owner in world.owners().items() if owner == "a"]
    for name in paused:
        pause(world, name)
    # Nothing but a full read shows it to a host that was not told.
    await world.until(lambda: open_shares(world) == {None: 4, "a": 2, "b": 2}, within_s=AUDIT_S + 10 * B)
    moved_s = world.now_s
    await world.wait(10 * B)

    assert {name for name, owner in world.owners().items() if owner is None} == set(paused)
    assert world.running().keys() == world.leases().keys() - set(paused)
    assert [write for write in world.network.applied(Acquire) if write.at_s > moved_s] == []
    for name in paused:
        world.store.apply_now(GROUP, Resume(partition=name, seen_token=world.leases()[name].token))
    await world.until(lambda: open_shares(world) == {"a": 4, "b": 4}, within_s=AUDIT_S + 10 * B)
    check_safety(world)


@virtual
async def test_children_that_wait_for_a_parent_count_for_nobody() -> None:
    """They are free leases that nobody may take; counted, they would leave live partitions to one host."""
    world = World(partitions=4, settings={"discovery_interval_s": 4.0, "batch_records_max": 5})
    world.put(400, partitions=["p0"])
    world.start("a", record_s=0.1)
    await world.until(lambda: world.shares() == [4], within_s=3 * B)
    children = [child for parent in ("p0", "p0.0", "p0.1") for child in world.source.split(parent)]
    # Found by the discovery, long before their parents end.
    await world.until(lambda: world.leases().keys() >= {*children}, within_s=5.0)
    world.start("b", record_s=0.1)
    await world.until(lambda: open_shares(world) == {None: 6, "a": 2, "b": 2}, within_s=10 * B)
    settled_s = world.now_s
    await world.wait(10.0)

    assert open_shares(world) == {None: 6, "a": 2, "b": 2}
    moves = [write for write in world.network.history if isinstance(write.verb, Acquire) and write.at_s > settled_s]
    assert moves == []
    await world.until(lambda: world.leases()["p0"].finished, within_s=60)
    # Two of the six were closed when they were made, and end as soon as they are read.
    await world.until(lambda: open_shares(world) in ({"a": 4, "b": 3}, {"a": 3, "b": 4}), within_s=6 * B)
    check_parents_first(world)
    check_safety(world)


# --- Parents that are gone --------------------------------------------------------------------------------------------


def whose_parents_are_gone(partitions: int) -> tuple[World, set[str]]:
    """Return a world in which each partition was split, and delisted before the group began; with the children."""
    world = World(partitions=partitions)
    children: set[str] = set()
    for n in range(partitions):
        children.update(world.source.split(f"p{n}"))
        world.source.delist(f"p{n}")
    return world, children


@pytest.mark.parametrize("hosts", [1, 3])
@virtual
async def test_children_of_parents_that_are_no_longer_listed_start_at_once(hosts: int) -> None:
    """A source lists for days who a partition's parents were, after it has dropped them with all of their records."""
    world, children = whose_parents_are_gone(3)
    world.put(10)
    for name in "abc"[:hosts]:
        world.start(name)
    took_s = await world.until(lambda: world.running().keys() == children, within_s=2 * B)
    await world.until(lambda: world.is_balanced(hosts), within_s=10 * B)

    print(f"{hosts} hosts run {len(children)} children after {took_s:.2f} s")
    assert world.leases().keys() == children
    assert len(world.handled()) == 10 * len(children)
    check_safety(world)


@virtual
async def test_child_that_nobody_has_room_for_makes_nobody_list_the_stream_all_the_time() -> None:
    """Whether its parents are gone is worth asking once for each read of the leases."""
    world, _ = whose_parents_are_gone(2)
    world.start("a", max_leases=1)
    await world.wait(60.0)

    assert len(world.running()) == 1
    calls = Counter(call.operation for _, call in world.network.calls)
    assert calls["source.list"] <= 12
    assert calls["read_leases"] <= 8
    assert calls["look_at_sessions"] <= 60.0 / B + 8


# --- What is deleted, and when ----------------------------------------------------------------------------------------


DELETED_WITHIN_S = 2 * 33.0 + 1.0
"""A listing must have lacked it first, and another come after the hour; one host lists every 30 s, or up to 33."""

# Nothing here depends on the lease duration, and hours of short rounds take long.
SLOW = {"duration_s": 60.0, "settings": {"checkpoint_interval_s": 600.0, "read_wait_s": 600.0}}


async def until_deleted(world: World, partition: str) -> float:
    """Wait until a lease is deleted; return when that was."""
    await world.until(lambda: partition not in world.leases(), within_s=DELETED_WITHIN_S, every_s=1.0)
    [write] = [write for write in world.network.history if isinstance(write.verb, Delete)]
    assert write.verb.partition == partition
    return write.at_s


@virtual
async def test_finished_lease_is_deleted_an_hour_after_its_partition_was_delisted_and_never_replayed() -> None:
    """A table that keeps every partition of years grows for ever; one deleted too early is found and read again."""
    world = await settled(2, partitions=2, **SLOW)
    children = world.source.split("p0")
    world.put(10, partitions=[*children])
    await world.until(lambda: world.leases()["p0"].finished, within_s=1)
    await world.wait(HOUR_S + 2 * DELETED_WITHIN_S)
    # As long as it is listed, it stays.
    assert "p0" in world.leases()
    world.source.delist("p0")
    delisted_s = world.now_s
    await world.wait(HOUR_S)
    assert "p0" in world.leases()
    deleted_s = await until_deleted(world, "p0")
    await world.wait(HOUR_S + 2 * DELETED_WITHIN_S)

    print(f"deleted {deleted_s - delisted_s:.0f} s after it was delisted")
    assert len([write for write in world.network.history if isinstance(write.verb, Delete)]) == 1
    assert [write.verb.partition for write in world.network.history if isinstance(write.verb, Create)].count("p0") == 1
    assert len(world.handled("p0")) == 10
    assert world.running().keys() == world.leases().keys() == {"p1", *children}
    assert world.is_balanced(2)
    check_safety(world)


@virtual
async def test_partition_that_is_listed_again_within_the_hour_is_kept_for_another() -> None:
    """A listing that lacks a partition once may be a fault of the source."""
    world = await settled(1, partitions=2, **SLOW)
    world.source.close_partition("p0")
    await world.until(lambda: world.leases()["p0"].finished, within_s=1)
    listed = world.source.list_now()
    faulty = MemorySource(lambda: 0.0, partitions=2)
    faulty.close_partition("p0")
    faulty.delist("p0")
    true = world.network.source
    for _ in range(2):
        world.network.source = faulty
        await world.wait(HOUR_S - 50.0)
        world.network.source = true
        await world.wait(50.0)
    assert listed == true.list_now()
    true.delist("p0")
    await world.wait(HOUR_S)
    assert "p0" in world.leases()
    await until_deleted(world, "p0")

    assert len(world.handled("p0")) == 10


@virtual
async def test_finished_lease_is_kept_while_a_child_has_not_started() -> None:
    """Without its parent's item, nobody could tell that the child may begin."""
    world = await settled(2, partitions=3, **SLOW)
    child, other = world.source.split("p0")
    witness = world.network.on_write

    def see(write: Write) -> None:
        witness(write)
        if isinstance(write.verb, Complete):
            # At once, before anybody can take it.
            world.store.apply_now(GROUP, Pause(partition=child, seen_token=0))

    world.network.on_write = see
    await world.until(lambda: world.leases()["p0"].finished, within_s=1)
    world.source.delist("p0")
    await world.wait(2 * HOUR_S)
    assert world.leases()[child].token == 0
    assert "p0" in world.leases()

    world.store.apply_now(GROUP, Resume(partition=child, seen_token=0))
    await world.until(lambda: child in world.running(), within_s=2 * AUDIT_S)
    started_s = world.now_s
    # Whoever deletes sees the child started by the audit at the latest.
    await world.until(lambda: "p0" not in world.leases(), within_s=AUDIT_S + DELETED_WITHIN_S, every_s=1.0)

    print(f"deleted {world.now_s - started_s:.0f} s after the child had started")
    assert world.running().keys() == {"p1", "p2", child, other}
    assert len(world.handled("p0")) == 10
    check_safety(world)


@virtual
async def test_hundred_leases_that_are_over_are_deleted_in_turn_and_none_twice() -> None:
    """There is no hurry, and the store has other work."""
    world = World(partitions=102, **SLOW)  # type: ignore[arg-type]
    over = [f"p{n}" for n in range(2, 102)]
    for name in over:
        world.source.close_partition(name)
    world.start("a")
    world.start("b")
    await world.until(lambda: sum(lease.finished for lease in world.leases().values()) == 100, within_s=100)
    for name in over:
        world.source.delist(name)
    await world.wait(HOUR_S)
    await world.until(lambda: world.leases().keys() == {"p0", "p1"}, within_s=8 * 33.0, every_s=1.0)
    await world.wait(HOUR_S + 2 * DELETED_WITHIN_S)

    sent = [write for write in world.network.history if isinstance(write.verb, Delete)]
    assert len(sent) == len(world.network.applied(Delete)) == 100
    assert world.running().keys() == {"p0", "p1"}
