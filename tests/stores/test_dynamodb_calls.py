"""
What the store makes of each answer: what it sends again and when, and what it tells its caller.

The clients are played, on virtual time: a store takes clients that are passed in, and servers neither throttle nor lose
an answer when a test wants it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from botocore.exceptions import ClientError, NoRegionError, ReadTimeoutError  # type: ignore[import-untyped]

from partitions.codecs.items import LEASE, SESSION
from partitions.errors import StoreGone, StoreMisconfigured, StoreUnavailable
from partitions.items import SessionItem
from partitions.positions import END
from partitions.stores.dynamodb import DynamoDBStore
from partitions.stores.dynamodb.tables import create_request
from partitions.verbs import Applied, Ask, Child, Complete, Drain, Fence, Leave, Refused, SaveCheckpoint, Verb
from tests.builders import a_beat, a_lease, a_register, a_session
from tests.stage import VIRTUAL_TIME

__all__: list[str] = []

SAVE = SaveCheckpoint(partition="p", owner="a:1", token=1, position="7", seq=1)
HELD = a_lease("p", owner="a:1", token=1, position="7", seq=1)
ATTRIBUTES = LEASE.to_attributes("g", HELD)


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Longest(Random):
    """Every wait at its longest."""

    def random(self) -> float:
        return 1.0


def answered(code: str, status: int = 400, **more: Any) -> Exception:
    told = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    error: Exception = ClientError(told, "Op")
    return error


THROTTLED = answered("ProvisionedThroughputExceededException")
CONFLICT = answered("TransactionConflictException")
LOST = ReadTimeoutError(endpoint_url="u")

Answer = Mapping[str, Any] | Exception | Callable[[dict[str, Any]], Mapping[str, Any]]


class Client:
    """Plays a client: each call takes the next answer of its method, and the last one for ever after."""

    def __init__(self, name: str, script: Mapping[str, Sequence[Answer]], calls: list[tuple[str, str, float]]) -> None:
        self.name = name
        self.script = {method: list(answers) for method, answers in script.items()}
        self.calls = calls
        self.requests: list[dict[str, Any]] = []
        self.meta = type("Meta", (), {"region_name": "eu-west-1"})

    def __getattr__(self, method: str) -> Any:
        async def call(**request: Any) -> Any:
            self.calls.append((self.name, method, round(anyio.current_time() - self.began_s, 3)))
            self.requests.append(request)
            await anyio.lowlevel.checkpoint()
            answers = self.script[method]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer(request) if callable(answer) else answer

        return call

    began_s = 0.0


TABLE = {
    "TableStatus": "ACTIVE",
    **{name: create_request("leases")[name] for name in ("AttributeDefinitions", "KeySchema")},
}


class Played:
    """A store on played clients, and what they were asked."""

    def __init__(self, table: Mapping[str, Any] = TABLE, **script: Sequence[Answer]) -> None:
        self.calls: list[tuple[str, str, float]] = []
        every = {"describe_table": [{"Table": table}], **script}
        self.clients = {name: Client(name, every, self.calls) for name in ("beats", "writes", "reads")}
        self.store = DynamoDBStore("leases", clients=self.clients, random=Longest())

    async def opened(self) -> DynamoDBStore:
        await self.store.open()
        self.calls.clear()
        for client in self.clients.values():
            client.began_s = anyio.current_time()
            client.requests.clear()
        return self.store

    def times_s(self) -> list[float]:
        return [at_s for _, _, at_s in self.calls]


async def test_throttled_write_is_sent_again_with_growing_waits() -> None:
    """It was not applied, so a second try cannot look like a lost race; case C11."""
    played = Played(update_item=[THROTTLED, THROTTLED, THROTTLED, {"Attributes": ATTRIBUTES}])
    store = await played.opened()

    assert await store.submit("g", SAVE) == Applied(item=HELD)
    assert played.times_s() == [0.0, 0.05, 0.15, 0.35]


@pytest.mark.parametrize(("error", "total_s"), [(THROTTLED, 1.55), (CONFLICT, 0.62)])
async def test_tries_end_and_tell_what_it_was(error: Exception, total_s: float) -> None:
    """Its sender tries again too: without a bound here, one call would be a storm of requests."""
    played = Played(update_item=[error])
    store = await played.opened()

    with pytest.raises(StoreUnavailable, match="dynamodb:UpdateItem on table 'leases' in eu-west-1") as caught:
        await store.submit("g", SAVE)

    assert len(played.calls) == 6
    assert played.times_s()[-1] == pytest.approx(total_s)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [LOST, answered("InternalServerError", status=500)])
async def test_write_in_doubt_is_sent_once(error: Exception) -> None:
    """It may have been applied; sent again it would be refused, and look like a lost lease (case C08)."""
    played = Played(update_item=[error, {"Attributes": ATTRIBUTES}])
    store = await played.opened()

    with pytest.raises(StoreUnavailable):
        await store.submit("g", SAVE)

    assert len(played.calls) == 1


async def test_read_in_doubt_is_sent_once_more() -> None:
    """It changes nothing, and the usual reason is a connection that was closed while nobody used it."""
    played = Played(get_item=[LOST, {"Item": ATTRIBUTES}, LOST, LOST, {"Item": ATTRIBUTES}])
    store = await played.opened()

    assert await store.read_lease("g", "p") == HELD
    with pytest.raises(StoreUnavailable):
        await store.read_lease("g", "p")

    assert len(played.calls) == 4


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ResourceNotFoundException", "ExpiredTokenException", "ValidationException"]
)
async def test_what_no_retry_mends_is_told_at_once(code: str) -> None:
    """A permission that is missing must not show as endless retries (case C36)."""
    played = Played(update_item=[answered(code)])
    store = await played.opened()

    told = f"dynamodb:UpdateItem on table 'leases' in eu-west-1 failed .{code}"
    with pytest.raises(StoreMisconfigured, match=told) as raised:
        await store.submit("g", SAVE)

    assert len(played.calls) == 1
    # What a table that is gone has granted is void; a right may come back.
    assert (type(raised.value) is StoreGone) == (code == "ResourceNotFoundException")


async def test_fault_of_this_program_is_not_taken_for_an_outage() -> None:
    """It would be tried again for ever."""
    played = Played(update_item=[ZeroDivisionError()])
    store = await played.opened()

    with pytest.raises(ZeroDivisionError):
        await store.submit("g", SAVE)


async def test_call_whose_store_is_closed_meanwhile_is_not_sent_again() -> None:
    """A host that stops closes under what is still on its way; that is an error of the store like any other."""
    played = Played()
    store = await played.opened()

    async def close_and_lose(**_: Any) -> Any:
        await store.close()
        raise LOST

    vars(played.clients["reads"])["get_item"] = close_and_lose
    with pytest.raises(StoreUnavailable, match="closed meanwhile"):
        await store.read_lease("g", "p")


async def test_refusal_that_carries_the_item_needs_no_read() -> None:
    """One request, as for a write that is applied."""
    current = a_lease("p", owner="b:1", token=2)
    refused = answered("ConditionalCheckFailedException", Item=LEASE.to_attributes("g", current))
    played = Played(update_item=[refused])
    store = await played.opened()

    assert await store.submit("g", SAVE) == Refused(current=current)
    assert [method for _, method, _ in played.calls] == ["update_item"]


async def test_refusal_without_the_item_is_followed_by_a_consistent_read_of_the_same_client() -> None:
    """A stale read would show one's own lease as lost; a beat's read must not wait behind others."""
    played = Played(update_item=[answered("ConditionalCheckFailedException")], get_item=[{"Item": ATTRIBUTES}])
    store = await played.opened()

    assert await store.submit("g", SAVE) == Refused(current=HELD)
    played.clients["beats"].script["get_item"] = [{}]
    gone: Refused[SessionItem] = Refused(current=None)
    assert await store.submit("g", a_beat()) == gone
    assert [(name, method) for name, method, _ in played.calls] == [
        ("writes", "update_item"),
        ("writes", "get_item"),
        ("beats", "update_item"),
        ("beats", "get_item"),
    ]
    assert all(request["ConsistentRead"] for request in played.clients["writes"].requests[1:])


@pytest.mark.parametrize(
    ("verb", "client"),
    [
        (a_register(), "beats"),
        (a_beat(), "beats"),
        (Leave(session_id="a:1"), "beats"),
        (Ask(session_id="a:1", keys=("p@1",), asker="b:1"), "writes"),
        (Fence(session_id="a:1", seen_beat=0), "writes"),
        (Drain(session_id="a:1"), "writes"),
        (SAVE, "writes"),
    ],
)
async def test_each_write_has_its_client(verb: Verb[Any], client: str) -> None:
    """No checkpoint and no ask of another may stand in front of a beat."""
    session = {"Attributes": SESSION.to_attributes("g", a_session())}
    lease = {"Attributes": ATTRIBUTES}
    played = Played(update_item=[lease if verb is SAVE else session], put_item=[{}], delete_item=[{}])
    store = await played.opened()

    await store.submit("g", verb)

    assert [name for name, _, _ in played.calls] == [client]


async def test_complete_is_repeated_after_a_conflict_and_answers_with_what_is_stored() -> None:
    """The other half of a merge ends at the same moment; a transaction answers with no item."""
    conflict = answered("TransactionCanceledException", CancellationReasons=[{"Code": "TransactionConflict"}, {}])
    done = a_lease("p", token=1, position=END, finished=True)
    played = Played(transact_write_items=[conflict, conflict, {}], get_item=[{"Item": LEASE.to_attributes("g", done)}])
    store = await played.opened()
    child = Child(partition="c", parents=("p",), position="start")

    answer = await store.submit("g", Complete(partition="p", owner="a:1", token=1, children=(child,)))

    assert answer == Applied(item=done)
    assert [(method, at_s) for _, method, at_s in played.calls] == [
        ("transact_write_items", 0.0),
        ("transact_write_items", 0.02),
        ("transact_write_items", 0.06),
        ("get_item", 0.06),
    ]


async def test_read_of_leases_fails_as_a_whole_where_something_in_the_sdk_was_cancelled() -> None:
    """A task group takes it for the end of one read: the others' leases would pass for all of the group."""
    item = {"Items": [LEASE.to_attributes("g", a_lease("p"))]}

    def cancelled(_: dict[str, Any]) -> Mapping[str, Any]:
        raise asyncio.CancelledError

    played = Played(query=[item, item, cancelled, item])
    store = await played.opened()

    with pytest.raises(StoreUnavailable, match="what the call waited for was cancelled"):
        await store.read_leases("g")


