"""What the cases on DynamoDB have: the servers, and a group behind a proxy on each of those that serve them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.dynamodb.tables import TableGroup, group_behind_proxy
from tests.servers.fixtures import moto_url

__all__ = ["moto_group", "moto_url"]


@pytest.fixture
def moto_group(tmp_path: Path, moto_url: str) -> Iterator[TableGroup]:
    """As `table_group`, on moto, which also has Kinesis and STS."""
    with group_behind_proxy(tmp_path, moto_url) as made:
        yield made
