"""
What a cancelled transaction means, by the codes of its reasons: also those that no local server gives.

The client is the SDK's place, played; answers as the API reference of TransactWriteItems has them. In virtual time.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError  # type: ignore[import-untyped]  # It has no types.

from partitions.aws.clients import AwsClients
from partitions.aws.places import AwsPlace
from partitions.codecs.encoding import writes_of
from partitions.codecs.items import LEASE
from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.stores.dynamodb._calls import READS, WRITES, Calls
from partitions.stores.dynamodb.transactions import DynamoDBTransactions
from partitions.transactions import Again, Commit, ConditionFailed, Failed, FailedOperation, TransactionInvalid
from partitions.verbs import Applied, Refused, SaveCheckpoint
from tests.builders import a_lease
from tests.stage import VIRTUAL_TIME

__all__: list[str] = []

TAKEN = a_lease("p0", owner="b:1", token=2, last_host="b")
NONE = {"Code": "None"}
CONDITION = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
CONFLICT = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return VIRTUAL_TIME


class Client:
    """Plays the SDK's client: answers every transaction alike, and reads with the lease."""

    class meta:  # As the SDK has it.
        region_name = "us-east-1"

    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer
        self.requests: list[Any] = []
        self.reads = 0

    async def transact_write_items(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        if self.answer is not None:
            raise self.answer
        return {}

    async def get_item(self, **_: Any) -> dict[str, Any]:
        self.reads += 1
        return {"Item": LEASE.to_attributes("g", TAKEN)}


def cancelled(*reasons: dict[str, Any]) -> ClientError:
    error = {"Code": "TransactionCanceledException", "Message": "Transaction cancelled"}
    return ClientError({"Error": error, "CancellationReasons": list(reasons)}, "TransactWriteItems")


def refused(code: str, message: str = "no", status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "TransactWriteItems")


async def outcome_of(client: Client, *, seq: int = 1) -> Any:
    calls = Calls(
        AwsClients(AwsPlace(region="us-east-1"), given={WRITES: client, READS: client}),
        "leases",
        timeout_s=1.0,
        random=Random(1),
    )
    transactions = DynamoDBTransactions("leases", lambda: calls)
    tx = transactions.begin()
    tx.put("t", {"id": "x", "b": b"y", "s": {"a", "b"}})
    tx.check("t", {"id": "z"}, "attribute_exists(id)")
    save = SaveCheckpoint(partition="p0", owner="a:1", token=1, position="10", seq=seq)
    return await transactions.commit("g", Commit(save=save, previous="5", operations=tx.taken()))


async def test_refused_lease_goes_before_everything_beside_it() -> None:
    """The rest may be the echo of an earlier try that was applied, or a conflict with it."""
    for others in ([NONE, NONE], [CONDITION, NONE], [CONFLICT, CONDITION]):
        client = Client(cancelled({**CONDITION, "Item": LEASE.to_attributes("g", TAKEN)}, *others))

        assert (await outcome_of(client), client.reads) == (Refused(current=TAKEN), 0)


async def test_refused_lease_without_its_item_is_read() -> None:
    """Not every server sends it, and the sender must see whether it was its own."""
    client = Client(cancelled(CONDITION, NONE, NONE))

    assert (await outcome_of(client), client.reads) == (Refused(current=TAKEN), 1)


@pytest.mark.parametrize(
    "reasons",
    [
        [CONFLICT, NONE, NONE],
        [NONE, CONFLICT, NONE],
        [NONE, {"Code": "ThrottlingError", "Message": "slow"}, NONE],
        [NONE, NONE, {"Code": "ProvisionedThroughputExceeded", "Message": "slow"}],
        # The user's condition was seen while the lease had another transaction: perhaps an earlier try of this one.
        [CONFLICT, CONDITION, NONE],
    ],
)
async def test_conflict_and_throttle_are_tried_again(reasons: list[dict[str, Any]]) -> None:
    """Nothing was applied, and nothing is in doubt."""
    assert isinstance(await outcome_of(Client(cancelled(*reasons))), Again)


@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
async def test_throttled_request_is_tried_again(code: str) -> None:
    """As a whole, before its parts were looked at."""
    assert isinstance(await outcome_of(Client(refused(code))), Again)


@pytest.mark.parametrize(
    "error", [refused("TransactionInProgressException"), refused("InternalServerError", status=500)]
)
async def test_answer_that_leaves_it_open_is_doubt(error: ClientError) -> None:
    """An earlier try of the very same request is under way, or nobody knows."""
    with pytest.raises(StoreUnavailable):
        await outcome_of(Client(error))


async def test_failed_conditions_of_the_user_carry_index_and_item() -> None:
    """Counted without the lease; the item is plain Python."""
    client = Client(cancelled(NONE, {**CONDITION, "Item": {"id": {"S": "x"}, "n": {"N": "4"}}}, CONDITION))

    outcome = await outcome_of(client)

    put, check = client.requests[0]["TransactItems"][1:]
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ConditionFailed)
    assert [(each.index, each.item) for each in outcome.error.failures] == [(0, {"id": "x", "n": 4}), (1, None)]
    assert all(isinstance(each, FailedOperation) for each in outcome.error.failures)
    assert [each.operation.action for each in outcome.error.failures] == [put, check]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            cancelled(NONE, NONE, {"Code": "ValidationError", "Message": "bad key"}),
            "operation 1 (ConditionCheck on table 't') is not valid: bad key",
        ),
        (
            cancelled(NONE, {"Code": "ItemCollectionSizeLimitExceeded", "Message": "full"}, NONE),
            "operation 0 (Put on table 't') is not valid: full",
        ),
        (
            refused("ValidationException", "2 operations on one item"),
            "the transaction is not valid, and nothing was written: 2 operations on one item",
        ),
        (
            ParamValidationError(report="wrong type"),
            "the transaction is not valid, and nothing was written: Parameter validation failed:\nwrong type",
        ),
    ],
)
async def test_invalid_operation_is_the_users_error(error: Exception, text: str) -> None:
    """No retry helps, and where the service says which it was, so does the error."""
    outcome = await outcome_of(Client(error))

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, TransactionInvalid)
    assert str(outcome.error) == text


async def test_denied_or_missing_table_is_misconfigured_and_names_the_users() -> None:
    """The lease table is there and allowed, or nobody would hold a lease."""
    for error in (refused("AccessDeniedException"), refused("ResourceNotFoundException")):
        with pytest.raises(StoreMisconfigured, match="the transaction's own tables: 't'"):
            await outcome_of(Client(error))


async def test_request_has_the_lease_first_and_a_token_of_its_content() -> None:
    """Four conditions, the checkpoint's changes, and the operations in their order."""
    client = Client(None)

    assert await outcome_of(client) == Applied(item=None)
    await outcome_of(client)
    await outcome_of(client, seq=2)

    first, again, other = client.requests
    lease = first["TransactItems"][0]["Update"]
    assert lease["ConditionExpression"] == (
        "#owner = :seen_owner AND #token = :seen_token AND #seq < :seq AND #position = :previous"
    )
    save = SaveCheckpoint(partition="p0", owner="a:1", token=1, position="10", seq=1)
    assert lease["UpdateExpression"] == writes_of("g", save)[0].update
    assert lease["ExpressionAttributeValues"][":previous"] == {"S": "5"}
    assert [next(iter(action)) for action in first["TransactItems"]] == ["Update", "Put", "ConditionCheck"]
    assert len(first["ClientRequestToken"]) == 36
    assert first["ClientRequestToken"] == again["ClientRequestToken"] != other["ClientRequestToken"]
