"""
`processor-host table` on the servers that are not moto: each lacks something else, and a table is made on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.tables import Table, refusal
from tests.servers.fixtures import dynalite_url as dynalite_url
from tests.servers.fixtures import ministack_url as ministack_url

__all__: list[str] = []

pytestmark = pytest.mark.servers

UNKNOWN = {
    "dynalite": {"point-in-time recovery", "deletion protection", "dynamodb:ConditionCheckItem"},
    "ministack": set(),
}
"""What each does not know."""


@pytest.fixture(params=sorted(UNKNOWN))
def server(request: pytest.FixtureRequest) -> str:
    """The name of a server."""
    name: str = request.param
    return name


@pytest.fixture
def table(server: str, request: pytest.FixtureRequest, aws_dummies: None) -> Iterator[Table]:
    """A table that nobody has made yet."""
    made = Table(request.getfixturevalue(f"{server}_url"))
    yield made
    made.server.close()


def test_table_is_made_checked_and_deleted_on_a_server_that_lacks_some_calls(server: str, table: Table) -> None:
    """Who tries the product at home has one of these."""
    made = table.run("create", "--no-deletion-protection", "--tag", "team=flights")
    told = table.checked("--no-deletion-protection")
    deleted = table.run("delete", "--yes")

    assert (made.exit_code, deleted.exit_code, table.described()) == (0, 0, None)
    assert {name for name, (_, verdict) in told.items() if verdict == "unknown"} == UNKNOWN[server]
    assert {verdict for _, verdict in told.values()} <= {"ok", "unknown"}


def test_delete_of_a_table_that_is_not_there_is_one_line(table: Table) -> None:
    """It may be gone already, or in another region."""
    status, (line,) = refusal(table.run("delete", "--yes"))

    assert status == 3
    assert line.startswith(f"table {table.name!r} is not there in ")
