"""
The operator's commands on a lease file and on a table: what they tell people and scripts, and what they refuse.

What becomes of hosts at work is shown in virtual time (`tests.processor_host.operating`); here nobody runs, so an owner
that is asked never lets go, and is waited for no longer than its item says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from partitions.items import ask_key
from partitions.verbs import Pause
from tests.builders import a_lease, a_register, a_session
from tests.cli.groups import GROUP, Group, answer
from tests.cli.tables import Table

__all__: list[str] = []

SHORT = {"duration_s": 0.4, "handoff_s": 0.4}
"""The times of a session that is dead when the test begins, seconds."""
LONGER = {"duration_s": 2.0, "handoff_s": 6.0}
"""The same where a command takes leases: its own session lives as long, and a slow machine may rest for moments."""


@pytest.fixture
def on_file(tmp_path: Path) -> Group:
    """A group that nobody works for, on a lease file: for what has nothing to do with the store."""
    made = Group(url=f"sqlite://{tmp_path / 'leases.db'}", folder=tmp_path)
    made.make()
    return made


@pytest.fixture(params=["sqlite", "dynamodb"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    """A group that nobody works for, in each kind of store that a URL can name."""
    if request.param == "sqlite":
        yield request.getfixturevalue("on_file")
        return
    request.getfixturevalue("aws_dummies")
    table = Table(request.getfixturevalue("moto_url"))
    table.run("create", "--no-point-in-time-recovery", "--no-deletion-protection")
    made = Group(url=table.url, folder=tmp_path)
    made.make()
    yield made
    table.server.close()


def refused(group: Group, command: str, *options: str, typed: str | None = None) -> str:
    """The one line with which a command is refused."""
    status, out, [line] = answer(group.run(command, *options, typed=typed))
    assert (status, out) == (2, [])
    return line.removeprefix("processor-host: ")


# --- Looking ----------------------------------------------------------------------------------------------------------


def test_hosts_shows_what_stands_in_the_items(group: Group) -> None:
    """Also an operator's session and a wish to drain; when a beat was written stands nowhere."""
    group.owned_by("a:1", "p0", extra={"pid": 7})
    group.do(a_register("op:1", capacity=0.0))
    asked = group.run("drain a", "--yes", "--wait-s", "0")

    rows = group.told("hosts")
    status, lines, _ = answer(group.run("hosts"))

    assert asked.exit_code == 0
    assert rows == [
        {
            "host_id": "a",
            "session_id": "a:1",
            "state": "asked to drain",
            "owned": 1,
            "asks": {},
            "beat": 0,
            "capacity": 1.0,
            "max_leases": None,
            "load": 0.0,
            "duration_s": 10.0,
            "handoff_s": 30.0,
            "about": {"pid": 7},
        },
        {
            **rows[0],
            "host_id": "op",
            "session_id": "op:1",
            "state": "operator",
            "owned": 0,
            "capacity": 0.0,
            "about": {},
        },
    ]
    assert status == 0
    assert [line.split()[:3] for line in lines] == [
        ["HOST", "SESSION", "STATE"],
        ["a", "a:1", "asked"],
        ["op", "op:1", "operator"],
    ]


def test_hosts_of_a_group_without_any_says_so(on_file: Group) -> None:
    """An empty table might be a fault of the command."""
    assert answer(on_file.run("hosts")) == (0, ["group orders has no hosts"], [])


def test_plan_tells_what_each_host_would_do_and_why_and_does_nothing(group: Group) -> None:
    """The plan of the hosts themselves, with its reasons."""
    group.owned_by("a:1", "p0")
    before = group.leases()

    told = group.told("plan", "--source", group.source)
    lines = answer(group.run("plan"))[1]

    assert told == {
        "settled": False,
        "hosts": [
            {
                "host_id": "a",
                "session_id": "a:1",
                "owned": 1,
                "planned": 2,
                "state": "works",
                "steps": [
                    {
                        "partition": "p1",
                        "what": "acquire",
                        "owner": None,
                        "why": "it is free, and this host has room for it",
                    }
                ],
            }
        ],
        "resting": [],
    }
    assert lines == [
        "a (a:1): owns 1, is to have 2",
        "  acquires p1: it is free, and this host has room for it",
    ]
    assert group.leases() == before


# --- Pause, resume, release, reset ------------------------------------------------------------------------------------


