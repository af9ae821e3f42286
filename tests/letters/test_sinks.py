"""
Every sink against one conformance suite: a letter that was written is read again, once, until it is removed.

SQS and DynamoDB are moto's, a real process on loopback.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.places import AwsPlace
from processor_host.errors import NotThereError
from processor_host.letters.base import Found, Letter, LetterBox
from processor_host.letters.dynamodb import DynamoLetters
from processor_host.letters.file import FileLetters
from processor_host.letters.sqlite import SqliteLetters
from processor_host.letters.sqs import SqsLetters
from tests.letters.builders import a_letter

__all__: list[str] = []

KINDS = ("file", "sqlite", "sqs", "fifo", "dynamodb")
REGION = "eu-west-1"
SMALL_QUEUE = 5_000
"""Bytes that a message of the queues here may have."""

Make = Callable[[], LetterBox]


@dataclass
class Place:
    """Where a kind of sink is: each call of `make` is another process that opens the same one."""

    kind: str
    make: Make


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty sink of each kind."""
    kind: str = request.param
    if kind == "file":
        yield Place(kind, lambda: FileLetters(tmp_path / "letters.jsonl"))
    elif kind == "sqlite":
        yield Place(kind, lambda: SqliteLetters(tmp_path / "letters.db"))
    else:
        request.getfixturevalue("aws_dummies")
        where = AwsPlace(region=REGION, endpoint_url=request.getfixturevalue("moto_url"))
        name = f"letters-{uuid4().hex[:12]}"
        if kind == "dynamodb":
            async with admin("dynamodb", where) as client:
                await make_table(client, name)
            yield Place(kind, lambda: DynamoLetters(name, where))
        else:
            name += ".fifo" if kind == "fifo" else ""
            attributes = {"MaximumMessageSize": str(SMALL_QUEUE)} | ({"FifoQueue": "true"} if kind == "fifo" else {})
            async with admin("sqs", where) as client:
                await client.create_queue(QueueName=name, Attributes=attributes)
            yield Place(kind, lambda: SqsLetters(name, where, wait_s=0))


@asynccontextmanager
async def admin(service: str, where: AwsPlace) -> AsyncIterator[Any]:
    """A client for what a user does before: make the queue or the table."""
    clients = AwsClients(where)
    try:
        yield await clients.client("admin", service, ClientSettings(timeout_s=10, connections_max=1))
    finally:
        await clients.close()


async def make_table(client: Any, name: str, keys: tuple[str, str] = ("pk", "sk"), kind: str = "S") -> None:
    await client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": role} for key, role in zip(keys, ("HASH", "RANGE"), strict=True)],
        BillingMode="PAY_PER_REQUEST",
    )


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[LetterBox]:
    box = place.make()
    await box.open()
    try:
        yield box
    finally:
        await box.close()


def ordered(found: Found) -> list[Letter]:
    """The letters by their times: a queue keeps no order."""
    assert (found.unreadable, found.has_more) == ((), False)
    return sorted(found.letters, key=lambda letter: letter.time_s)


LETTERS = [
    a_letter("7", time_s=1.0),
    a_letter("8", time_s=2.0, data=b"\xff\x00", key=None, headers={}, record_time_s=None),
    a_letter("8", time_s=3.0, token=5, partition="p1", data=b"", error="", traceback="T\n" * 100),
    a_letter("9", time_s=4.0, key="ключ", error="KeyError: 'ß\U0001f600'"),
]


async def test_letters_that_were_written_are_read_by_another_process(place: Place) -> None:
    """A host writes them, and a person looks at them from elsewhere, after the host is gone."""
    async with opened(place) as box:
        for letter in LETTERS:
            await box.write(letter)
    async with opened(place) as box:
        found = await box.read(group="delays")
        again = await box.read(group="delays")

    assert ordered(found) == LETTERS
    assert ordered(again) == LETTERS


