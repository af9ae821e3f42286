"""`processor-host lock`: the locks of a group on a lease file and on a table, and what is not released by a slip."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from partitions.lock_verbs import AcquireLock, ReleaseLock
from partitions.verbs import Leave
from tests.builders import a_register
from tests.cli.groups import Group, answer
from tests.cli.tables import Table

__all__: list[str] = []


@pytest.fixture(params=["sqlite", "dynamodb"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    """A group that nobody has set up, for locks need no stream, in each kind of store that a URL can name."""
    if request.param == "sqlite":
        yield on_file(tmp_path)
        return
    request.getfixturevalue("aws_dummies")
    table = Table(request.getfixturevalue("moto_url"))
    table.run("create", "--no-point-in-time-recovery", "--no-deletion-protection")
    yield Group(url=table.url, folder=tmp_path)
    table.server.close()


def on_file(folder: Path) -> Group:
    made = Group(url=f"sqlite://{folder / 'leases.db'}", folder=folder)
    made.open_only()
    return made


def acquired(name: str, session_id: str, *, token: int | None = None, expires: bool = True) -> AcquireLock:
    """An acquire of a lock that is free, by a session whose host id is its letter."""
    return AcquireLock(
        name=name,
        seen_owner=None,
        seen_token=token,
        session_id=session_id,
        host_id=session_id[0],
        expires=expires,
        extra=MappingProxyType({"pid": 7}),
    )


def fill(group: Group) -> None:
    """A lock that a registered session holds, one of a session that is gone, one that was kept, one that is free."""
    group.do(
        a_register("a:1"),
        acquired("held", "a:1"),
        acquired("gone", "b:1"),
        acquired("migrate", "b:1", expires=False),
        acquired("free", "a:1"),
        ReleaseLock(name="free", owner="a:1", token=1),
        acquired("free", "a:1", token=1),
        ReleaseLock(name="free", owner="a:1", token=2),
    )


def test_list_shows_who_holds_each_lock_and_under_which_token(group: Group) -> None:
    """One whose owner is gone is free to take, unless it does not expire; a token outlives its term."""
    fill(group)

    rows = group.told("lock list")
    status, lines, _ = answer(group.run("lock list"))

    free: dict[str, Any] = {"holder": None, "owner": None, "about": {}, "state": "free"}
    assert rows == [
        {**free, "name": "free", "token": 2, "expires": True},
        {**free, "name": "gone", "token": 1, "expires": True},
        {
            "name": "held",
            "state": "held",
            "holder": "a",
            "owner": "a:1",
            "token": 1,
            "expires": True,
            "about": {"pid": 7},
        },
        {
            "name": "migrate",
            "state": "kept",
            "holder": "b",
            "owner": "b:1",
            "token": 1,
            "expires": False,
            "about": {"pid": 7},
        },
    ]
    assert status == 0
    assert [line.split() for line in lines] == [
        ["LOCK", "STATE", "HOLDER", "TOKEN", "EXPIRES", "SESSION"],
        ["free", "free", "2"],
        ["gone", "free", "1"],
        ["held", "held", "a", "1", "yes", "a:1"],
        ["migrate", "kept", "b", "1", "no", "b:1"],
    ]


def test_list_of_a_group_without_locks_says_so(tmp_path: Path) -> None:
    """An empty answer might be a fault of the command."""
    group = on_file(tmp_path)
    group.do(a_register("a:1"))

    assert group.told("lock list") == []
    assert answer(group.run("lock list")) == (0, ["group orders has no locks"], [])


@pytest.mark.parametrize("command", ["lock list", "hosts", "leases export"])
def test_group_of_which_nothing_is_there_is_told_as_status_tells_it(tmp_path: Path, command: str) -> None:
    """A slip in the name must not look like a group at rest."""
    group = on_file(tmp_path)

    assert answer(group.run(command)) == answer(group.run("status"))
    assert answer(group.run(command))[0] == 2


def test_hosts_of_a_group_of_locks_alone_are_listed(tmp_path: Path) -> None:
    """Sessions for locks set no group up; who asks who is there must not be told that there is no group."""
    group = on_file(tmp_path)
    group.do(a_register("a:1", capacity=0.0), acquired("held", "a:1"))
    assert [host["session_id"] for host in group.told("hosts")] == ["a:1"]
    group.do(Leave(session_id="a:1"))
    assert answer(group.run("hosts")) == (0, ["group orders has no hosts"], [])


def test_locks_of_a_group_of_locks_alone_go_to_another_store(group: Group, tmp_path: Path) -> None:
    """With their tokens, or what they fence would let nobody through there."""
    fill(group)
    export = group.run("leases export")
    (tmp_path / "e.json").write_text(export.stdout, "utf-8")
    there = Group(url=f"sqlite://{tmp_path / 'there.db'}", folder=tmp_path)
    there.open_only()

    done = there.run("leases import", str(tmp_path / "e.json"), "--yes")

    assert (json.loads(export.stdout)["item"], json.loads(export.stdout)["leases"]) == (None, [])
    assert answer(done) == (0, ["4 locks of 'orders' brought into 'orders'"], [])
    assert [(row["name"], row["state"], row["token"]) for row in there.told("lock list")] == [
        ("free", "free", 2),
        ("gone", "free", 1),
        ("held", "free", 1),
        ("migrate", "kept", 1),
    ]
    assert answer(there.run("status"))[0] == 2


def test_show_tells_one_lock_with_its_fields_for_people(tmp_path: Path) -> None:
    """What is to be told from the outside of who holds it."""
    group = on_file(tmp_path)
    fill(group)

    status, lines, _ = answer(group.run("lock show migrate"))

    assert group.told("lock show migrate") == group.told("lock list")[3]
    assert status == 0
    assert [line.split() for line in lines] == [
        ["lock", "migrate"],
        ["state", "kept"],
        ["holder", "b"],
        ["session", "b:1"],
        ["token", "1"],
        ["expires", "no"],
        ["pid", "7"],
    ]


def test_status_of_a_group_shows_its_locks_too(tmp_path: Path) -> None:
    """One look at a group tells also who runs its singletons."""
    group = on_file(tmp_path)
    group.make()
    fill(group)

    assert group.told("status")["locks"] == group.told("lock list")
    assert ["held", "held", "a", "1"] in [line.split() for line in answer(group.run("status"))[1]]


def test_release_frees_a_lock_that_its_holder_left_behind_and_keeps_its_token(group: Group) -> None:
    """The way out where a process died that held a lock which does not expire; twice does no harm."""
    fill(group)

    once = answer(group.run("lock release migrate", "--yes"))
    again = group.told("lock release migrate", "--yes")

    assert once == (0, ["migrate was released; b held it, token 1"], [])
    assert again == {"name": "migrate", "was_held_by": None, "token": 1}
    assert group.told("lock show migrate")["state"] == "free"
    [item] = group.do(acquired("migrate", "c:1", token=1))
    assert (item.owner, item.token) == ("c:1", 2)


def test_release_of_a_lock_in_use_needs_force(tmp_path: Path) -> None:
    """Its holder would go on working for a while beside the next one."""
    group = on_file(tmp_path)
    fill(group)

    refused = answer(group.run("lock release held", "--yes"))
    asked = group.run("lock release held", typed="y\n")
    held = group.told("lock show held")
    forced = answer(group.run("lock release held", "--yes", "--force"))

    assert refused == (
        2,
        [],
        [
            "processor-host: lock 'held' of 'orders' is held by a (a:1), which is registered and may be at work; stop "
            "that process, or wait until a dead one is fenced; with --force it is released all the same, and the "
            "holder finds out at its next beat at the earliest"
        ],
    )
    assert (asked.exit_code, asked.stderr.splitlines()) == (2, refused[2])
    assert held["state"] == "held"
    assert forced == (0, ["held was released; a held it, token 1"], [])
    assert group.told("lock show held")["state"] == "free"


def test_release_asks_and_changes_nothing_without_a_yes(tmp_path: Path) -> None:
    """It says who holds the lock before anything is done."""
    group = on_file(tmp_path)
    fill(group)

    status, out, err = answer(group.run("lock release migrate", typed="n\n"))

    assert (status, out) == (2, [])
    assert err[0].startswith("Lock migrate of 'orders' is held by b (b:1) under token 1, and is to be free for")
    assert err[-1] == "processor-host: not confirmed; nothing was changed"
    assert group.told("lock show migrate")["state"] == "kept"


@pytest.mark.parametrize("command", ["show", "release"])
def test_lock_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    """A slip in the name must not look like a lock that is free."""
    group = on_file(tmp_path)
    options = ["--yes"] if command == "release" else []

    status, out, [line] = answer(group.run(f"lock {command} nigthly", *options))

    assert (status, out) == (2, [])
    assert "has no lock 'nigthly'; 'processor-host lock list' has those there are" in line


def test_lock_whose_item_is_spoilt_is_shown_and_not_released(tmp_path: Path) -> None:
    """Nobody takes it, so somebody has to be told why."""
    group = on_file(tmp_path)
    fill(group)
    with closing(sqlite3.connect(tmp_path / "leases.db")) as file, file:
        file.execute("UPDATE named_locks SET extra = 'spoilt' WHERE name = 'held'")

    [row] = [row for row in group.told("lock list") if row["name"] == "held"]
    status, out, [line] = answer(group.run("lock release held", "--yes", "--force"))

    assert (row["state"], row["holder"], list(row["about"])) == ("unreadable", None, ["unreadable"])
    assert (status, out) == (2, [])
    assert "cannot be read" in line
