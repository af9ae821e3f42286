"""What the cases on DynamoDB have: the servers, and a group behind a proxy on each of those that serve them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.processes.dynamodb.tables import TableGroup
from tests.proxy import Proxy
from tests.servers.fixtures import ministack_url, moto_url

__all__ = ["ministack_url", "moto_group", "moto_url", "table_group"]


@contextmanager
def grouped(folder: Path, server_url: str) -> Iterator[TableGroup]:
    with start_blocking_portal() as portal, Proxy(server_url) as proxy:
        made = TableGroup(folder, portal, proxy)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def table_group(tmp_path: Path, ministack_url: str) -> Iterator[TableGroup]:
    """A group without a stream and without hosts, its table on ministack, which is fast; marker `servers`."""
    with grouped(tmp_path, ministack_url) as made:
        yield made


@pytest.fixture
def moto_group(tmp_path: Path, moto_url: str) -> Iterator[TableGroup]:
    """The same on moto, which also has Kinesis and STS."""
    with grouped(tmp_path, moto_url) as made:
        yield made
