"""
Letters in an SQS queue. Imported by name only, because it loads the SDK of AWS.

One message for each letter, its body the letter's JSON, which is ASCII and so always of characters that the service
takes. A payload is cut where the letter would exceed the queue's own `MaximumMessageSize`. In a FIFO queue each letter
is a message group of its own, so that none waits for another, and its deduplication id is its name: one that is written
again within five minutes is kept once.

Looking into a queue takes messages out for a moment, since the service has no other way: they are given back at
the end, their receive count raised by one. A queue with a redrive policy moves a message away after so many looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from partitions.aws.clients import AwsClients, ClientSettings
from partitions.aws.faults import AWS_ERRORS, FaultKind, fault_of
from partitions.aws.places import AwsPlace, query_of
from processor_host.errors import NotThereError
from processor_host.letters.base import Found, Letter, LettersUnavailable, fitted
from processor_host.letters.codec import from_json, to_json

__all__ = ["SqsLetters"]

TIMEOUT_S: Final = 10.0
"""Of one call; longer than `WAIT_S`."""
CONNECTIONS_MAX: Final = 10
MESSAGES_AT_ONCE: Final = 10  # The most that one request may ask for or name.
WAIT_S: Final = 1
"""
A look waits so long for a message. Any wait at all makes the service ask all of its servers, so that an empty answer
means an empty queue.
"""
HIDDEN_S: Final = 120
"""How long a message that was looked at stays hidden, if the look ends without giving it back."""
LOOKS_MAX: Final = 2_000
"""Requests of one look, so that a queue that fills as fast as it is read does not hold it for ever."""

_CANNOT_WORK: Final = (FaultKind.DENIED, FaultKind.MISSING, FaultKind.NO_CREDENTIALS, FaultKind.WRONG_REGION)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """What `open` found out."""

    address: str
    message_bytes_max: int
    is_fifo: bool


class SqsLetters:
    """A `LetterBox` in one SQS queue, which must be there."""

    def __init__(
        self,
        name: str,
        place: AwsPlace | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        wait_s: int = WAIT_S,
    ) -> None:
        """
        Name the queue.

        Args:
            name: The queue's name; one that ends in ".fifo" is a FIFO queue.
            place: Where it is; None for what the environment says.
            given: A client of SQS under the name "letters", to use instead of one of its own; the caller closes it.
            wait_s: How long a look waits for a message, whole seconds; 0 may miss some of a queue on several servers.
        """
        self._name = name
        self._wait_s = wait_s
        self._place = place or AwsPlace()
        self._clients = AwsClients(self._place, given=given)
        self._queue: _Queue | None = None
        self._receipts: dict[tuple[str, str], list[str]] = {}
        """Of the letters that `read` returned: every message that had the letter."""

    @property
    def url(self) -> str:
        """See `LetterSink.url`."""
        query = query_of(self._place)
        return f"sqs://{self._name}" + (f"?{query}" if query else "")

    async def open(self) -> None:
        """See `LetterSink.open`."""
        try:
            address = (await self._call("get_queue_url", QueueName=self._name))["QueueUrl"]
            found = await self._call("get_queue_attributes", QueueUrl=address, AttributeNames=["MaximumMessageSize"])
        except LettersUnavailable as error:
            # At the start nothing is known to work; a queue that does not answer is told at once.
            raise NotThereError(str(error)) from error
        self._queue = _Queue(
            address=address,
            message_bytes_max=int(found["Attributes"]["MaximumMessageSize"]),
            is_fifo=self._name.endswith(".fifo"),
        )

    async def write(self, letter: Letter) -> None:
        """See `LetterSink.write`."""
        queue = self._opened()
        kept = fitted(letter, lambda each: len(to_json(each)), queue.message_bytes_max)
        more: dict[str, str] = {}
        if queue.is_fifo:
            name = sha256(f"{letter.group}/{letter.id}".encode("utf-8", "surrogatepass")).hexdigest()
            more = {"MessageGroupId": name, "MessageDeduplicationId": name}
        await self._call("send_message", QueueUrl=queue.address, MessageBody=to_json(kept), **more)

    async def read(self, *, group: str | None = None, letter_id: str | None = None, limit: int = 1000) -> Found:
        """See `LetterBox.read`; other messages of the queue are no letters, and are left there."""
        queue = self._opened()
        letters: dict[tuple[str, str], Letter] = {}
        unreadable: list[str] = []
        taken: list[str] = []
        has_more = True
        try:
            for _ in range(LOOKS_MAX):
                messages = await self._receive(queue)
                taken += [message["ReceiptHandle"] for message in messages]
                for message in messages:
                    try:
                        letter = from_json(message["Body"])
                    except ValueError as error:
                        unreadable.append(f"{self.url}, message {message['MessageId']}: {error}")
                        continue
                    if group in (None, letter.group) and letter_id in (None, letter.id):
                        name = (letter.group, letter.id)
                        letters.setdefault(name, letter)
                        self._receipts.setdefault(name, []).append(message["ReceiptHandle"])
                if not messages:
                    has_more = False
                if not messages or len(letters) > limit:
                    break
        finally:
            await self._give_back(queue, taken)
        found = tuple(letters.values())
        return Found(letters=found[:limit], unreadable=tuple(unreadable), has_more=has_more or len(found) > limit)

    async def remove(self, letters: Sequence[Letter]) -> None:
        """See `LetterBox.remove`; only letters that this object's `read` returned can be removed."""
        queue = self._opened()
        receipts = [one for letter in letters for one in self._receipts.pop((letter.group, letter.id), ())]
        await self._in_batches("delete_message_batch", queue, receipts)

    async def close(self) -> None:
        """See `LetterSink.close`."""
        await self._clients.close()

    def _opened(self) -> _Queue:
        if self._queue is None:
            raise RuntimeError(f"{self.url} is not open; await open() first")
        return self._queue

    async def _receive(self, queue: _Queue) -> list[dict[str, Any]]:
        answer = await self._call(
            "receive_message",
            QueueUrl=queue.address,
            MaxNumberOfMessages=MESSAGES_AT_ONCE,
            VisibilityTimeout=HIDDEN_S,
            WaitTimeSeconds=self._wait_s,
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages

    async def _give_back(self, queue: _Queue, receipts: Sequence[str]) -> None:
        await self._in_batches("change_message_visibility_batch", queue, receipts, VisibilityTimeout=0)

    async def _in_batches(self, operation: str, queue: _Queue, receipts: Sequence[str], **more: Any) -> None:
        for first in range(0, len(receipts), MESSAGES_AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": receipt, **more}
                for number, receipt in enumerate(receipts[first : first + MESSAGES_AT_ONCE])
            ]
            answer = await self._call(operation, QueueUrl=queue.address, Entries=entries)
            if failed := answer.get("Failed"):
                what = f"{failed[0].get('Code')}: {failed[0].get('Message')}"
                raise LettersUnavailable(
                    f"sqs:{_action(operation)} on {self.url} failed for {len(failed)} messages ({what})"
                )

    async def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        settings = ClientSettings(timeout_s=TIMEOUT_S, connections_max=CONNECTIONS_MAX)
        try:
            client = await self._clients.client("letters", "sqs", settings)
            answer: dict[str, Any] = await getattr(client, operation)(**arguments)
            return answer
        except AWS_ERRORS as error:
            fault = fault_of(
                error, action=f"sqs:{_action(operation)}", resource=f"queue {self._name!r}", region=self._clients.region
            )
            if fault.kind in _CANNOT_WORK and self._queue is None:
                raise NotThereError(fault.text) from error
            raise LettersUnavailable(fault.text) from error


def _action(operation: str) -> str:
    """Return the action's name of a method of the client: "PutItem" of "put_item"."""
    return operation.title().replace("_", "")
