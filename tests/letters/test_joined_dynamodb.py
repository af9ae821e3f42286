"""
Letters and leases in DynamoDB: one transaction, whatever a host dies between. Real hosts on moto, on real time.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import anyio
import anyio.abc
import pytest

from partitions.aws.places import AwsPlace
from partitions.events import CheckpointSaved, Event, OnEvent
from partitions.sources.memory import MemorySource
from partitions.stores.dynamodb import DynamoDBStore
from partitions.transactions import Commit
from processor_host import DeadLetter, HostSettings, ProcessorHost, Record
from processor_host.events import LetterWritten
from processor_host.letters.dynamodb import DynamoLetters

__all__: list[str] = []

REGION = "eu-west-1"
GROUP = "g"
WITHIN_S = 40.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def table(moto_url: str, aws_dummies: None) -> tuple[str, AwsPlace]:
    """A lease table of its own."""
    name = f"t{uuid4().hex}"
    place = AwsPlace(region=REGION, endpoint_url=moto_url)
    store = DynamoDBStore(name, place=place)
    await store.create()
    await store.close()
    return name, place


class Dying:
    """A store whose host dies with its first commit: before the service has it, or before the answer is back."""

    def __init__(self, store: DynamoDBStore, *, after: bool) -> None:
        self._store = store
        self._after = after
        self.struck = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def transactions(self) -> Any:
        return _DyingTransactions(self._store.transactions, self._after, self.struck)


class _DyingTransactions:
    def __init__(self, transactions: Any, after: bool, struck: anyio.Event) -> None:
        self._transactions = transactions
        self._after = after
        self._struck = struck

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transactions, name)

    async def commit(self, group: str, commit: Commit) -> Any:
        if self._after:
            await self._transactions.commit(group, commit)
        self._struck.set()
        await anyio.sleep_forever()


async def bad_second(record: Record) -> None:
    """Fail at the second record, on every host."""
    if record.position == "2":
        raise ValueError("bad record")


def host_of(
    name: str, store: Any, source: MemorySource, sink: DynamoLetters, on_event: OnEvent | None
) -> ProcessorHost:
    return ProcessorHost(
        group=GROUP,
        source=source,
        store=store,
        processor=bad_second,
        settings=HostSettings(host_id=name, lease_duration_s=2.0, restart_pause_s=0.05),
        on_failure=DeadLetter(sink, attempts=2),
        on_event=on_event,
    )


@pytest.mark.parametrize("after", [False, True])
async def test_letter_of_a_host_that_dies_with_it_is_neither_lost_nor_doubled(
    table: tuple[str, AwsPlace], after: bool
) -> None:
    """The next host writes it, or goes on behind the record; there is nothing in between."""
    name, place = table
    source = MemorySource(anyio.current_time)
    for _ in range(3):
        source.put("p0", b"x")
    dying = Dying(DynamoDBStore(name, place=place), after=after)
    events: list[Event] = []
    stored = anyio.Event()

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, CheckpointSaved) and event.position == "3":
            stored.set()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host_of("a", dying, source, DynamoLetters(name, place), None).run)
            await dying.struck.wait()
            # No time for a release: a task that is cancelled stops where it is.
            tasks.cancel_scope.cancel()
        box = DynamoLetters(name, place)
        await box.open()
        looker = DynamoDBStore(name, place=place)
        await looker.open()
        between = {letter.position for letter in (await box.read(group=GROUP)).letters}, await position(looker) == "2"
        second = host_of("b", DynamoDBStore(name, place=place), source, DynamoLetters(name, place), on_event)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.run)
            await stored.wait()
            tasks.cancel_scope.cancel()
        kept = (await box.read(group=GROUP)).letters
        await looker.close()
        await box.close()

    assert between == (({"2"}, True) if after else (set(), False))
    assert [(letter.position, letter.host_id) for letter in kept] == [("2", "a" if after else "b")]
    written = [event.with_checkpoint for event in events if isinstance(event, LetterWritten)]
    assert written == ([] if after else [True])


async def position(store: DynamoDBStore) -> str:
    """Return the stored checkpoint."""
    lease = await store.read_lease(GROUP, "p0")
    assert lease is not None
    return lease.position


@pytest.mark.parametrize(
    ("place", "joins"),
    [
        (AwsPlace(region=REGION), True),
        (AwsPlace(region="eu-west-2"), False),
        (AwsPlace(region=REGION, endpoint_url="http://127.0.0.1:1"), False),
    ],
)
async def test_letters_join_leases_in_the_same_place_alone(place: AwsPlace, joins: bool) -> None:
    """A transaction spans tables, not regions."""
    store = DynamoDBStore("leases", place=AwsPlace(region=REGION))

    assert DynamoLetters("letters", place).joins(store.transactions.begin()) is joins
    assert DynamoLetters("letters", place).joins(object()) is False
