"""Field faults of Kinesis under real hosts on virtual time: C33, C41, C43, C45, C48, C51, C52, C56, order of keys."""

from __future__ import annotations

from collections import Counter
from itertools import count
from random import Random
from typing import Any

import pytest

from partitions.events import LeaseEnded
from partitions.positions import END
from partitions.verbs import Acquire
from processor_host.events import PartitionGap, ProcessorFailed, ReadFailed, RoundFailed
from tests.cases.virtual import repeats_of, seeded, virtual
from tests.sources.kinesis.hosts import KinesisWorld, check_parents_first, kinesis_world
from tests.sources.kinesis.scripted import THROTTLE, Ask, Refused
from tests.world.checks import check_no_overlap, check_safety
from tests.world.diary import passes
from tests.world.loop import run_virtual
from tests.world.processors import Handled

__all__: list[str] = []

B = 2.0
DISCOVERY_S = 30.0
"""The default interval between two listings."""
S0, S1, S2 = (f"shardId-{n:012}" for n in range(3))


def running_by_place(world: KinesisWorld) -> dict[str, set[str]]:
    """Return the partitions with an open processor, by host."""
    running: dict[str, set[str]] = {}
    for partition, found in world.running().items():
        for place, _ in found:
            running.setdefault(place, set()).add(partition)
    return running


# --- C33 --------------------------------------------------------------------------------------------------------------


@virtual
async def test_c33_finished_shards_are_no_load_and_are_never_acquired_again() -> None:
    """Closed shards stay listed for the whole retention; a host that counts them gets no open one."""
    world = await kinesis_world(shards=4)
    parents = list(world.kinesis.shards)
    data = [each for shard in parents for each in world.write(50, shard)]
    children = [child for shard in parents for child in world.kinesis.split(shard)]
    data += [each for shard in children for each in world.write(10, shard)]
    for name in "abcd":
        world.start(name)
    await world.until(lambda: world.is_done(data), within_s=60)
    took_s = await world.until(lambda: sorted(map(len, running_by_place(world).values())) == [2] * 4, within_s=10 * B)
    for name in "abcd":
        world.stop(name)
    await world.until(lambda: not world.sessions(), within_s=20)
    restarted_s = world.now_s
    for name in "efgh":
        world.start(name)
    took_again_s = await world.until(
        lambda: sorted(map(len, running_by_place(world).values())) == [2] * 4, within_s=10 * B
    )
    await world.wait(60)
    print("2 each after", took_s, "and again after", took_again_s)

    acquired = Counter(write.verb.partition for write in world.network.applied(Acquire) if write.at_s > restarted_s)
    assert set(acquired) == set(children)
    assert {name: lease.finished for name, lease in world.leases().items()} == {
        **dict.fromkeys(parents, True),
        **dict.fromkeys(children, False),
    }
    check_parents_first(world)
    check_safety(world)


# --- C41 --------------------------------------------------------------------------------------------------------------


@virtual
async def test_c41_no_record_of_a_child_starts_before_the_last_one_of_its_parent() -> None:
    """Per key the order of handling is the order of writing, also over a split."""
    world = await kinesis_world(shards=1)
    keys = [f"key-{n}" for n in range(10)]
    written: dict[str, list[bytes]] = {key: [] for key in keys}
    for n in range(500):
        written[keys[n % 10]] += world.write(1, S0, key=keys[n % 10])
    for name in "ab":
        world.start(name, record_s=0.1)
    await world.until(lambda: len(world.journal) > 20, within_s=20)
    children = world.kinesis.split(S0)
    for n in range(100):
        written[keys[n % 10]] += world.write(1, children[n % 10 % 2], key=keys[n % 10])
    everything = [each for data in written.values() for each in data]
    await world.until(lambda: world.is_done(everything), within_s=120)

    last_end_s = max(entry.end_s or 0.0 for entry in world.handled(S0))
    assert all(entry.start_s >= last_end_s for child in children for entry in world.handled(child))
    assert world.leases()[S0].position == END
    done = [entry.data for entry in sorted(world.journal, key=lambda entry: entry.end_s or 0.0)]
    assert {key: [each for each in done if f"/{key}/".encode() in each] for key in keys} == written
    check_parents_first(world)


