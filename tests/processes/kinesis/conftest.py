"""What the cases on Kinesis have: the servers, and a group with a stream on each of those that serve one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.processes.kinesis.streams import StreamGroup, TableStreamGroup
from tests.servers.fixtures import kinesalite_url, kinesis_local_url, ministack_url, moto_url

__all__ = [
    "fast_group",
    "kinesalite_url",
    "kinesis_local_url",
    "ministack_url",
    "moto_url",
    "pushed_group",
    "stream_group",
    "table_group",
]


@contextmanager
def grouped(folder: Path, kinesis_url: str, dynamodb_url: str = "") -> Iterator[StreamGroup]:
    with start_blocking_portal() as portal:
        made = (
            TableStreamGroup(folder, portal, kinesis_url, dynamodb_url)
            if dynamodb_url
            else StreamGroup(folder, portal, kinesis_url)
        )
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def stream_group(tmp_path: Path, kinesis_local_url: str) -> Iterator[StreamGroup]:
    """A group without hosts, its stream on kinesis-local, which is right about resharding; leases in a file."""
    with grouped(tmp_path, kinesis_local_url) as made:
        yield made


@pytest.fixture
def table_group(tmp_path: Path, kinesis_local_url: str, moto_url: str) -> Iterator[StreamGroup]:
    """The same with its leases in DynamoDB, on moto."""
    with grouped(tmp_path, kinesis_local_url, moto_url) as made:
        yield made


@pytest.fixture
def fast_group(tmp_path: Path, kinesalite_url: str) -> Iterator[StreamGroup]:
    """A group with its stream on kinesalite, for volume with resharding; leases in a file."""
    with grouped(tmp_path, kinesalite_url) as made:
        yield made


@pytest.fixture
def pushed_group(tmp_path: Path, ministack_url: str) -> Iterator[StreamGroup]:
    """A group with stream and leases on ministack, which alone pushes records."""
    with grouped(tmp_path, ministack_url, ministack_url) as made:
        yield made
