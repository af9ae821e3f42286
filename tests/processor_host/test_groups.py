"""
The group's own item: made once, checked by everybody, and where the group starts is the same for all.
"""

from __future__ import annotations

from random import Random
from typing import Any

import anyio
import pytest

from partitions.errors import (
    SourceError,
    SourceMisconfigured,
    SourceMismatch,
    SourceUnavailable,
    StoreMisconfigured,
    StoreUnavailable,
)
from partitions.items import SCHEMA_VERSION, GroupItem
from partitions.positions import EARLIEST, at_time
from partitions.verbs import Adopt, SetUp
from processor_host.errors import SettingsError
from processor_host.events import BalanceKept, StoreSlow
from processor_host.groups import set_up_group
from processor_host.settings import HostSettings
from tests.stage import GROUP, VIRTUAL_TIME, Stage, about, verb_of
from tests.world.diary import passes
from tests.world.network import Call

__all__: list[str] = []

DURATION_S = 6.0
IDENTITY = "memory#1"


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


async def set_up(stage: Stage, **settings: Any) -> str:
    """Set the group up as a host does at its start."""
    return await set_up_group(
        stage.store_of_a_host(),
        stage.source_of_a_host(),
        GROUP,
        settings=HostSettings(**{"lease_duration_s": DURATION_S, **settings}),
        clock=stage.clock,
        random=Random(1),
        on_event=stage.tell,
    )


def group(stage: Stage) -> GroupItem | None:
    return stage.store.group_now(GROUP)


async def test_first_host_makes_the_item() -> None:
    """What all hosts must agree on."""
    stage = Stage()

    assert await set_up(stage) == EARLIEST
    assert group(stage) == GroupItem(source=IDENTITY, start=EARLIEST)
    assert stage.events == []


async def test_start_is_resolved_once_for_the_whole_group() -> None:
    """ "latest" moves; what is stored does not, and a host that comes later starts where the first one did."""
    stage = Stage()
    stage.source.put("p0", b"x")
    first = await set_up(stage, start="latest")
    for _ in range(9):
        stage.source.put("p0", b"x")
    second = await set_up(stage, start="latest")
    third = await set_up(stage, start="earliest")

    item = group(stage)
    assert item is not None
    assert first == second == third == item.start
    assert stage.source.first_position_now("p0", first) == "1"
    assert len(stage.sent(SetUp)) == 1


async def test_start_at_a_time_is_kept_as_the_source_resolves_it() -> None:
    """Written by a person, in any zone."""
    stage = Stage()

    start = await set_up(stage, start="1970-01-01T01:00:00+00:00")

    assert start == await stage.source.resolve_start(at_time(3600.0))


