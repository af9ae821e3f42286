"""
Which calls this product makes of AWS, for what, and which IAM actions they need: the least policy, as data.

Pure: builds a document and knows no client. This is the one place where a call is mapped to its actions; a check
compares it with the calls that the tests of this product really made, both ways.

- Most calls need the action of their own name on the resource that they name.
- TransactWriteItems has no action of its own: each of its parts needs that of the single write, and a ConditionCheck
  needs ConditionCheckItem. (DynamoDB developer guide, "Using IAM with DynamoDB transactions".)
- CreateTable with tags needs TagResource as well. The batches of SQS need the action of the single call.
- With a group's name the items are limited to that group's by `dynamodb:LeadingKeys`: every key of a group begins with
  its name and a `#`, which no name contains. The parts of user transactions are limited with them; what a user's own
  tables need is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = ["ALSO", "CALLS", "Call", "Resource", "Use", "actions_of", "policy_document"]


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
    LETTERS = "letters"
    """A host that writes dead letters."""
    TABLE_CREATE = "table-create"
    """`processor-host table create`."""
    TABLE_CHECK = "table-check"
    """`processor-host table check`, beside what it tries of ITEMS."""
    TABLE_DELETE = "table-delete"
    """`processor-host table delete`."""
    STREAM_WRITE = "stream-write"
    """`processor-host stream` on a stream of Kinesis: make, fill and reshape it."""
    CONSUMER_DELETE = "consumer-delete"
    """The end of the hosts' own consumer of a stream."""
    LETTERS_READ = "letters-read"
    """`processor-host dead-letters`."""


ALSO: Final = {
    Use.TABLE_CREATE: "dynamodb",
    Use.TABLE_CHECK: "dynamodb",
    Use.TABLE_DELETE: "dynamodb",
    Use.STREAM_WRITE: "kinesis",
    Use.CONSUMER_DELETE: "kinesis",
    Use.LETTERS_READ: "letters",
}
"""What operators do and no host ever needs, and what of a policy's resources it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation of a service, what it is used for, and the actions that it needs."""

    service: str
    operation: str
    use: Use
    actions: tuple[str, ...]
    """Without the service's prefix."""


def _calls(service: str, use: Use, *operations: str, **others: tuple[str, ...]) -> tuple[Call, ...]:
    """Calls that need the action of their own name, and others that need these."""
    needs = {**{operation: (operation,) for operation in operations}, **others}
    return tuple(
        Call(service=service, operation=operation, use=use, actions=actions) for operation, actions in needs.items()
    )


