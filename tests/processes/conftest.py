"""What the tests with real processes have: a group whose hosts are gone when the test is over, on either store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.processes.dynamodb.tables import TableGroup, group_behind_proxy
from tests.processes.harness import Group
from tests.servers.fixtures import ministack_url

__all__ = ["any_group", "group", "ministack_url", "table_group"]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group without a stream and without hosts."""
    with start_blocking_portal() as portal:
        made = Group(tmp_path, portal)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def table_group(tmp_path: Path, ministack_url: str) -> Iterator[TableGroup]:
    """The same with its leases in a table on ministack, which is fast, behind a proxy; marker `servers`."""
    with group_behind_proxy(tmp_path, ministack_url) as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("dynamodb", marks=pytest.mark.servers)])
def any_group(request: pytest.FixtureRequest) -> Group:
    """The one and the other: the same play on each kind of store."""
    made: Group = request.getfixturevalue("group" if request.param == "sqlite" else "table_group")
    return made
