"""
`processor-host leases` and `table restored`: on a lease file and on a table, and from one to the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partitions.items import LeaseItem, Prepared
from partitions.lock_verbs import AcquireLock, ReleaseLock
from partitions.verbs import Attempt, Complete, Create, Fence, Pause, Prepare, Release, SaveCheckpoint
from tests.builders import a_beat, a_lease, a_register, an_acquire
from tests.cli.groups import GROUP, Group, answer
from tests.cli.tables import Table

__all__: list[str] = []


@pytest.fixture
def on_file(tmp_path: Path) -> Group:
    """The group of the stream, on a lease file."""
    made = Group(url=f"sqlite://{tmp_path / 'leases.db'}", folder=tmp_path)
    made.make(partitions=4)
    return made


@pytest.fixture
def table(moto_url: str, aws_dummies: None) -> Iterator[Table]:
    """An empty table."""
    made = Table(moto_url)
    made.run("create", "--no-point-in-time-recovery", "--no-deletion-protection")
    yield made
    made.server.close()


def with_history(group: Group) -> None:
    """One partition under way, one ended, one paused with something prepared, and one that was never started."""
    group.do(
        an_acquire(a_lease("p0"), "a:1"),
        SaveCheckpoint(partition="p0", owner="a:1", token=1, position="3", seq=1, weight=0.5),
        Attempt(partition="p0", owner="a:1", token=1, seq=2),
        Release(partition="p0", owner="a:1", token=1),
        an_acquire(a_lease("p0", token=1), "a:1"),
        an_acquire(a_lease("p1"), "a:1"),
        Complete(partition="p1", owner="a:1", token=1),
        an_acquire(a_lease("p2"), "a:1"),
        Prepare(partition="p2", owner="a:1", token=1, seq=1, prepared=Prepared(state="debit 7", position="2")),
        Pause(partition="p2", seen_token=1, reason="poison"),
        Release(partition="p2", owner="a:1", token=1),
        Create(partition="p9", position="@earliest", parents=("p0",)),
    )


def carried(leases: dict[str, LeaseItem]) -> dict[str, LeaseItem]:
    """What is carried of leases."""
    return {
        name: replace(each, owner=None, last_host=None, seq=0, attempts=0, suspects=0)
        for name, each in sorted(leases.items())
    }


def a_lock(
    name: str, token: int | None, *, expires: bool = True, session_id: str = "a:1", seen_owner: str | None = "a:1"
) -> AcquireLock:
    """An acquire of a lock, again by the same session where it has a token."""
    return AcquireLock(
        name=name,
        seen_owner=None if token is None else seen_owner,
        seen_token=token,
        session_id=session_id,
        host_id=session_id[0],
        expires=expires,
    )


def exported(group: Group, file: Path) -> Any:
    """Export into a file, and return what is in it."""
    result = group.run("leases export")
    assert (result.exit_code, result.stderr) == (0, "")
    file.write_text(result.stdout, "utf-8")
    return json.loads(result.stdout)


def test_leases_go_from_a_file_to_a_table_and_back(on_file: Group, table: Table, tmp_path: Path) -> None:
    """A group that moves to another store goes on where it was, and no token is given out twice."""
    with_history(on_file)
    on_file.do(
        *(a_lock("nightly", token) for token in (None, 1, 2)),
        a_lock("migrate", None, expires=False),
        a_lock("index", None, expires=False, session_id="b:1"),
        ReleaseLock(name="index", owner="b:1", token=1),
        a_lock("index", 1, expires=False, session_id="b:1", seen_owner=None),
    )
    locks = on_file.told("lock list")
    before = carried(on_file.leases())
    on_table = Group(url=table.url, folder=tmp_path)
    exported(on_file, tmp_path / "there.json")
    there = answer(on_table.run("leases import", str(tmp_path / "there.json"), "--yes"))
    moved = carried(on_table.leases()), on_table.told("lock list")
    exported(on_table, tmp_path / "back.json")
    (tmp_path / "leases.db").unlink()
    empty = Group(url=f"sqlite://{tmp_path / 'other.db'}", folder=tmp_path)
    back = empty.told("leases import", str(tmp_path / "back.json"), "--yes")

    assert there == (0, [f"{name} created, token {each.token}" for name, each in sorted(before.items())], [])
    assert {name: each.token for name, each in before.items()} == {"p0": 2, "p1": 1, "p2": 1, "p3": 0, "p9": 0}
    assert moved == (before, locks)
    assert [(each["name"], each["state"], each["token"]) for each in locks] == [
        ("index", "kept", 2),
        ("migrate", "kept", 1),
        ("nightly", "free", 3),
    ]
    assert back == [
        {"partition": name, "outcome": "created", "token": each.token} for name, each in sorted(before.items())
    ]
    assert (carried(empty.leases()), empty.told("lock list")) == (before, locks)


def test_import_asks_before_it_makes_the_lease_file(on_file: Group, tmp_path: Path) -> None:
    """Nothing but a host makes one, and that would begin the group at its start."""
    exported(on_file, tmp_path / "e.json")
    new = Group(url=f"sqlite://{tmp_path / 'new.db'}", folder=tmp_path)

    refused = new.run("leases import", str(tmp_path / "e.json"), typed="n\n")
    was_made = (tmp_path / "new.db").exists()
    done = new.run("leases import", str(tmp_path / "e.json"), typed="y\n")

    assert refused.stderr.startswith(
        f"4 leases of {GROUP!r} will be brought into {GROUP!r} in {new.url}, which will be made. Go on? [y/N]: "
    )
    assert (refused.exit_code, was_made, done.exit_code) == (2, False, 0)
    assert carried(new.leases()) == carried(on_file.leases())


@pytest.mark.parametrize(
    ("name", "said"), [("notes.db", "notes.db' is not"), ("none/new.db", "/none' does not exist; make it")]
)
def test_import_looks_at_the_store_before_it_asks(name: str, said: str, on_file: Group, tmp_path: Path) -> None:
    """A question whose answer changes nothing is not asked."""
    exported(on_file, tmp_path / "e.json")
    (tmp_path / "notes.db").write_text("notes of mine, and no database at all")
    there = Group(url=f"sqlite://{tmp_path / name}", folder=tmp_path)

    status, _, [line] = answer(there.run("leases import", str(tmp_path / "e.json"), typed="y\n"))

    assert (status, said in line) == (3, True), line


def test_import_of_a_file_that_is_not_there_is_one_plain_line(on_file: Group, tmp_path: Path) -> None:
    """The number of an error of the system helps nobody, nor the name a second time."""
    file = tmp_path / "nofile.json"

    status, _, lines = answer(on_file.run("leases import", str(file)))

    assert (status, lines) == (
        2,
        [
            f"processor-host: {file}: No such file or directory; name a file that 'leases export' wrote, "
            "or - for the standard input"
        ],
    )


def test_export_is_documented_json(on_file: Group, tmp_path: Path) -> None:
    """Scripts read it."""
    value = exported(on_file, tmp_path / "e.json")

    assert (value["format"], value["version"], value["group"]) == ("processor-host leases", 1, GROUP)
    assert [(each["partition"], each["position"], each["token"]) for each in value["leases"]] == [
        (f"p{n}", "@earliest", 0) for n in range(4)
    ]


def test_import_that_is_repeated_changes_nothing(on_file: Group, tmp_path: Path) -> None:
    """Whoever is not sure whether it was done runs it again."""
    with_history(on_file)
    on_file.do(Release(partition="p0", owner="a:1", token=2))
    exported(on_file, tmp_path / "e.json")
    before = on_file.leases()

    told = on_file.told("leases import", str(tmp_path / "e.json"), "--yes")

    assert {each["outcome"] for each in told} == {"unchanged"}
    assert on_file.leases() == before


def test_import_refuses_a_lock_whose_token_would_fall(on_file: Group, tmp_path: Path) -> None:
    """Nothing is changed: a fence elsewhere would refuse the lower one."""
    on_file.do(a_lock("nightly", None), a_lock("nightly", 1))
    value = exported(on_file, tmp_path / "e.json")
    value["locks"][0]["token"] = 1
    (tmp_path / "e.json").write_text(json.dumps(value))

    status, out, [line] = answer(on_file.run("leases import", str(tmp_path / "e.json"), "--yes"))

    assert (status, out) == (2, [])
    assert "lock 'nightly' has token 2, and the export 1: a token never falls" in line


def test_import_moves_what_is_there_under_a_token_that_rises(on_file: Group, tmp_path: Path) -> None:
    """Positions of the file, tokens of whichever is ahead."""
    value = exported(on_file, tmp_path / "e.json")
    value["leases"][0] |= {"position": "5", "token": 7}
    (tmp_path / "e.json").write_text(json.dumps(value))

    told = on_file.told("leases import", str(tmp_path / "e.json"), "--yes")

    assert told[0] == {"partition": "p0", "outcome": "moved", "token": 7}
    assert carried(on_file.leases())["p0"] == a_lease("p0", position="5", token=7)


def test_import_refuses_to_lower_a_token_and_changes_nothing_at_all(on_file: Group, tmp_path: Path) -> None:
    """An old owner's checkpoint would be taken for a new one's; also the other partitions stay."""
    value = exported(on_file, tmp_path / "e.json")
    value["leases"][3] |= {"position": "5", "token": 7}
    (tmp_path / "e.json").write_text(json.dumps(value))
    with_history(on_file)
    before = on_file.leases()

    status, out, [line] = answer(on_file.run("leases import", str(tmp_path / "e.json"), "--yes"))

    assert (status, out) == (2, [])
    assert line == (
        "processor-host: partition 'p0' has token 2, and the export 0: a token never falls; "
        "move its checkpoint with 'processor-host reset'"
    )
    assert on_file.leases() == before


def test_import_refuses_the_leases_of_another_stream_and_a_partition_that_has_ended_here(
    on_file: Group, tmp_path: Path
) -> None:
    """Positions mean nothing there; and what has ended cannot be opened again."""
    value = exported(on_file, tmp_path / "e.json")
    value["item"]["source"] = "local:other.db@1"
    (tmp_path / "other.json").write_text(json.dumps(value))
    foreign = answer(on_file.run("leases import", str(tmp_path / "other.json"), "--yes"))
    value = exported(on_file, tmp_path / "e.json")
    value["leases"][1] |= {"token": 9}
    (tmp_path / "e.json").write_text(json.dumps(value))
    with_history(on_file)
    value["leases"][0] |= {"token": 9}
    (tmp_path / "e.json").write_text(json.dumps(value))
    ended = answer(on_file.run("leases import", str(tmp_path / "e.json"), "--yes"))

    assert foreign[0] == ended[0] == 2
    assert "and the export to 'local:other.db@1'; import it into another group" in foreign[2][0]
    assert ended[2] == ["processor-host: partition 'p1' has ended here, and in the export it has not; leave it out"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not JSON"),
        ("[]", "this is no export of leases"),
        ('{"format": "processor-host leases", "version": 2}', "the export is of version 2, expected 1"),
        ('{"format": "processor-host leases", "version": 1, "group": "g"}', "the export is broken (KeyError: 'item')"),
    ],
)
def test_import_refuses_what_is_no_export(text: str, expected: str, on_file: Group, tmp_path: Path) -> None:
    """One line, before the store is opened."""
    (tmp_path / "e.json").write_text(text)

    status, _, [line] = answer(on_file.run("leases import", str(tmp_path / "e.json"), "--yes"))

    assert status == 2
    assert expected in line


def test_import_refuses_a_file_with_a_token_that_is_none(on_file: Group, tmp_path: Path) -> None:
    """A number with a fraction would be stored as something that no host can raise."""
    value = exported(on_file, tmp_path / "e.json")
    value["leases"][0]["token"] = 1.5
    (tmp_path / "e.json").write_text(json.dumps(value))

    status, _, [line] = answer(on_file.run("leases import", str(tmp_path / "e.json"), "--yes"))

    assert (status, "token 1.5 of 'p0' is not a whole number" in line) == (2, True)


@pytest.fixture(params=["sqlite", "dynamodb"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Group:
    """The group, in each kind of store that a URL can name."""
    if request.param == "sqlite":
        found: Group = request.getfixturevalue("on_file")
        return found
    made = Group(url=request.getfixturevalue("table").url, folder=tmp_path)
    made.make(partitions=4)
    return made


def test_restored_raises_every_token_and_counts_the_restore(group: Group) -> None:
    """Also those that nobody has had since, a lease whose owner was alive in the backup, and those of locks."""
    with_history(group)
    before = group.leases()
    group.do(
        a_register("a:1", duration_s=0.3, handoff_s=0.3),
        AcquireLock(name="nightly", seen_owner=None, seen_token=None, session_id="a:1", host_id="a"),
    )

    once = answer(group.command("table restored", group.url, "--yes"))
    after, told = group.leases(), group.told("lock show nightly")
    twice = json.loads(group.command("table restored", group.url, "--yes", "--json").stdout)

    assert once == (
        0,
        [f"{GROUP}: 6 tokens raised, restore 1"],
        [f"group {GROUP!r} has 1 session; watching for 0 s whether one beats"],
    )
    assert after == {name: replace(each, token=each.token + 10**9) for name, each in before.items()}
    assert twice == [{"group": GROUP, "partitions": 5, "locks": 1, "restore_count": 2}]
    assert told["token"] == 1 + 10**9
    assert group.sessions() == {}


def test_restored_raises_the_tokens_of_a_group_that_has_locks_alone(tmp_path: Path) -> None:
    """Nobody has set it up, since locks need no stream."""
    group = Group(url=f"sqlite://{tmp_path / 'locks.db'}", folder=tmp_path)
    group.open_only()
    group.do(AcquireLock(name="nightly", seen_owner=None, seen_token=None, session_id="a:1", host_id="a"))

    done = answer(group.command("table restored", group.url, "--yes"))

    assert done == (0, [f"{GROUP}: 1 token raised"], [])
    assert group.told("lock show nightly")["token"] == 1 + 10**9


def test_restored_fences_whoever_was_at_work_under_an_old_token(group: Group) -> None:
    """Somebody whom nobody stopped: its checkpoints are refused from here on."""
    group.do(an_acquire(a_lease("p0"), "a:1"))
    group.command("table restored", group.url, "--yes")
    save = SaveCheckpoint(partition="p0", owner="a:1", token=1, position="3", seq=1)

    with pytest.raises(AssertionError, match="Refused"):
        group.do(save)


@pytest.mark.parametrize("command", ["table restored", "leases import"])
def test_restored_and_import_refuse_while_a_host_beats(command: str, group: Group, tmp_path: Path) -> None:
    """Under a living host the token of its terms must not change, nor what it has deleted come back."""
    file = tmp_path / "e.json"
    exported(group, file)
    group.do(a_register("a:1"))
    before = group.leases()
    with group.beating(a_beat("a:1")):
        result = (
            group.command(command, group.url, "--yes")
            if command == "table restored"
            else group.run(command, str(file), "--yes")
        )

    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"processor-host: host 'a' of group {GROUP!r} is alive (session 'a:1'); stop all hosts of the group first"
    )
    assert group.leases() == before
    group.do(Fence(session_id="a:1", seen_beat=group.sessions()["a:1"].beat))


def test_restored_asks_first(on_file: Group) -> None:
    """It ends every term."""
    result = on_file.command("table restored", on_file.url, typed="n\n")

    assert result.stderr.startswith(
        f"Every token of {GROUP} in {on_file.url} is raised by 1,000,000,000. Go on? [y/N]: "
    )
    assert (result.exit_code, on_file.leases()["p0"].token) == (2, 0)
