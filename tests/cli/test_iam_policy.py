"""
`processor-host iam-policy`: exactly what a host needs, on exactly what it names. Whether that is what it really calls,
`make policy` finds out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from processor_host.cli import main

__all__: list[str] = []

TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/leases"
STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/flights"
ITEMS = [
    "dynamodb:BatchGetItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
]
STORE = ("--store", "dynamodb://leases?region=eu-west-1", "--account", "123456789012")
SOURCE = ("--source", "kinesis://flights?region=eu-west-1", "--account", "123456789012")


@pytest.fixture(autouse=True)
def no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """No region is in the environment of the test, nor in a file of the developer's."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")


def statements(*options: str) -> dict[str, dict[str, Any]]:
    """The statements of the policy that is printed, by their ids."""
    result = CliRunner().invoke(main, ["iam-policy", *options])
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["Version"] == "2012-10-17"
    return {each.pop("Sid"): each for each in document["Statement"]}


def allows(actions: list[str], *resources: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": list(resources), **more}


def test_policy_of_a_table_allows_its_items_and_its_description_and_nothing_else() -> None:
    """Never CreateTable, never Scan, never another table: a host that is broken into can do no more."""
    assert statements(*STORE) == {
        "ProcessorHostItems": allows(ITEMS, TABLE),
        "ProcessorHostTable": allows(["dynamodb:DescribeTable"], TABLE),
    }


def test_policy_of_one_group_is_limited_to_the_keys_that_begin_with_its_name() -> None:
    """Many applications share a table; the `#` behind the name keeps `orders` out of `orders-2`."""
    assert statements(*STORE, "--group", "orders")["ProcessorHostItems"] == allows(
        ITEMS, TABLE, Condition={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["orders#*"]}}
    )


def test_policy_with_commands_has_a_statement_for_each() -> None:
    """Whoever makes the table is seldom who reads the stream."""
    told = statements(*STORE, "--also", "table-create", "--also", "table-check", "--also", "table-delete")

    assert {name: told[name] for name in list(told)[2:]} == {
        "ProcessorHostTableCreate": allows(
            [
                "dynamodb:CreateTable",
                "dynamodb:DescribeTable",
                "dynamodb:TagResource",
                "dynamodb:UpdateContinuousBackups",
            ],
            TABLE,
        ),
        "ProcessorHostTableCheck": allows(["dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTable"], TABLE),
        "ProcessorHostTableDelete": allows(
            ["dynamodb:DeleteTable", "dynamodb:DescribeTable", "dynamodb:Query", "dynamodb:Scan"], TABLE
        ),
    }


def test_policy_of_a_stream_allows_to_read_it_and_a_consumer_only_with_fan_out() -> None:
    """A table and a stream may be in different accounts: each can be asked for alone."""
    assert statements(*SOURCE) == {
        "ProcessorHostStream": allows(
            ["kinesis:DescribeStreamSummary", "kinesis:GetRecords", "kinesis:GetShardIterator", "kinesis:ListShards"],
            STREAM,
        )
    }


def test_policy_of_a_stream_with_fan_out_allows_this_one_consumer() -> None:
    """Two groups on one consumer cut each other off: the policy keeps to one's own."""
    url = "kinesis://flights?region=eu-west-1&mode=fanout&consumer=orders"

    told = statements("--source", url, "--account", "123456789012", "--also", "consumer-delete")

    actions = ["kinesis:DescribeStreamConsumer", "kinesis:RegisterStreamConsumer", "kinesis:SubscribeToShard"]
    consumer = f"{STREAM}/consumer/orders:*"
    assert told["ProcessorHostFanOut"] == allows(actions, STREAM, consumer)
    assert told["ProcessorHostConsumerDelete"] == allows(["kinesis:DeregisterStreamConsumer"], STREAM, consumer)


def test_policy_of_dead_letters_lets_a_host_write_them_and_an_operator_read_them() -> None:
    """A host that is broken into must not read the payloads of what failed."""
    queue = "arn:aws:sqs:eu-west-1:123456789012:bad.fifo"
    account = ("--account", "123456789012", "--also", "letters-read")

    in_sqs = statements("--dead-letters", "sqs://bad.fifo?region=eu-west-1", *account)
    in_table = statements("--dead-letters", "dynamodb://leases?region=eu-west-1", *account, "--group", "orders")

    assert in_sqs == {
        "ProcessorHostLetters": allows(["sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"], queue),
        "ProcessorHostLettersRead": allows(
            [
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl",
                "sqs:ReceiveMessage",
            ],
            queue,
        ),
    }
    assert in_table == {
        "ProcessorHostLetters": allows(
            ["dynamodb:DescribeTable", "dynamodb:PutItem"],
            TABLE,
            Condition={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["orders#*"]}},
        ),
        "ProcessorHostLettersRead": allows(["dynamodb:DeleteItem", "dynamodb:DescribeTable", "dynamodb:Query"], TABLE),
    }


def test_policy_of_several_streams_names_each_and_takes_an_arn_as_it_is() -> None:
    """A stream of another account is named by its ARN, whatever --account says."""
    other = "arn:aws:kinesis:eu-west-1:999999999999:stream/trains"

    told = statements("--source", f"kinesis://flights,{other}?region=eu-west-1", "--account", "123456789012")

    assert told["ProcessorHostStream"]["Resource"] == [STREAM, other]


def test_policy_of_table_and_stream_is_one_document() -> None:
    """What a host is given."""
    assert list(statements(*STORE, *SOURCE)) == ["ProcessorHostItems", "ProcessorHostTable", "ProcessorHostStream"]


def test_policy_without_an_account_is_about_whichever_it_is_used_in() -> None:
    """In a template the account is not known yet."""
    told = statements("--store", "dynamodb://leases?region=cn-north-1")

    assert told["ProcessorHostTable"]["Resource"] == ["arn:aws-cn:dynamodb:cn-north-1:*:table/leases"]


def test_policy_takes_the_region_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the host will."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-gov-west-1")

    told = statements("--store", "dynamodb://leases")

    assert told["ProcessorHostTable"]["Resource"] == ["arn:aws-us-gov:dynamodb:us-gov-west-1:*:table/leases"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "nothing here is in AWS; give --store dynamodb://TABLE?region=REGION, or a --source in Kinesis"),
        (["--store", "sqlite:leases.db", "--source", "local:s.db"], "nothing here is in AWS"),
        (["--store", "leases"], "'leases' names no store"),
        (["--store", "dynamodb://leases"], "add ?region=eu-west-1 for instance, or set AWS_DEFAULT_REGION"),
        (["--store", "dynamodb://leases?region=xx-nowhere-9"], "check the region's name"),
        ([*STORE, "--account", "12"], "--account '12' is no account; use its twelve digits, or leave it out"),
        ([*STORE, "--group", "a#b"], "'a#b'"),
        ([*SOURCE, "--also", "table-create"], "--also table-create is about something that is not here; give --store"),
        ([*SOURCE, "--also", "consumer-delete"], "give --source kinesis://STREAM?mode=fanout&consumer=NAME"),
        ([*SOURCE, "--also", "letters-read"], "give --dead-letters too"),
        (["--dead-letters", "queue:x"], "'queue:x'"),
        (["--source", "kinesis:flights"], "expected one such as"),
    ],
    ids=repr,
)
def test_input_that_is_wrong_is_one_line(options: list[str], says: str) -> None:
    """A policy that is almost right is found wrong by the first host that needs it."""
    result = CliRunner().invoke(main, ["iam-policy", *options])

    (line,) = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in line
