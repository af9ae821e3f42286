"""A holder that was frozen writes too late to a real PostgreSQL, which refuses it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from partitions.stores.sqlite import SqliteStore
from tests.processes.harness import start
from tests.processes.locks.writer import FENCE, LOCK

__all__: list[str] = []

pytestmark = [pytest.mark.processes, pytest.mark.servers]

DURATION_S = 1.0
WITHIN_S = 60.0
POLL_S = 0.05


@pytest.fixture
def base(postgres_conninfo: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with a fence, a table that it guards, and a row that is its own fence."""
    with psycopg.connect(postgres_conninfo, autocommit=True) as connection:
        for statement in (FENCE.created(), FENCE.row_made(LOCK)):
            connection.execute(*statement)
        connection.execute("CREATE TABLE lines (id serial, host_id text, token bigint)")
        connection.execute("CREATE TABLE reports (id int, writer text, fence bigint NOT NULL)")
        connection.execute("INSERT INTO reports VALUES (1, '', 0)")
        yield connection
        connection.execute("DROP TABLE fences, lines, reports")


class Writers:
    """The processes of one test."""

    def __init__(self, folder: Path, conninfo: str) -> None:
        self._folder = folder
        store_url = f"sqlite://{folder / 'leases.db'}"
        self._given = {"store": store_url, "conninfo": conninfo, "duration_s": DURATION_S}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

        async def make() -> None:
            store = SqliteStore(folder / "leases.db")
            await store.create()
            await store.close()

        anyio.run(make)

    def start(self, host_id: str, freezes: str = "") -> None:
        given = json.dumps({**self._given, "host_id": host_id, "freezes": freezes})
        with (self._folder / f"log-{host_id}").open("wb") as log:
            command = [sys.executable, "-m", "tests.processes.locks.writer", given]
            self.processes[host_id] = start(command, self._folder, log, {})

    def told(self, host_id: str) -> list[tuple[str, int]]:
        lines = (self._folder / f"log-{host_id}").read_text().splitlines()
        return [(each["did"], each["token"]) for each in map(json.loads, lines)]

    def wait_for(self, host_id: str, did: str) -> None:
        until_s = time.monotonic() + WITHIN_S
        while did not in [each for each, _ in self.told(host_id)]:
            assert time.monotonic() < until_s, (host_id, did, self.told(host_id))
            time.sleep(POLL_S)


@pytest.fixture
def writers(tmp_path: Path, postgres_conninfo: str) -> Iterator[Writers]:
    """No process yet; those that are started are gone afterwards, also one that is frozen."""
    made = Writers(tmp_path, postgres_conninfo)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()


def test_late_write_of_a_frozen_holder_is_refused(base: psycopg.Connection[Any], writers: Writers) -> None:
    """It does not look at its lease between waking up and writing; the database does."""
    writers.start("a", "between two")
    writers.wait_for("a", "frozen")
    writers.start("b")
    assert writers.processes["b"].wait(WITHIN_S) == 0
    writers.processes["a"].send_signal(signal.SIGCONT)
    assert writers.processes["a"].wait(WITHIN_S) == 0

    assert {token for _, token in writers.told("a")} == {1}
    assert [did for did, _ in writers.told("a")] == ["wrote", "row written", "frozen", "refused", "row refused"]
    assert writers.told("b") == [("wrote", 2), ("row written", 2)]
    assert base.execute("SELECT host_id, token FROM lines ORDER BY id").fetchall() == [("a", 1), ("b", 2)]
    assert base.execute("SELECT writer, fence FROM reports").fetchall() == [("b", 2)]
    assert base.execute("SELECT name, fence FROM fences").fetchall() == [(LOCK, 2)]


def test_holder_that_froze_inside_a_transaction_is_ended_by_the_server(
    base: psycopg.Connection[Any], writers: Writers
) -> None:
    """Its row of the fence stays locked until then, and the next holder waits: hence the server's own time-out."""
    base.execute("ALTER SYSTEM SET idle_in_transaction_session_timeout = '1s'")
    base.execute("SELECT pg_reload_conf()")
    try:
        writers.start("a", "inside a transaction")
        writers.wait_for("a", "frozen")
        writers.start("b")
        assert writers.processes["b"].wait(WITHIN_S) == 0
        writers.processes["a"].send_signal(signal.SIGCONT)
        assert writers.processes["a"].wait(WITHIN_S) == 0
    finally:
        base.execute("ALTER SYSTEM RESET idle_in_transaction_session_timeout")
        base.execute("SELECT pg_reload_conf()")

    assert [did for did, _ in writers.told("a")] == ["frozen", "failed: IdleInTransactionSessionTimeout"]
    assert base.execute("SELECT host_id, token FROM lines").fetchall() == [("b", 2)]
