"""Bounded replays: where a host ends by itself, alone and with others, and where single partitions start."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from partitions.verbs import Pause
from processor_host import SettingsError
from processor_host.events import PartitionDone, ReplayDone
from tests.cases.virtual import virtual
from tests.world.checks import check_safety
from tests.world.loop import result_of
from tests.world.world import GROUP, World

__all__: list[str] = []


def positions(world: World, partition: str) -> list[int]:
    """What was handled to its end of a partition, sorted, each once."""
    return sorted({int(entry.position) for entry in world.handled(partition) if entry.end_s is not None})


async def status_of(world: World, place: str, within_s: float = 300.0) -> int:
    """Wait for a host's end and return its exit status."""
    with anyio.fail_after(within_s):
        status: int = await result_of(world.hosts[place].task)
    return status


@virtual
async def test_host_ends_by_itself_once_every_partition_is_where_the_stream_was_as_it_started() -> None:
    """What is written meanwhile is the next run's."""
    world = World(partitions=4)
    world.put(50)
    world.start("a", record_s=0.05, until="latest-at-start")
    await world.wait(1.0)
    world.put(20)

    assert await status_of(world, "a") == 0
    assert {name: positions(world, name) for name in world.leases()} == {f"p{n}": list(range(1, 51)) for n in range(4)}
    assert {lease.position for lease in world.leases().values()} == {"50"}
    assert set(world.owners().values()) == {None}
    (done,) = world.events(ReplayDone)
    assert (done.partitions, done.handled) == (("p0", "p1", "p2", "p3"), (50, 50, 50, 50))
    check_safety(world)


@virtual
async def test_position_of_each_partition_ends_it_and_nothing_is_handled_of_the_others() -> None:
    """A replay of one customer's partition must not touch its neighbours."""
    world = World(partitions=3)
    world.put(50)
    world.start("a", record_s=0.01, until={"p0": "7", "p2": "33"})

    assert await status_of(world, "a") == 0
    assert [positions(world, f"p{n}") for n in range(3)] == [list(range(1, 8)), [], list(range(1, 34))]
    assert [world.leases()[f"p{n}"].position for n in (0, 2)] == ["7", "33"]


@pytest.mark.parametrize("slow", ["a", "b"])
@virtual
async def test_two_hosts_share_a_replay_and_both_end(slow: str) -> None:
    """The one that is done first leaves; what it had comes to the other, which finds it over."""
    world = World(partitions=6)
    world.put(60)
    for place in ("a", "b"):
        world.start(place, record_s=0.5 if place == slow else 0.02, until="latest-at-start", batch_records_max=5)

    assert [await status_of(world, place, within_s=600.0) for place in ("a", "b")] == [0, 0]
    assert [positions(world, f"p{n}") for n in range(6)] == [list(range(1, 61))] * 6
    assert {lease.position for lease in world.leases().values()} == {"60"}
    handled = [sum(event.handled) for event in world.events(ReplayDone)]
    assert sum(handled) >= 6 * 60
    check_safety(world)


@virtual
async def test_replay_goes_on_where_a_host_was_killed() -> None:
    """What it held is not over until somebody has handled it."""
    world = World(partitions=4)
    world.put(60)
    for place in ("a", "b"):
        world.start(place, record_s=0.2, until="latest-at-start", batch_records_max=5)
    await world.wait(8.0)
    world.kill("b")

    assert await status_of(world, "a", within_s=600.0) == 0
    assert [positions(world, f"p{n}") for n in range(4)] == [list(range(1, 61))] * 4


@virtual
async def test_host_that_is_stopped_in_the_middle_leaves_the_rest_to_the_other() -> None:
    """What a draining host holds is not its own to end."""
    world = World(partitions=4)
    world.put(60)
    world.start("a", record_s=0.2, until="latest-at-start", batch_records_max=5)
    world.start("b", record_s=0.2, until="latest-at-start", batch_records_max=5)
    await world.wait(7.5)
    world.stop("b")

    assert [await status_of(world, place, within_s=600.0) for place in ("a", "b")] == [0, 0]
    assert [positions(world, f"p{n}") for n in range(4)] == [list(range(1, 61))] * 4


