"""
`processor-host table`: what it makes, what it tells of a table, and what it refuses to delete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import anyio
import pytest
from click.testing import CliRunner

from partitions.aws.policy import Use, actions_of
from processor_host.cli import main
from processor_host.cli.table import living_sessions
from processor_host.cli.table_calls import tries_of
from processor_host.errors import UserError
from tests.builders import a_beat, a_register
from tests.cli.tables import REGION, Table, opened, refusal

__all__: list[str] = []

OK = ["status", "key schema", "replicas", "billing", "point-in-time recovery", "deletion protection"]
"""What is told of a table itself."""


@pytest.fixture
def table(moto_url: str, aws_dummies: None) -> Iterator[Table]:
    """A table that nobody has made yet."""
    made = Table(moto_url)
    yield made
    made.server.close()


def test_create_makes_a_table_that_a_host_can_run_on(table: Table) -> None:
    """What nobody asked about is what everybody gets: recovery and protection are on."""
    made = table.run("create", "--tag", "team=flights", "--tag", "note=a=b")

    description = table.described()
    assert description is not None
    tags = table.server.list_tags_of_resource(ResourceArn=description["TableArn"])["Tags"]
    assert (made.exit_code, made.stderr, made.stdout) == (
        0,
        "",
        f"made table {table.name!r} in {REGION}: on-demand, point-in-time recovery on, deletion protection on\n",
    )
    assert tags == [{"Key": "team", "Value": "flights"}, {"Key": "note", "Value": "a=b"}]
    assert {table.checked("--no-permissions")[name][1] for name in OK} == {"ok"}


def test_create_leaves_off_what_it_is_told_to(table: Table) -> None:
    """A table of a test must be deleted again without ado."""
    off = ("--no-point-in-time-recovery", "--no-deletion-protection")
    made = table.run("create", *off)

    assert made.stdout.endswith(": on-demand, point-in-time recovery off, deletion protection off\n")
    told = table.checked("--no-permissions")
    assert (told["point-in-time recovery"], told["deletion protection"]) == (("off", "differs"), ("off", "differs"))
    assert {verdict for _, verdict in table.checked("--no-permissions", *off).values()} == {"ok"}


def test_create_checks_a_table_that_is_there_and_changes_nothing(table: Table) -> None:
    """Whoever runs it twice, or in a deployment, must not change what an operator has set since."""
    table.run("create", "--no-point-in-time-recovery", "--no-deletion-protection")
    before = table.described()

    again = table.run("create", "--tag", "a=b")

    assert (again.exit_code, again.stdout.splitlines()[0]) == (
        0,
        f"table {table.name!r} in {REGION} is there already; nothing was changed",
    )
    assert table.described() == before
    assert table.checked("--no-permissions")["point-in-time recovery"] == ("off", "differs")


def test_create_refuses_a_table_of_another_make(table: Table) -> None:
    """It belongs to somebody else's program, and a host would fail on it with every write."""
    make_other(table)

    result = table.run("create")

    assert refusal(result) == (
        3,
        [
            f"table {table.name!r} in {REGION}: key schema is ('id'), expected ('pk', 'sk'); "
            "name another table, and make it with 'processor-host table create'"
        ],
    )


def test_check_tells_every_property_and_each_call_that_a_host_makes(table: Table) -> None:
    """Who sets a table up sees in one look what is missing, rather than one start of a host after the other."""
    table.run("create")

    result = table.run("check")

    rows = [line.split("  ")[0] for line in result.stdout.splitlines()]
    assert (result.exit_code, rows) == (0, ["PROPERTY", *OK, *(each.action for each in tries_of("t", "g"))])
    assert {line.split()[-1] for line in result.stdout.splitlines()[1:]} == {"ok"}


def test_check_tries_every_action_on_items_that_the_policy_grants() -> None:
    """An action that is tried by nobody is found missing by the first host that needs it."""
    assert sorted(each.action for each in tries_of("t", "g")) == list(actions_of(Use.ITEMS, "dynamodb"))


def test_check_changes_nothing(table: Table) -> None:
    """It is run on tables at work: a check that writes could be what breaks them."""
    table.run("create")

    table.run("check", "--group", "orders")

    assert table.server.scan(TableName=table.name)["Items"] == []


def test_check_of_a_table_that_is_not_there_names_the_command_that_makes_it(table: Table) -> None:
    """A slip in the region looks just the same, so the region is told too; nor is there anything to delete then."""
    expected = (
        3,
        [
            f"table {table.name!r} is not there in {REGION}; check its name and region, "
            f"or make it with: processor-host table create '{table.url}'"
        ],
    )

    assert (refusal(table.run("check")), refusal(table.run("delete", "--yes"))) == (expected, expected)


