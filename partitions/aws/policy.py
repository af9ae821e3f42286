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
    DEREGISTER = "deregister"
    """The end of the hosts' own consumer of a stream."""


COMMANDS: Final = (Use.CREATE, Use.CHECK, Use.DELETE)
"""What an operator does to a table, and no host ever needs."""


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
    *_calls("kinesis", Use.DEREGISTER, "DeregisterStreamConsumer"),
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
    """A stream of a policy; see `TableResource`."""

    stream: str
    """Its name or its whole ARN."""
    region: str
    account: str = "*"
    cloud: str = "aws"

    @property
    def arn(self) -> str:
        """The stream's ARN."""
        if self.stream.startswith("arn:"):
            return self.stream
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
    streams: Sequence[StreamResource] = (),
    *,
    group: str | None = None,
    is_fan_out: bool = False,
    deregisters: bool = False,
    commands: Sequence[Use] = (),
) -> dict[str, Any]:
    """
    Return the least policy of a host, as IAM's JSON.

    Args:
        table: The lease table; None where the leases are not in DynamoDB.
        streams: The streams that are in Kinesis.
        group: Limits the items to those of this group; None allows every group of the table.
        is_fan_out: Whether the hosts read through a consumer of their own.
        deregisters: Whether the same credentials should be able to remove that consumer; no host needs it.
        commands: Those of `COMMANDS` that the same credentials should do too. They need every group's items.
    """
    statements: list[dict[str, Any]] = []
    if table is not None:
        statements += _table_statements(table, group, commands)
    if streams:
        arns = [stream.arn for stream in streams]
        # A consumer is registered at the stream and then read by its own ARN, which ends in its time of creation.
        consumers = [*arns, *(f"{arn}/consumer/*" for arn in arns)]
        statements.append(_statement("ProcessorHostStream", Use.STREAM, arns))
        if is_fan_out:
            statements.append(_statement("ProcessorHostFanOut", Use.FAN_OUT, consumers))
        if deregisters:
            statements.append(_statement("ProcessorHostDeregister", Use.DEREGISTER, consumers))
    return {"Version": "2012-10-17", "Statement": statements}


def _table_statements(table: TableResource, group: str | None, commands: Sequence[Use]) -> Iterator[dict[str, Any]]:
    items = _statement("ProcessorHostItems", Use.ITEMS, [table.arn])
    if group is not None:
        items["Condition"] = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{group}#*"]}}
    yield items
    yield _statement("ProcessorHostTable", Use.TABLE, [table.arn])
    for command in dict.fromkeys(commands):
        yield _statement(f"ProcessorHostTable{command.value.title()}", command, [table.arn])


def _statement(sid: str, use: Use, resources: Sequence[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions_of([use])), "Resource": list(resources)}
