"""Nobody starves: each of those that wait has the same chance, and the one that has just had its turn has none."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import anyio
import pytest

from partitions.locks import Session
from tests.locks.stage import LockStage
from tests.stage import VIRTUAL_TIME
from tests.world.diary import passes

__all__: list[str] = []

CONTENDERS = 8
TURNS = 800
LEAST = 50
"""Half of an equal share."""


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


async def turns_of(stage: LockStage, *, hold_s: float, pause_s: float, seed: int, count: int = TURNS) -> list[str]:
    """Let eight sessions acquire and release one lock again and again; return who had each turn."""
    turns: list[str] = []
    random = Random(seed)

    async def contend(session: Session) -> None:
        while len(turns) < count:
            async with await session.acquire("nightly") as lease:
                assert lease.is_held()
                turns.append(session.host_id)
                await passes(hold_s)
            if pause_s:
                await passes(random.uniform(0, pause_s))

    async def live(host_id: str) -> None:
        async with stage.contender(host_id) as session:
            await contend(session)

    async with anyio.create_task_group() as tasks:
        for number in range(CONTENDERS):
            tasks.start_soon(live, f"{seed}-{number}")
    return turns[:count]


@pytest.mark.parametrize(
    ("hold_s", "pause_s", "seed"),
    [
        *(pytest.param(0.0, 0.0, seed, id=f"released at once {seed}") for seed in range(3)),
        pytest.param(0.25, 0.0, 3, id="held for a look"),
        *(pytest.param(0.02, 0.1, seed, id=f"work between {seed}") for seed in range(4, 6)),
    ],
)
async def test_of_800_turns_of_8_contenders_none_has_under_50(hold_s: float, pause_s: float, seed: int) -> None:
    """Also where turns last as long as the wait between two looks, so that contenders could fall into step."""
    turns = await turns_of(LockStage(latency_s=0.01), hold_s=hold_s, pause_s=pause_s, seed=seed)

    counts = Counter(turns)
    assert (len(counts), sum(counts.values())) == (CONTENDERS, TURNS)
    assert min(counts.values()) >= LEAST, counts


async def test_who_released_lets_those_that_wait_look_first() -> None:
    """It knows of the release before anybody else, and would win every race."""
    turns = await turns_of(LockStage(latency_s=0.01), hold_s=0.05, pause_s=0.0, seed=9, count=200)

    twice = sum(first == second for first, second in pairwise(turns))
    assert twice / len(turns) < 1 / CONTENDERS


async def test_one_that_has_waited_for_long_looks_as_often_as_one_that_has_just_come() -> None:
    """With waits that grow, whoever waits longest would win least."""
    stage = LockStage()
    async with stage.contender("a") as a, stage.contender("b") as b, anyio.create_task_group() as tasks:
        await a.acquire("nightly")
        tasks.start_soon(b.acquire, "nightly")
        await passes(240)
        looks = [at_s for at_s, call in stage.network.calls if call.operation == "read_lock" and call.place == "b"]
        tasks.cancel_scope.cancel()

    early = [at_s for at_s in looks if at_s - looks[0] < 60]
    late = [at_s for at_s in looks if at_s - looks[0] > 180]
    assert len(late) == pytest.approx(len(early), rel=0.25)
