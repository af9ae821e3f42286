"""
Case C36, the half of the store: a missing permission or a wrong region ends a start with one line, and a right that no
host needs is not asked for.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # It has no types.
import pytest

from partitions.stores.dynamodb.tables import create_request
from tests.processes.harness import Group, Host
from tests.proxy import Effect, Fault, Proxy
from tests.servers import DUMMY_CREDENTIALS
from tests.servers.fixtures import moto_url as moto_url

__all__: list[str] = []

pytestmark = pytest.mark.processes

REGION = "eu-west-1"
EXIT_S_MAX = 15.0
"""The case's bound, in seconds: it does not scale."""


@pytest.fixture
def proxy(moto_url: str) -> Iterator[Proxy]:
    """What stands between the host and DynamoDB."""
    with Proxy(moto_url) as made:
        yield made


@pytest.fixture
def table(moto_url: str) -> str:
    """A table that somebody else has made."""
    name = f"leases-{uuid4().hex[:12]}"
    server = boto3.client(
        "dynamodb",
        endpoint_url=moto_url,
        region_name=REGION,
        aws_access_key_id=DUMMY_CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=DUMMY_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    server.create_table(**create_request(name, is_protected=False))
    server.close()
    return name


def started(group: Group, proxy: Proxy, table: str, *, region: str = REGION, lease_duration_s: float = 3.0) -> Host:
    if not group.records:
        group.create(4)
    store = f"dynamodb://{table}?region={region}&endpoint_url={proxy.url}"
    return group.start("a", "--store", store, env=DUMMY_CREDENTIALS, lease_duration_s=lease_duration_s)


def last_words(host: Host) -> str:
    """
    The one message that tells why a host has ended: a line for people, or an event of its log.

    Fails where there are several.
    """
    told = []
    for line in host.text().splitlines():
        if line.startswith("processor-host: "):
            told.append(line)
        elif json.loads(line)["level"] == "error":
            told.append(json.loads(line)["error"])
    assert len(told) == 1, host.text()
    return told[0]


@pytest.mark.parametrize(
    "operation", ["DescribeTable", "GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"]
)
def test_c36_host_that_may_not_call_an_operation_ends_and_names_it_with_table_and_region(
    operation: str, group: Group, proxy: Proxy, table: str
) -> None:
    """Retried like a network fault, a missing right looks like a host that is about to start, for ever."""
    with proxy.rules.applied(Fault(effect=Effect.DENY, operation=operation)):
        host = started(group, proxy, table)
        status = host.wait(EXIT_S_MAX)

    words = last_words(host)
    assert status == 3
    assert words.startswith(f"processor-host: dynamodb:{operation} on table {table!r} in {REGION} failed (AccessDenied")
    assert words.endswith("allow this action on this resource to the identity in use, or use another identity")


def test_c36_host_of_a_group_that_is_there_ends_as_soon_when_it_may_not_beat(
    group: Group, proxy: Proxy, table: str
) -> None:
    """A group that is set up needs no write before the first beat, which a long lease duration puts off."""
    first = started(group, proxy, table)
    group.wait_until("the first host is ready", lambda: first.named("host.ready"), 20.0)
    first.terminate()
    assert first.wait(EXIT_S_MAX) == 0

    with proxy.rules.applied(Fault(effect=Effect.DENY, operation="UpdateItem")):
        host = started(group, proxy, table, lease_duration_s=120.0)
        status = host.wait(EXIT_S_MAX)

    assert (status, "dynamodb:UpdateItem" in last_words(host)) == (3, True)


def test_c36_host_of_a_table_in_another_region_ends_and_says_how_to_make_one(
    group: Group, proxy: Proxy, table: str
) -> None:
    """Made silently, a second table would let all work begin anew."""
    host = started(group, proxy, table, region="us-west-2")

    assert host.wait(EXIT_S_MAX) == 3
    assert last_words(host) == (
        f"processor-host: dynamodb:DescribeTable on table {table!r} in us-west-2: there is no such table; check its "
        "name, the region and the account, or make it with 'processor-host table create'"
    )
    assert proxy.count("CreateTable") == 0


def test_c36_host_that_may_not_create_tables_runs_on_one_that_is_there(group: Group, proxy: Proxy, table: str) -> None:
    """Whoever made the table is seldom who runs the hosts."""
    with proxy.rules.applied(Fault(effect=Effect.DENY, operation=("CreateTable", "UpdateTable", "ListTables"))):
        host = started(group, proxy, table)
        group.wait_until("the host is ready", lambda: host.named("host.ready"), 20.0)
        group.put(5)
        group.wait_until("every record is handled", lambda: len(group.intervals()) >= 20, 20.0)
        host.send(signal.SIGTERM)
        status = host.wait(EXIT_S_MAX)

    assert (status, proxy.count("CreateTable", "UpdateTable", "ListTables")) == (0, 0)
