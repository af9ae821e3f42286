"""
Letters in a DynamoDB table. Imported by name only, because it loads the SDK of AWS.

A table with the keys of a lease table (`pk`, `sk`, both texts): the lease table itself, or one of its own. The letters
of a group lie under eight keys, `<group>#letters#<0..7>` (a hash of the partition's id), because one key takes only
1,000 writes a second; the sort key is the letter's id. So a letter that is written again in the same term stays one.

`put_of` is the same write as a part of a transaction: with the lease in DynamoDB too, letter and checkpoint are stored
together or not at all, and no crash writes a letter twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, FaultKind, fault_of
from partitions.aws.places import AwsPlace, query_of
from partitions.stores.dynamodb.operations import DynamoDBTransaction
from processor_host.errors import NotThereError
from processor_host.letters.base import Found, Letter, LettersUnavailable, fitted
from processor_host.letters.codec import as_fields, from_fields

__all__ = ["DynamoLetters", "letter_keys"]

TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 10
SPREAD: Final = 8
ITEM_BYTES_MAX: Final = 390_000
"""DynamoDB takes items of 400 KB with all names; what is left covers the keys and how numbers are counted."""
TEXT_OF_FIELD: Final = 40
"""Bytes allowed for the name of a field and its overhead; the longest name has 13."""

_CANNOT_WORK: Final = (FaultKind.DENIED, FaultKind.MISSING, FaultKind.NO_CREDENTIALS, FaultKind.WRONG_REGION)
_WHOLE: Final = frozenset({"token", "attempts", "data_bytes"})


def letter_keys(letter: Letter) -> dict[str, str]:
    """Return the primary key of a letter."""
    return {"pk": _pk(letter.group, crc32(letter.partition.encode("utf-8")) % SPREAD), "sk": letter.id}


class DynamoLetters:
    """A `LetterBox` in one DynamoDB table, which must be there."""

    def __init__(self, table: str, place: AwsPlace | None = None, *, given: Mapping[str, Any] | None = None) -> None:
        """
        Name the table.

        Args:
            table: Its name.
            place: Where it is; None for what the environment says.
            given: A client of DynamoDB under the name "letters", to use instead of one of its own; the caller's.
        """
        self.table = table
        self._place = place or AwsPlace()
        self._clients = AwsClients(self._place, given=given)

    @property
    def url(self) -> str:
        """See `LetterSink.url`."""
        query = query_of(self._place)
        return f"dynamodb://{self.table}" + (f"?{query}" if query else "")

    async def open(self) -> None:
        """See `LetterSink.open`."""
        try:
            described = (await self._call("describe_table", TableName=self.table))["Table"]
        except LettersUnavailable as error:
            # At the start nothing is known to work; a table that does not answer is told at once.
            raise NotThereError(str(error)) from error
        kinds = {each["AttributeName"]: each["AttributeType"] for each in described.get("AttributeDefinitions", ())}
        keys = {each["KeyType"]: each["AttributeName"] for each in described.get("KeySchema", ())}
        if keys != {"HASH": "pk", "RANGE": "sk"} or kinds.get("pk") != "S" or kinds.get("sk") != "S":
            raise NotThereError(
                f"{self.url} has the keys {sorted(keys.values())}, expected the texts 'pk' and 'sk'; "
                "name the lease table, or one that 'processor-host table create' made"
            )

    async def write(self, letter: Letter) -> None:
        """See `LetterSink.write`."""
        await self._call("put_item", **self.put_of(letter))

    def put_of(self, letter: Letter) -> dict[str, Any]:
        """Return the write of a letter, as the `Put` of a TransactWriteItems or the arguments of a PutItem."""
        return {"TableName": self.table, "Item": _item_of(fitted(letter, _size_of, ITEM_BYTES_MAX))}

    def joins(self, collector: object) -> bool:
        """See `JoiningSink.joins`: where the leases are in the place that this sink was given too."""
        return isinstance(collector, DynamoDBTransaction) and collector.place == self._place

    def join(self, collector: Any, letter: Letter) -> None:
        """See `JoiningSink.join`."""
        put = self.put_of(letter)
        collector.put_typed(put["TableName"], put["Item"])

    async def read(self, *, group: str | None = None, letter_id: str | None = None, limit: int = 1000) -> Found:
        """
        See `LetterBox.read`; in the order of their times.

        Raises:
            ValueError: no group is named; a table does not list its groups.
        """
        if group is None:
            raise ValueError(f"{self.url} keeps letters by group; name one")
        letters: list[Letter] = []
        unreadable: list[str] = []
        for part in range(SPREAD):
            async for item in self._query(_pk(group, part), letter_id, limit + 1):
                try:
                    letters.append(_letter_of(item))
                except ValueError as error:
                    unreadable.append(f"{self.url}, item {item['sk']['S']!r}: {error}")
        letters.sort(key=lambda letter: letter.time_s)
        return Found(letters=tuple(letters[:limit]), unreadable=tuple(unreadable), has_more=len(letters) > limit)

    async def remove(self, letters: Sequence[Letter]) -> None:
        """See `LetterBox.remove`."""
        for letter in letters:
            key = {name: {"S": value} for name, value in letter_keys(letter).items()}
            await self._call("delete_item", TableName=self.table, Key=key)

    async def close(self) -> None:
        """See `LetterSink.close`."""
        await self._clients.close()

    async def _query(self, pk: str, letter_id: str | None, most: int) -> Any:
        """Yield at most so many items of one key."""
        condition, values = "pk = :pk", {":pk": {"S": pk}}
        if letter_id is not None:
            condition, values = "pk = :pk AND sk = :sk", {**values, ":sk": {"S": letter_id}}
        start: dict[str, Any] = {}
        left = most
        while left > 0:
            answer = await self._call(
                "query",
                TableName=self.table,
                KeyConditionExpression=condition,
                ExpressionAttributeValues=values,
                ConsistentRead=True,
                Limit=left,
                **start,
            )
            for item in answer.get("Items", ()):
                yield item
            left -= len(answer.get("Items", ()))
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        settings = ClientSettings(timeout_s=TIMEOUT_S, connections_max=CONNECTIONS_MAX)
        try:
            client = await self._clients.client("letters", "dynamodb", settings)
            answer: dict[str, Any] = await getattr(client, operation)(**arguments)
            return answer
        except AWS_ERRORS as error:
            fault = fault_of(
                error,
                action=f"dynamodb:{_action(operation)}",
                resource=f"table {self.table!r}",
                region=self._clients.region,
            )
            if fault.kind in _CANNOT_WORK and operation == "describe_table":
                raise NotThereError(fault.text) from error
            raise LettersUnavailable(fault.text) from error


def _action(operation: str) -> str:
    """Return the action's name of a method of the client: "PutItem" of "put_item"."""
    return operation.title().replace("_", "")


