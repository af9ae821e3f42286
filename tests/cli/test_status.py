"""
`processor-host status`: what it shows of a store, how it watches, and what it refuses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from partitions.items import GroupItem, LeaseItem
from partitions.liveness import LiveView
from partitions.sources.local import Entry, LocalStream
from partitions.sources.memory import MemorySource
from partitions.stores.base import Store
from partitions.stores.memory import MemoryStore
from partitions.stores.sqlite import SqliteStore
from partitions.verbs import Ask, Complete, Create, SetUp, Verb
from processor_host.cli import main
from processor_host.cli.status import read_status
from processor_host.errors import UserError
from processor_host.status import status_of
from tests.builders import a_beat, a_group, a_lease, a_register, a_session, an_acquire, an_acquire_of_lock

__all__: list[str] = []

VERBS: tuple[Verb[Any], ...] = (
    *(Create(partition=name, position="@earliest") for name in ("p0", "p1")),
    a_register("a:11aa"),
    a_register("b:22bb"),
    an_acquire(a_lease("p0"), "a:11aa"),
    Ask(session_id="a:11aa", keys=("p0@1",), asker="b:22bb"),
)
"""A group of two hosts and two partitions, one of which is asked for."""

A = a_session("a:11aa", asks={"p0@1": "b:22bb"})
B = a_session("b:22bb")
P0 = a_lease("p0", owner="a:11aa", token=1, last_host="a")
P1 = a_lease("p1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a lease file and a stream."""
    monkeypatch.chdir(tmp_path)
    stream = LocalStream.create(tmp_path / "s.db", partitions=2)
    anyio.run(fill, SqliteStore(tmp_path / "leases.db"), stream.describe().identity)
    stream.append([Entry(data=b"{}", key=None)])
    stream.close()
    return tmp_path


async def fill(store: Store, source: str = a_group().source) -> None:
    await store.create()
    await store.open()
    await store.submit("orders", SetUp(item=a_group(source=source)))
    for verb in VERBS:
        await store.submit("orders", verb)
    await store.close()


def of_stream(folder: Path) -> GroupItem:
    with LocalStream.open(folder / "s.db") as stream:
        return a_group(source=stream.describe().identity)


def status(*options: str, group: str = "orders", store: str = "sqlite:leases.db", **runner: Any) -> Result:
    return CliRunner(**runner).invoke(main, ["status", "--group", group, "--store", store, *options])