# --- C43 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["absent", "null", "null with records", "no iterator"])
def test_c43_end_of_a_shard_is_seen_however_it_is_written(end: str) -> None:
    """A missing field crashes a reader that wants a null one; its children then wait for ever."""

    async def scenario() -> None:
        world = await kinesis_world(shards=1, end=end.removesuffix(" with records"))
        data = world.write(3, S0)
        if end == "no iterator":
            # Everything was read and is gone, and the host begins anew where there is nothing to begin at.
            data = []
            world.kinesis.trim(S0, 3)
        if end in ("null with records", "no iterator"):
            children = world.kinesis.split(S0)
            world.start("a")
        else:
            world.start("a")
            await world.until(lambda: world.is_done(data), within_s=20)
            children = world.kinesis.split(S0)
        of_children = [each for child in children for each in world.write(2, child)]
        took_s = await world.until(lambda: world.is_done(data + of_children), within_s=DISCOVERY_S)
        print("children done after", took_s)

        assert Counter(world.delivered()) == Counter(data + of_children)
        assert world.leases()[S0].finished
        assert world.events(ReadFailed, RoundFailed, ProcessorFailed, PartitionGap) == []

    run_virtual(scenario)


# --- C45 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["throttled for 20 s", "lacks the child three times"])
def test_c45_child_is_found_once_the_list_is_right_without_a_restart(trouble: str) -> None:
    """Discovery that asks once at the parent's end never finds what that one answer lacked."""

    async def scenario() -> None:
        world = await kinesis_world(shards=1)
        for name in "ab":
            world.start(name)
        data = world.write(20, S0)
        await world.until(lambda: world.is_done(data), within_s=20)
        before = world.kinesis.answer("ListShards", {"StreamName": "orders"})
        children = world.kinesis.split(S0)
        data += [each for child in children for each in world.write(5, child)]
        rolled_s = world.now_s
        left = 3
        right_s = 0.0

        def troubled(ask: Ask) -> Refused | dict[str, Any] | None:
            nonlocal left, right_s
            if ask.operation != "ListShards" or right_s:
                return None
            if trouble == "throttled for 20 s" and world.now_s - rolled_s < 20:
                return Refused("LimitExceededException", "Rate exceeded")
            if trouble == "lacks the child three times" and left:
                left -= 1
                return before
            right_s = world.now_s
            return None

        world.kinesis.script.append(troubled)
        await world.until(lambda: right_s > 0, within_s=3 * DISCOVERY_S)
        took_s = await world.until(lambda: world.is_done(data), within_s=2 * DISCOVERY_S)
        print(trouble, ": children done after", took_s)

        assert {child: len(world.running().get(child, [])) for child in children} == dict.fromkeys(children, 1)
        check_parents_first(world)

    run_virtual(scenario)


# --- C48 --------------------------------------------------------------------------------------------------------------


@virtual
async def test_c48_latest_leaves_out_what_was_there_and_nothing_of_shards_born_later() -> None:
    """A child without a checkpoint is not new to the group: it goes on where its parent ended."""
    world = await kinesis_world(shards=2, settings={"start": "latest"})
    old = [each for shard in (S0, S1) for each in world.write(30, shard)]
    await world.wait(0.5)
    world.start("a")
    await world.wait(10)
    data = world.write(10, S0)
    children = world.kinesis.split(S0)
    data += [each for child in children for each in world.write(50, child)]
    # Three seconds in which nobody can see the children.
    hidden = world.kinesis.answer("ListShards", {"StreamName": "orders"})["Shards"][:2]
    until_s = world.now_s + 3
    world.kinesis.script.append(
        lambda ask: {"Shards": hidden} if ask.operation == "ListShards" and world.now_s < until_s else None
    )
    await world.until(lambda: world.is_done(data), within_s=2 * DISCOVERY_S)
    await world.wait(20)

    assert Counter(world.delivered()) == Counter(data)
    assert set(world.delivered()).isdisjoint(old)