async def test_letter_that_is_written_twice_in_one_term_is_read_once(place: Place) -> None:
    """A crash between the letter and the checkpoint, and one record would look like two."""
    async with opened(place) as box:
        await box.write(LETTERS[0])
        await box.write(LETTERS[0])
        await box.write(replace(LETTERS[0], token=9, time_s=9.0))

        found = ordered(await box.read(group="delays"))
        await box.remove(found[:1])

        assert found == [LETTERS[0], replace(LETTERS[0], token=9, time_s=9.0)]
        assert ordered(await box.read(group="delays")) == found[1:]


async def test_letters_are_found_by_group_and_id(place: Place) -> None:
    """Groups share a sink, and a record may have letters of several terms."""
    other = a_letter("7", group="other", time_s=5.0)
    async with opened(place) as box:
        for letter in [*LETTERS, other]:
            await box.write(letter)
        found = [
            ordered(await box.read(group="other")),
            ordered(await box.read(group="delays", letter_id="p1@5/8")),
            ordered(await box.read(group="delays", letter_id="p1@5/9")),
        ]

    assert found == [[other], [LETTERS[2]], []]


async def test_removed_letters_are_gone_and_the_others_stay(place: Place) -> None:
    """What was replayed must not be replayed again by whoever looks next."""
    async with opened(place) as box:
        for letter in LETTERS:
            await box.write(letter)
        await box.read(group="delays")
        await box.remove([LETTERS[0], LETTERS[2]])
        await box.remove([LETTERS[0]])
        await box.remove([])
    async with opened(place) as box:
        assert ordered(await box.read(group="delays")) == [LETTERS[1], LETTERS[3]]


async def test_read_ends_at_its_limit_and_says_that_there_is_more(place: Place) -> None:
    """A sink may hold a million letters, and a terminal a thousand lines."""
    async with opened(place) as box:
        for letter in LETTERS:
            await box.write(letter)
        some = await box.read(group="delays", limit=3)
        everything = await box.read(group="delays", limit=4)

    assert (len(some.letters), some.has_more) == (3, True)
    assert ordered(everything) == LETTERS


async def test_sink_that_is_open_twice_is_closed_twice_without_harm(place: Place) -> None:
    """A host that fails at its start closes whatever it has made."""
    box = place.make()
    await box.close()
    await box.close()


@pytest.mark.parametrize("place", ["sqs", "fifo", "dynamodb"], indirect=True)
async def test_letter_larger_than_the_sink_takes_is_cut_and_says_where_the_record_is(place: Place) -> None:
    """A record of 1 MB fits no item of DynamoDB; it must not block its partition for that."""
    letter = a_letter("7", data=bytes(range(256)) * 4_000)
    async with opened(place) as box:
        await box.write(letter)
        (kept,) = ordered(await box.read(group="delays"))

    room = 250_000 if place.kind == "dynamodb" else 2_500
    assert room < len(kept.data) < letter.data_bytes
    assert (kept.data_bytes, letter.data.startswith(kept.data)) == (letter.data_bytes, True)
    assert kept.pointer == "local:s.db, partition p0, the record after position 6"
    assert kept == replace(letter, data=kept.data, is_whole=False)


@pytest.mark.parametrize("place", ["sqs", "fifo"], indirect=True)
async def test_message_that_is_no_letter_is_told_and_left_in_the_queue(place: Place) -> None:
    """Somebody else's message must neither break a look nor vanish with it."""
    async with opened(place) as box:
        assert isinstance(box, SqsLetters)
        queue = box._opened()
        more = {"MessageGroupId": "x", "MessageDeduplicationId": "x"} if queue.is_fifo else {}
        await box._call("send_message", QueueUrl=queue.address, MessageBody="hello", **more)
        await box.write(LETTERS[0])
        looks = [await box.read(), await box.read()]

    assert [look.letters for look in looks] == [(LETTERS[0],)] * 2
    assert [line.partition(": not JSON")[1] for look in looks for line in look.unreadable] == [": not JSON"] * 2


