"""
What the commands of `table` ask of DynamoDB, one call each.

Prints nothing and decides nothing: what an answer means for a host is `partitions.stores.dynamodb.tables`'s business. A
call that fails is one line with the action, the table and the region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final

import anyio

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, Fault, FaultKind, fault_of
from partitions.aws.places import AwsPlace, query_of
from partitions.stores.dynamodb.tables import Finding, Verdict, create_request
from processor_host.errors import NotThereError

__all__ = ["TRIED_KEY", "TableCalls", "Try", "tries_of"]

CALL_TIMEOUT_S: Final = 10.0

POLL_S: Final = 1.0
"""Between two looks at a table that is being made or deleted; either takes 5 to 30 s."""

WAIT_S: Final = 300.0
"""How long a table may take to be made or deleted."""

TELL_EVERY_S: Final = 15.0

UNKNOWN_OPERATIONS: Final = {"UnknownOperationException", "InvalidAction", "UnknownOperation", "NotImplemented"}
"""How local servers answer an operation that they do not have."""

NOT_YET: Final = "ContinuousBackupsUnavailableException"
"""Point-in-time recovery cannot be turned on in the first moments of a table."""

CREATES_MAX: Final = 3
"""Requests for a table that fail for now."""

MAY_PASS: Final = {FaultKind.PASSING, FaultKind.THROTTLED}

NEVER: Final = "attribute_exists(#pk) AND attribute_not_exists(#pk)"
"""A condition that no item and no missing item meets: a write on it is judged by IAM and then refused."""


TRIED_KEY: Final = "#check"
"""What the key ends in that is tried; no item ever has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A call that shows whether an action is allowed, and changes nothing."""

    action: str
    """As in a policy."""
    operation: str
    """The client's method."""
    request: Mapping[str, Any]


def tries_of(table: str, group: str) -> tuple[Try, ...]:
    """
    Return one call for each action on items that a host needs.

    Args:
        table: The table's name.
        group: The calls are about a key of this group, because a policy may allow no other.
    """
    key = {"pk": {"S": group + TRIED_KEY}, "sk": {"S": "check"}}
    never = {"ConditionExpression": NEVER, "ExpressionAttributeNames": {"#pk": "pk"}}
    write = {"TableName": table, "Key": key}
    update = {
        "UpdateExpression": "SET #checked = :true",
        "ExpressionAttributeNames": {"#pk": "pk", "#checked": "checked"},
        "ExpressionAttributeValues": {":true": {"BOOL": True}},
        "ConditionExpression": NEVER,
    }
    query = {
        "KeyConditionExpression": "#pk = :pk",
        "ExpressionAttributeNames": {"#pk": "pk"},
        "ExpressionAttributeValues": {":pk": key["pk"]},
    }
    check = {"ConditionCheck": {**write, **never}}
    return (
        Try(action="dynamodb:GetItem", operation="get_item", request=write),
        Try(
            action="dynamodb:BatchGetItem",
            operation="batch_get_item",
            request={"RequestItems": {table: {"Keys": [key]}}},
        ),
        Try(action="dynamodb:Query", operation="query", request={"TableName": table, "Limit": 1, **query}),
        Try(action="dynamodb:PutItem", operation="put_item", request={"TableName": table, "Item": key, **never}),
        Try(action="dynamodb:UpdateItem", operation="update_item", request={**write, **update}),
        Try(action="dynamodb:DeleteItem", operation="delete_item", request={**write, **never}),
        Try(
            action="dynamodb:ConditionCheckItem",
            operation="transact_write_items",
            request={"TransactItems": [check]},
        ),
    )


