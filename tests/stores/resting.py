"""
A group at rest on a DynamoDB server: hosts that share idle partitions, and what they cost once nothing happens.

All hosts run in one process, each with a store and connections of its own; the proxy between them and the server counts
their calls. It decides nothing: a test and `tests.stores.bench_dynamodb` hold the figures against the bounds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import aioboto3  # type: ignore[import-untyped]  # It has no types.
import anyio

from partitions.aws.places import AwsPlace
from partitions.events import Event, SessionEnded
from partitions.sources.memory import MemorySource
from partitions.stores.dynamodb import DynamoDBStore
from processor_host import Batch, HostSettings, ProcessorHost
from processor_host.events import PlanRound
from tests.proxy import Call, Capacity, Proxy

__all__ = ["DURATION_S", "HOSTS", "READS_PER_S_MAX", "WRITES_PER_S_MAX", "Part", "Rest", "Scale", "measure"]

DURATION_S = 10.0
"""The lease duration for which the bounds hold, seconds; they grow as it shrinks."""
HOSTS = 10
WRITES_PER_S_MAX = 3.5
"""Of 10 hosts together. They beat three times per duration, whatever they hold."""
READS_PER_S_MAX = 5.0
"""Of 10 hosts together: as many looks at the sessions, and the audits: nine queries per host and minute."""

AUDITS_PER_DURATION = 1 / 6
"""As with the default settings, also where the durations are shorter."""
WINDOW_DURATIONS = 12
"""Two audits of each host; 120 s at the default duration."""
QUIET_DURATIONS = 2
"""Nothing but beats, looks and audits for so long: the group is at rest."""

AT_REST = frozenset({"UpdateItem", "Query"})
"""Beats, looks and audits. An acquire is an update too, and is told by its round."""

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the group is and how fast its time goes."""

    partitions: int
    duration_s: float = DURATION_S
    start_s_max: float = 300.0
    """A start that takes longer fails."""

    @property
    def writes_per_s_max(self) -> float:
        return WRITES_PER_S_MAX * DURATION_S / self.duration_s

    @property
    def reads_per_s_max(self) -> float:
        return READS_PER_S_MAX * DURATION_S / self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What was called in one part of the run."""

    took_s: float
    calls: Mapping[str, int]
    """By operation, queries also by what they read."""
    capacity: Capacity

    @property
    def writes(self) -> int:
        return sum(count for name, count in self.calls.items() if name in WRITES)

    @property
    def reads(self) -> int:
        """Everything that is no write."""
        return sum(self.calls.values()) - self.writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """One run."""

    owned_s: float
    """When every partition was held, in even shares, seconds after the hosts were started."""
    settled_s: float
    """When the last step or the last read that no audit made was done."""
    start: Part
    """From the start until the group was seen to be at rest."""
    rest: Part
    events: tuple[Event, ...]
    """Of the rest: rounds that read or did something, and sessions that ended."""


async def measure(proxy: Proxy, table: str, scale: Scale) -> Rest:
    """
    Start the hosts on a new table, wait until the group is at rest, and count for `WINDOW_DURATIONS`.

    Args:
        proxy: In front of the server, and asking for consumed capacity.
        table: The name of a table that is not there; it is left behind.
        scale: The size of the group.

    Raises:
        TimeoutError: the group did not come to rest within `scale.start_s_max`.
    """
    # One for all stores, because each would read the model of the service again.
    session = aioboto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    source = MemorySource(time.monotonic, partitions=scale.partitions)
    told: list[tuple[float, Event]] = []
    settings = [
        HostSettings(
            host_id=f"host-{n}",
            lease_duration_s=scale.duration_s,
            audit_interval_s=scale.duration_s / AUDITS_PER_DURATION,
        )
        for n in range(HOSTS)
    ]

    def store_of(its: HostSettings) -> DynamoDBStore:
        place = AwsPlace(region="us-east-1", endpoint_url=proxy.url)
        return DynamoDBStore(
            table, place=place, session=session, call_timeout_s=its.timings().call_timeout_s, is_protected=False
        )

    def note(event: Event) -> None:
        if isinstance(event, PlanRound | SessionEnded):
            told.append((time.monotonic(), event))

    async def handle(batch: Batch) -> None:
        raise AssertionError(f"{batch!r} of an idle partition")

    await store_of(settings[0]).create()
    proxy.forget()
    hosts = [
        ProcessorHost(group="idle", source=source, store=store_of(its), processor=handle, settings=its, on_event=note)
        for its in settings
    ]
    async with anyio.create_task_group() as tasks:
        began_s = time.monotonic()
        for host in hosts:
            tasks.start_soon(host.run, name=f"host {host.host_id}")
        with anyio.fail_after(scale.start_s_max):
            while not is_shared(hosts, scale.partitions):
                await anyio.sleep(scale.duration_s / 100)
            owned_s = time.monotonic() - began_s
            while time.monotonic() - last_news_s(told, proxy, began_s) < QUIET_DURATIONS * scale.duration_s:
                await anyio.sleep(scale.duration_s / 10)
        settled_s = last_news_s(told, proxy, began_s) - began_s
        start = part_of(proxy, began_s)
        proxy.forget()
        from_s = time.monotonic()
        await anyio.sleep(WINDOW_DURATIONS * scale.duration_s)
        rest = part_of(proxy, from_s)
        for host in hosts:
            host.cancel()
    events = tuple(event for at_s, event in told if from_s <= at_s < from_s + rest.took_s)
    return Rest(owned_s=owned_s, settled_s=settled_s, start=start, rest=rest, events=events)


def part_of(proxy: Proxy, from_s: float) -> Part:
    """What the proxy has counted since."""
    calls = Counter(kind_of(call) for call in proxy.calls)
    return Part(took_s=time.monotonic() - from_s, calls=calls, capacity=proxy.capacity)


def kind_of(call: Call) -> str:
    """The operation; for a query also what it reads, which its key tells."""
    if call.operation != "Query":
        return call.operation
    pk = call.body["ExpressionAttributeValues"][":pk"]["S"]
    return f"Query of {'sessions' if pk.endswith('#hosts') else 'leases'}"


def is_shared(hosts: Iterable[ProcessorHost], partitions: int) -> bool:
    """Say whether the hosts hold all partitions, in even shares."""
    held = [0 if host.session is None else len(host.session.held) for host in hosts]
    return sum(held) == partitions and max(held) - min(held) <= 1


def last_news_s(told: Iterable[tuple[float, Event]], proxy: Proxy, began_s: float) -> float:
    """When something was last told, or called, that does not belong to a group at rest."""
    news_s = [at_s for at_s, event in told if is_news(event)]
    return max(*news_s, *(call.at_s for call in proxy.calls if call.operation not in AT_REST), began_s)


def is_news(event: Event) -> bool:
    return not isinstance(event, PlanRound) or event.full_read != "audit" or event.acquired > 0 or event.asked > 0