@pytest.mark.parametrize("place", ["dynamodb"], indirect=True)
async def test_letter_of_dynamodb_is_one_part_of_a_transaction(place: Place) -> None:
    """With the lease in DynamoDB too, letter and checkpoint are stored together."""
    async with opened(place) as box:
        assert isinstance(box, DynamoLetters)
        await box._call("transact_write_items", TransactItems=[{"Put": box.put_of(LETTERS[0])}])

        assert ordered(await box.read(group="delays")) == [LETTERS[0]]
        with pytest.raises(ValueError, match="keeps letters by group; name one"):
            await box.read()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_file_that_cannot_be_there_is_told_at_the_start(kind: str, tmp_path: Path) -> None:
    """At the first failure it would be too late: the partition would stand still."""
    path = tmp_path / "missing" / "letters"
    box: LetterBox = FileLetters(path) if kind == "file" else SqliteLetters(path)
    with pytest.raises(NotThereError, match="name a file that may be written, in a folder that is there"):
        await box.open()


async def test_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """The lease file is one slip of the keyboard away."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "leases.db")) as db:
        db.execute("CREATE TABLE leases (x)")
    with pytest.raises(NotThereError, match="is another database, not one of letters; name a file of its own"):
        await SqliteLetters(tmp_path / "leases.db").open()


async def test_queue_and_table_that_are_not_there_are_told_at_the_start(moto_url: str, aws_dummies: None) -> None:
    """With the action, the resource and the region, as every error of AWS here."""
    where = AwsPlace(region=REGION, endpoint_url=moto_url)
    texts = []
    for box in (SqsLetters("no-such-queue", where), DynamoLetters("no-such-table", where)):
        with pytest.raises(NotThereError) as refused:
            await box.open()
        texts.append(str(refused.value))
        await box.close()

    assert texts[0].startswith("sqs:GetQueueUrl on queue 'no-such-queue' in eu-west-1 failed (")
    assert texts[0].endswith("; check its name, the region and the account, or create it")
    assert texts[1].startswith("dynamodb:DescribeTable on table 'no-such-table' in eu-west-1 failed (")


@pytest.mark.parametrize(("keys", "kind"), [(("id", "range"), "S"), (("sk", "pk"), "S"), (("pk", "sk"), "N")])
async def test_table_with_other_keys_is_told_at_the_start(
    keys: tuple[str, str], kind: str, moto_url: str, aws_dummies: None
) -> None:
    """The first letter would be refused otherwise, and block its partition."""
    where = AwsPlace(region=REGION, endpoint_url=moto_url)
    name = f"other-keys-{uuid4().hex[:12]}"
    async with admin("dynamodb", where) as client:
        await make_table(client, name, keys, kind)
    box = DynamoLetters(name, where)
    with pytest.raises(NotThereError, match=r"has the keys \[.*\], expected the texts 'pk' and 'sk'"):
        await box.open()
    await box.close()


async def test_line_that_a_crash_left_unfinished_costs_no_other_letter(tmp_path: Path) -> None:
    """Its writer was never told that it is there; the next letter must not end up in the same line."""
    path = tmp_path / "letters.jsonl"
    box = FileLetters(path)
    await box.write(LETTERS[0])
    with path.open("ab") as file:
        file.write(b'{"id":"p0@4/8","gro')
    await box.write(LETTERS[1])
    found = await box.read()

    assert found.letters == (LETTERS[0], LETTERS[1])
    assert [line.partition(": not JSON")[0] for line in found.unreadable] == [f"file:{path}, line 2"]


async def test_letter_that_comes_after_a_removal_counts_again(tmp_path: Path) -> None:
    """A record that was put back may fail again under the same name."""
    box = FileLetters(tmp_path / "letters.jsonl")
    await box.write(LETTERS[0])
    await box.remove([LETTERS[0]])
    await box.write(LETTERS[0])

    assert (await box.read()).letters == (LETTERS[0],)
