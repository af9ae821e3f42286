"""
Which calls this product makes of AWS, for what, and which IAM actions they need: the least policy, as data.

Pure: builds a document and knows no client. This is the one place where a call is mapped to its actions; a check
compares it with the calls that the tests of this product really made, both ways.

- Most calls need the action of their own name on the resource that they name.
- TransactWriteItems has no action of its own: each of its parts needs that of the single write, and a ConditionCheck
  needs ConditionCheckItem. (DynamoDB developer guide, "Using IAM with DynamoDB transactions".)
- CreateTable with tags needs TagResource as well.
- With a group's name the items are limited to that group's by `dynamodb:LeadingKeys`: every key of a group begins with
  its name and a `#`, which no name contains. The parts of user transactions are limited with them; what a user's own
  tables need is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "CALLS",
    "Call",
    "StreamResource",
    "TableResource",
    "Use",
    "actions_of",
    "policy_document",
]


class Use(StrEnum):
    """What a call is made for: each is one statement of a policy."""

    ITEMS = "items"
    """A host, `status`, and every other command on a group: reads and writes of items."""
    TABLE = "table"
    """The same, of the table itself."""
    STREAM = "stream"
    """A host that reads a stream."""
    FAN_OUT = "fan-out"
    """The same with a consumer of its own."""
    CREATE = "create"
    """`processor-host table create`."""
    CHECK = "check"
    """`processor-host table check`, beside what it tries of ITEMS."""
    DELETE = "delete"
    """`processor-host table delete`."""


COMMANDS: Final = (Use.CREATE, Use.CHECK, Use.DELETE)
"""What an operator does and no host ever needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation of a service, what it is used for, and the actions that it needs."""

    service: str
    operation: str
    use: Use
    actions: tuple[str, ...] = ()
    """Without the service's prefix; empty for the one of the operation's own name."""


def _calls(service: str, use: Use, *operations: str) -> tuple[Call, ...]:
    return tuple(Call(service=service, operation=operation, use=use) for operation in operations)


CALLS: Final[tuple[Call, ...]] = (
    *_calls("dynamodb", Use.TABLE, "DescribeTable"),
    *_calls("dynamodb", Use.ITEMS, "GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
    Call(
        service="dynamodb",
        operation="TransactWriteItems",
        use=Use.ITEMS,
        # Lease items are only updated and checked in transactions; puts and deletes there are of items of users.
        actions=("UpdateItem", "ConditionCheckItem"),
    ),
    Call(service="dynamodb", operation="CreateTable", use=Use.CREATE, actions=("CreateTable", "TagResource")),
    *_calls("dynamodb", Use.CREATE, "DescribeTable", "UpdateContinuousBackups"),
    *_calls("dynamodb", Use.CHECK, "DescribeTable", "DescribeContinuousBackups"),
    *_calls("dynamodb", Use.DELETE, "DescribeTable", "Scan", "Query", "DeleteTable"),
    *_calls("kinesis", Use.STREAM, "DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"),
    *_calls("kinesis", Use.FAN_OUT, "RegisterStreamConsumer", "DescribeStreamConsumer", "SubscribeToShard"),
)
"""Every call, once for each use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResource:
    """The table of a policy."""

    table: str
    region: str
    account: str = "*"
    """Twelve digits, or `*` for the account of whoever the policy is given to."""
    cloud: str = "aws"
    """What ARNs of the region begin with after `arn:`; `aws-cn` for instance in China."""

    @property
    def arn(self) -> str:
        """The table's ARN."""
        return f"arn:{self.cloud}:dynamodb:{self.region}:{self.account}:table/{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResource:
    """The stream of a policy; see `TableResource`."""

    stream: str
    region: str
    account: str = "*"
    cloud: str = "aws"
    is_fan_out: bool = False
    """Whether the hosts read through a consumer of their own."""

    @property
    def arn(self) -> str:
        """The stream's ARN."""
        return f"arn:{self.cloud}:kinesis:{self.region}:{self.account}:stream/{self.stream}"


def actions_of(uses: Collection[Use]) -> tuple[str, ...]:
    """Return the IAM actions that these uses need together, with their service's prefix, sorted."""
    return tuple(
        sorted(
            {
                f"{call.service}:{action}"
                for call in CALLS
                if call.use in uses
                for action in call.actions or (call.operation,)
            }
        )
    )


def policy_document(
    table: TableResource | None,
    stream: StreamResource | None,
    *,
    group: str | None = None,
    commands: Sequence[Use] = (),
) -> dict[str, Any]:
    """
    Return the least policy of a host, as IAM's JSON.

    Args:
        table: The lease table; None where the leases are not in DynamoDB.
        stream: The stream; None where it is not in Kinesis.
        group: Limits the items to those of this group; None allows every group of the table.
        commands: Those of `COMMANDS` that the same credentials should do too. They need every group's items.
    """
    statements: list[dict[str, Any]] = []
    if table is not None:
        statements += _table_statements(table, group, commands)
    if stream is not None:
        statements += _stream_statements(stream)
    return {"Version": "2012-10-17", "Statement": statements}


def _table_statements(table: TableResource, group: str | None, commands: Sequence[Use]) -> Iterator[dict[str, Any]]:
    items = _statement("ProcessorHostItems", actions_of([Use.ITEMS]), [table.arn])
    if group is not None:
        items["Condition"] = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{group}#*"]}}
    yield items
    yield _statement("ProcessorHostTable", actions_of([Use.TABLE]), [table.arn])
    for command in dict.fromkeys(commands):
        yield _statement(f"ProcessorHostTable{command.value.title()}", actions_of([command]), [table.arn])


def _stream_statements(stream: StreamResource) -> Iterator[dict[str, Any]]:
    yield _statement("ProcessorHostStream", actions_of([Use.STREAM]), [stream.arn])
    if stream.is_fan_out:
        # A consumer is registered at the stream and then read by its own ARN, which ends in its time of creation.
        resources = [stream.arn, f"{stream.arn}/consumer/*"]
        yield _statement("ProcessorHostFanOut", actions_of([Use.FAN_OUT]), resources)


def _statement(sid: str, actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
