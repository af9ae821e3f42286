"""Zombie processing and double ownership: C01 (its fenced half), C02, C05 and C06."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Any

import pytest

from partitions.events import LeaseAcquired
from partitions.leases import Lease
from partitions.verbs import Acquire, Release, SaveCheckpoint
from processor_host.events import LoopStalled
from processor_host.settings import default_host_id
from tests.cases.virtual import repeats_of, seeded, virtual
from tests.world.checks import check_no_overlap, check_safety, lost
from tests.world.loop import in_world, run_in_place, run_virtual, running_loop
from tests.world.processors import Handled
from tests.world.world import World

__all__: list[str] = []

H = 2.0
"""Beat period of the cases, seconds; their lease duration is 6."""


@virtual
async def test_c01_host_that_was_blocked_hands_out_and_stores_nothing_under_its_old_token() -> None:
    """A blocking call silences the beats of a host; it must not wake up still acting as owner."""
    world = World(partitions=4)
    blocked: list[Handled] = []

    async def block(handled: Handled) -> None:
        if handled.place == "a" and handled.position == "10" and not blocked:
            blocked.append(handled)
            # A synchronous sleep in the processor: nothing of this host runs until it returns.
            await in_world(freeze)

    async def freeze() -> None:
        world.freeze("a")

    world.on_record = block
    for name in "ab":
        world.start(name, record_s=0.1, batch_records_max=50)
    await world.until(lambda: world.shares() == [2, 2], within_s=10)
    world.put(400)
    await world.until(lambda: bool(blocked), within_s=10)
    old = {name: world.leases()[name].token for name, owner in world.owners().items() if owner == "a"}
    await world.wait(15.0)
    world.thaw("a")
    await world.wait(30.0)

    taken = {
        write.verb.partition: write.at_s
        for write in world.network.applied(Acquire)
        if write.place == "b" and write.result.item.token == old.get(write.verb.partition, 0) + 1
    }
    assert taken.keys() >= old.keys() > {blocked[0].partition}
    zombies = [entry for entry in world.handled() if entry.place == "a" and entry.token == old.get(entry.partition)]
    assert [entry for entry in zombies if entry.start_s >= taken[entry.partition]] == []
    writes = [write for write in world.network.applied(SaveCheckpoint, Release) if write.place == "a"]
    zombie_writes = [write for write in writes if write.verb.token == old.get(write.verb.partition)]
    assert [write for write in zombie_writes if write.at_s >= taken[write.verb.partition]] == []
    assert max(event.stall_s for event in world.events(LoopStalled, place="a")) >= 13.0
    check_safety(world)
    check_no_overlap(world)
    assert lost(world) == []


@pytest.mark.parametrize(
    ("end", "settings"),
    [
        ("asked", {"batch_records_max": 20, "prefetch_records_max": 520}),
        # Nobody can cancel the record in hand, and the batch outlasts the hand-off: B has to take p1 by force.
        ("forced", {"stubborn": True, "batch_records_max": 600, "prefetch_records_max": 1200}),
    ],
)
@virtual
async def test_c02_old_owner_hands_out_no_buffered_record_after_its_lease_was_stolen(
    end: str, settings: dict[str, Any]
) -> None:
    """What was read ahead belongs to the next owner from the end of the term on."""
    world = World(partitions=2)
    world.put(3000)
    world.start("a", record_s=0.05, **settings)
    await world.wait(60.0)
    started = Counter(entry.partition for entry in world.handled())
    assert min(world.network.fetched[name] - started[name] for name in ("p0", "p1")) >= 500
    session = world.hosts["a"].host.session
    assert session is not None
    ended_s: dict[str, float] = {}
    for lease in session.held.values():
        run_in_place("a", note_end, lease, ended_s)
    if end == "forced":
        # Nor does the lease come free when the term ends at its deadline.
        world.network.disturb(lambda call: call.place == "a" and call.operation == "Release", lose_request=True)
    world.start("b", record_s=0.05)
    await world.until(lambda: bool(world.events(LeaseAcquired, place="b")), within_s=20)
    await world.wait(30.0)

    [stolen] = world.events(LeaseAcquired, place="b")
    [acquired_s] = [at for at, _, event in world.diary if event is stolen]
    assert stolen.reason == end
    assert ended_s.keys() == {stolen.partition}
    assert ended_s[stolen.partition] <= acquired_s + H + 1
    handled = [entry for entry in world.handled(stolen.partition) if entry.place == "a"]
    assert [entry for entry in handled if entry.start_s >= ended_s[stolen.partition]] == []
    check_safety(world)
    assert lost(world) == []


async def note_end(lease: Lease, ended_s: dict[str, float]) -> None:
    await lease.ended.wait()
    ended_s[lease.partition] = running_loop().time()


@pytest.mark.parametrize("named", ["worker", "by an empty HOSTNAME"])
def test_c05_two_hosts_of_one_host_id_never_process_a_partition_at_once(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id from a constant or an empty name must not make two processes one owner; their sessions differ."""
    host_id = named
    if named != "worker":
        monkeypatch.setenv("HOSTNAME", "")
        monkeypatch.setattr(socket, "gethostname", lambda: "")
        host_id = default_host_id()

    async def scenario() -> None:
        world = World(partitions=4)
        world.put(2000)
        for place in "ab":
            world.start(place, host_id=host_id, record_s=0.05, batch_records_max=20)
        await world.wait(60.0)

        check_safety(world)
        check_no_overlap(world)
        assert lost(world) == []
        assert world.shares() == [2, 2]
        assert {session.host_id for session in world.sessions().values()} == {host_id}

    run_virtual(scenario)


def test_c06_first_lease_item_of_a_partition_has_one_winner() -> None:
    """The very first write of a lease has no earlier version to compare with; it must be conditional all the same."""
    for seed in repeats_of(20):
        with seeded(seed):
            run_virtual(lambda seed=seed: eight_hosts_on_an_empty_store(seed))  # type: ignore[misc]


async def eight_hosts_on_an_empty_store(seed: int) -> None:
    world = World(partitions=16, seed=seed)
    # Some writes linger on the way, so that a create may arrive after its partition was acquired.
    world.network.disturb(lambda call: call.verb is not None and world.random.random() < 0.2, before_s=0.03)
    for n in range(8):
        world.start(f"h{n}")
        await world.wait(0.05 / 8)
    await world.wait(15.0)

    logged = Counter((event.partition, event.token) for event in world.events(LeaseAcquired))
    assert set(logged.values()) == {1}
    assert {partition for partition, _ in logged} == {f"p{n}" for n in range(16)}
    assert logged == Counter(
        (write.verb.partition, write.result.item.token) for write in world.network.applied(Acquire)
    )
    assert world.is_balanced(8)
    check_safety(world)
