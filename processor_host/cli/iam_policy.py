"""
`processor-host iam-policy`: the least policy that a host needs, as JSON for IAM.

Connects to nothing. Which call needs which action is `partitions.aws.policy`'s business; here are only the options.
"""

from __future__ import annotations

import json
import re
from typing import Final

import click

from processor_host.errors import UserError
from processor_host.settings import check_id
from processor_host.urls import ALLOW_REPLICAS, AwsUrl, parse_aws_url, scheme_of

__all__ = ["iam_policy"]

ACCOUNT: Final = re.compile(r"\*|\d{12}", re.ASCII)
KINESIS_OPTIONS: Final = ("mode", "start", "consumer")
"""What a URL of a stream may say beside its place; only `mode` matters to a policy."""
FAN_OUT: Final = "fanout"


@click.command("iam-policy")
@click.option("--store", metavar="URL", help="The lease table: dynamodb://TABLE?region=REGION.")
@click.option("--source", metavar="URL", help="The stream: kinesis://STREAM?region=REGION.")
@click.option("--group", help="Only the items of this group; without it those of every group in the table.")
@click.option("--account", default="*", help="Twelve digits; without it the account that the policy is used in.")
@click.option(
    "--table",
    "commands",
    type=click.Choice(["create", "check", "delete"]),
    multiple=True,
    help="Also what this command of `table` needs; may be repeated. No host needs any of them.",
)
def iam_policy(
    store: str | None, source: str | None, group: str | None, account: str, commands: tuple[str, ...]
) -> None:
    """
    Print the least policy of a host as JSON.

    What is not in AWS needs none: give the store, the source, or both.
    """
    from partitions.aws.policy import StreamResource, TableResource, Use, policy_document

    if group is not None:
        check_id("group", group)
    if not ACCOUNT.fullmatch(account):
        raise UserError(f"--account {account!r} is no account; use its twelve digits, or leave it out")
    table = stream = None
    if store is not None and scheme_of(store) == "dynamodb":
        named = parse_aws_url(store, "dynamodb", (ALLOW_REPLICAS,))
        region, cloud = _region(named, store)
        table = TableResource(table=named.name, region=region, account=account, cloud=cloud)
    if source is not None and scheme_of(source) == "kinesis":
        named = parse_aws_url(source, "kinesis", KINESIS_OPTIONS)
        region, cloud = _region(named, source)
        is_fan_out = named.options.get("mode") == FAN_OUT
        stream = StreamResource(stream=named.name, region=region, account=account, cloud=cloud, is_fan_out=is_fan_out)
    if table is None and stream is None:
        raise UserError("nothing here is in AWS; give --store dynamodb://TABLE?region=REGION, or a --source in Kinesis")
    if commands and table is None:
        raise UserError(f"--table {commands[0]} is about a table; give --store dynamodb://TABLE?region=REGION too")
    document = policy_document(table, stream, group=group, commands=[Use(each) for each in commands])
    click.echo(json.dumps(document, indent=2))


def _region(named: AwsUrl, url: str) -> tuple[str, str]:
    """Return the region that a URL or the environment names, and what ARNs begin with there."""
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # It has no types.
    from botocore.session import get_session  # type: ignore[import-untyped]

    session = get_session()
    try:
        region = named.place.region or session.get_config_variable("region")
        if not region:
            raise UserError(f"{url!r} names no region; add ?region=eu-west-1 for instance, or set AWS_REGION")
        return region, session.get_partition_for_region(region)
    except BotoCoreError as error:
        raise UserError(f"{url!r}: {error}; check the region's name") from error
