"""When a shard is read: pauses as a decision, and what they add up to beside other applications (C56)."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import anyio
import pytest

from partitions.positions import EARLIEST
from partitions.sources.kinesis._pace import Pace
from tests.sources.kinesis.scripted import THROTTLE, Ask, Refused
from tests.sources.kinesis.stages import LONG_S, SHARD, Stage, read, read_all
from tests.stage import VIRTUAL_TIME
from tests.world.diary import passes
from tests.world.loop import running_loop

__all__: list[str] = []

MIB = 1024 * 1024


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.mark.parametrize(
    ("bytes_read", "is_idle", "pause_s"),
    [(0, True, 1.0), (0, False, 0.5), (100, False, 0.5), (2 * MIB, False, 1.0), (10 * MIB, False, 5.0)],
)
def test_pause_follows_from_what_a_read_brought(bytes_read: int, is_idle: bool, pause_s: float) -> None:
    """2 MiB a second is the limit of a shard; jitter only makes pauses longer."""
    pace = Pace(Random(1), idle_s=1.0)
    pauses = []
    for _ in range(100):
        pace.answered(1000.0, bytes_read=bytes_read, is_idle=is_idle)
        pauses.append(pace.due_s - 1000.0)

    assert pause_s <= min(pauses) < max(pauses) <= 1.2 * pause_s


def test_pauses_grow_with_jitter_while_reads_are_refused_and_end_with_the_first_answer() -> None:
    """Readers that met must not meet again, and must be back soon."""
    pauses = []
    for seed in range(50):
        pace = Pace(Random(seed))
        of_one = []
        for _ in range(8):
            pace.throttled(0.0)
            of_one.append(pace.due_s)
        pauses.append(of_one)
        pace.answered(0.0, bytes_read=1, is_idle=False)
        assert pace.due_s <= 0.6

    for n, most_s in enumerate([0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]):
        of_try = [of_one[n] for of_one in pauses]
        assert most_s / 2 <= min(of_try) < max(of_try) <= most_s
        assert len({round(pause_s, 3) for pause_s in of_try}) > 30


async def test_idle_shard_is_read_as_often_as_the_url_says() -> None:
    """Each read of an idle shard takes one of five that all applications share."""
    stage = Stage(idle_read_s=5.0)
    await stage.open()
    stage.kinesis.shards[SHARD].reads.clear()
    reader = stage.source.reader(SHARD, EARLIEST)
    for _ in range(5):
        await read(reader, wait_s=LONG_S)

    reads = stage.kinesis.shards[SHARD].reads
    gaps = [after - before for before, after in pairwise(reads)]
    assert min(gaps) >= 5.0
    assert max(gaps) <= 6.1


async def test_shard_with_gigabytes_to_catch_up_is_read_at_the_limit_and_never_throttled() -> None:
    """Small reads would take the five a second, large ones are paid for afterwards."""
    stage = Stage(limits=True)
    await stage.open()
    stage.put(3000, data=b"x" * 50_000)
    began_s = running_loop().time()
    records = await read_all(stage.source.reader(SHARD, EARLIEST), 3000)

    took_s = running_loop().time() - began_s
    shard = stage.kinesis.shards[SHARD]
    assert len(records) == 3000
    assert len(shard.reads) == len(shard.answered)
    assert 150_000_000 / (2 * MIB) - 12 <= took_s <= 150_000_000 / (2 * MIB) * 1.3


async def test_c56_readers_of_one_shard_share_its_limit_and_are_back_soon_after_a_storm() -> None:
    """At most 2 reads/s for each shard, pauses that grow while all is throttled, reading again within 10 s."""
    stage = Stage(limits=True, others_per_s=3.0)
    stage.kinesis.make(3)
    await stage.open()
    shards = list(stage.kinesis.shards.values())
    for shard in shards:
        shard.reads.clear()
        shard.answered.clear()
    storm_s = running_loop().time() + 300.0

    async def consume(shard: str) -> None:
        reader = stage.source.reader(shard, EARLIEST)
        while True:
            await read(reader, wait_s=LONG_S)

    async def produce() -> None:
        while True:
            for shard in shards:
                stage.put(1, shard.name)
            await passes(0.05)

    def throttled(ask: Ask) -> Refused | None:
        now_s = running_loop().time()
        return THROTTLE if ask.operation == "GetRecords" and storm_s <= now_s < storm_s + 60 else None

    stage.kinesis.script.append(throttled)
    async with anyio.create_task_group() as tasks:
        for shard in shards:
            tasks.start_soon(consume, shard.name)
        tasks.start_soon(produce)
        await passes(300 + 60 + 30)
        tasks.cancel_scope.cancel()

    zero_s = stage.kinesis.now_s() - running_loop().time()
    for shard in shards:
        before = [at_s - zero_s for at_s in shard.reads if at_s - zero_s < storm_s]
        during = [at_s - zero_s for at_s in shard.reads if storm_s <= at_s - zero_s < storm_s + 60]
        after = [at_s - zero_s for at_s in shard.answered if at_s - zero_s >= storm_s + 60]
        gaps = [second - first for first, second in pairwise(during)]
        assert 300 <= len(before) <= 600
        assert gaps[0] < 1.0 < 4.0 <= min(gaps[4:])
        assert after[0] - (storm_s + 60) < 10
        assert after[10] - after[0] < 10
    firsts = [shard.reads[-40] for shard in shards]
    assert len(set(firsts)) == len(shards)
