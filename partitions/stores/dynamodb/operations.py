"""
A user's operations for one DynamoDB transaction: collected, written as the API wants them, and checked before sending.

Pure: knows no client and no lease, and of boto3 only how Python values and conditions are written. What can be seen
here is refused here, because the service answers with a list of codes: too many operations, two on one item, too many
bytes. A put names no key; it is compared by the key attributes that other operations on its table show, and else only
with puts of the very same item. What is not seen here the service refuses, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeAlias

from boto3.dynamodb.conditions import (  # type: ignore[import-untyped]  # It has no types.
    ConditionBase,
    ConditionExpressionBuilder,
)
from boto3.dynamodb.types import TypeSerializer  # type: ignore[import-untyped]  # It has no types.

from partitions.aws.places import AwsPlace
from partitions.codecs.keys import PK, SK
from partitions.transactions import TransactionInvalid, limit_operations, no_such_call

__all__ = ["BYTES_MAX", "DynamoDBOperation", "DynamoDBTransaction"]

BYTES_MAX: Final = 4 * 1024 * 1024
"""DynamoDB's limit for the items of one transaction together. (API reference, TransactWriteItems.)"""

_SERIALIZER: Final = TypeSerializer()

Condition: TypeAlias = str | Any
"""An expression as text, or one that is built of `boto3.dynamodb.conditions.Attr`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DynamoDBOperation:
    """One operation of a user, as one action of TransactWriteItems."""

    kind: str
    """ "Put", "Update", "Delete" or "ConditionCheck"."""
    table: str
    request: Mapping[str, Any]
    """The action's arguments."""

    def __repr__(self) -> str:
        # No values: they are the user's data, and this stands in messages.
        return f"{self.kind} on table {self.table!r}"

    @property
    def action(self) -> dict[str, Any]:
        """Return it as the API takes it."""
        return {self.kind: dict(self.request)}

    @property
    def shown(self) -> Mapping[str, Any]:
        """The attributes among which its key is: the key alone, or the whole item of a put."""
        found: Mapping[str, Any] = self.request.get("Key") or self.request["Item"]
        return found

    @property
    def bytes(self) -> int:
        """About the bytes of the item that it writes or of what it says about one."""
        return sum(_bytes(value) for name, value in self.request.items() if name != "TableName")