def _pk(group: str, part: int) -> str:
    return f"{group}#letters#{part}"


def _size_of(letter: Letter) -> int:
    """More than the service counts."""
    fields = _fields_of(letter)
    texts = [value for value in fields.values() if isinstance(value, str)]
    headers = [text for pair in letter.headers.items() for text in pair]
    named = TEXT_OF_FIELD * (len(fields) + len(headers))
    return named + len(letter.data) + _bytes(texts) + _bytes(headers) + _bytes(letter_keys(letter).values())


def _bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _fields_of(letter: Letter) -> dict[str, Any]:
    fields = as_fields(letter)
    fields.pop("data", None)
    fields.pop("data_base64", None)
    return fields


def _item_of(letter: Letter) -> dict[str, Any]:
    item: dict[str, Any] = {name: {"S": value} for name, value in letter_keys(letter).items()}
    item["data"] = {"B": letter.data}
    for name, value in _fields_of(letter).items():
        if isinstance(value, bool):
            item[name] = {"BOOL": value}
        elif isinstance(value, int | float):
            item[name] = {"N": repr(value)}
        elif isinstance(value, dict):
            item[name] = {"M": {key: {"S": text} for key, text in value.items()}}
        elif value is not None:
            item[name] = {"S": value}
    return item


def _letter_of(item: Mapping[str, Mapping[str, Any]]) -> Letter:
    """
    Read what `_item_of` has made.

    Raises:
        ValueError: it is no letter.
    """
    fields: dict[str, Any] = {"key": None, "record_time_s": None}
    for name, attribute in item.items():
        ((kind, value),) = attribute.items()
        if kind == "N":
            fields[name] = int(value) if name in _WHOLE else float(value)
        elif kind == "M":
            fields[name] = {key: text.get("S") for key, text in value.items()}
        elif name != "data":
            fields[name] = value
    data = item.get("data", {}).get("B")
    if not isinstance(data, bytes):
        raise ValueError("field 'data' is missing")  # noqa: TRY004 (of an item, not of an argument)
    return from_fields(fields, data=data)