async def test_hosts_that_set_up_at_the_same_moment_agree() -> None:
    """The slower one takes the start of the faster."""
    stage = Stage()
    stage.disturb(verb_of(SetUp), before_s=0.5, times=1)
    starts: list[str] = []

    async def host() -> None:
        starts.append(await set_up(stage, start="latest"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host)
        await passes(0.3)
        stage.source.put("p0", b"x")
        tasks.start_soon(host)

    assert len(set(starts)) == 1
    assert len(stage.sent(SetUp)) == 2


@pytest.mark.parametrize(("fault", "duration_s"), [("fail_after", DURATION_S), ("lose_answer", 30.0)])
async def test_set_up_whose_answer_was_lost_is_found_to_be_done(fault: str, duration_s: float) -> None:
    """Rule 9: a refused write may be one's own success."""
    stage = Stage()
    stage.disturb(verb_of(SetUp), **{fault: True}, times=1)

    assert await set_up(stage, lease_duration_s=duration_s) == EARLIEST
    assert group(stage) == GroupItem(source=IDENTITY, start=EARLIEST)


async def test_group_of_another_stream_is_refused_before_any_lease_is_taken() -> None:
    """Positions of one stream mean nothing in another; a stream made anew under its name is another."""
    stage = Stage()
    made = GroupItem(source="memory#0", start=EARLIEST)
    stage.apply(SetUp(item=made))

    with pytest.raises(SourceMismatch) as caught:
        await set_up(stage)

    assert (caught.value.found, caught.value.expected, group(stage)) == (IDENTITY, "memory#0", made)


async def test_group_goes_on_with_another_stream_where_the_user_says_so() -> None:
    """A stream that was restored under a new identity; where the group starts stays."""
    stage = Stage()
    stage.apply(SetUp(item=GroupItem(source="memory#0", start="17")))

    assert await set_up(stage, adopt_stream=True) == "17"
    assert group(stage) == GroupItem(source=IDENTITY, start="17")
    await set_up(stage, adopt_stream=True)
    assert len(stage.sent(Adopt)) == 1


async def test_adoption_that_another_host_was_faster_with_is_no_error() -> None:
    """All hosts of a group are started with the same flag."""
    stage = Stage()
    stage.apply(SetUp(item=GroupItem(source="memory#0", start=EARLIEST)))
    stage.disturb(verb_of(Adopt), before_s=0.5)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(lambda: set_up(stage, adopt_stream=True))

    assert group(stage) == GroupItem(source=IDENTITY, start=EARLIEST)


async def test_group_of_a_newer_version_is_refused() -> None:
    """Its items may mean what this version does not know."""
    stage = Stage()
    stage.apply(SetUp(item=GroupItem(source=IDENTITY, start=EARLIEST, schema_version=SCHEMA_VERSION + 1)))

    with pytest.raises(StoreMisconfigured, match=f"items of version {SCHEMA_VERSION + 1}, expected {SCHEMA_VERSION}"):
        await set_up(stage)


@pytest.mark.parametrize("start", ["yesterday", "", "latest "])
async def test_start_that_is_none_is_refused_before_anything_is_sent(start: str) -> None:
    """A typing error must not become a group that starts somewhere."""
    stage = Stage()

    with pytest.raises(SettingsError, match="is not a start"):
        await set_up(stage, start=start)
    assert stage.network.calls == []


def starts(call: Call) -> bool:
    return call.operation in ("read_group", "source.identity", "source.resolve", "SetUp")


@pytest.mark.parametrize("error", [StoreUnavailable("throttled"), SourceUnavailable("throttled")])
async def test_calls_that_fail_for_now_are_tried_again_for_a_lease_duration(error: Exception) -> None:
    """A host that starts during a short outage waits for it; one that starts in a long one says so."""
    short = Stage()
    short.disturb(starts, raises=error, times=3)
    assert await set_up(short) == EARLIEST

    long = Stage()
    long.disturb(starts, raises=error)
    began_s = long.now_s
    with pytest.raises(type(error)) as caught:
        await set_up(long)

    assert caught.value is error
    assert DURATION_S / 2 < long.now_s - began_s < DURATION_S
    assert 4 <= len(long.network.calls) <= 10


@pytest.mark.parametrize("error", [StoreMisconfigured("no such table"), SourceMisconfigured("no such stream")])
async def test_calls_that_no_retry_helps_are_not_repeated(error: Exception) -> None:
    """A user with a typing error waits for nothing."""
    stage = Stage()
    stage.disturb(starts, raises=error)

    with pytest.raises((StoreMisconfigured, SourceError)) as caught:
        await set_up(stage)
    assert (caught.value, len(stage.network.calls)) == (error, 1)


@pytest.mark.parametrize(("latency_s", "smallest_s"), [(1.2, 11), (3.0, 27)])
async def test_store_that_is_too_slow_for_the_lease_duration_is_named(latency_s: float, smallest_s: int) -> None:
    """No lease could be kept on it; told with the duration that would do."""
    stage = Stage()
    stage.disturb(lambda call: call.operation == "read_group", before_s=latency_s - 0.01)
    await set_up(stage)

    assert stage.events == [
        StoreSlow(
            lease_duration_s=DURATION_S,
            call_timeout_s=DURATION_S / 6,
            latency_s=about(latency_s),
            smallest_duration_s=smallest_s,
        )
    ]


async def test_first_host_decides_how_the_group_is_balanced() -> None:
    """All hosts plan alike, or leases would move for ever."""
    stage = Stage()

    await set_up(stage, balance="load", weigh_by="seconds")
    await set_up(stage)

    item = group(stage)
    assert item is not None
    assert (item.plan_mode, item.weighed_by) == ("load", "seconds")
    assert [event for event in stage.events if isinstance(event, BalanceKept)] == []


async def test_host_that_was_told_another_balance_is_told_which_one_it_is() -> None:
    """The setting of a group that is there does nothing, which must not stay unseen."""
    stage = Stage()

    await set_up(stage)
    await set_up(stage, balance="load")

    item = group(stage)
    assert item is not None
    assert item.plan_mode == "count"
    assert [event for event in stage.events if isinstance(event, BalanceKept)] == [
        BalanceKept(balance="count by bytes", asked="load by bytes")
    ]


@pytest.mark.parametrize(
    "changes",
    [{"plan_mode": "moon"}, {"plan_mode": "load", "weighed_by": "moons"}, {"plan_mode": "load", "moves_max": 0}],
)
async def test_group_that_is_balanced_in_an_unknown_way_is_refused(changes: dict[str, Any]) -> None:
    """A version that plans otherwise than the rest moves leases for ever."""
    stage = Stage()
    await stage.store.submit(GROUP, SetUp(item=GroupItem(source=IDENTITY, start=EARLIEST, **changes)))

    with pytest.raises(StoreMisconfigured, match="planned in a way that this version does not know"):
        await set_up(stage)
