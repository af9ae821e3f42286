"""
`processor-host iam-policy`: the least policy that a host needs, as JSON for IAM.

Connects to nothing. Which call needs which action is `partitions.aws.policy`'s business; here are only the options.
"""

from __future__ import annotations

import json
import re
from typing import Final

import click

from partitions.aws.places import AwsPlace, parse_place
from partitions.aws.policy import ALSO, Resource, Use, policy_document
from processor_host.errors import UserError
from processor_host.settings import check_id
from processor_host.urls import open_source, open_store, parse_table_url, scheme_of

__all__ = ["iam_policy"]

ACCOUNT: Final = re.compile(r"\*|\d{12}", re.ASCII)


@click.command("iam-policy")
@click.option("--store", metavar="URL", help="The lease table: dynamodb://TABLE?region=REGION.")
@click.option("--source", metavar="URL", help="The stream: kinesis://STREAM?region=REGION.")
@click.option(
    "--dead-letters", metavar="URL", help="Where they go: dynamodb://TABLE or sqs://QUEUE, with ?region=REGION."
)
@click.option("--group", help="Only the items of this group; without it those of every group in the table.")
@click.option("--account", default="*", help="Twelve digits; without it the account that the policy is used in.")
@click.option(
    "--also",
    type=click.Choice([use.value for use in ALSO]),
    multiple=True,
    help="Also what this command of an operator needs; may be repeated. No host needs any of them.",
)
def iam_policy(
    store: str | None,
    source: str | None,
    dead_letters: str | None,
    group: str | None,
    account: str,
    also: tuple[str, ...],
) -> None:
    """
    Print the least policy of a host as JSON.

    What is not in AWS needs none: give whatever is.
    """
    if group is not None:
        check_id("group", group)
    if not ACCOUNT.fullmatch(account):
        raise UserError(f"--account {account!r} is no account; use its twelve digits, or leave it out")
    table = _table(store, account) if store is not None else None
    streams, consumer = _streams(source, account) if source is not None else ([], None)
    letters = _letters(dead_letters, account) if dead_letters is not None else None
    if table is None and not streams and letters is None:
        raise UserError("nothing here is in AWS; give --store dynamodb://TABLE?region=REGION, or a --source in Kinesis")
    has = {"dynamodb": table is not None, "kinesis": bool(streams), "letters": letters is not None}
    options = {
        "dynamodb": "--store dynamodb://TABLE",
        "kinesis": "--source kinesis://STREAM",
        "letters": "--dead-letters",
    }
    for each in also:
        if not has[(kind := ALSO[Use(each)])]:
            raise UserError(f"--also {each} is about something that is not here; give {options[kind]} too")
    if Use.CONSUMER_DELETE.value in also and consumer is None:
        raise UserError(
            f"--also {Use.CONSUMER_DELETE.value} is about a consumer; give --source kinesis://STREAM?mode=fanout&consumer=NAME"
        )
    document = policy_document(
        table=table,
        streams=streams,
        consumer=consumer,
        letters=letters,
        group=group,
        also=[Use(each) for each in also],
    )
    click.echo(json.dumps(document, indent=2))


def _table(url: str, account: str) -> Resource | None:
    if scheme_of(url) == "dynamodb":
        named = parse_table_url(url)
        return _resource("dynamodb", named.table, named.place, account, url)
    # For what it says of a URL that names no store.
    open_store(url, call_timeout_s=1.0)
    return None


def _streams(url: str, account: str) -> tuple[list[Resource], str | None]:
    """Return the streams, and the consumer through which they are read."""
    # Also for what it says of a URL that names no source.
    open_source(url)
    if scheme_of(url) != "kinesis":
        return [], None
    from partitions.sources.kinesis import parse_url

    place = parse_url(url)
    return [_resource("kinesis", each, place.aws, account, url) for each in place.streams], place.consumer


def _letters(url: str, account: str) -> Resource | None:
    from processor_host.letters.urls import open_sink

    # Also for what it says of a URL that names no sink.
    open_sink(url, makes=False)
    service = scheme_of(url)
    if service not in ("dynamodb", "sqs"):
        return None
    name, _, query = url.removeprefix(f"{service}://").partition("?")
    return _resource(service, name, parse_place(query), account, url)


def _resource(service: str, name: str, place: AwsPlace, account: str, url: str) -> Resource:
    region, cloud = _region(place, url)
    return Resource(service=service, name=name, region=region, account=account, cloud=cloud)


def _region(place: AwsPlace, url: str) -> tuple[str, str]:
    """Return the region that a URL or the environment names, and what ARNs begin with there."""
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # It has no types.
    from botocore.session import get_session  # type: ignore[import-untyped]

    session = get_session()
    try:
        region = place.region or session.get_config_variable("region")
        if not region:
            raise UserError(f"{url!r} names no region; add ?region=eu-west-1 for instance, or set AWS_DEFAULT_REGION")
        return region, session.get_partition_for_region(region)
    except BotoCoreError as error:
        raise UserError(f"{url!r}: {error}; check the region's name") from error