class DynamoDBTransaction:
    """
    Collects puts, updates, deletes and checks; what `batch.transaction()` gives on a DynamoDB store.

    Tables are named, and lie in the account and the region of the lease table. Values are plain Python, as for the
    resources of boto3: numbers are `int` or `Decimal`. A condition is a text with `names` and `values` as
    `ExpressionAttributeNames` and `…Values`, or is built of `boto3.dynamodb.conditions.Attr`.

    Each method raises TransactionInvalid where the transaction cannot take the operation: the 100th, a second one on
    one item, or a value that DynamoDB has no type for, such as a float.

    Attributes:
        place: Where the lease table is, as the store was told: what one transaction writes lies in one place.
    """

    def __init__(self, lease_table: str, place: AwsPlace = AwsPlace()) -> None:  # noqa: B008  # It is frozen.
        self.place = place
        self._operations: list[DynamoDBOperation] = []
        self._is_taken = False
        self._bytes = 0
        self._keys: dict[str, tuple[str, ...]] = {lease_table: (PK, SK)}
        """The names of the key attributes of each table of which they are known."""
        self._url = f"dynamodb://{lease_table}"

    def __getattr__(self, name: str) -> NoReturn:
        # Also asked for by copies and pickles, before there is anything.
        raise no_such_call(self.__dict__.get("_url", "dynamodb:"), name, ("put", "update", "delete", "check"))

    def put(
        self,
        table: str,
        item: Mapping[str, Any],
        *,
        condition: Condition | None = None,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a whole item."""
        self._collect("Put", table, {"Item": _map(item)}, condition, names, values)

    def put_typed(self, table: str, item: Mapping[str, Any]) -> None:
        """Write a whole item whose values stand beside the names of their types, as the low-level client takes them."""
        self._collect("Put", table, {"Item": dict(item)}, None, None, None)

    def update(
        self,
        table: str,
        key: Mapping[str, Any],
        expression: str,
        *,
        condition: Condition | None = None,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Change attributes of an item by an update expression; makes the item where it is not there."""
        about = {"Key": _map(key), "UpdateExpression": expression}
        self._collect("Update", table, about, condition, names, values)

    def delete(
        self,
        table: str,
        key: Mapping[str, Any],
        *,
        condition: Condition | None = None,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete an item; does nothing where it is not there."""
        self._collect("Delete", table, {"Key": _map(key)}, condition, names, values)

    def check(
        self,
        table: str,
        key: Mapping[str, Any],
        condition: Condition,
        *,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Have everything depend on an item that is not written."""
        self._collect("ConditionCheck", table, {"Key": _map(key)}, condition, names, values)

    def taken(self) -> tuple[DynamoDBOperation, ...]:
        """See `Collector.taken`."""
        self._is_taken = True
        return tuple(self._operations)

    def _collect(
        self,
        kind: str,
        table: str,
        about: dict[str, Any],
        condition: Condition | None,
        names: Mapping[str, str] | None,
        values: Mapping[str, Any] | None,
    ) -> None:
        if self._is_taken:
            raise TransactionInvalid("the transaction has ended; call its methods inside `async with`")
        limit_operations(len(self._operations) + 1)
        all_names, all_values = dict(names or {}), _map(values or {})
        if isinstance(condition, ConditionBase):
            built = ConditionExpressionBuilder().build_expression(condition)
            condition = built.condition_expression
            _merge(all_names, built.attribute_name_placeholders)
            _merge(all_values, _map(built.attribute_value_placeholders))
        request: dict[str, Any] = {"TableName": table, **about}
        if condition is not None:
            request["ConditionExpression"] = condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if all_names:
            request["ExpressionAttributeNames"] = all_names
        if all_values:
            request["ExpressionAttributeValues"] = all_values
        operation = DynamoDBOperation(kind=kind, table=table, request=MappingProxyType(request))
        self._refuse_two_on_one(operation)
        self._bytes += operation.bytes
        if self._bytes > BYTES_MAX:
            raise TransactionInvalid(
                f"{self._bytes:,} bytes in one transaction, expected at most {BYTES_MAX:,}; "
                "use several, each upto= a record of the batch, or smaller batches"
            )
        self._operations.append(operation)

    def _refuse_two_on_one(self, operation: DynamoDBOperation) -> None:
        table, request = operation.table, operation.request
        if "Key" in request:
            self._keys.setdefault(table, tuple(request["Key"]))
        for index, other in enumerate(self._operations):
            same_put = "Item" in request and other.request.get("Item") == request["Item"]
            if other.table == table and (same_put or self._are_on_one(operation, other)):
                raise TransactionInvalid(
                    f"{operation} is on the item of operation {index} ({other}); DynamoDB takes one operation for each "
                    "item, so make one of the two: an update with a condition writes and checks"
                )

    def _are_on_one(self, operation: DynamoDBOperation, other: DynamoDBOperation) -> bool:
        """Say whether two operations on one table are on one item, as far as the names of its key are known."""
        names = self._keys.get(operation.table)
        if names is None:
            return False
        return all(name in operation.shown and operation.shown.get(name) == other.shown.get(name) for name in names)


def _map(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return Python values as the API takes them, each beside the name of its type."""
    written = {}
    for name, value in values.items():
        try:
            written[name] = _SERIALIZER.serialize(value)
        except Exception as error:  # Containment: whatever a value does, it is no value for DynamoDB.
            raise TransactionInvalid(f"{name!r} cannot be written to DynamoDB: {error}") from error
    return written


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    if clash := into.keys() & more.keys():
        raise TransactionInvalid(
            f"the placeholder {min(clash)!r} is taken by the condition; use another, or write the condition as text"
        )
    into.update(more)


def _bytes(value: Any) -> int:
    """Return about the bytes that DynamoDB counts: texts in UTF-8, names of attributes, three for each container."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, Mapping):
        # The names of types are counted as names of attributes are; that is a byte or two too many for each value.
        return 3 + sum(len(name) + _bytes(each) for name, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return 3 + sum(_bytes(each) for each in value)
    return len(value) if hasattr(value, "__len__") else 1
