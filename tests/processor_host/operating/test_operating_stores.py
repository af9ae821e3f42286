"""
Every command on every kind of store, in real time, beside a real host where one is needed.

What the commands do to a group is shown in virtual time; here, that each store takes the writes and reads they send.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import anyio
import pytest

from partitions.clocks import BootClock
from partitions.sources.memory import MemorySource
from partitions.stores.base import Store
from partitions.stores.memory import MemoryStore
from partitions.verbs import Create, SetUp
from processor_host import Batch, HostSettings, ProcessorHost
from processor_host.errors import UserError
from processor_host.operating.carrying import export_leases, import_leases, parse_export
from processor_host.operating.draining import Drained, Forgotten, drain, forget_host
from processor_host.operating.operator import Operator
from processor_host.operating.pausing import Paused, Resumed, pause, resume
from processor_host.operating.resetting import Released, Reset, release, reset
from processor_host.operating.restoring import RAISED_BY, Restored, note_restored
from tests.builders import a_group, a_lease, a_register, an_acquire
from tests.stores.kinds import Kind

__all__: list[str] = []

D = 6.0
"""Long enough that a machine with much else to do does not make the host miss its session's end."""
PATIENCE_S = 60.0


class Handled:
    """The positions that a host has handled, by partition."""

    def __init__(self) -> None:
        self.positions: dict[str, list[str]] = {}
        self._news = anyio.Event()

    async def process(self, batch: Batch) -> None:
        self.positions.setdefault(batch.partition, []).extend(record.position for record in batch)
        self._news.set()

    async def until(self, partition: str, positions: list[str]) -> None:
        """
        Wait until these were handled of a partition since the last call, one after the other.

        Others may stand between them: a slow machine makes a host miss beats, and then what has no checkpoint repeats.
        """
        with anyio.move_on_after(PATIENCE_S):
            while not _has_in_order(self.positions.get(partition, ()), positions):
                self._news = anyio.Event()
                await self._news.wait()
        handled = self.positions.pop(partition, [])
        assert _has_in_order(handled, positions), f"{partition}: {handled} handled, {positions} wanted"


def _has_in_order(all_of: Sequence[str], some: Sequence[str]) -> bool:
    rest = iter(all_of)
    return all(each in rest for each in some)


def operator_of(store: Store, group: str = "g") -> Operator:
    return Operator(store=store, group=group, clock=BootClock(), random=Random(1), call_timeout_s=PATIENCE_S)


async def test_commands_work_on_a_living_host(store: Store, kind: Kind, tmp_path: Path) -> None:
    """Pause, resume, reset, release, refuse to forget, drain: each through the items that this store keeps."""
    source = MemorySource(anyio.current_time, partitions=2)
    for n in range(5):
        source.put("p0", b"x", key=str(n))
    handled = Handled()

    async def handle(batch: Batch) -> None:
        await handled.process(batch)

    host = ProcessorHost(
        group="g",
        source=source,
        # Its own, which it closes at its end; a store in memory is there for all.
        store=store if isinstance(store, MemoryStore) else kind.make(tmp_path, kind.url),
        processor=handle,
        settings=HostSettings(host_id="a", lease_duration_s=D, audit_interval_s=1000.0),
    )
    operator = operator_of(store)
    async with host:
        await handled.until("p0", ["1", "2", "3", "4", "5"])
        assert await pause(operator, ["p0"], reason="poison") == (Paused(partition="p0", was_paused=False, owner=None),)
        source.put("p0", b"x")
        assert await resume(operator, ["p0"]) == (Resumed(partition="p0", was_paused=True, owner="a"),)
        await handled.until("p0", ["6"])
        assert await reset(operator, source, ["p0"], "4") == (
            Reset(partition="p0", done=True, before="5", position="4", owner="a", paused=False),
        )
        await handled.until("p0", ["5", "6"])
        assert await release(operator, ["p0", "p1"]) == tuple(
            Released(partition=name, done=True, was_owned_by="a", owner="a") for name in ("p0", "p1")
        )
        with pytest.raises(UserError, match="host 'a' is alive"):
            await forget_host(operator, "a")
        [session_id] = await operator.sessions()
        assert await drain(operator, "a", wait_s=PATIENCE_S) == (
            Drained(session_id=session_id, host_id="a", has_left=True, owned=0),
        )
    leases = (await operator.snapshot()).leases
    assert {name: (lease.owner, lease.position) for name, lease in leases.items()} == {
        "p0": (None, "6"),
        "p1": (None, leases["p1"].position),
    }


async def test_forget_host_frees_what_a_dead_host_had(store: Store) -> None:
    """Its session goes on condition of the beat that was watched."""
    await store.submit("g", Create(partition="p0", position="0"))
    await store.submit("g", a_register("a:1", duration_s=0.3, handoff_s=0.3))
    await store.submit("g", an_acquire(a_lease("p0", position="0"), "a:1"))

    forgotten = await forget_host(operator_of(store), "a")

    assert forgotten == (Forgotten(session_id="a:1", host_id="a", fenced=True, freed=("p0",)),)
    assert await store.read_sessions("g", consistent=True) == ()


async def test_leases_are_exported_imported_and_restored(store: Store) -> None:
    """Into another group of the same store; then the store is said to have come back from a backup."""
    await store.submit("g", SetUp(item=a_group(extra={"note": "x"})))
    await store.submit("g", Create(partition="p0", position="7"))
    await store.submit("g", an_acquire(a_lease("p0", position="7"), "a:1"))
    export = parse_export((await export_leases(operator_of(store))).as_json())

    imported = await import_leases(operator_of(store, "h"), export)
    restored = await note_restored(operator_of(store, "h"))
    lease = await store.read_lease("h", "p0")

    assert [(each.outcome, each.token) for each in imported] == [("created", 1)]
    assert restored == Restored(group="h", partitions=1, locks=0, restore_count=1)
    assert lease is not None
    assert (lease.owner, lease.token, lease.position) == (None, 1 + RAISED_BY, "7")
    assert await store.read_group("h") == a_group(extra={"note": "x"}, restore_count=1)