async def test_leases_are_read_under_all_keys_at_once_to_the_last_page() -> None:
    """A lease that is left out looks like a partition that has none."""
    last = {"pk": {"S": "g#leases#1"}, "sk": {"S": "p"}}

    def page(request: dict[str, Any]) -> Mapping[str, Any]:
        pk = request["ExpressionAttributeValues"][":pk"]["S"]
        number = 2 if "ExclusiveStartKey" in request else 1
        item = LEASE.to_attributes("g", a_lease(f"{pk}-{number}"))
        more = {"LastEvaluatedKey": last} if pk == "g#leases#1" and number == 1 else {}
        return {"Items": [item], **more}

    played = Played(query=[page])
    store = await played.opened()

    found = await store.read_leases("g")

    assert sorted(lease.partition for lease in found) == sorted(
        [*(f"g#leases#{number}-1" for number in range(8)), "g#leases#1-2"]
    )
    requests = played.clients["reads"].requests
    assert [request.get("ExclusiveStartKey") for request in requests] == [None] * 8 + [last]
    assert all(request["ConsistentRead"] is True for request in requests)


@pytest.mark.parametrize("consistent", [True, False])
async def test_sessions_are_read_as_consistently_as_was_asked(consistent: bool) -> None:
    """Half the price where only beats are observed; never where an owner is looked for (rule 13)."""
    played = Played(query=[{"Items": []}])
    store = await played.opened()

    await store.read_sessions("g", consistent=consistent)

    assert [request["ConsistentRead"] for request in played.clients["reads"].requests] == [consistent]