CALLS: Final[tuple[Call, ...]] = (
    *_calls("dynamodb", Use.TABLE, "DescribeTable"),
    *_calls(
        "dynamodb",
        Use.ITEMS,
        *("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
        # Lease items are only updated and checked in transactions; puts and deletes there are of other items.
        TransactWriteItems=("UpdateItem", "ConditionCheckItem"),
    ),
    *_calls(
        "dynamodb",
        Use.TABLE_CREATE,
        *("DescribeTable", "UpdateContinuousBackups"),
        CreateTable=("CreateTable", "TagResource"),
    ),
    *_calls("dynamodb", Use.TABLE_CHECK, "DescribeTable", "DescribeContinuousBackups"),
    *_calls("dynamodb", Use.TABLE_DELETE, "DescribeTable", "Scan", "Query", "DeleteTable"),
    *_calls("kinesis", Use.STREAM, "DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"),
    *_calls("kinesis", Use.FAN_OUT, "RegisterStreamConsumer", "DescribeStreamConsumer", "SubscribeToShard"),
    *_calls("kinesis", Use.CONSUMER_DELETE, "DeregisterStreamConsumer"),
    *_calls(
        "kinesis",
        Use.STREAM_WRITE,
        *("DescribeStreamSummary", "ListShards", "CreateStream", "SplitShard", "MergeShards", "PutRecords"),
    ),
    # Stored alone, or in the transaction that moves the checkpoint past its record.
    *_calls("dynamodb", Use.LETTERS, "DescribeTable", "PutItem", TransactWriteItems=("PutItem",)),
    *_calls("dynamodb", Use.LETTERS_READ, "DescribeTable", "Query", "DeleteItem"),
    *_calls("sqs", Use.LETTERS, "GetQueueUrl", "GetQueueAttributes", "SendMessage"),
    *_calls(
        "sqs",
        Use.LETTERS_READ,
        *("GetQueueUrl", "GetQueueAttributes", "ReceiveMessage"),
        DeleteMessageBatch=("DeleteMessage",),
        ChangeMessageVisibilityBatch=("ChangeMessageVisibility",),
    ),
)
"""Every call, once for each use."""

_NAMES: Final = {"dynamodb": "table/{}", "kinesis": "stream/{}", "sqs": "{}"}
"""What stands at the end of an ARN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A table, a stream or a queue of a policy."""

    service: str
    """ "dynamodb", "kinesis" or "sqs"."""
    name: str
    """Its name, or its whole ARN."""
    region: str
    account: str = "*"
    """Twelve digits, or `*` for the account of whoever the policy is given to."""
    cloud: str = "aws"
    """What ARNs of the region begin with after `arn:`; `aws-cn` for instance in China."""

    @property
    def arn(self) -> str:
        """Its ARN."""
        if self.name.startswith("arn:"):
            return self.name
        return f"arn:{self.cloud}:{self.service}:{self.region}:{self.account}:{_NAMES[self.service].format(self.name)}"


def actions_of(use: Use, service: str) -> tuple[str, ...]:
    """Return the IAM actions of a service that a use needs, with the service's prefix, sorted."""
    calls = (call for call in CALLS if call.use is use and call.service == service)
    return tuple(sorted({f"{service}:{action}" for call in calls for action in call.actions}))


def policy_document(
    *,
    table: Resource | None = None,
    streams: Sequence[Resource] = (),
    consumer: str | None = None,
    letters: Resource | None = None,
    group: str | None = None,
    also: Sequence[Use] = (),
) -> dict[str, Any]:
    """
    Return the least policy of a host, as IAM's JSON.

    Args:
        table: The lease table; None where the leases are not in DynamoDB.
        streams: The streams that are in Kinesis.
        consumer: The hosts' own consumer of them; None where they poll.
        letters: The table or the queue of the dead letters; None where they are kept elsewhere.
        group: Limits the items to those of this group; None allows every group of the table.
        also: Those of `ALSO` that the same credentials should do too. They are not limited to the group.

    Returns:
        The document, with a statement for each use.
    """
    statements: list[dict[str, Any]] = []
    condition = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{group}#*"]}} if group is not None else None
    if table is not None:
        statements += [
            _statement("ProcessorHostItems", Use.ITEMS, [table], condition=condition),
            _statement("ProcessorHostTable", Use.TABLE, [table]),
        ]
    if streams:
        statements.append(_statement("ProcessorHostStream", Use.STREAM, streams))
    if consumer is not None:
        statements.append(_statement("ProcessorHostFanOut", Use.FAN_OUT, streams, consumer=consumer))
    if letters is not None:
        only_group = condition if letters.service == "dynamodb" else None
        statements.append(_statement("ProcessorHostLetters", Use.LETTERS, [letters], condition=only_group))
    for use in dict.fromkeys(also):
        found = {"dynamodb": [table], "kinesis": streams, "letters": [letters]}[ALSO[use]]
        about = [each for each in found if each is not None]
        sid = "ProcessorHost" + use.value.title().replace("-", "")
        statements.append(_statement(sid, use, about, consumer=consumer if use is Use.CONSUMER_DELETE else None))
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(
    sid: str,
    use: Use,
    resources: Sequence[Resource],
    *,
    consumer: str | None = None,
    condition: dict[str, Any] | None = None,
) -> dict[str, Any]:
    statement: dict[str, Any] = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": list(actions_of(use, resources[0].service)),
        "Resource": [arn for resource in resources for arn in _arns(resource, consumer)],
    }
    return statement | ({"Condition": condition} if condition is not None else {})


def _arns(resource: Resource, consumer: str | None) -> Iterator[str]:
    yield resource.arn
    if consumer is not None:
        # A consumer is registered at the stream and then read by its own ARN, which ends in its time of creation.
        yield f"{resource.arn}/consumer/{consumer}:*"
