"""The source through the SDK and a socket, on a scripted server: credentials, and what only the protocol can show."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import aioboto3  # type: ignore[import-untyped]
import pytest
from aiobotocore.credentials import AioRefreshableCredentials  # type: ignore[import-untyped]

from partitions.aws.places import AwsPlace
from partitions.errors import SourceMisconfigured, SourceUnavailable
from partitions.positions import EARLIEST, at_time
from partitions.sources.base import Fetched, Reader
from partitions.sources.kinesis import KinesisPlace, KinesisSource
from tests.sources.kinesis.scripted import Refused, Scripted, served
from tests.sources.kinesis.stages import SHARD

__all__: list[str] = []

LIFE_S = 60.0


class Provider:
    """Credentials that live for 60 s, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        self.refreshes = 0
        self.ends: dict[str, datetime] = {}
        self.fails = 0
        self.has_stopped = False

    async def refresh(self) -> Mapping[str, str]:
        if self.fails or self.has_stopped:
            self.fails -= 1
            raise RuntimeError("the provider did not answer")
        self.refreshes += 1
        self.ends[f"KEY{self.refreshes}"] = self.now + timedelta(seconds=LIFE_S)
        return {
            "access_key": f"KEY{self.refreshes}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": (self.now + timedelta(seconds=LIFE_S)).isoformat(),
        }

    def check(self, key: str) -> None:
        """Refuse a call that was signed with credentials after their end."""
        if self.now >= self.ends[key]:
            raise Refused("ExpiredTokenException", "The security token included in the request is expired")

    async def session(self) -> Any:
        session = aioboto3.Session()
        session._session._credentials = AioRefreshableCredentials.create_from_metadata(
            metadata=await self.refresh(),
            refresh_using=self.refresh,
            method="a test",
            # Refreshed in the last quarter of their life.
            advisory_timeout=int(LIFE_S / 4),
            mandatory_timeout=int(LIFE_S / 8),
        )
        session._session._credentials._time_fetcher = lambda: self.now
        return session


@pytest.fixture
def kinesis() -> Scripted:
    made = Scripted(time.time, created_s=0.0)
    made.make(1)
    return made


@asynccontextmanager
async def opened(url: str, provider: Provider) -> AsyncIterator[KinesisSource]:
    place = KinesisPlace(streams=("orders",), aws=AwsPlace(region="eu-west-1", endpoint_url=url), idle_read_s=0.2)
    source = KinesisSource(place, session=await provider.session(), random=Random(1))
    try:
        await source.open()
        yield source
    finally:
        await source.close()


async def read(reader: Reader) -> Fetched:
    return await reader.read(records_max=100, bytes_max=1 << 20, wait_s=0.5)


async def test_c38_refreshed_credentials_are_used_and_a_failed_refresh_is_tried_again(kinesis: Scripted) -> None:
    """The source's half: nobody copies credentials, one failure passes, and the end of them is told by its name."""
    provider = Provider()
    data = []
    async with served(kinesis, provider.check) as url, opened(url, provider) as source:
        reader = source.reader(SHARD, EARLIEST)
        # Ten minutes in steps of half a minute.
        for step in range(20):
            kinesis.put(SHARD, f"{step}".encode())
            if step == 8:
                provider.fails = 1
                with pytest.raises(SourceMisconfigured, match=r"credentials .* could not be refreshed"):
                    await read(reader)
            data += [record.data for record in (await read(reader)).records]
            provider.now += timedelta(seconds=LIFE_S / 2)
        provider.has_stopped = True
        provider.now += timedelta(seconds=LIFE_S)
        with pytest.raises(SourceMisconfigured, match="credentials have expired"):
            await read(reader)

    assert data == [f"{step}".encode() for step in range(20)]
    assert provider.refreshes >= 8


@pytest.mark.parametrize("end", ["null", "absent"])
async def test_end_of_a_shard_is_seen_as_it_is_written_on_the_wire(kinesis: Scripted, end: str) -> None:
    """A null in JSON and a field that is left out are the same to the SDK, and to this source."""
    kinesis.end = end
    kinesis.put(SHARD, b"\x00\xff last")
    kinesis.split(SHARD)
    async with served(kinesis) as url, opened(url, Provider()) as source:
        fetched = await read(source.reader(SHARD, EARLIEST))

    assert ([record.data for record in fetched.records], fetched.ended) == ([b"\x00\xff last"], True)


async def test_time_of_a_start_crosses_the_network_to_the_millisecond(kinesis: Scripted) -> None:
    """A start that is rounded up passes over records; what it is rounded down by is passed over here."""
    kinesis.put(SHARD, b"before")
    at_s = round(kinesis.shards[SHARD].entries[0].time_s + 0.002, 3)
    kinesis.now_s = lambda: at_s
    kinesis.put(SHARD, b"after")
    kinesis.now_s = lambda: at_s + 2
    async with served(kinesis) as url, opened(url, Provider()) as source:
        fetched = await read(source.reader(SHARD, at_time(at_s)))

    assert [record.data for record in fetched.records] == [b"after"]


async def test_read_of_a_server_that_is_gone_is_a_passing_fault(kinesis: Scripted) -> None:
    """Servers come back; a reader that took it for the end would lose the rest."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(kinesis))
        async with opened(url, Provider()) as source:
            reader = source.reader(SHARD, EARLIEST)
            await read(reader)
            await stack.aclose()
            with pytest.raises(SourceUnavailable, match="kinesis:GetRecords on stream 'orders' in eu-west-1"):
                await read(reader)
