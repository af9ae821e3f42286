"""One item that somebody has spoilt by hand stands still; the group around it goes on (DESIGN rule 15)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest

from partitions.errors import StoreMisconfigured
from partitions.lock_verbs import ReleaseLock
from partitions.planner import plan
from partitions.positions import EARLIEST
from partitions.rules import PAUSE_REASON
from partitions.stores.base import Store
from partitions.stores.sqlite import SqliteStore
from partitions.unreadable import FOR_EVER_S, is_stand_in
from partitions.verbs import Applied, Create, Leave, Pause, Refused, SaveCheckpoint
from tests.builders import a_lease, a_lock, a_register, a_session, an_acquire, an_acquire_of_lock
from tests.servers.fixtures import aws_dummies as aws_dummies
from tests.servers.fixtures import moto_url as moto_url
from tests.servers.raw import caller
from tests.stores.kinds import dynamodb_at

__all__: list[str] = []

G = "g"


async def filled(store: Store) -> None:
    """Two leases and two locks, held by a session that lives, and another session."""
    await store.create()
    await store.open()
    for partition in ("bad", "good"):
        await store.submit(G, Create(partition=partition, position=EARLIEST))
        await store.submit(G, an_acquire(a_lease(partition)))
        await store.submit(G, an_acquire_of_lock(None, name=partition))
    for session_id in ("a:1", "evil:1"):
        await store.submit(G, a_register(session_id))


async def check_what_is_spoilt_stands_still(store: Store) -> None:
    """The lease and the lock `bad` have no readable token, the session `evil:1` no readable beat."""
    leases = {lease.partition: lease for lease in await store.read_leases(G)}
    (some,) = await store.read_some_leases(G, ["bad"])
    sessions = {session.session_id: session for session in await store.read_sessions(G, consistent=True)}
    good = a_lease("good", owner="a:1", token=1, last_host="a")

    assert leases["good"] == good
    assert sessions["a:1"] == a_session("a:1")
    bad = leases["bad"]
    assert (bad.owner, bad.paused, bad.finished, is_stand_in(bad)) == (None, True, False, True)
    assert "repair or delete it" in str(bad.extra[PAUSE_REASON])
    assert some == bad
    evil = sessions["evil:1"]
    assert (evil.host_id, evil.capacity, evil.duration_s, is_stand_in(evil)) == ("evil", 0.0, FOR_EVER_S, True)
    locks = {lock.name: lock for lock in await store.read_locks(G)}
    assert locks["good"] == a_lock("good", owner="a:1", holder="a")
    assert (locks["bad"].owner, locks["bad"].expires, is_stand_in(locks["bad"])) == ("", False, True)
    assert "repair or delete it" in str(locks["bad"].extra["unreadable"])
    assert (await store.read_some_locks(G, ["bad"]), await store.read_lock(G, "bad")) == ((locks["bad"],), locks["bad"])
    # Nobody is to take the lease, and nothing is planned for the session.
    assert dict(plan(leases.values(), sessions.values()).targets) == {"good": "a:1"}

    for verb in (
        an_acquire(bad, "b:1"),
        Pause(partition="bad", seen_token=bad.token),
        SaveCheckpoint(partition="bad", owner="a:1", token=1, position="7", seq=1),
    ):
        assert await store.submit(G, verb) == Refused(current=bad)
    assert {lease.partition: lease for lease in await store.read_leases(G)} == leases
    for of_lock in (an_acquire_of_lock(locks["bad"], "b:1"), ReleaseLock(name="bad", owner="a:1", token=1)):
        assert await store.submit(G, of_lock) == Refused(current=locks["bad"])
    assert {lock.name: lock for lock in await store.read_locks(G)} == locks
    # Its own host ends a session that it cannot read, and the item is gone.
    left = await store.submit(G, Leave(session_id="evil:1"))
    assert isinstance(left, Applied)
    assert left.item is None
    assert await store.read_sessions(G, consistent=True) == (a_session("a:1"),)


async def test_items_spoilt_in_a_lease_file_stand_still_alone(tmp_path: Path) -> None:
    """SQLite keeps a value of any type in any column, so a slip in its shell is stored as it is."""
    store = SqliteStore(tmp_path / "leases.db")
    await filled(store)
    with sqlite3.connect(tmp_path / "leases.db") as connection:
        connection.execute("UPDATE leases SET token = 'one' WHERE partition = 'bad'")
        connection.execute("UPDATE named_locks SET token = 'one' WHERE name = 'bad'")
        connection.execute("UPDATE sessions SET beat = 'none' WHERE session_id = 'evil:1'")
    connection.close()

    await check_what_is_spoilt_stands_still(store)
    await store.close()


async def test_row_of_a_group_that_is_spoilt_is_named(tmp_path: Path) -> None:
    """Nothing stands for what all hosts must agree on: they stop, with what to repair."""
    store = SqliteStore(tmp_path / "leases.db")
    await store.create()
    await store.open()
    with sqlite3.connect(tmp_path / "leases.db") as connection:
        connection.execute("INSERT INTO groups VALUES ('g', 'new', 's', '@earliest', 'count', 0, '{}')")
    connection.close()

    told = r"\('g', 'new'\) of table 'groups' .* schema_version is 'new'; repair"
    with pytest.raises(StoreMisconfigured, match=told):
        await store.read_group(G)
    await store.close()


async def test_items_spoilt_in_a_table_stand_still_alone(moto_url: str, aws_dummies: None) -> None:
    """A person's slip in the console must not end the planning of the group, with the dead host's leases orphaned."""
    table = f"spoilt-{uuid4().hex[:12]}"
    store = dynamodb_at(moto_url, table)
    await filled(store)
    leases = {lease.partition for lease in await store.read_leases(G)}
    async with caller(moto_url) as call:
        for pk in (f"{G}#leases#{number}" for number in range(8)):
            await call("dynamodb", "UpdateItem", **spoilt(table, pk, "bad", "token"))
        await call("dynamodb", "UpdateItem", **spoilt(table, f"{G}#locks", "bad", "token"))
        await call("dynamodb", "UpdateItem", **spoilt(table, f"{G}#hosts", "evil:1", "beat"))

    assert leases == {"bad", "good"}
    await check_what_is_spoilt_stands_still(store)
    await store.close()


def spoilt(table: str, pk: str, sk: str, attribute: str) -> dict[str, object]:
    """The request that puts a text where a number belongs, if the item is there."""
    return {
        "TableName": table,
        "Key": {"pk": {"S": pk}, "sk": {"S": sk}},
        "UpdateExpression": "SET #a = :a",
        "ConditionExpression": "attribute_exists(pk)",
        "ExpressionAttributeNames": {"#a": attribute},
        "ExpressionAttributeValues": {":a": {"S": "one"}},
    }