def test_status_shows_who_owns_what_and_who_waits_for_whom(folder: Path) -> None:
    """The first command that somebody types when something looks wrong."""
    result = status()

    lines = [line.split() for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (0, "")
    assert ["p0", "asked", "a", "1", "@earliest", "b"] in lines
    assert ["p1", "free", "0", "@earliest"] in lines
    assert "2 hosts; 0 owned, 1 asked, 1 free" in result.stdout


def test_status_as_json_is_what_the_items_say(folder: Path) -> None:
    """Scripts get everything, in the documented shape."""
    result = status("--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == status_of("orders", of_stream(folder), [P0, P1], [A, B]).as_json()


def test_status_shows_the_lag_where_it_is_given_the_source(folder: Path) -> None:
    """How far behind is not in the store; only the source knows what has arrived since."""
    rows = json.loads(status("--json", "--source", "local:s.db").stdout)["partitions"]

    assert [(row["partition"], row["lag_s"]) for row in rows] == [("p0", 0.0), ("p1", 0.0)]


def test_status_refuses_a_source_that_is_not_the_streams_own(folder: Path) -> None:
    """A lag read from another stream, or from one made anew under the same name, would say that all is well."""
    own = of_stream(folder).source
    (folder / "s.db").unlink()
    LocalStream.create(folder / "s.db", partitions=2).close()

    result = status("--source", "local:s.db")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"processor-host: group 'orders' belongs to the stream {own!r}, but the source is "
        f"{of_stream(folder).source!r}; point --source at the group's own stream, or leave it out\n"
    )


def test_status_can_be_written_to_a_pipe_that_knows_only_ascii(folder: Path) -> None:
    """A cron job has no locale."""
    anyio.run(put_long_position, folder)

    result = status(charset="ascii")

    assert result.exit_code == 0
    assert r"\u202600000000042" in result.stdout


async def put_long_position(folder: Path) -> None:
    store = SqliteStore(folder / "leases.db")
    await store.open()
    await store.submit("orders", Create(partition="p2", position="1" + "0" * 30 + "42"))
    await store.close()


def test_status_says_that_a_store_is_not_there_and_makes_none(folder: Path) -> None:
    """A command that looks must not leave a file behind that then looks empty."""
    result = status(store="sqlite:other.db")

    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
    assert "other.db" in result.stderr
    assert not (folder / "other.db").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"group": "order"},
            "sqlite:{folder}/leases.db has no group 'order'; check --group and --store, or start a host of it first",
        ),
        (
            {"group": "or ders"},
            "group='or ders' is not an id; use 1 to 128 letters, digits, dots, underscores and hyphens",
        ),
        ({"store": "leases.db"}, "'leases.db' names no store; did you mean 'sqlite:leases.db'?"),
    ],
)
def test_status_refuses_bad_input_in_one_line(options: dict[str, str], expected: str, folder: Path) -> None:
    """The value, and what to do."""
    result = status(**options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.replace("sqlite:///", "sqlite:/") == f"processor-host: {expected.format(folder=folder)}\n"


async def test_status_tells_who_is_alive_once_it_has_watched() -> None:
    """A beat that does not move for its own duration is that of a dead host; one look cannot tell."""
    store = MemoryStore()
    await fill(store)
    view: LiveView | None = LiveView.empty()
    seen: list[list[bool | None]] = []
    for now_s in (100.0, 105.0, 110.2):
        await store.submit("orders", a_beat("b:22bb"))
        found, view = await read_status(store, "orders", view=view, now_s=partial(float, now_s))
        seen.append([host.alive for host in found.hosts])
    once, _ = await read_status(store, "orders", now_s=lambda: 0.0)

    assert seen == [[True, True], [True, True], [False, True]]
    assert [host.alive for host in once.hosts] == [None, None]


async def test_status_reads_sessions_after_leases() -> None:
    """A host that registers between the two reads would else look as if it had died with its leases."""
    store = SlowSessions()
    await fill(store)

    found, _ = await read_status(store, "orders", now_s=lambda: 0.0)

    assert [(row.partition, row.state) for row in found.partitions] == [("p0", "asked"), ("p1", "free")]
    assert [host.host_id for host in found.hosts] == ["a", "b", "late"]


class SlowSessions(MemoryStore):
    """A store in which a host registers and takes a lease as soon as the leases have been read."""

    __slots__ = ()

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        found = await super().read_leases(group)
        await self.submit(group, a_register("late:33cc"))
        await self.submit(group, an_acquire(P1, "late:33cc"))
        return found


async def test_status_of_a_group_that_is_not_there_is_refused() -> None:
    """An empty table would say that the group has lost everything."""
    with pytest.raises(UserError, match="memory: has no group 'orders'"):
        await read_status(MemoryStore(), "orders", now_s=lambda: 0.0)


async def test_status_of_a_group_that_has_only_locks_names_the_command_for_them() -> None:
    """A program that only takes turns has a group too; without a hint people look for a slip of their own."""
    store = MemoryStore()
    await store.submit("orders", a_register("a:11aa"))
    await store.submit("orders", an_acquire_of_lock(None, "a:11aa"))

    with pytest.raises(UserError, match="no partitions of a group 'orders', only 1 lock; 'processor-host lock list"):
        await read_status(store, "orders", now_s=lambda: 0.0)


async def test_status_asks_the_source_for_the_lag_after_the_checkpoint() -> None:
    """What a checkpoint covers is not behind, and a partition that has ended is not asked for."""
    source, store = MemorySource(lambda: 0.0, partitions=3), MemoryStore()
    p0, p1, p2 = sorted(info.partition for info in source.list_now())
    done, *_ = (source.put(p0, b"{}", time_s=time_s) for time_s in (100.0, 107.5, 109.0))
    items = [a_lease(p0, position=done), a_lease(p1), a_lease(p2, finished=True)]
    await store.submit("orders", SetUp(item=a_group(source=await source.identity())))
    for lease in items:
        await store.submit("orders", Create(partition=lease.partition, position=lease.position))
    await store.submit("orders", a_register("a:11aa"))
    await store.submit("orders", an_acquire(a_lease(p2), "a:11aa"))
    await store.submit("orders", Complete(partition=p2, owner="a:11aa", token=1))

    found, _ = await read_status(store, "orders", source=source, now_s=lambda: 0.0)

    assert [(row.partition, row.lag_s) for row in found.partitions] == [(p0, 1.5), (p1, 0.0), (p2, None)]


@pytest.mark.processes
def test_status_watches_until_it_is_interrupted(folder: Path) -> None:
    """One JSON object for each look, and status 0: it was meant to end like this."""
    watch = subprocess.Popen(
        [
            *(sys.executable, "-m", "processor_host", "status", "--group", "orders"),
            *("--store", "sqlite:leases.db", "--watch", "--json"),
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert watch.stdout is not None
        looks = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.send_signal(signal.SIGINT)
        assert watch.wait(5) == 0
    finally:
        watch.kill()
        watch.communicate()

    assert [[host["alive"] for host in look["hosts"]] for look in looks] == [[True, True]] * 3
    assert [look["hosts"][0]["unchanged_s"] >= seconds for look, seconds in zip(looks, (0, 1, 2), strict=True)] == [
        True
    ] * 3
