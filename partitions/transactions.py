"""
User transactions as data: a checkpoint and a user's own writes that are stored together or not at all.

Knows no store. `Commit` is the request, one of `Outcome` the answer; `decide` says when the checkpoint's half applies,
written once for the stores that run it as code. Theory of operation:

- **Once, however often the handler runs.** A commit applies only where the stored position is the one that this term
  last knew (`previous`). A handler that runs again over the same records finds the position moved and is refused, so
  its writes cannot be applied a second time. Owner, token and `seq` fence it as they fence every checkpoint.
- **Doubt stays doubt.** A commit whose answer was lost, or whose caller was cancelled, has used up its `seq`. Whoever
  goes on under the same term first *settles* it: an empty commit with the next `seq` and the same `previous` either
  applies, and then the doubtful one never will, or is refused with an item that shows what was stored.
- **A token for each content.** Some stores answer a repeated request from memory for some minutes. `request_token`
  covers group, partition, owner, fencing token, `seq` and content, so that only the very same commit is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

from partitions import rules
from partitions.errors import PartitionsError
from partitions.items import LeaseItem
from partitions.verbs import Applied, Refused, Result, SaveCheckpoint

__all__ = [
    "OPERATIONS_MAX",
    "Again",
    "CallUnsupported",
    "Collector",
    "Commit",
    "ConditionFailed",
    "FailedOperation",
    "Failed",
    "Outcome",
    "TransactionError",
    "TransactionInvalid",
    "TransactionsUnsupported",
    "decide",
    "limit_operations",
    "no_such_call",
    "request_token",
]

OPERATIONS_MAX: Final = 99
"""A user's operations in one transaction: DynamoDB takes 100, and the checkpoint is one of them."""

TOKEN_LENGTH: Final = 36
"""Characters that DynamoDB takes as a ClientRequestToken; 144 bits of the digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One transaction: the checkpoint, on condition of the position stored before, and the user's operations."""

    save: SaveCheckpoint
    previous: str
    """The position that must be stored when it applies."""
    operations: tuple[Any, ...] = ()
    """What the store's collector made of the user's calls; opaque to everybody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The user's half could not be applied, so nothing was. `error` is theirs; repeating the same does not help."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Nothing was applied because another transaction or a throttle was in the way; try again. `reason` for people."""

    reason: str


Outcome = Applied[LeaseItem] | Refused[LeaseItem] | Failed | Again
"""`Refused` is about the lease: it carries the stored item, which may show the sender's own earlier success."""


class Collector(Protocol):
    """What a user calls inside `async with batch.transaction()`; each store has its own methods beside this one."""

    def taken(self) -> tuple[Any, ...]:
        """
        Return the operations, in order, and take no more of them.

        Raises:
            TransactionInvalid: together they cannot be sent.
        """
        ...


class TransactionError(PartitionsError):
    """A transaction was not applied, and the same one never will be; the subclass says why."""


class TransactionInvalid(TransactionError):
    """The transaction itself cannot be: too many operations, two on one item, values of a wrong type."""


class TransactionsUnsupported(TransactionError):
    """The store of this group has no user transactions, or not the kind that was asked for."""

    def __init__(self, url: str, what: str, *, remedy: str) -> None:
        self.url = url
        super().__init__(f"store {url!r} has no {what}; {remedy}")


_CALLS: Final = frozenset({"put", "put_typed", "update", "delete", "check", "add", "execute"})
"""Methods of the collectors of all stores."""


class CallUnsupported(TransactionsUnsupported, AttributeError):
    """A method was called on a transaction that only those of another store have."""


def no_such_call(url: str, name: str, own: Sequence[str]) -> AttributeError:
    """
    Return what a collector raises for a method that it lacks.

    Args:
        url: Of the store.
        name: Of the method.
        own: The methods that the store's own collector has.
    """
    if name in _CALLS and name not in own:
        remedy = f"its transactions have {', '.join(f'`tx.{each}`' for each in own)}: write for the store in use"
        return CallUnsupported(url, f"`tx.{name}`", remedy=remedy)
    return AttributeError(f"a transaction of {url} has no attribute {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOperation:
    """One operation of a transaction whose condition did not hold."""

    index: int
    """0 for the first call inside the block."""
    operation: Any
    """The operation as the store's collector made it."""
    item: Mapping[str, Any] | None
    """What was stored instead; None where there was nothing, or the store does not tell."""


class ConditionFailed(TransactionError):
    """
    A condition of the user's own operations did not hold: nothing was written, the checkpoint neither.

    `failures` has each operation whose condition failed, as far as the store tells, with the item that it found.
    """

    def __init__(self, partition: str, failures: tuple[FailedOperation, ...]) -> None:
        self.partition = partition
        self.failures = failures
        which = "; ".join(
            f"operation {failure.index} ({failure.operation}) found {_shown(failure.item)}" for failure in failures
        )
        super().__init__(f"partition {partition!r}: the transaction was not applied, its condition failed: {which}")


def decide(item: LeaseItem | None, commit: Commit) -> Result[LeaseItem]:
    """
    Decide the checkpoint's half of a commit on the stored lease, None where there is none.

    Returns:
        `Applied` with the lease as it is to be stored with the user's operations, or `Refused`.
    """
    result = rules.apply(item, commit.save)
    if item is not None and item.position != commit.previous:
        return Refused(current=item)
    return result


def limit_operations(count: int) -> None:
    """
    Check that a transaction can still take so many operations.

    Raises:
        TransactionInvalid: it cannot.
    """
    if count > OPERATIONS_MAX:
        raise TransactionInvalid(
            f"{count} operations in one transaction, expected at most {OPERATIONS_MAX}; "
            "use several, each upto= a record of the batch, or smaller batches"
        )


def request_token(group: str, commit: Commit, content: bytes) -> str:
    """
    Return the idempotency token of a commit, 36 characters.

    Args:
        group: The group, with whatever names its table.
        commit: The commit; its partition, owner, fencing token and `seq` enter.
        content: All that is sent, in a form that is equal for equal content.
    """
    save = commit.save
    digest = sha256()
    # Each with its length: no two lists of parts have the same bytes.
    for part in (group, save.partition, save.owner, str(save.token), str(save.seq)):
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    digest.update(content)
    return digest.hexdigest()[:TOKEN_LENGTH]


def _shown(item: Mapping[str, Any] | None) -> str:
    # Names alone: values are the user's data, and errors are logged.
    return "no item" if item is None else f"an item with {', '.join(sorted(item))}"