@virtual
async def test_partitions_that_are_paused_or_ended_hold_no_replay_up() -> None:
    """Nobody may handle the one, and nothing is left of the other; what was born after the start has nothing to do."""
    world = World(partitions=3)
    world.put(10)
    world.start("a", record_s=9.0, until="latest-at-start", batch_records_max=5)
    await world.until(lambda: len(world.owners()) == 3, within_s=10)
    born = world.source.split("p1")
    await world.until(lambda: len(world.leases()) == 5, within_s=60)
    world.store.apply_now(GROUP, Pause(partition="p2", seen_token=world.leases()["p2"].token))

    assert await status_of(world, "a") == 0
    assert (positions(world, "p0"), positions(world, "p1")) == (list(range(1, 11)),) * 2
    assert [world.leases()[name].token for name in born] == [0, 0]
    assert {event.partition for event in world.events(PartitionDone)} >= {"p0"}


@virtual
async def test_single_partitions_start_where_they_are_told_and_the_others_where_the_stream_is() -> None:
    """After an incident in one partition the others need not be handled again."""
    world = World(partitions=3)
    world.put(30)
    world.start("a", start="latest,p1=12")
    await world.until(lambda: len(world.owners()) == 3, within_s=10)
    world.put(5)
    await world.wait(10.0)

    assert [positions(world, f"p{n}") for n in range(3)] == [
        list(range(31, 36)),
        list(range(13, 36)),
        list(range(31, 36)),
    ]


@virtual
async def test_start_of_a_partition_that_is_not_there_is_refused_with_those_that_are() -> None:
    """A slip would start the right one at its beginning, unseen."""
    world = World(partitions=2)
    world.start("a", start={"q1": "12"})

    with pytest.raises(SettingsError, match="has no partition 'q1'; it has p0, p1"):
        await status_of(world, "a")
    assert world.leases() == {}


@virtual
async def test_end_of_a_partition_that_is_not_there_is_refused_with_those_that_are() -> None:
    """Every other partition would be over before its first record, and the run end as if it had done its work."""
    world = World(partitions=2)
    world.put(5)
    world.start("a", until={"p0": "3", "q1": "4"})

    with pytest.raises(SettingsError, match=r"until: .* has no partition 'q1'; it has p0, p1"):
        await status_of(world, "a")
    assert world.leases() == {}


@pytest.mark.parametrize("setting", ["start", "until"])
@virtual
async def test_position_behind_the_last_record_is_refused(setting: str) -> None:
    """A start there could never be read from, and an end there would be wherever the stream happens to end."""
    world = World(partitions=2)
    world.put(5)
    world.start("a", **{setting: {"p1": "6"}})  # type: ignore[arg-type]

    with pytest.raises(SettingsError, match=rf"{setting}: p1=6 is no place in the stream \(.*is after the last record"):
        await status_of(world, "a")
    assert world.leases() == {}


@virtual
async def test_end_of_a_partition_that_is_done_and_gone_from_the_stream_is_taken() -> None:
    """A host that starts again is given the same settings; the source lists an ended partition only for a while."""
    world = World(partitions=2)
    world.put(5)
    world.source.split("p0")
    settings: dict[str, Any] = {"until": "p0=5,p1=5"}
    world.start("a", **settings)
    assert await status_of(world, "a") == 0
    world.source.delist("p0")
    assert "p0" not in {info.partition for info in world.source.list_now()}
    world.start("b", **settings)

    assert await status_of(world, "b") == 0


@virtual
async def test_start_of_a_partition_counts_only_where_its_lease_is_made() -> None:
    """A second run of the same command must not go back."""
    world = World(partitions=1)
    world.put(30)
    settings: dict[str, Any] = {"start": "p0=12", "until": "p0=20"}
    world.start("a", **settings)
    assert await status_of(world, "a") == 0
    world.start("b", **(settings | {"until": "p0=25"}))
    assert await status_of(world, "b") == 0

    assert [int(entry.position) for entry in world.handled("p0")] == list(range(13, 26))