def test_check_in_json_of_a_table_of_another_make_is_whole_and_unfit(table: Table) -> None:
    """A script reads why, and the status says that no host can run on it."""
    make_other(table)

    result = table.run("check", "--json", "--no-permissions")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["table"], told["region"], told["fit"]) == (3, table.name, REGION, False)
    assert [each["property"] for each in told["findings"] if each["verdict"] == "wrong"] == ["key schema"]


def test_delete_refuses_a_protected_table_and_says_how_to_take_the_protection_off(table: Table) -> None:
    """That is what it is protected for; no flag of this program goes around it."""
    table.run("create")

    status, (line,) = refusal(table.run("delete", "--yes", "--force"))

    assert (status, line.split(": ")[0]) == (
        2,
        f"table {table.name!r} in {REGION} is protected from deletion; take the protection off first",
    )
    assert f"aws dynamodb update-table --table-name {table.name} --region {REGION} --endpoint-url http" in line
    assert table.described() is not None


def test_delete_asks_for_the_name_of_the_table(table: Table) -> None:
    """Every lease and every checkpoint goes with it; a `y` is typed too easily."""
    table.run("create", "--no-deletion-protection")

    none, wrong = table.run("delete"), table.run("delete", typed="leases\n")
    kept = table.described()
    right = table.run("delete", typed=f"{table.name}\n")

    assert none.exit_code == wrong.exit_code == 2
    assert none.stderr.endswith("table " + repr(table.name) + " was left as it is; give --yes in a script\n")
    assert wrong.stderr.endswith(f"'leases' is not the table's name, {table.name!r}; nothing was deleted\n")
    assert kept is not None
    assert (right.exit_code, right.stdout) == (0, f"deleted table {table.name!r} in {REGION}\n")
    assert table.described() is None


def test_delete_leaves_a_table_that_keeps_no_leases(table: Table) -> None:
    """A slip in the name must not cost somebody else's table."""
    make_other(table)

    status, (line,) = refusal(table.run("delete", "--yes", "--force"))

    assert (status, line) == (
        2,
        f"table {table.name!r} has the keys ('id',), expected ('pk', 'sk'): it keeps no leases; left as it is",
    )
    assert table.described() is not None


def test_delete_finds_a_session_that_beats_and_not_one_that_is_dead(table: Table) -> None:
    """A crashed group leaves its sessions behind for ever; only a beat that moves is alive."""
    table.run("create", "--no-deletion-protection")

    async def look() -> tuple[list[str], list[str]]:
        async with opened(table) as store:
            for session in ("a:11aa", "b:22bb"):
                await store.submit("orders", a_register(session, duration_s=0.6, handoff_s=0.6))

            async def beat(_: float) -> None:
                await store.submit("orders", a_beat("b:22bb"))

            alive = await living_sessions(store, ["orders"], lambda _: None, sleep=beat)
            return alive, await living_sessions(store, ["orders"], lambda _: None)

    assert anyio.run(look) == (["session 'b:22bb' of group 'orders'"], [])


def test_delete_refuses_while_a_session_may_live_longer_than_it_watches(table: Table) -> None:
    """Nobody waits for minutes to delete a table, and what was not watched is not dead."""
    table.run("create", "--no-deletion-protection")

    async def register() -> None:
        async with opened(table) as store:
            await store.submit("orders", a_register("a:11aa", duration_s=600.0, handoff_s=600.0))

    anyio.run(register)
    refused = table.run("delete", "--yes")
    forced = table.run("delete", "--yes", "--force")

    assert refusal(refused) == (
        2,
        [
            f"table {table.name!r} in {REGION} is in use by session 'a:11aa' of group 'orders'; "
            "stop its hosts first, or give --force"
        ],
    )
    assert (forced.exit_code, table.described()) == (0, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["create", "leases"],
            "'leases' is not a dynamodb: URL; use for instance 'dynamodb://leases?region=eu-west-1'",
        ),
        (["check", "dynamodb:leases"], "'dynamodb:leases' lacks two slashes; did you mean 'dynamodb://leases'?"),
        (["create", "dynamodb://leases", "--tag", "team"], "--tag 'team' is no tag; use KEY=VALUE with at most 128"),
        (["create", "dynamodb://leases", "--tag", "aws:x=1"], "--tag 'aws:x=1' is no tag; use KEY=VALUE"),
        (["create", "dynamodb://leases", "--tag", "a=1", "--tag", "a=2"], "--tag a is given twice"),
        (["check", "dynamodb://leases", "--group", "a#b"], "'a#b'"),
        (["create"], "Missing argument 'dynamodb://TABLE'"),
    ],
    ids=repr,
)
def test_input_that_is_wrong_is_one_line_and_connects_to_nothing(arguments: list[str], says: str) -> None:
    """There is no server in this test: a command that asked one first would end otherwise."""
    status, (line,) = refusal(CliRunner().invoke(main, ["table", *arguments]))

    assert status == UserError.exit_status
    assert says in line


def make_other(table: Table) -> None:
    """Make a table of another program under the name."""
    table.server.create_table(
        TableName=table.name,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