async def test_read_of_many_keys_that_fails_raises_one_error_of_the_store() -> None:
    """A caller that catches it must find it, not a group of eight."""
    played = Played(query=[LOST])
    store = await played.opened()

    with pytest.raises(StoreUnavailable):
        await store.read_leases("g")


async def test_keys_that_were_left_out_are_read_again_and_not_for_ever() -> None:
    """DynamoDB answers with what it had capacity for."""

    def half(request: dict[str, Any]) -> Mapping[str, Any]:
        first, *rest = request["RequestItems"]["leases"]["Keys"]
        left = {"leases": {"Keys": rest, "ConsistentRead": True}} if rest else {}
        item = LEASE.to_attributes("g", a_lease(first["sk"]["S"]))
        return {"Responses": {"leases": [item]}, "UnprocessedKeys": left}

    played = Played(batch_get_item=[half])
    store = await played.opened()

    assert await store.read_some_leases("g", ["a", "b", "a", "c"]) == (a_lease("a"), a_lease("b"), a_lease("c"))
    assert played.times_s() == [0.0, 0.05, 0.15]
    with pytest.raises(StoreUnavailable, match="left 2 of 10 items out, 8 times"):
        await store.read_some_leases("g", [str(number) for number in range(10)])


async def test_open_tells_a_table_that_is_not_there_and_needs_no_right_to_make_one() -> None:
    """The first start of a new user (case C36)."""
    played = Played(describe_table=[answered("ResourceNotFoundException")], create_table=[answered("AccessDenied")])

    with pytest.raises(StoreMisconfigured, match=r"DescribeTable on table 'leases' in eu-west-1: .*table create'"):
        await played.store.open()

    assert await played.store.exists() is False


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({**TABLE, "TableStatus": "DELETING"}, "DELETING"),
        ({**TABLE, "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}, r"'id'.*'pk', 'sk'"),
        ({**TABLE, "Replicas": [{"RegionName": "us-east-1"}]}, "us-east-1"),
    ],
)
async def test_open_refuses_a_table_on_which_no_host_can_run(table: Mapping[str, Any], told: str) -> None:
    """It would start, and lose leases or races later."""
    played = Played(table)

    with pytest.raises(StoreMisconfigured, match=rf"dynamodb:DescribeTable on table 'leases' in eu-west-1: .*{told}"):
        await played.store.open()
    with pytest.raises(StoreMisconfigured, match="not open"):
        await played.store.read_group("g")