def test_pause_and_resume_of_free_partitions(group: Group) -> None:
    """Each tells what it found, and a second time does no harm."""
    once = answer(group.run("pause p0 p1 p0", "--yes", "--reason", "poison"))
    paused = group.leases()
    twice = group.told("pause p0", "--yes")
    resumed = answer(group.run("resume p0 p1"))
    again = group.told("resume p0")

    assert once == (0, ["p0 is paused", "p1 is paused"], [])
    assert paused == {name: a_lease(name, paused=True, extra={"paused_because": "poison"}) for name in ("p0", "p1")}
    assert twice == [{"partition": "p0", "was_paused": True, "owner": None}]
    assert resumed == (0, [f"{name} is resumed; no host has it yet" for name in ("p0", "p1")], [])
    assert again == [{"partition": "p0", "was_paused": False, "owner": None}]
    assert group.leases() == {name: a_lease(name) for name in ("p0", "p1")}


def test_pause_asks_the_owner_to_release_to_nobody_and_tells_that_it_has_not(group: Group) -> None:
    """It is done when the owner has let go; a script must not go on before."""
    group.owned_by("a:1", "p0", **SHORT)

    status, lines, told = answer(group.run("pause p0", "--yes"))

    assert (status, lines) == (1, ["p0 is paused; a has not let go yet: its running batch goes on"])
    assert told == ["waiting for the owners of 1 partition to end their running batches, at most 1 s"]
    assert group.sessions()["a:1"] == a_session("a:1", asks={ask_key("p0", 1): ""}, **SHORT)
    assert group.run("pause p0", "--yes", "--no-wait").exit_code == 0


def test_reset_moves_the_checkpoint_of_a_free_partition(group: Group) -> None:
    """A term of the operator's own stands between: the token shows it."""
    status, lines, told = answer(group.run("reset p0", "--yes", "--to", "2", "--source", group.source))

    assert (status, lines, told) == (0, ["p0 is at 2 (was @earliest); no host has it yet"], [])
    lease = group.leases()["p0"]
    assert (lease.position, lease.owner, lease.token) == ("2", None, 1)
    assert lease.last_host is not None
    assert lease.last_host.startswith("operator-")
    assert group.sessions() == {}


def test_reset_of_a_paused_partition_keeps_the_pause_and_its_reason(group: Group) -> None:
    """The usual one: over the record that it was paused for."""
    group.do(Pause(partition="p0", seen_token=0, reason="poison"))

    told = group.told("reset p0", "--yes", "--to", "latest", "--source", group.source)

    lease = group.leases()["p0"]
    assert told == [
        {
            "partition": "p0",
            "done": True,
            "before": "@earliest",
            "position": lease.position,
            "owner": None,
            "paused": True,
        }
    ]
    assert int(lease.position) > 2
    assert (lease.paused, dict(lease.extra), lease.owner) == (True, {"paused_because": "poison"}, None)


def test_reset_fences_an_owner_that_does_not_beat(group: Group) -> None:
    """Where no host runs, nobody else does it."""
    group.owned_by("a:1", "p0", **LONGER)

    [told] = group.told("reset p0", "--yes", "--to", "earliest", "--source", group.source)

    assert (told["done"], group.leases()["p0"].token, group.sessions()) == (True, 2, {})


def test_release_of_a_dead_owners_partition_frees_it(group: Group) -> None:
    """Its checkpoint stays."""
    group.owned_by("a:1", "p0", **LONGER)

    status, lines, _ = answer(group.run("release p0 p1", "--yes"))

    assert (status, lines) == (0, ["p0 was released by a; no host has it yet", "p1 was free"])
    assert [(each.owner, each.position) for each in group.leases().values()] == [(None, "@earliest")] * 2


# --- Hosts ------------------------------------------------------------------------------------------------------------


def test_drain_sets_the_wish_and_tells_that_the_host_has_not_left(group: Group) -> None:
    """Every session of the host gets it, for one of them may be the one that lives."""
    group.owned_by("a:1", "p0")
    group.do(a_register("a:2"), a_register("b:1"))

    status, lines, _ = answer(group.run("drain a", "--yes", "--wait-s", "0.1"))

    assert (status, lines) == (
        1,
        ["a:1 is asked to drain and has 1 partition left", "a:2 is asked to drain and has 0 partitions left"],
    )
    assert {name: each.drain_asked for name, each in group.sessions().items()} == {
        "a:1": True,
        "a:2": True,
        "b:1": False,
    }


