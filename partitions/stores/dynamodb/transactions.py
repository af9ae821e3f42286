"""
User transactions on a DynamoDB store: the checkpoint and a user's operations in one TransactWriteItems.

Knows how a commit is sent and what its answer means; the operations are in `operations`. Theory of operation:

- The checkpoint is the first action, an update of the lease on four conditions: owner, token, a lower `seq`, and the
  position stored before. The user's operations follow in their order.
- **A cancelled transaction names a reason for each action, by position.** The lease's own condition goes first: the
  rest may be the echo of an earlier try that was applied. A conflict or a throttle beside a failed condition of the
  user's goes second, since the condition was then seen while something else was under way. Then the user's conditions.
- **The service remembers a request's token for ten minutes** and answers a repeated request with success. So the token
  covers everything that makes it this commit and no other (`partitions.transactions`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from boto3.dynamodb.types import TypeDeserializer  # type: ignore[import-untyped]  # It has no types.
from botocore import exceptions as sdk  # type: ignore[import-untyped]  # It has no types.

from partitions.aws.faults import CODES, FaultKind, cancellation_codes, item_of
from partitions.aws.places import AwsPlace
from partitions.codecs.checks import held_check, lock_check
from partitions.codecs.encoding import writes_of
from partitions.codecs.items import LEASE
from partitions.codecs.values import to_text
from partitions.codecs.writes import Write
from partitions.errors import StoreError, StoreMisconfigured, StoreUnavailable
from partitions.items import LeaseItem
from partitions.stores.dynamodb import _calls
from partitions.stores.dynamodb._calls import WRITES, Calls, code_of
from partitions.stores.dynamodb._reads import get
from partitions.stores.dynamodb.operations import DynamoDBOperation, DynamoDBTransaction
from partitions.transactions import (
    Again,
    Commit,
    ConditionFailed,
    Failed,
    FailedOperation,
    Outcome,
    TransactionInvalid,
    request_token,
)
from partitions.verbs import Applied, Refused

__all__ = ["DynamoDBTransactions", "commit_write"]

_IN_THE_WAY: Final = {FaultKind.CONFLICT, FaultKind.THROTTLED}

_IN_PROGRESS: Final = "TransactionInProgressException"
"""An earlier try of the very same request is not over: nobody knows yet what becomes of it."""

_INVALID: Final = "the transaction is not valid, and nothing was written: {}"

_INVALID_REASONS: Final = {"ValidationError", "ItemCollectionSizeLimitExceeded"}

_DESERIALIZER: Final = TypeDeserializer()


def commit_write(group: str, commit: Commit) -> Write:
    """Return the write of the lease: that of the checkpoint, on condition of the position stored before it."""
    (write,) = writes_of(group, commit.save)
    # The checkpoint sets the position, so its name has a placeholder already.
    return replace(
        write,
        conditions=(*write.conditions, "#position = :previous"),
        values={**write.values, ":previous": to_text(commit.previous)},
    )


class DynamoDBTransactions:
    """See `partitions.stores.base.Transactions`."""

    def __init__(
        self,
        table: str,
        calls: Callable[[], Calls],
        place: AwsPlace = AwsPlace(),  # noqa: B008  # It is frozen.
    ) -> None:
        """Name the lease table and its place; `calls` returns what sends to it, once the store is open."""
        self._table = table
        self._place = place
        self._calls = calls

    def begin(self) -> DynamoDBTransaction:
        """See `Transactions.begin`."""
        return DynamoDBTransaction(self._table, self._place)

    async def commit(self, group: str, commit: Commit) -> Outcome:
        """See `Transactions.commit`."""
        calls = self._calls()
        write = commit_write(group, commit)
        operations: tuple[DynamoDBOperation, ...] = commit.operations
        for operation in operations:
            if operation.table == self._table and operation.shown.items() >= write.key.attributes().items():
                invalid = f"{operation} is on the lease itself, which the checkpoint writes; leave it out"
                return Failed(error=TransactionInvalid(invalid))
        actions = [write.transact_item(self._table), *(operation.action for operation in operations)]
        # Sorted, so that equal content has equal bytes; values that are bytes or sets are no JSON.
        content = json.dumps(actions, sort_keys=True, default=repr).encode()
        request = {
            "TransactItems": actions,
            "ClientRequestToken": request_token(f"{self._table}/{group}", commit, content),
        }
        try:
            await calls.send(WRITES, "transact_write_items", request)
        except _calls.ConditionFailed as refused:
            return await self._refused(calls, write, commit, refused.error)
        except StoreError as error:
            return _meant(error, operations)
        return Applied(item=None)

    def condition_check(
        self, group: str, *, partition: str, owner: str, token: int, resource: bool
    ) -> Mapping[str, Any]:
        """See `Transactions.condition_check`."""
        return self._check(held_check(group, partition, owner=owner, token=token), resource=resource)

    def lock_check(self, group: str, *, name: str, owner: str, token: int, resource: bool) -> Mapping[str, Any]:
        """See `Transactions.lock_check`."""
        return self._check(lock_check(group, name, owner=owner, token=token), resource=resource)

    def _check(self, write: Write, *, resource: bool) -> Mapping[str, Any]:
        action = write.transact_item(self._table)
        if not resource:
            return action
        check = dict(action["ConditionCheck"])
        for name in ("Key", "ExpressionAttributeValues"):
            check[name] = _plain(check[name])
        return {"ConditionCheck": check}

    async def _refused(self, calls: Calls, write: Write, commit: Commit, error: BaseException) -> Outcome:
        """Say what a cancelled transaction means in which at least one condition failed."""
        codes = cancellation_codes(error)
        if len(codes) != len(commit.operations) + 1:
            text = f"a transaction was cancelled for {len(codes)} reasons, expected one for each of its actions"
            raise StoreUnavailable(f"{text}: {error}") from error
        kinds = [CODES.get(code) for code in codes]
        if kinds[0] is FaultKind.CONDITION:
            found = item_of(error) or await get(calls, write.key, use=WRITES)
            current: LeaseItem | None = None if found is None else LEASE.to_item(found)
            return Refused(current=current)
        if _IN_THE_WAY.intersection(kinds):
            return Again(reason=f"{', '.join(codes)}")
        failures = []
        for index, operation in enumerate(commit.operations):
            if kinds[index + 1] is FaultKind.CONDITION:
                item = item_of(error, index + 1)
                failures.append(
                    FailedOperation(index=index, operation=operation, item=None if item is None else _plain(item))
                )
        return Failed(error=ConditionFailed(commit.save.partition, tuple(failures)))


def _meant(error: StoreError, operations: tuple[DynamoDBOperation, ...]) -> Outcome:
    """Say what a request means that did not end in a condition; raise `error`, or a better one, where it is doubt."""
    if operations and (wrong := _invalid(error, operations)) is not None:
        return Failed(error=wrong)
    answer = _answer_of(error)
    code = "" if answer is None else code_of(error)
    codes = () if answer is None else cancellation_codes(answer)
    if _IN_THE_WAY.intersection(CODES.get(each) for each in codes or (code,)) and code != _IN_PROGRESS:
        return Again(reason=str(error))
    if operations and isinstance(error, StoreMisconfigured):
        tables = ", ".join(sorted({repr(operation.table) for operation in operations}))
        raise StoreMisconfigured(f"{error}; this may be about the transaction's own tables: {tables}") from error
    raise error


def _invalid(error: StoreError, operations: tuple[DynamoDBOperation, ...]) -> TransactionInvalid | None:
    """Return the user's error where the service, or the SDK before it, finds the request itself wrong."""
    answer = _answer_of(error)
    if answer is None:
        is_wrong = isinstance(error.__cause__, sdk.ParamValidationError)
        return TransactionInvalid(_INVALID.format(error.__cause__)) if is_wrong else None
    codes = cancellation_codes(answer)
    for index, (operation, code) in enumerate(zip(operations, codes[1:], strict=False)):
        if code in _INVALID_REASONS:
            reason = answer.response["CancellationReasons"][index + 1].get("Message", code)
            return TransactionInvalid(f"operation {index} ({operation}) is not valid: {reason}")
    is_wrong = CODES.get(code_of(error)) is FaultKind.INVALID
    return TransactionInvalid(_INVALID.format(answer.response["Error"].get("Message", answer))) if is_wrong else None


def _answer_of(error: StoreError) -> Any:
    """Return the service's own answer behind an error, None where the request never got one."""
    # Other errors of the SDK have a `response` too, which is None.
    return error.__cause__ if isinstance(error.__cause__, sdk.ClientError) else None


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as plain Python values, as the resources of boto3 do."""
    return {name: _DESERIALIZER.deserialize(value) for name, value in attributes.items()}
