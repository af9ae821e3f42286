"""
`processor-host table` and `status` where a call is denied, unknown to the server, or slow, and on a table in use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from partitions.verbs import Create, SetUp
from processor_host.cli import main
from processor_host.cli.table_calls import TableCalls, tries_of
from processor_host.urls import parse_table_url
from tests.builders import a_group, a_lease, a_register, an_acquire
from tests.cli.tables import REGION, Table, opened, refusal
from tests.proxy import Effect, Fault, Proxy

__all__: list[str] = []

UNKNOWN: dict[str, Any] = {"effect": Effect.REFUSE, "code": "UnknownOperationException"}
"""How a server answers an operation that it does not have."""

ALLOW = "allow this action on this resource to the identity in use, or use another identity"


@pytest.fixture
def proxy(moto_url: str, aws_dummies: None) -> Iterator[Proxy]:
    """What stands between the command and DynamoDB."""
    with Proxy(moto_url) as made:
        yield made


@pytest.fixture
def table(proxy: Proxy) -> Iterator[Table]:
    """A table that nobody has made yet."""
    made = Table(proxy.url)
    yield made
    made.server.close()


@pytest.mark.parametrize("operation", [each.operation for each in tries_of("t", "g")])
def test_check_finds_each_call_of_a_host_that_is_denied(operation: str, table: Table, proxy: Proxy) -> None:
    """Found here, it costs one look; found by a host, the restart of each."""
    table.run("create")
    name = operation.title().replace("_", "")

    with proxy.rules.applied(Fault(effect=Effect.DENY, operation=name)):
        result = table.run("check")
        told = table.checked()

    action = f"dynamodb:{'ConditionCheckItem' if name == 'TransactWriteItems' else name}"
    assert {each: found for each, (found, verdict) in told.items() if verdict != "ok"} == {action: "denied"}
    assert refusal(result) == (
        3,
        [
            f"table {table.name!r} in {REGION}: {action} is denied, expected allowed; "
            "print what is needed with 'processor-host iam-policy'"
        ],
    )


@pytest.mark.parametrize(
    ("command", "operation"),
    [
        ("create", "DescribeTable"),
        ("create", "CreateTable"),
        ("check", "DescribeTable"),
        ("check", "DescribeContinuousBackups"),
    ],
)
def test_call_that_is_denied_is_one_line_with_action_table_and_region(
    command: str, operation: str, table: Table, proxy: Proxy
) -> None:
    """Whoever can allow it needs all three."""
    if command == "check":
        table.run("create")
    with proxy.rules.applied(Fault(effect=Effect.DENY, operation=operation)):
        status, (line,) = refusal(table.run(command))

    assert status == 3
    assert line.startswith(f"dynamodb:{operation} on table {table.name!r} in {REGION} failed (AccessDeniedException")
    assert line.endswith(ALLOW)


def test_create_says_that_the_table_is_made_where_only_its_recovery_is_denied(table: Table, proxy: Proxy) -> None:
    """Else it would be run again and find nothing amiss with a table that cannot be restored."""
    with proxy.rules.applied(Fault(effect=Effect.DENY, operation="UpdateContinuousBackups")):
        status, (line,) = refusal(table.run("create"))

    assert status == 3
    assert line.startswith(f"table {table.name!r} is made, but without point-in-time recovery: dynamodb:Update")
    assert table.described() is not None


def test_create_may_be_denied_where_the_table_is_there(table: Table, proxy: Proxy) -> None:
    """It is run in a deployment whose identity has no right to make tables."""
    table.run("create")
    proxy.forget()

    with proxy.rules.applied(Fault(effect=Effect.DENY, operation="CreateTable")):
        result = table.run("create")

    assert (result.exit_code, proxy.count("CreateTable")) == (0, 0)


def test_create_and_check_tell_what_a_server_does_not_know_and_go_on(table: Table, proxy: Proxy) -> None:
    """Local servers lack some calls; a table on one is made all the same."""
    unknown = [
        Fault(operation=operation, **UNKNOWN)
        for operation in ("UpdateContinuousBackups", "DescribeContinuousBackups", "TransactWriteItems")
    ]
    with proxy.rules.applied(*unknown):
        made = table.run("create")
        checked = table.run("check")
        told = table.checked()

    assert (made.exit_code, checked.exit_code) == (0, 0)
    assert "point-in-time recovery not known to this server" in made.stdout
    assert {name: found for name, (found, verdict) in told.items() if verdict == "unknown"} == {
        "point-in-time recovery": "not known to this server",
        "dynamodb:ConditionCheckItem": "not known to this server",
    }


def test_create_turns_recovery_on_again_where_the_table_is_too_new_for_it(table: Table, proxy: Proxy) -> None:
    """DynamoDB answers so in the first moments of a table."""
    early = Fault(
        effect=Effect.REFUSE,
        operation="UpdateContinuousBackups",
        code="ContinuousBackupsUnavailableException",
        times=1,
    )
    with proxy.rules.applied(early):
        made = table.run("create")

    assert (made.exit_code, proxy.rules.hits(early)) == (0, 1)
    assert table.checked("--no-permissions")["point-in-time recovery"] == ("on", "ok")


@pytest.mark.parametrize(
    ("operation", "effect"),
    [
        ("CreateTable", Effect.FAIL_BEFORE),
        ("CreateTable", Effect.FAIL_AFTER),
        ("CreateTable", Effect.DROP_AFTER),
        ("CreateTable", Effect.THROTTLE),
        ("UpdateContinuousBackups", Effect.FAIL_AFTER),
        ("UpdateContinuousBackups", Effect.THROTTLE),
        ("DescribeTable", Effect.FAIL_BEFORE),
        ("DescribeTable", Effect.THROTTLE),
    ],
)
def test_create_finishes_the_table_over_a_call_that_fails_for_now(
    operation: str, effect: Effect, table: Table, proxy: Proxy
) -> None:
    """Ended by one lost answer, it would leave a table without recovery, which no second `create` changes."""
    once = Fault(effect=effect, operation=operation, times=1, when=lambda call: proxy.count("DescribeTable") > 1)
    if operation == "CreateTable":
        once = Fault(effect=effect, operation=operation, times=1)
    with proxy.rules.applied(once):
        made = table.run("create")

    assert (made.exit_code, proxy.rules.hits(once)) == (0, 1), made.output
    assert made.stdout.startswith(f"made table {table.name!r} in {REGION}: on-demand, point-in-time recovery on")
    assert table.checked("--no-permissions")["point-in-time recovery"] == ("on", "ok")


def test_create_that_is_interrupted_tells_what_it_may_leave(table: Table, proxy: Proxy) -> None:
    """Ctrl-C in the seconds that a table takes: the next `create` finds it there and changes nothing."""
    told: list[str] = []

    async def interrupted() -> None:
        async with TableCalls(table.name, parse_table_url(table.url).place) as calls:
            with anyio.move_on_after(0), calls.told_if_interrupted(told.append):
                await calls.create(is_protected=False, tags={})

    anyio.run(interrupted)

    assert told == [
        f"interrupted: table {table.name!r} in {REGION} may be there, without point-in-time recovery; "
        f"look at it with: processor-host table check '{table.url}'"
    ]


def test_server_that_is_not_there_is_one_line(aws_dummies: None) -> None:
    """A slip in the address."""
    status, (line,) = refusal(Table("http://127.0.0.1:9").run("check"))

    assert status == 3
    assert line.startswith("dynamodb:DescribeTable on table 'leases-")


def test_status_shows_a_group_in_a_table(table: Table) -> None:
    """The same as of a lease file."""
    table.run("create")

    async def fill() -> None:
        async with opened(table) as store:
            await store.submit("orders", SetUp(item=a_group()))
            for name in ("p0", "p1"):
                await store.submit("orders", Create(partition=name, position="@earliest"))
            await store.submit("orders", a_register("a:11aa"))
            await store.submit("orders", an_acquire(a_lease("p0"), "a:11aa"))

    anyio.run(fill)
    shown = CliRunner().invoke(main, ["status", "--group", "orders", "--store", table.url, "--json"])
    other = CliRunner().invoke(main, ["status", "--group", "trains", "--store", table.url])

    assert (shown.exit_code, shown.stderr) == (0, "")
    owners = {each["partition"]: each["owner"] for each in json.loads(shown.stdout)["partitions"]}
    assert owners == {"p0": "a:11aa", "p1": None}
    assert refusal(other)[0] == 2
    assert "has no group 'trains'" in other.stderr


def test_status_of_a_table_that_is_not_there_is_one_line(table: Table) -> None:
    """It makes none."""
    status, (line,) = refusal(CliRunner().invoke(main, ["status", "--group", "orders", "--store", table.url]))

    assert status == 3
    assert f"table {table.name!r} in {REGION}: there is no such table" in line
    assert table.described() is None