def test_forget_host_deletes_the_sessions_that_do_not_beat(group: Group) -> None:
    """And tells which partitions are free by that."""
    group.owned_by("a:1", "p0", **SHORT)
    group.do(a_register("b:1"))

    status, lines, told = answer(group.run("forget-host a", "--yes"))

    assert (status, lines) == (0, ["a:1 is fenced; free: p0"])
    assert told == ["watching 1 session of 'a' for 0 s whether one beats"]
    assert list(group.sessions()) == ["b:1"]


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("pause p9", ("--yes",), f"group {GROUP!r} has no partition 'p9'; 'processor-host status' lists those it has"),
        ("resume p9", (), f"group {GROUP!r} has no partition 'p9'; 'processor-host status' lists those it has"),
        (
            "release p9",
            ("--yes",),
            f"group {GROUP!r} has no partition 'p9'; 'processor-host status' lists those it has",
        ),
        ("drain c", ("--yes",), f"group {GROUP!r} has no host 'c'; its hosts are: none"),
        ("forget-host c", ("--yes",), f"group {GROUP!r} has no host 'c'; its hosts are: none"),
    ],
)
def test_commands_refuse_names_that_are_not_there(
    command: str, options: tuple[str, ...], expected: str, on_file: Group
) -> None:
    """One line with the value and where to look."""
    assert refused(on_file, command, *options) == expected


def test_reset_refuses_another_stream_and_a_place_that_is_none(on_file: Group, tmp_path: Path) -> None:
    """A position of another stream may exist in this one, and mean other records."""
    own = refused(on_file, "reset p0", "--yes", "--to", "soon", "--source", on_file.source)
    (tmp_path / "other").mkdir()
    other = Group(url=f"sqlite://{tmp_path / 'other' / 'leases.db'}", folder=tmp_path / "other")
    other.make()
    foreign = refused(on_file, "reset p0", "--yes", "--to", "1", "--source", other.source)

    assert own.startswith("--to 'soon' means nothing in partition 'p0' (")
    assert foreign.startswith(f"group {GROUP!r} belongs to the stream ")
    assert on_file.leases()["p0"] == a_lease("p0")


@pytest.mark.parametrize(
    ("command", "question"),
    [
        ("pause p0", "No host processes p0 of 'orders' until it is resumed. Go on? [y/N]: "),
        ("release p0", "The owners of p0 of 'orders' let go. Go on? [y/N]: "),
        (
            "drain a",
            "a of 'orders' gives away its partitions and ends; NO OTHER HOST is there to take over. Go on? [y/N]: ",
        ),
        ("forget-host a", "The sessions of a in 'orders' are deleted unless one beats. Go on? [y/N]: "),
        ("reset p0 --to earliest --source", "p0 of 'orders' goes on from earliest, wherever it is now. Go on? [y/N]: "),
    ],
)
def test_commands_that_disturb_ask_first_and_do_nothing_unconfirmed(
    command: str, question: str, on_file: Group
) -> None:
    """A slip in a name must be seen before it is done; a script without --yes gets an error, not a hang."""
    on_file.do(a_register("a:1"))
    options = (on_file.source,) if command.endswith("--source") else ()
    before = (on_file.leases(), on_file.sessions())

    said_no = on_file.run(command, *options, typed="n\n")
    nobody = on_file.run(command, *options, typed="")

    assert said_no.stderr.startswith(question)
    assert (said_no.exit_code, said_no.stderr.splitlines()[-1].split("processor-host: ")[-1]) == (
        2,
        "not confirmed; nothing was changed",
    )
    assert (nobody.exit_code, nobody.stderr.splitlines()[-1].split("processor-host: ")[-1]) == (
        2,
        "nobody confirmed it, and nothing was changed; give --yes in a script",
    )
    assert (on_file.leases(), on_file.sessions()) == before


def test_confirmed_command_is_done(on_file: Group) -> None:
    """The question is asked on stderr, so that what the command tells can be piped on."""
    result = on_file.run("pause p0", typed="y\n")

    assert (result.exit_code, result.stdout) == (0, "p0 is paused\n")


@pytest.mark.parametrize("command", ["hosts", "plan"])
def test_commands_say_that_a_group_is_not_there(command: str, on_file: Group) -> None:
    """A slip in the group's name must not look like an empty on_file."""
    line = refused(replace(on_file, name="trains"), command)

    assert line.endswith("has no group 'trains'; check --group and --store, or start a host of it first")
