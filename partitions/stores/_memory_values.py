"""
User transactions on the memory store: writes into a dict of values beside the items of a group.

Knows no item and no store. Just enough to try and to simulate what a handler does with a transaction: a write that may
be repeated (`put`), one that may not (`add`), and a condition (`check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from partitions.transactions import (
    Commit,
    ConditionFailed,
    Failed,
    FailedOperation,
    TransactionInvalid,
    limit_operations,
    no_such_call,
)

__all__ = ["MemoryTransaction", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    key: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Add:
    key: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    key: str
    value: Any


class MemoryTransaction:
    """Collects the writes of one transaction; what `batch.transaction()` gives on a memory store."""

    __slots__ = ("_is_taken", "_operations", "_url")

    def __init__(self, url: str) -> None:
        self._url = url
        self._operations: list[_Put | _Add | _Check] = []
        self._is_taken = False

    def __getattr__(self, name: str) -> NoReturn:
        raise no_such_call(self._url, name, ("put", "add", "check"))

    def put(self, key: str, value: Any) -> None:
        """Set a value."""
        self._collect(_Put(key=key, value=value))

    def add(self, key: str, amount: int) -> None:
        """Add to a number, which is 0 where there is none."""
        self._collect(_Add(key=key, amount=amount))

    def check(self, key: str, value: Any) -> None:
        """Apply the transaction only where this is the value stored before it; None: where there is none."""
        self._collect(_Check(key=key, value=value))

    def taken(self) -> tuple[_Put | _Add | _Check, ...]:
        """See `Collector.taken`."""
        self._is_taken = True
        return tuple(self._operations)

    def _collect(self, operation: _Put | _Add | _Check) -> None:
        if self._is_taken:
            raise TransactionInvalid("the transaction has ended; call its methods inside `async with`")
        limit_operations(len(self._operations) + 1)
        self._operations.append(operation)


def changed(values: Mapping[str, Any], commit: Commit) -> dict[str, Any] | Failed:
    """Return the values as the operations of a commit make them, or which of its conditions do not hold."""
    failures = tuple(
        FailedOperation(index=index, operation=operation, item={operation.key: values.get(operation.key)})
        for index, operation in enumerate(commit.operations)
        if isinstance(operation, _Check) and values.get(operation.key) != operation.value
    )
    if failures:
        return Failed(error=ConditionFailed(commit.save.partition, failures))
    after = dict(values)
    for operation in commit.operations:
        if isinstance(operation, _Put):
            after[operation.key] = operation.value
        elif isinstance(operation, _Add):
            after[operation.key] = after.get(operation.key, 0) + operation.amount
    return after
