"""
The clients of a store on a real server: made once, closed once, with credentials that refresh themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aioboto3  # type: ignore[import-untyped]  # It has no types.
import anyio
import anyio.lowlevel
import pytest
from aiobotocore.credentials import AioRefreshableCredentials  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.places import AwsPlace
from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.stores.dynamodb import DynamoDBStore
from partitions.verbs import Applied
from tests.builders import a_beat, a_register, a_session
from tests.stores.kinds import dynamodb_at

__all__: list[str] = []

SETTINGS = ClientSettings(timeout_s=1.5, connections_max=7)


def dummy_session() -> aioboto3.Session:
    return aioboto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


class Provider:
    """Credentials that have always run out, so that each request asks for new ones; `failures` refreshes fail first."""

    def __init__(self) -> None:
        self.asked = 0
        self.failures = 0

    async def __call__(self) -> dict[str, str]:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise KeyError("the file with the token is half written")
        # Within the ten minutes in which a refresh is mandatory, and yet not over.
        until = datetime.now(UTC) + timedelta(minutes=5)
        return {"access_key": "k", "secret_key": "s", "token": "t", "expiry_time": until.isoformat()}

    async def session(self) -> aioboto3.Session:
        core = AioSession()
        core._credentials = AioRefreshableCredentials.create_from_metadata(
            metadata=await self(), refresh_using=self, method="test"
        )
        return aioboto3.Session(botocore_session=core, region_name="us-east-1")


class Slow(AioSession):  # type: ignore[misc]  # It has no types.
    """Finds its credentials after a moment, as on a machine that asks a service for them."""

    async def get_credentials(self) -> Any:
        await anyio.lowlevel.checkpoint()
        return await super().get_credentials()


async def test_client_of_one_name_is_made_once_however_many_ask_at_once() -> None:
    """A client per call reads the service's model each time, and leaves connections behind (case C40)."""
    core = Slow()
    core.set_credentials("test", "test")
    session = aioboto3.Session(botocore_session=core, region_name="us-east-1")
    clients = AwsClients(AwsPlace(), session=session)
    found: list[Any] = []

    async def ask(name: str) -> None:
        found.append(await clients.client(name, "dynamodb", SETTINGS))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, ("one", "other")[number % 2])

    assert len({id(client) for client in found}) == 2
    assert len(found) == 20
    await clients.close()


async def test_client_has_its_own_settings_and_no_hidden_retries() -> None:
    """The SDK's defaults are a minute, ten attempts and ten connections."""
    clients = AwsClients(AwsPlace(region="eu-west-1", endpoint_url="http://127.0.0.1:9"), session=dummy_session())

    client = await clients.client("one", "dynamodb", SETTINGS)

    config = client.meta.config
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (1.5, 1.5, 7)
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}
    assert (client.meta.region_name, client.meta.endpoint_url) == ("eu-west-1", "http://127.0.0.1:9")
    assert clients.region == "eu-west-1"
    await clients.close()


async def test_clients_that_were_closed_make_no_more_and_close_again() -> None:
    """One that was made afterwards would be closed by nobody."""
    clients = AwsClients(AwsPlace(region="us-east-1"), session=dummy_session())
    await clients.client("one", "dynamodb", SETTINGS)
    await clients.close()
    await clients.close()

    with pytest.raises(RuntimeError, match="after close"):
        await clients.client("other", "dynamodb", SETTINGS)


async def test_clients_that_were_passed_in_stay_open(moto_url: str) -> None:
    """They are the caller's, who may use them for something else."""
    store = dynamodb_at(moto_url, "clients-given")
    await store.create()
    session = dummy_session()
    async with session.client("dynamodb", endpoint_url=moto_url) as client:
        given = dict.fromkeys(("beats", "writes", "reads"), client)
        user = DynamoDBStore("clients-given", clients=given)
        await user.open()
        await user.submit("g", a_register())
        await user.close()

        assert await client.list_tables() != {}


async def test_refresh_that_fails_once_is_tried_again_by_the_next_call(moto_url: str) -> None:
    """Case C38: credentials are asked for each request and never copied, and a failure is told as what it is."""
    provider = Provider()
    session = await provider.session()
    store = DynamoDBStore("clients-refresh", place=AwsPlace(endpoint_url=moto_url), session=session)
    await store.create()
    await store.open()
    await store.submit("g", a_register())
    before = provider.asked

    provider.failures = 1
    with pytest.raises(StoreMisconfigured, match=r"UpdateItem .*half written.*the credentials have expired"):
        await store.submit("g", a_beat())
    assert await store.submit("g", a_beat()) == Applied(item=a_session(beat=1))

    assert provider.asked > before + 1
    await store.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.003, 0.01, 0.03])
async def test_call_that_is_cancelled_leaves_nothing_behind(moto_url: str, after_s: float) -> None:
    """Every time-out of a caller is a cancellation: no open connection, and the next call works."""
    store = dynamodb_at(moto_url, "clients-cancelled")
    await store.create()
    await store.open()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.submit("g", a_beat()),
        lambda: store.read_leases("g"),
        lambda: store.read_sessions("g", consistent=True),
        store.exists,
    ]
    for call in calls:
        with anyio.move_on_after(after_s):
            await call()
    await store.submit("g", a_register())

    assert await store.read_sessions("g", consistent=True) == (a_session(),)
    await store.delete()
    gc.collect()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.05, 0.1])
async def test_open_that_is_cancelled_leaves_nothing_behind(moto_url: str, after_s: float) -> None:
    """A host that is stopped while it starts."""
    store = dynamodb_at(moto_url, "clients-opening")
    await store.create()

    with anyio.move_on_after(after_s):
        await store.open()
    await store.close()
    gc.collect()

    await store.open()
    assert await store.read_leases("g") == ()
    await store.close()


async def test_reads_that_wait_for_a_connection_when_the_store_is_closed_tell_so(moto_url: str) -> None:
    """The SDK cancels whoever waits: such a read would end without a word, and its leases would be missing."""
    store = dynamodb_at(moto_url, "leases-closed-meanwhile")
    await store.create()
    await store.open()
    told: list[str] = []

    async def read() -> None:
        try:
            await store.read_leases("g")
        except StoreUnavailable as error:
            told.append(str(error))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(read)
        # They have asked for 32 connections of 16.
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await store.close()

    named = "dynamodb:Query on table 'leases-closed-meanwhile' in us-east-1"
    assert told == [f"{named}: the store was closed meanwhile; open it again"] * 4
