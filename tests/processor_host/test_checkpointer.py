"""
The checkpointer: marks in memory never go back, and the store follows with as few writes as will do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions.errors import LeaseLost
from partitions.leases import Lease
from partitions.verbs import SaveCheckpoint
from processor_host.checkpointer import Checkpointer
from tests.cuts import Cut, at_every_point
from tests.stage import LATENCY_S, VIRTUAL_TIME, Stage, about, verb_of
from tests.world.diary import passes
from tests.world.loop import run_virtual

__all__: list[str] = []

INTERVAL_S = 1.0


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


@asynccontextmanager
async def checkpointing(stage: Stage) -> AsyncIterator[tuple[Checkpointer, Lease]]:
    """A checkpointer of a term that is held for the body."""
    async with stage.living() as session:
        lease = await stage.acquired(session)
        yield Checkpointer(lease, interval_s=INTERVAL_S), lease


def stored(stage: Stage) -> list[str]:
    """The positions that were sent to the store, in order."""
    return [verb.position for verb in stage.sent(SaveCheckpoint)]


async def test_marks_begin_where_the_term_did() -> None:
    """Nothing is done yet, and nothing needs to be stored."""
    stage = Stage()
    stage.create("p9", position="70")
    async with stage.living() as session:
        mine = Checkpointer(await stage.acquired(session, "p9"), interval_s=INTERVAL_S)

        assert (mine.marked, mine.position, mine.unsaved) == (0, "70", None)
        await mine.save()
        assert stored(stage) == []


async def test_mark_is_memory_only() -> None:
    """A write for every batch would cost more than the work."""
    stage = Stage()
    async with checkpointing(stage) as (mine, _):
        mine.mark(3, "30")

        assert (mine.marked, mine.position, mine.unsaved, stored(stage)) == (3, "30", "30", [])


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_mark_never_goes_back(count: int) -> None:
    """A user's own checkpoint may be ahead of what `process` returned from, and of an older batch."""
    stage = Stage()
    async with checkpointing(stage) as (mine, _):
        mine.mark(3, "30")
        mine.mark(count, "older")

        assert (mine.marked, mine.position) == (3, "30")


async def test_save_returns_once_the_store_has_the_newest_mark() -> None:
    """Whoever awaited it may tell the world."""
    stage = Stage()
    async with checkpointing(stage) as (mine, _):
        mine.mark(3, "30")
        await mine.save()

        assert (stage.lease().position, mine.unsaved) == ("30", None)
        await mine.save()
        assert stored(stage) == ["30"]


async def test_saves_that_wait_for_one_on_its_way_share_the_next_write() -> None:
    """Many tasks of one processor may checkpoint at once."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), before_s=0.5, times=1)
    async with checkpointing(stage) as (mine, _):
        mine.mark(1, "10")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.save)
            await passes(0.1)
            for count in (2, 3, 4):
                mine.mark(count, f"{count}0")
                tasks.start_soon(mine.save)
                await passes(0.1)

        assert (stored(stage), stage.lease().position) == (["10", "40"], "40")


async def test_save_waits_for_the_write_that_carries_its_own_mark() -> None:
    """One that was sent before does not."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), before_s=0.5)
    async with checkpointing(stage) as (mine, _):
        mine.mark(1, "10")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.save)
            await passes(0.1)
            mine.mark(2, "20")
            began_s = stage.now_s
            await mine.save()

        assert (stage.now_s - began_s, stage.lease().position) == (about(0.4 + 0.5 + LATENCY_S), "20")


