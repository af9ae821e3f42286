"""moto behind one lock: what stock moto gets wrong, it gets right, and it serves what the tests need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from tests.servers.kinds import Kind
from tests.servers.processes import launch
from tests.servers.raw import Answer, Caller, caller

__all__: list[str] = []

RACERS = 32
ROUNDS = 5
ADDS = 10
PAUSE_S = 0.1

# By then the long poll has begun, also on a machine under load; too short a pause would only show less.
LONG_POLL_BEGUN_S = 0.5
LONG_POLL_S = 10


async def take(call: Caller, table: str, racer: int, round_: int) -> Answer:
    """Take the lease of one round, if nobody has it."""
    return await call(
        "dynamodb",
        "UpdateItem",
        TableName=table,
        Key={"pk": {"S": "race"}, "sk": {"S": str(round_)}},
        UpdateExpression="SET #o = :me",
        ConditionExpression="attribute_not_exists(#o)",
        ExpressionAttributeNames={"#o": "owner"},
        ExpressionAttributeValues={":me": {"S": str(racer)}},
    )


async def winners(url: str, table: str) -> list[int]:
    """How many of all racers won each round; another answer than taken or refused counts as 1,000."""
    counts: list[int] = []
    async with caller(url) as call:
        await call.make_table(table)
        for round_ in range(ROUNDS):
            answers: list[Answer] = []

            async def race(racer: int, round_: int = round_, answers: list[Answer] = answers) -> None:
                answers.append(await take(call, table, racer, round_))

            async with anyio.create_task_group() as tasks:
                for racer in range(RACERS):
                    tasks.start_soon(race, racer)
            refused = [answer for answer in answers if answer.error == "ConditionalCheckFailedException"]
            won = [answer for answer in answers if answer.status == 200]
            counts.append(len(won) + 1000 * (RACERS - len(won) - len(refused)))
    return counts


@contextmanager
def moto_that_pauses(*options: str, log_folder: Path) -> Iterator[str]:
    """moto whose updates wait between their check and their write, so that a race that can go wrong does."""
    command = [sys.executable, "-m", "tests.servers.moto", "--pause-s", str(PAUSE_S), *options]
    kind = Kind(name="moto", speaks="dynamodb", command=lambda port: [*command, "--port", str(port)])
    server = launch(kind, None, log_folder)
    try:
        yield server.url
    finally:
        server.stop()


async def test_moto_lets_one_of_concurrent_conditional_updates_win(tmp_path: Path) -> None:
    """Ownership rests on it; on a server that lets two win, each test of a race would be about the server."""
    with moto_that_pauses(log_folder=tmp_path) as url:
        assert await winners(url, "races") == [1] * ROUNDS


async def test_moto_without_the_lock_lets_several_win(tmp_path: Path) -> None:
    """Why there is a lock, and that the test above would see one that does not lock."""
    with moto_that_pauses("--unlocked", log_folder=tmp_path) as url:
        counts = await winners(url, "races")

    print(f"moto without the lock, {RACERS} racers: winners of {ROUNDS} rounds: {counts}")
    assert counts != [1] * ROUNDS


async def test_moto_loses_no_concurrent_add(moto_url: str) -> None:
    """A read and a write with another's write between them would lose that one."""
    async with caller(moto_url) as call:
        await call.make_table("adds")
        key = {"pk": {"S": "sum"}, "sk": {"S": "sum"}}

        async def add() -> None:
            for _ in range(ADDS):
                answer = await call(
                    "dynamodb",
                    "UpdateItem",
                    TableName="adds",
                    Key=key,
                    UpdateExpression="ADD #n :one",
                    ExpressionAttributeNames={"#n": "n"},
                    ExpressionAttributeValues={":one": {"N": "1"}},
                )
                assert answer.status == 200, answer

        async with anyio.create_task_group() as tasks:
            for _ in range(RACERS):
                tasks.start_soon(add)
        found = await call("dynamodb", "GetItem", TableName="adds", Key=key, ConsistentRead=True)

    assert found.body["Item"] == {**key, "n": {"N": str(RACERS * ADDS)}}


async def test_moto_keeps_its_connections(moto_url: str) -> None:
    """A connection for each call would make its cost the tests' time, and hide what a client does with its own."""
    async with caller(moto_url, connections_max=1) as call:
        answers = [await call("dynamodb", "ListTables") for _ in range(5)]

    assert ([answer.status for answer in answers], call.connections) == ([200] * 5, 1)


async def test_moto_goes_on_while_a_receiver_waits_for_a_message(moto_url: str) -> None:
    """A long poll that held the lock would keep out the very message that it waits for."""
    async with caller(moto_url) as call:
        made = await call("sqs", "CreateQueue", QueueName="letters")
        queue = made.body["QueueUrl"]
        received: list[str] = []

        async def receive() -> None:
            answer = await call("sqs", "ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=LONG_POLL_S)
            received.extend(message["Body"] for message in answer.body.get("Messages", []))

        with anyio.fail_after(LONG_POLL_S * 0.8):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                await anyio.sleep(LONG_POLL_BEGUN_S)
                await call("sqs", "SendMessage", QueueUrl=queue, MessageBody="first")

    assert received == ["first"]


def test_moto_refuses_to_start_without_a_port() -> None:
    """A fixed port would be taken by whoever runs the tests a second time."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.servers.moto"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.returncode, "--port" in result.stderr) == (2, True), result.stderr