# --- C51 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["slow batch", "network cut"])
def test_c51_expired_iterator_skips_and_repeats_nothing(trouble: str) -> None:
    """0 skipped, 0 delivered twice, the processor not restarted."""

    async def scenario() -> None:
        # So little is read ahead that the reader must wait for the slow batch.
        world = await kinesis_world(
            shards=1,
            iterator_life_s=2.0,
            settings={"prefetch_records_max": 100, "batch_records_max": 100},
        )
        data = world.write(10_000, S0)
        slow: list[Handled] = []

        async def on_record(handled: Handled) -> None:
            if len(world.journal) > 10_000 and not slow and trouble == "slow batch":
                slow.append(handled)
                await passes(5)

        world.on_record = on_record
        world.start("a")
        await world.until(lambda: world.is_done(data), within_s=30)
        if trouble == "network cut":
            world.client.is_cut = True
        data += world.write(500, S0)
        await world.wait(10)
        world.client.is_cut = False
        data += world.write(500, S0)
        await world.until(lambda: world.is_done(data), within_s=30)

        assert world.delivered() == data
        assert [what for _, _, (what, *_) in world.notes] == ["open"]
        assert len(slow) == (trouble == "slow batch")
        expired = [ask for ask in world.kinesis.calls("GetShardIterator") if "StartingSequenceNumber" in ask.arguments]
        assert expired != []

    run_virtual(scenario)


# --- C52 --------------------------------------------------------------------------------------------------------------


@virtual
async def test_c52_trimmed_checkpoint_goes_on_at_the_horizon_and_is_told_exactly_once() -> None:
    """One event, which is one line of the log, and one count of the metric; also though a processor fails after it."""
    world = await kinesis_world(shards=1)
    data = world.write(100, S0)
    world.start("a")
    await world.until(lambda: world.is_done(data), within_s=20)
    await world.wait(10)
    world.stop("a")
    await world.until(lambda: not world.sessions(), within_s=20)
    world.write(500, S0)
    world.kinesis.trim(S0, 600)
    left = world.write(200, S0)
    failures = iter([True, True])

    async def on_record(_: Handled) -> None:
        if next(failures, False):
            raise ValueError("the first two tries fail")

    world.on_record = on_record
    running = world.start("b")
    await world.until(lambda: world.is_done(left), within_s=60)
    await world.wait(60)

    name = "processor_host_partition_gaps_total"
    counted = [
        sample.value for metric in running.host.registry.collect() for sample in metric.samples if sample.name == name
    ]
    assert len(world.events(ProcessorFailed)) == 2
    assert [(gap.partition, place) for _, place, gap in world.diary if isinstance(gap, PartitionGap)] == [(S0, "b")]
    assert counted == [1.0]
    assert world.delivered()[-200:] == left


# --- C56 --------------------------------------------------------------------------------------------------------------


@virtual
async def test_c56_host_with_default_settings_leaves_room_and_keeps_its_leases_through_a_storm() -> None:
    """4 shards, 5 reads/s each, another application takes 3; 5 minutes, then 60 s in which every read is throttled."""
    world = await kinesis_world(shards=4, limits=True, others_per_s=3.0)
    shards = list(world.kinesis.shards.values())
    world.start("a")
    await world.until(lambda: world.is_balanced(1), within_s=20)
    for shard in shards:
        shard.reads.clear()
        shard.answered.clear()
    began_s = world.kinesis.now_s()
    storm_s = began_s + 300

    def throttled(ask: Ask) -> Refused | None:
        in_storm = storm_s <= world.kinesis.now_s() < storm_s + 60
        return THROTTLE if ask.operation == "GetRecords" and in_storm else None

    world.kinesis.script.append(throttled)
    data: list[bytes] = []
    # Never idle: whoever reads as fast as there is news takes too much.
    for _ in range(1950):
        data += [each for shard in shards for each in world.write(2, shard.name)]
        await world.wait(0.2)
    await world.until(lambda: world.is_done(data), within_s=20)

    rates = [sum(at_s < storm_s for at_s in shard.reads) / 300 for shard in shards]
    resumed_s = [min(at_s for at_s in shard.answered if at_s >= storm_s + 60) - storm_s - 60 for shard in shards]
    print("reads/s", rates, "resumed after", resumed_s)
    assert max(rates) <= 2.0
    assert max(resumed_s) < 10.0
    assert world.events(LeaseEnded, ReadFailed) == []
    assert Counter(world.delivered()) == Counter(data)


