"""Six processes count to 10,000 under one lock, through kills and freezes: no update is lost, and all take turns."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from partitions.aws.places import AwsPlace
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.sqlite import SqliteStore
from tests.processes.dynamodb.tables import sdk_session
from tests.processes.locks.contest import Contest, Outcome
from tests.processes.locks.counters import FileCounter, TableCounter
from tests.processes.scaling import figure
from tests.servers import DUMMY_CREDENTIALS
from tests.servers.raw import caller

__all__: list[str] = []

pytestmark = pytest.mark.processes

REGION = "us-east-1"
"""In which the calls without an SDK are signed."""
GOAL = 10_000
HAND_OVERS = 1_000
"""How many terms, at least, are another process's than the one before."""
FAULTS = 2
"""Kills of who holds the lock, and as many freezes; beside them as many faults of whoever it may be."""
WITHIN_S = 600.0
"""A write to the table takes milliseconds of a core, which much else may want; what holds does not hang on it."""


def contest(folder: Path, given: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Outcome:
    seed = random.randrange(2**32)
    figure(f"seed {seed}")
    given = {"goal": GOAL, "writes_max": 17, "duration_s": 1.2, **given}
    outcome = Contest(folder, given, env or {}, seed=seed, within_s=WITHIN_S).run(FAULTS)
    figure(
        f"{GOAL} increments and {outcome.hand_overs} hand-overs in {outcome.took_s:.1f} s; {outcome.killed} "
        f"processes killed, {outcome.frozen} frozen, {len(outcome.of('refused'))} late writes refused"
    )
    return outcome


def check(outcome: Outcome) -> None:
    """What holds of the journals alone."""
    wrote = outcome.of("wrote")
    values = [each.value for each in wrote]
    # Each number once, and none under an older token than the one before it; a kill may have cut a line off.
    assert values == sorted(set(values))
    assert (values[-1], len(values) >= GOAL - outcome.killed) == (GOAL, True)
    tokens = [each.token for each in outcome.of("began")]
    assert tokens == sorted(set(tokens))
    # Whoever was frozen, and overtaken, wrote too late.
    assert len(outcome.overtaken) == FAULTS
    assert outcome.overtaken <= {each.token for each in outcome.of("refused")}
    assert outcome.hand_overs >= HAND_OVERS


def test_counter_in_a_file_loses_no_update(tmp_path: Path) -> None:
    """The lock in SQLite, and its tokens in an SQL database of the user's own."""

    async def make() -> None:
        store = SqliteStore(tmp_path / "leases.db")
        await store.create()
        await store.close()

    anyio.run(make)
    with closing(FileCounter(tmp_path / "counter.db")) as counter:
        counter.create()
        given = {"store": f"sqlite://{tmp_path / 'leases.db'}", "file": str(tmp_path / "counter.db"), "poll_s": 0.05}
        outcome = contest(tmp_path, given)
        history = counter.history()

    check(outcome)
    assert [value for value, _ in history] == list(range(1, GOAL + 1))
    assert [token for _, token in history] == sorted(token for _, token in history)


@pytest.mark.servers
def test_counter_in_a_table_loses_no_update(tmp_path: Path, ministack_url: str) -> None:
    """The lock in DynamoDB; writes are fenced by their own condition, and by that of the lease in a transaction."""
    leases, counter = f"leases-{uuid4().hex[:12]}", f"counter-{uuid4().hex[:12]}"
    given = {
        "store": f"dynamodb://{leases}?region={REGION}&endpoint_url={ministack_url}",
        "endpoint_url": ministack_url,
        "table": counter,
        "poll_s": 0.1,
    }

    async def do(what: Callable[[TableCounter], Awaitable[int | None]]) -> int | None:
        async with caller(ministack_url) as call:
            return await what(TableCounter(call, counter))

    async def make(made: TableCounter) -> None:
        place = AwsPlace(region=REGION, endpoint_url=ministack_url)
        store = DynamoDBStore(leases, place=place, call_timeout_s=10.0, session=sdk_session(), is_protected=False)
        await store.create()
        await store.close()
        await made.create()

    anyio.run(do, make)
    outcome = contest(tmp_path, given, DUMMY_CREDENTIALS)

    check(outcome)
    assert anyio.run(do, TableCounter.value) == GOAL
