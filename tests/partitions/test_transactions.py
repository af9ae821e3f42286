"""
User transactions as data: when the checkpoint's half applies, what is too much, and the token of a request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from partitions.transactions import (
    OPERATIONS_MAX,
    Commit,
    ConditionFailed,
    FailedOperation,
    TransactionInvalid,
    decide,
    limit_operations,
    request_token,
)
from partitions.verbs import Applied, Refused, SaveCheckpoint
from tests.builders import a_lease

__all__: list[str] = []

HELD = a_lease("p0", owner="a:1", token=3, seq=4, position="10")
SAVE = SaveCheckpoint(partition="p0", owner="a:1", token=3, position="20", seq=5)
COMMIT = Commit(save=SAVE, previous="10")


def test_commit_applies_as_a_checkpoint_does() -> None:
    """The user's writes come beside it; the lease is as it would be without them."""
    assert decide(HELD, COMMIT) == Applied(item=replace(HELD, position="20", seq=5))


@pytest.mark.parametrize(
    "stored",
    [
        None,
        replace(HELD, owner="b:1"),
        replace(HELD, owner=None),
        replace(HELD, token=4),
        replace(HELD, seq=5),
        replace(HELD, position="15"),
        replace(HELD, position="20"),
    ],
)
def test_commit_is_refused_where_anything_of_the_lease_is_not_as_it_was(stored: Any) -> None:
    """Owner, token and number fence it; the position keeps one that was in doubt from being applied on top."""
    assert decide(stored, COMMIT) == Refused(current=stored)


@pytest.mark.parametrize(
    "other",
    [
        ("h", COMMIT, b"content"),
        ("g", replace(COMMIT, save=replace(SAVE, partition="p1")), b"content"),
        ("g", replace(COMMIT, save=replace(SAVE, owner="a:2")), b"content"),
        ("g", replace(COMMIT, save=replace(SAVE, token=4)), b"content"),
        ("g", replace(COMMIT, save=replace(SAVE, seq=6)), b"content"),
        ("g", COMMIT, b"another"),
        # The same characters, cut elsewhere.
        ("gp", replace(COMMIT, save=replace(SAVE, partition="0")), b"content"),
        ("g", replace(COMMIT, save=replace(SAVE, token=35, seq=0)), b"content"),
    ],
)
def test_request_token_differs_with_everything_that_makes_it_another_commit(other: tuple[str, Commit, bytes]) -> None:
    """
    A server that has seen the token answers "done" for ten minutes and writes nothing.

    So a replay after a reset, under a higher fencing token, must not have the token of the first time.
    """
    assert request_token(*other) != request_token("g", COMMIT, b"content")


def test_request_token_is_the_same_for_the_same_commit_and_fits() -> None:
    """A try that repeats one whose answer was lost must be known as the same; DynamoDB takes 36 characters."""
    first, again = (request_token("g", COMMIT, b"content") for _ in range(2))

    assert first == again
    assert len(first) == 36


def test_operations_are_limited_to_what_every_store_takes() -> None:
    """A handler that was tried on SQLite must not fail on DynamoDB for its size."""
    limit_operations(OPERATIONS_MAX)

    with pytest.raises(TransactionInvalid, match="100 operations in one transaction, expected at most 99; use several"):
        limit_operations(OPERATIONS_MAX + 1)


def test_condition_failed_names_the_operation_and_no_value() -> None:
    """Errors are logged, and what is in an item is the user's."""
    failures = (
        FailedOperation(index=1, operation="put 'orders'", item={"id": "o-1", "total": 9}),
        FailedOperation(index=4, operation="check 'stock'", item=None),
    )

    error = ConditionFailed("p0", failures)

    assert str(error) == (
        "partition 'p0': the transaction was not applied, its condition failed: "
        "operation 1 (put 'orders') found an item with id, total; operation 4 (check 'stock') found no item"
    )
    assert (error.partition, error.failures) == ("p0", failures)
