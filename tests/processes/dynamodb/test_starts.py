"""
Case C36, the half of the source: a stream that may not be read ends a start with one line.

The half of the store is in `tests.processes.test_c36_dynamodb`.
"""

from __future__ import annotations

from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # It has no types.
import pytest

from tests.processes.dynamodb.tables import REGION, TableGroup
from tests.processes.test_c36_dynamodb import EXIT_S_MAX, last_words
from tests.proxy import Effect, Fault
from tests.servers import DUMMY_CREDENTIALS

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]


@pytest.fixture
def stream(moto_url: str) -> str:
    """A stream of two shards that somebody else has made."""
    name = f"stream-{uuid4().hex[:12]}"
    server = boto3.client(
        "kinesis",
        endpoint_url=moto_url,
        region_name=REGION,
        aws_access_key_id=DUMMY_CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=DUMMY_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    server.create_stream(StreamName=name, ShardCount=2)
    server.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    server.close()
    return name


@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"])
def test_c36_host_that_may_not_read_its_stream_ends_and_names_action_stream_and_region(
    operation: str, moto_group: TableGroup, stream: str
) -> None:
    """A host that holds leases and reads nothing would keep its partitions from everybody who could."""
    source = f"kinesis://{stream}?region={REGION}&endpoint_url={moto_group.proxy.url}"
    with moto_group.proxy.rules.applied(Fault(effect=Effect.DENY, operation=operation)):
        host = moto_group.start("a", "--source", source)
        status = host.wait(EXIT_S_MAX)

    words = last_words(host)
    assert status == 3
    assert words.startswith("processor-host: ")
    assert f"kinesis:{operation} on stream {stream!r} in {REGION} failed (AccessDenied" in words
    assert words.endswith("allow this action on this resource to the identity in use, or use another identity")