async def test_save_that_another_has_served_writes_nothing_more() -> None:
    """It asked for what is stored by now; later marks have their own interval."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), before_s=0.5)
    async with checkpointing(stage) as (mine, _):
        mine.mark(1, "10")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.save)
            tasks.start_soon(mine.save)
            await passes(0.1)
            mine.mark(2, "20")

        assert (stored(stage), mine.unsaved) == (["10"], "20")


async def test_mark_during_a_save_stays_unsaved() -> None:
    """The release has to carry it."""
    stage = Stage()
    stage.disturb(verb_of(SaveCheckpoint), before_s=0.5)
    async with checkpointing(stage) as (mine, _):
        mine.mark(1, "10")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.save)
            await passes(0.1)
            mine.mark(2, "20")

        assert (mine.unsaved, stage.lease().position) == ("20", "10")


async def test_save_raises_when_the_lease_has_ended() -> None:
    """Nobody may believe that it is stored."""
    stage = Stage()
    async with checkpointing(stage) as (mine, _):
        mine.mark(1, "10")
        stage.take("p0")

        with pytest.raises(LeaseLost):
            await mine.save()
        assert mine.unsaved == "10"


def test_mark_stays_unsaved_wherever_its_save_is_cancelled() -> None:
    """Whether the store has it nobody knows, so the release carries it."""

    async def scenario(cut: Cut) -> None:
        stage = Stage()
        stage.disturb(verb_of(SaveCheckpoint), fail_before=True, times=1)
        async with checkpointing(stage) as (mine, lease):
            mine.mark(1, "10")
            saved = await cut.during(mine.save)
            assert mine.unsaved == (None if saved else "10")

            mine.mark(2, "20")
            await mine.save()
            assert (mine.unsaved, stage.lease().position) == (None, "20")
            assert lease.is_held()

    assert at_every_point(scenario) > 2


async def test_run_stores_the_newest_mark_every_interval() -> None:
    """After a crash no more than an interval's work is done again."""
    stage = Stage()
    async with checkpointing(stage) as (mine, _), anyio.create_task_group() as tasks:
        tasks.start_soon(mine.run)
        began_s = stage.now_s
        for count in range(1, 8):
            await passes(0.4)
            mine.mark(count, f"{count}0")
        tasks.cancel_scope.cancel()

        assert stored(stage) == ["20", "50"]
        # The second interval is counted from the end of the first write.
        assert stage.sent_at_s(SaveCheckpoint) == [
            about(began_s + INTERVAL_S),
            about(began_s + 2 * INTERVAL_S + LATENCY_S),
        ]


async def test_run_writes_nothing_while_nothing_is_marked() -> None:
    """An idle partition costs no writes."""
    stage = Stage()
    async with checkpointing(stage) as (mine, _):
        with anyio.move_on_after(10):
            await mine.run()

        assert stored(stage) == []


@given(st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=20))
def test_store_never_has_less_than_was_saved_nor_more_than_was_marked(steps: list[int | None]) -> None:
    """A number is a mark of so many records, None a save."""

    async def scenario() -> None:
        stage = Stage()
        async with checkpointing(stage) as (mine, _):
            highest = 0
            for step in steps:
                if step is None:
                    await mine.save()
                    assert stage.lease().position == (str(highest) if highest else "@earliest")
                else:
                    mine.mark(step, str(step))
                    highest = max(highest, step)
                assert mine.marked == highest
            sent = [int(position) for position in stored(stage)]
            assert sent == sorted(set(sent))

    run_virtual(scenario)


async def test_checkpoint_carries_the_weight_of_the_moment() -> None:
    """Where the group shares out the load, every host plans with it."""
    stage = Stage()
    weights = [3.0, 4.0]
    async with stage.living() as session:
        lease = await stage.acquired(session)
        mine = Checkpointer(lease, interval_s=INTERVAL_S, weight=lambda: weights[0])
        mine.mark(1, "10")
        await mine.save()
        del weights[0]
        await mine.save()
        mine.mark(2, "20")
        await mine.save()

    assert [(verb.position, verb.weight) for verb in stage.sent(SaveCheckpoint)] == [("10", 3.0), ("20", 4.0)]


async def test_weight_of_a_partition_that_has_become_idle_is_stored_without_a_mark() -> None:
    """Nothing is checkpointed there any more, and its old weight would count for ever; but not at each interval."""
    stage = Stage()
    weights = [8.0]
    async with stage.living() as session:
        lease = await stage.acquired(session)
        mine = Checkpointer(lease, interval_s=INTERVAL_S, weight=lambda: weights[-1])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.run)
            mine.mark(1, "10")
            await passes(2 * INTERVAL_S)
            for weight in (2.1, 1.9, 1.8):
                weights.append(weight)
                await passes(2 * INTERVAL_S)
            tasks.cancel_scope.cancel()

    assert [(verb.position, verb.weight) for verb in stage.sent(SaveCheckpoint)] == [("10", 8.0), ("10", 1.9)]