# --- The order of keys ------------------------------------------------------------------------------------------------


def test_order_of_every_key_survives_splits_merges_and_a_kill_of_one_of_three_hosts() -> None:
    """Whatever happens to hosts and shards, a key's records are first handled in the order of writing, none is lost."""
    for seed in repeats_of(25):
        with seeded(seed):
            run_virtual(lambda seed=seed: reshard_under_a_kill(seed))  # type: ignore[misc]


async def reshard_under_a_kill(seed: int) -> None:
    random = Random(seed)
    settings = {"batch_records_max": 5, "discovery_interval_s": random.choice([1.0, 5.0, 30.0])}
    world = await kinesis_world(shards=4, seed=seed, settings=settings)
    homes = {f"k{n}": f"shardId-{n % 4:012}" for n in range(12)}
    numbers = {key: count() for key in homes}
    written: dict[str, list[int]] = {key: [] for key in homes}

    def write() -> None:
        for _ in range(60):
            key = random.choice(sorted(homes))
            written[key].append(next(numbers[key]))
            world.kinesis.put(homes[key], f"{key}#{written[key][-1]}".encode(), key)

    def reshard() -> None:
        taken = sorted(set(homes.values()))
        if len(taken) > 1 and random.random() < 0.5:
            parents = random.sample(taken, 2)
            children = [world.kinesis.merge(*parents)]
        else:
            parents = [random.choice(taken)]
            children = world.kinesis.split(parents[0])
        for key, home in homes.items():
            if home in parents:
                homes[key] = random.choice(children)

    for name in "abc":
        world.start(name, record_s=0.03)
        await world.wait(random.uniform(0, 1))
    for step in range(8):
        write()
        await world.wait(random.uniform(0.1, 3))
        reshard()
        if step == 4:
            world.kill("b")
    write()
    everything = [f"{key}#{n}".encode() for key, all_of_key in written.items() for n in all_of_key]
    await world.until(lambda: world.is_done(everything), within_s=180)

    first: dict[bytes, float] = {}
    for entry in world.journal:
        if entry.end_s is not None:
            first[entry.data] = min(first.get(entry.data, entry.end_s), entry.end_s)
    seen: dict[str, list[int]] = {key: [] for key in homes}
    for data in sorted(first, key=lambda data: first[data]):
        key, _, number = data.decode().partition("#")
        seen[key].append(int(number))
    assert seen == written
    assert world.events(PartitionGap) == []
    check_parents_first(world)
    check_safety(world)
    check_no_overlap(world)


# --- C46 --------------------------------------------------------------------------------------------------------------


@virtual
async def test_c46_host_knows_every_one_of_1266_shards_though_a_token_expires() -> None:
    """A host that stops at the first page leaves a fifth of the stream to nobody. (Tables are another source's.)"""
    world = await kinesis_world(shards=1266)
    for shard in list(world.kinesis.shards)[:500]:
        world.kinesis.shards[shard].closed = True
    expired: list[Ask] = []

    def expire_once(ask: Ask) -> Refused | None:
        if ask.operation != "ListShards" or "NextToken" not in ask.arguments or expired:
            return None
        expired.append(ask)
        return Refused("ExpiredNextTokenException", "the token expired")

    world.kinesis.script.append(expire_once)
    world.start("a")
    await world.until(lambda: len(world.leases()) >= 1266, within_s=60)

    assert world.leases().keys() == world.kinesis.shards.keys()
    assert len(expired) == 1
    assert world.events(RoundFailed, ReadFailed) == []
