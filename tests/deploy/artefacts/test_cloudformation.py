"""The CloudFormation template and the policy: what they make is what a host asks for, no less and no more."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aioboto3  # type: ignore[import-untyped]  # It has no types.
import pytest
from click.testing import CliRunner

from partitions.stores.base import Store
from processor_host.cli import main
from tests.deploy.artefacts.tools import DEPLOY, called, command_of
from tests.servers.processes import DUMMY_CREDENTIALS
from tests.stores.kinds import dynamodb_at
from tests.stores.scenarios import ABOUT

__all__: list[str] = []

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("cloudformation")]

TEMPLATE = DEPLOY / "cloudformation" / "leases.yaml"
ACCOUNT = "123456789012"
REGION = "us-east-1"
NAMES = {"TableName": "of-the-template", "StreamName": "flights", "Group": "delays"}
STACK_S_MAX = 30


@pytest.fixture(scope="module")
async def stack(moto_url: str) -> dict[str, str]:
    """The stack, made once; the ids of its resources, and its outputs."""
    session = aioboto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in NAMES.items()]
    async with session.client("cloudformation", endpoint_url=moto_url) as client:
        await client.create_stack(
            StackName="leases",
            TemplateBody=TEMPLATE.read_text("utf-8"),
            Parameters=parameters,
            Capabilities=["CAPABILITY_IAM"],
        )
        waiter = client.get_waiter("stack_create_complete")
        await waiter.wait(StackName="leases", WaiterConfig={"Delay": 1, "MaxAttempts": STACK_S_MAX})
        found = await client.describe_stack_resources(StackName="leases")
        (told,) = (await client.describe_stacks(StackName="leases"))["Stacks"]
    ids = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found["StackResources"]}
    return ids | {each["OutputKey"]: each["OutputValue"] for each in told["Outputs"]}


@pytest.fixture(scope="module")
async def store(stack: dict[str, str], moto_url: str) -> AsyncIterator[Store]:
    """A store on the table of the stack, open for all scenarios."""
    made = dynamodb_at(moto_url, stack["LeaseTable"])
    await made.open()
    yield made
    await made.close()


def printed_policy(*options: str) -> dict[str, Any]:
    """What `processor-host iam-policy` prints."""
    result = CliRunner().invoke(main, ["iam-policy", *options])
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_policy_file_is_what_the_command_prints() -> None:
    """A call that the product makes anew is denied to whoever took the file from here."""
    names = ["--store", "dynamodb://leases?region=eu-west-1", "--source", "kinesis://orders?region=eu-west-1"]

    assert json.loads((DEPLOY / "iam-policy.json").read_text("utf-8")) == printed_policy(*names, "--group", "orders")


def test_template_passes_its_linter() -> None:
    """It knows the published schema of every resource, and what is taken wrongly without a word."""
    linter = Path(sys.executable).with_name("cfn-lint")

    assert called([str(linter), "--non-zero-exit-code", "informational", str(TEMPLATE)]) == (0, "")


async def test_policy_of_the_template_is_what_the_command_prints(stack: dict[str, str], moto_url: str) -> None:
    """The same in the other form: two lists that are written by hand would drift."""
    session = aioboto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)
    async with session.client("iam", endpoint_url=moto_url) as client:
        role = stack["HostRole"]
        (attached,) = (await client.list_attached_role_policies(RoleName=role))["AttachedPolicies"]
        inline = (await client.list_role_policies(RoleName=role))["PolicyNames"]
        version = (await client.get_policy(PolicyArn=attached["PolicyArn"]))["Policy"]["DefaultVersionId"]
        found = await client.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)
        trusted = (await client.get_role(RoleName=role))["Role"]["AssumeRolePolicyDocument"]

    urls = ["--store", stack["Store"], "--source", stack["Source"]]
    assert found["PolicyVersion"]["Document"] == printed_policy(*urls, "--group", NAMES["Group"], "--account", ACCOUNT)
    assert inline == []
    assert trusted["Statement"] == [
        {
            "Effect": "Allow",
            "Principal": {"Service": "pods.eks.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    ]


@pytest.mark.parametrize("name", ABOUT)
async def test_table_of_the_template_keeps_the_contract_of_a_store(name: str, store: Store) -> None:
    """The reason is in each scenario's own docstring; each has a group of its own in the one table."""
    await ABOUT[name].scenario(store, f"g-{name}")


def test_table_of_the_template_is_what_the_command_checks_for(stack: dict[str, str], moto_url: str) -> None:
    """The command tells of keys, billing, protection and backups, as an operator would look."""
    url = f"{stack['Store']}&endpoint_url={moto_url}"

    status, said = called(command_of(["table", "check", url, "--json"]), env=DUMMY_CREDENTIALS)

    assert status == 0, said
    assert stack["Store"] == f"dynamodb://{NAMES['TableName']}?region={REGION}"
    findings = {each["property"]: each["verdict"] for each in json.loads(said)["findings"]}
    # The server makes no table with backups from a template; that the template asks for them is seen in its text.
    assert {name for name, verdict in findings.items() if verdict != "ok"} == {"point-in-time recovery"}
    assert "PointInTimeRecoveryEnabled: true" in TEMPLATE.read_text("utf-8")
    assert {"billing", "deletion protection"} <= set(findings)
