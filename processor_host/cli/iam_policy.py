"""
`processor-host iam-policy`: the least policy that a host needs, as JSON for IAM.

Connects to nothing. Which call needs which action is `partitions.aws.policy`'s business; here are only the options.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import click

from processor_host.errors import UserError
from processor_host.settings import check_id
from processor_host.urls import open_source, open_store, parse_table_url, scheme_of

if TYPE_CHECKING:
    from partitions.aws.places import AwsPlace
    from partitions.aws.policy import StreamResource, TableResource

__all__ = ["iam_policy"]

ACCOUNT: Final = re.compile(r"\*|\d{12}", re.ASCII)
FAN_OUT: Final = "mode=fanout"
"""What the URL of a stream says where hosts read through a consumer of their own."""


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
@click.option("--deregister", is_flag=True, help="Also to remove the hosts' own consumer. No host needs it.")
def iam_policy(
    store: str | None,
    source: str | None,
    group: str | None,
    account: str,
    commands: tuple[str, ...],
    deregister: bool,
) -> None:
    """
    Print the least policy of a host as JSON.

    What is not in AWS needs none: give the store, the source, or both.
    """
    from partitions.aws.policy import Use, policy_document

    if group is not None:
        check_id("group", group)
    if not ACCOUNT.fullmatch(account):
        raise UserError(f"--account {account!r} is no account; use its twelve digits, or leave it out")
    table = _table(store, account) if store is not None else None
    streams = _streams(source, account) if source is not None else []
    is_fan_out = bool(streams) and FAN_OUT in str(source).partition("?")[2].split("&")
    if table is None and not streams:
        raise UserError("nothing here is in AWS; give --store dynamodb://TABLE?region=REGION, or a --source in Kinesis")
    if commands and table is None:
        raise UserError(f"--table {commands[0]} is about a table; give --store dynamodb://TABLE?region=REGION too")
    if deregister and not is_fan_out:
        raise UserError(f"--deregister is about a consumer; give --source kinesis://STREAM?{FAN_OUT} too")
    document = policy_document(
        table,
        streams,
        group=group,
        is_fan_out=is_fan_out,
        deregisters=deregister,
        commands=[Use(each) for each in commands],
    )
    click.echo(json.dumps(document, indent=2))


def _table(url: str, account: str) -> TableResource | None:
    from partitions.aws.policy import TableResource

    if scheme_of(url) == "dynamodb":
        named = parse_table_url(url)
        region, cloud = _region(named.place, url)
        return TableResource(table=named.table, region=region, account=account, cloud=cloud)
    # For what it says of a URL that names no store.
    open_store(url, call_timeout_s=1.0)
    return None


def _streams(url: str, account: str) -> list[StreamResource]:
    from partitions.aws.policy import StreamResource

    # Also for what it says of a URL that names no source.
    open_source(url)
    if scheme_of(url) != "kinesis":
        return []
    from partitions.sources.kinesis import parse_url

    place = parse_url(url)
    region, cloud = _region(place.aws, url)
    return [StreamResource(stream=each, region=region, account=account, cloud=cloud) for each in place.streams]


def _region(place: AwsPlace, url: str) -> tuple[str, str]:
    """Return the region that a URL or the environment names, and what ARNs begin with there."""
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # It has no types.
    from botocore.session import get_session  # type: ignore[import-untyped]

    session = get_session()
    try:
        region = place.region or session.get_config_variable("region")
        if not region:
            raise UserError(f"{url!r} names no region; add ?region=eu-west-1 for instance, or set AWS_REGION")
        return region, session.get_partition_for_region(region)
    except BotoCoreError as error:
        raise UserError(f"{url!r}: {error}; check the region's name") from error
