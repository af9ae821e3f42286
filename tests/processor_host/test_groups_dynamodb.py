"""
The group's own item in a table in DynamoDB: another stream and another version are refused, and groups keep apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from partitions.aws.places import AwsPlace
from partitions.clocks import BootClock
from partitions.errors import SourceMismatch, StoreMisconfigured
from partitions.events import Event
from partitions.items import SCHEMA_VERSION, GroupItem
from partitions.positions import EARLIEST
from partitions.sources.memory import MemorySource
from partitions.stores.dynamodb import DynamoDBStore
from partitions.verbs import Applied, Create, SaveCheckpoint, SetUp
from processor_host.events import GroupAdopted
from processor_host.groups import set_up_group
from processor_host.settings import HostSettings
from tests.builders import a_lease, a_register, an_acquire
from tests.servers.fixtures import aws_dummies as aws_dummies
from tests.servers.fixtures import moto_url as moto_url

__all__: list[str] = []


@pytest.fixture
async def store(moto_url: str, aws_dummies: None) -> AsyncIterator[DynamoDBStore]:
    """A new table."""
    place = AwsPlace(region="us-east-1", endpoint_url=moto_url)
    made = DynamoDBStore(f"groups-{uuid4().hex[:12]}", place=place, call_timeout_s=20.0, is_protected=False)
    await made.create()
    await made.open()
    yield made
    await made.close()


async def set_up(
    store: DynamoDBStore, group: str = "orders", *, stream: str = "memory", incarnation: int = 1, **settings: Any
) -> list[Event]:
    """Set a group up as a host does at its start, and return what it told."""
    events: list[Event] = []
    await set_up_group(
        store,
        MemorySource(lambda: 0.0, name=stream, incarnation=incarnation),
        group,
        settings=HostSettings(**settings),
        clock=BootClock(),
        random=Random(1),
        on_event=events.append,
    )
    return events


async def made_by(store: DynamoDBStore, item: GroupItem) -> None:
    """What another stream or version has left behind."""
    assert isinstance(await store.submit("orders", SetUp(item=item)), Applied)


@pytest.mark.parametrize(("stream", "incarnation"), [("memory", 2), ("trains", 1)], ids=["made anew", "another"])
async def test_stream_that_was_made_anew_and_another_one_are_refused(
    stream: str, incarnation: int, store: DynamoDBStore
) -> None:
    """Positions of the old one point nowhere in the new one, or worse, somewhere."""
    await set_up(store)
    old = await store.read_group("orders")

    with pytest.raises(SourceMismatch) as refused:
        await set_up(store, stream=stream, incarnation=incarnation)

    assert str(refused.value) == (
        f"group 'orders' belongs to the stream 'memory#1', but the source is '{stream}#{incarnation}'; use another "
        "--group, point --source at the group's own stream, or --adopt-stream if this one has the same records"
    )
    assert await store.read_group("orders") == old == GroupItem(source="memory#1", start=EARLIEST)


async def test_stream_is_adopted_where_the_user_says_so_and_the_start_stays(store: DynamoDBStore) -> None:
    """A stream that was restored has another identity and the same records; once is enough for all hosts."""
    await made_by(store, GroupItem(source="memory#0", start="17"))

    first = await set_up(store, adopt_stream=True)
    later = await set_up(store)

    assert await store.read_group("orders") == GroupItem(source="memory#1", start="17")
    assert [each for each in first if isinstance(each, GroupAdopted)] == [GroupAdopted(old="memory#0", new="memory#1")]
    assert later == []


async def test_group_of_a_newer_version_is_refused(store: DynamoDBStore) -> None:
    """Its items may mean what this version does not know."""
    await made_by(store, GroupItem(source="memory#1", start=EARLIEST, schema_version=SCHEMA_VERSION + 1))

    with pytest.raises(StoreMisconfigured) as refused:
        await set_up(store)

    assert str(refused.value) == (
        f"{store.url}: group 'orders' has items of version {SCHEMA_VERSION + 1}, expected {SCHEMA_VERSION}; "
        "run the version of processor-host that made them, or use another group"
    )


async def test_c54_two_groups_on_one_table_touch_no_item_of_each_other(store: DynamoDBStore) -> None:
    """
    Partition ids repeat across streams, and one group's name may begin with another's.

    Case C54, at the level of the items; the hosts of two groups are another test's.
    """
    for group, stream in (("orders", "memory"), ("orders-2", "trains")):
        await set_up(store, group, stream=stream)
        await store.submit(group, Create(partition="shard-0000", position=EARLIEST))
        await store.submit(group, a_register(f"{group}:11aa"))
    before = await everything(store, "orders-2")

    await store.submit("orders", an_acquire(a_lease("shard-0000"), "orders:11aa"))
    checkpoint = SaveCheckpoint(partition="shard-0000", owner="orders:11aa", token=1, position="9", seq=1)
    saved = await store.submit("orders", checkpoint)
    other = await store.submit("orders-2", checkpoint)

    assert isinstance(saved, Applied)
    assert not isinstance(other, Applied)
    assert await everything(store, "orders-2") == before
    assert [each.session_id for each in await store.read_sessions("orders", consistent=True)] == ["orders:11aa"]
    assert [each.position for each in await store.read_leases("orders")] == ["9"]


async def everything(store: DynamoDBStore, group: str) -> tuple[object, ...]:
    return (
        await store.read_group(group),
        await store.read_leases(group),
        await store.read_sessions(group, consistent=True),
    )