async def test_open_takes_replicas_where_they_are_allowed() -> None:
    """All hosts of the group are in one region, says the user."""
    played = Played({**TABLE, "Replicas": [{"RegionName": "us-east-1"}]})
    allowing = DynamoDBStore("leases", clients=played.clients, allow_replicas=True)

    await allowing.open()

    assert await allowing.exists() is True


async def test_create_waits_until_the_table_takes_requests() -> None:
    """DynamoDB makes it in the background; the first write would be told that there is none."""
    making = {"Table": {**TABLE, "TableStatus": "CREATING"}}
    missing = answered("ResourceNotFoundException")
    played = Played(describe_table=[missing, making, making, {"Table": TABLE}], create_table=[{}])

    await played.store.create()

    assert [method for _, method, _ in played.calls] == ["describe_table", "create_table", *["describe_table"] * 3]
    assert played.clients["reads"].requests[1] == create_request("leases")


async def test_create_leaves_it_to_who_was_faster() -> None:
    """Every host of a new group creates at its start."""
    taken = answered("ResourceInUseException")
    played = Played(describe_table=[answered("ResourceNotFoundException"), {"Table": TABLE}], create_table=[taken])

    await played.store.create()

    assert [method for _, method, _ in played.calls] == ["describe_table", "create_table", "describe_table"]


async def test_a_region_that_is_missing_is_told_as_such() -> None:
    """The SDK finds none in the environment of a new machine."""
    played = Played(describe_table=[NoRegionError()])

    with pytest.raises(StoreMisconfigured, match=r"set the region, with region= or AWS_DEFAULT_REGION"):
        await played.store.open()