class TableCalls:
    """One table, open as long as the context lasts. Every method raises `NotThereError` where its call fails."""

    def __init__(self, table: str, place: AwsPlace) -> None:
        self.table = table
        self._place = place
        self._clients = AwsClients(place)
        self._client: Any = None

    @property
    def region(self) -> str:
        """The region in use, for messages."""
        return self._clients.region if self._client is None else str(self._client.meta.region_name)

    @property
    def url(self) -> str:
        """How to name this very table, with the region in use."""
        return f"dynamodb://{self.table}?{query_of(replace(self._place, region=self.region))}"

    async def __aenter__(self) -> TableCalls:
        try:
            settings = ClientSettings(timeout_s=CALL_TIMEOUT_S, connections_max=2)
            self._client = await self._clients.client("table", "dynamodb", settings)
        except AWS_ERRORS as error:
            await self._clients.close()
            raise NotThereError(self._fault(error, "dynamodb:DescribeTable").text) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clients.close()

    async def describe(self) -> Mapping[str, Any] | None:
        """Return the `Table` of DescribeTable, or None where there is no such table."""
        found = await self._described()
        if isinstance(found, Fault):
            raise NotThereError(found.text)
        return found

    async def create(self, *, is_protected: bool, tags: Mapping[str, str]) -> bool:
        """Ask for the table, a few times where nobody knows whether it was; False where it is there already."""
        request = create_request(self.table, is_protected=is_protected, tags=tags)
        is_in_doubt = False
        for tries_left in reversed(range(CREATES_MAX)):
            answer = await self._call("dynamodb:CreateTable", "create_table", **request)
            if not isinstance(answer, Fault):
                return True
            if answer.code == "ResourceInUseException":
                # After a try whose answer was lost it is the table of that try.
                return is_in_doubt
            if answer.kind not in MAY_PASS or not tries_left:
                raise NotThereError(answer.text)
            is_in_doubt = is_in_doubt or answer.kind is FaultKind.PASSING
            await anyio.sleep(POLL_S)
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def told_if_interrupted(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Tell of a table that may be half made where the body is interrupted: the next `create` changes nothing."""
        try:
            yield
        except anyio.get_cancelled_exc_class():
            tell(
                f"interrupted: table {self.table!r} in {self.region} may be there, without point-in-time recovery; "
                f"look at it with: processor-host table check '{self.url}'"
            )
            raise

    async def wait_until(
        self, what: str, is_done: Callable[[Mapping[str, Any] | None], bool], tell: Callable[[str], None]
    ) -> Mapping[str, Any] | None:
        """
        Look at the table until it is as wanted, and return its description.

        A look that fails for now is followed by the next: a table is left half made where the waiting ends.

        Args:
            what: What is waited for, as in "to be ACTIVE".
            is_done: Whether a description is as wanted; it gets None where there is no table.
            tell: Gets a line now and then.

        Raises:
            NotThereError: it was not as wanted in time.
        """
        began_s = anyio.current_time()
        told_s = -TELL_EVERY_S
        while True:
            found = await self._described()
            waited_s = anyio.current_time() - began_s
            if isinstance(found, Fault):
                if found.kind not in MAY_PASS or waited_s >= WAIT_S:
                    raise NotThereError(found.text)
                status = f"not known ({found.code})"
            elif is_done(found):
                return found
            else:
                status = "not there" if found is None else str(found.get("TableStatus"))
            if waited_s >= WAIT_S:
                raise NotThereError(
                    f"table {self.table!r} in {self.region} is {status} after {WAIT_S:g} s, expected {what}; "
                    "look at it again with 'processor-host table check'"
                )
            if waited_s - told_s >= TELL_EVERY_S:
                told_s = waited_s
                tell(
                    f"table {self.table!r} is {status}; waiting for it {what}, {waited_s:.0f} of at most {WAIT_S:.0f} s"
                )
            await anyio.sleep(POLL_S)

    async def has_backups(self) -> bool | None:
        """Say whether point-in-time recovery is on; None where the server does not know it."""
        answer = await self._call("dynamodb:DescribeContinuousBackups", "describe_continuous_backups")
        if isinstance(answer, Fault):
            if answer.code in UNKNOWN_OPERATIONS:
                return None
            raise NotThereError(answer.text)
        recovery = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription") or {}
        return recovery.get("PointInTimeRecoveryStatus") == "ENABLED"

    async def turn_backups_on(self) -> bool:
        """Turn point-in-time recovery on; False where the server does not know it."""
        wanted = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
        until_s = anyio.current_time() + WAIT_S
        while True:
            answer = await self._call("dynamodb:UpdateContinuousBackups", "update_continuous_backups", **wanted)
            if not isinstance(answer, Fault):
                return True
            if answer.code in UNKNOWN_OPERATIONS:
                return False
            may_pass = answer.code == NOT_YET or answer.kind in MAY_PASS
            if not may_pass or anyio.current_time() >= until_s:
                raise NotThereError(f"table {self.table!r} is made, but without point-in-time recovery: {answer.text}")
            await anyio.sleep(POLL_S)

    async def groups_with_sessions(self) -> tuple[str, ...]:
        """Return the groups that have session items, sorted. Reads the whole table."""
        groups: set[str] = set()
        request: dict[str, Any] = {
            "FilterExpression": "contains(#pk, :hosts)",
            "ProjectionExpression": "#pk",
            "ExpressionAttributeNames": {"#pk": "pk"},
            "ExpressionAttributeValues": {":hosts": {"S": "#hosts"}},
            "ConsistentRead": True,
        }
        while True:
            answer = await self._call("dynamodb:Scan", "scan", **request)
            if isinstance(answer, Fault):
                raise NotThereError(answer.text)
            groups |= {each["pk"]["S"].removesuffix("#hosts") for each in answer["Items"]}
            if "LastEvaluatedKey" not in answer:
                return tuple(sorted(groups))
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def delete(self) -> None:
        """Ask for the table's end."""
        answer = await self._call("dynamodb:DeleteTable", "delete_table")
        if isinstance(answer, Fault):
            raise NotThereError(answer.text)

    async def allowed(self, group: str) -> tuple[Finding, ...]:
        """Find out which calls of a host these credentials may make; see `tries_of`."""
        return tuple([await self._allowed(each) for each in tries_of(self.table, group)])

    async def _allowed(self, each: Try) -> Finding:
        found, verdict, remedy = "allowed", Verdict.OK, ""
        try:
            await getattr(self._client, each.operation)(**each.request)
        except AWS_ERRORS as error:
            fault = self._fault(error, each.action)
            if fault.code in UNKNOWN_OPERATIONS:
                found, verdict = "not known to this server", Verdict.UNKNOWN
            elif fault.kind is FaultKind.DENIED:
                found, verdict, remedy = (
                    "denied",
                    Verdict.WRONG,
                    "print what is needed with 'processor-host iam-policy'",
                )
            elif fault.kind is not FaultKind.CONDITION:
                found, verdict, remedy = fault.code, Verdict.UNKNOWN, fault.text
        return Finding(property=each.action, found=found, expected="allowed", verdict=verdict, remedy=remedy)

    async def _described(self) -> Mapping[str, Any] | Fault | None:
        answer = await self._call("dynamodb:DescribeTable", "describe_table")
        if isinstance(answer, Fault):
            return None if answer.kind is FaultKind.MISSING else answer
        found: Mapping[str, Any] = answer["Table"]
        return found

    async def _call(self, action: str, operation: str, **request: Any) -> Any:
        """Return the answer, or the fault of a call that failed."""
        try:
            return await getattr(self._client, operation)(**{"TableName": self.table, **request})
        except AWS_ERRORS as error:
            return self._fault(error, action)

    def _fault(self, error: BaseException, action: str) -> Fault:
        return fault_of(error, action=action, resource=f"table {self.table!r}", region=self.region)
