"""
What notes the calls of the tests sees every process of the product and nothing else, and its comparison can fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3  # type: ignore[import-untyped]  # It has no types.
import pytest

from partitions.aws.policy import CALLS
from tests.aws_calls import breaches, environment, granted_by, names_of, noted
from tests.cli.conftest import aws_dummies as aws_dummies
from tests.cli.conftest import moto_url as moto_url
from tests.servers import DUMMY_CREDENTIALS

__all__: list[str] = []

ROOT = Path(__file__).parent.parent
GRANTED = {each for call in CALLS for each in granted_by(call)}


def test_calls_of_a_child_process_are_noted_and_those_of_a_test_are_not(
    moto_url: str, aws_dummies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host in a process of its own is what a policy is for; what a test does behind its back needs none."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    mine = boto3.client("dynamodb", endpoint_url=moto_url)
    mine.list_tables()
    mine.close()
    table = f"dynamodb://noted-{uuid4().hex[:12]}?endpoint_url={moto_url}"

    for command in ("create", "check"):
        subprocess.run(
            [sys.executable, "-m", "processor_host", "table", command, table],
            cwd=ROOT,
            env={**os.environ, **DUMMY_CREDENTIALS},
            check=True,
            capture_output=True,
            timeout=60,
        )

    assert noted(tmp_path) == {
        ("dynamodb", operation)
        for operation in ("DescribeTable", "CreateTable", "UpdateContinuousBackups", "DescribeContinuousBackups")
    }
    assert len(list(tmp_path.iterdir())) == 2


def test_calls_that_are_all_that_is_granted_have_no_breach() -> None:
    """What a whole run of the tests comes to."""
    assert list(breaches(GRANTED)) == []


def test_breaches_tell_a_call_that_is_not_granted_and_a_grant_that_nobody_needs() -> None:
    """The one breaks a host where the policy is used, the other lets it do more than it must."""
    made = (GRANTED | {("dynamodb", "ListTables")}) - {("dynamodb", "BatchGetItem")}

    assert list(breaches(made)) == [
        "dynamodb ListTables is called, and no policy grants it",
        "dynamodb BatchGetItem is granted, and no test ever calls it",
    ]


@pytest.mark.parametrize(
    ("operation", "request_", "names"),
    [
        ("CreateTable", {"TableName": "t"}, ["CreateTable"]),
        ("CreateTable", {"TableName": "t", "Tags": [{}]}, ["CreateTable", "CreateTable/TagResource"]),
        ("DeleteMessageBatch", {"Entries": []}, ["DeleteMessageBatch", "DeleteMessageBatch/DeleteMessage"]),
    ],
)
def test_names_tell_the_actions_that_have_no_operation_of_their_own(
    operation: str, request_: dict[str, Any], names: list[str]
) -> None:
    """A policy that lacks one of them fails only where it is needed."""
    assert list(names_of(operation, request_)) == names


def test_names_tell_what_the_parts_of_a_transaction_need_and_leave_out_the_items_of_users() -> None:
    """TransactWriteItems has no action of its own, and what a user's own tables need is not this product's to grant."""
    ours, theirs = {"pk": {"S": "g#leases#0"}, "sk": {"S": "p0"}}, {"id": {"S": "a"}}
    request = {
        "TransactItems": [{"ConditionCheck": {"Key": ours}}, {"Put": {"Item": theirs}}, {"Delete": {"Key": theirs}}]
    }

    assert list(names_of("TransactWriteItems", request)) == [
        "TransactWriteItems",
        "TransactWriteItems/ConditionCheckItem",
    ]
