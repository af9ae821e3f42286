"""
One conditional request, taken apart: what it needs to hold, what it sets and what it removes.

Knows no verb and no client. Conditions and changes are kept one by one, each a text in which every name and every value
is a placeholder: hundreds of words are reserved, `token` among them, and the list may grow.
`request` and `transact_item` put them together as the API wants them.

A refused write is asked to send the stored item along (`ReturnValuesOnConditionCheckFailure`), in its own answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from partitions.codecs.items import Attributes
from partitions.codecs.keys import Key
from partitions.codecs.values import Attribute

__all__ = ["ACTIONS_MAX", "EXPRESSION_BYTES_MAX", "Operation", "Write"]

EXPRESSION_BYTES_MAX: Final = 4096
"""DynamoDB's limit for one expression. (Developer guide, "Constraints".)"""

ACTIONS_MAX: Final = 100
"""DynamoDB's limit for one transaction."""

_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_NO_VALUES: Final[Mapping[str, Attribute]] = MappingProxyType({})


# Factories, because Python 3.11 takes every default that cannot be hashed for a mutable one.
def _no_names() -> Mapping[str, str]:
    return _NO_NAMES


def _no_values() -> Mapping[str, Attribute]:
    return _NO_VALUES


class Operation(Enum):
    """What a write does to the item; each value is its name in a transaction."""

    PUT = "Put"
    UPDATE = "Update"
    DELETE = "Delete"
    CHECK = "ConditionCheck"
    """Only in a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """
    One write on one item. It takes effect exactly if every one of `conditions` holds.

    `names` and `values` hold every placeholder that the texts use and no other, or the API refuses the request.
    """

    operation: Operation
    key: Key
    conditions: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=_no_names)
    values: Mapping[str, Attribute] = field(default_factory=_no_values)
    item: Attributes | None = None
    """The whole item; given exactly for a put."""

    @property
    def condition(self) -> str:
        """The condition expression; empty where there is none."""
        return " AND ".join(self.conditions)

    @property
    def update(self) -> str:
        """The update expression; empty where nothing is updated."""
        clauses = (("SET", self.sets), ("REMOVE", self.removes))
        return " ".join(f"{verb} {', '.join(texts)}" for verb, texts in clauses if texts)

    def request(self, table: str) -> dict[str, Any]:
        """Return the arguments of PutItem, UpdateItem or DeleteItem. An update answers with the whole new item."""
        request: dict[str, Any] = self.transact_item(table)[self.operation.value]
        return request | ({"ReturnValues": "ALL_NEW"} if self.operation is Operation.UPDATE else {})

    def transact_item(self, table: str) -> dict[str, Any]:
        """Return it as one action of TransactWriteItems."""
        asked: dict[str, Any] = {"TableName": table}
        if self.operation is Operation.PUT:
            asked["Item"] = self.item
        else:
            asked["Key"] = self.key.attributes()
        if self.conditions:
            asked["ConditionExpression"] = self.condition
            asked["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if self.update:
            asked["UpdateExpression"] = self.update
        if self.names:
            asked["ExpressionAttributeNames"] = dict(self.names)
        if self.values:
            asked["ExpressionAttributeValues"] = dict(self.values)
        return {self.operation.value: asked}
