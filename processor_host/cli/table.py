"""
`processor-host table`: make, check, delete, and after a restore mend, the DynamoDB table that keeps the leases.

A table that is there is never changed. The calls are in `table_calls`; here is what is asked of a user and told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from partitions.items import SessionItem
from partitions.liveness import CLOCK_DRIFT
from partitions.stores.base import Store
from processor_host.cli.errors import OneLineGroup
from processor_host.cli.table_restored import restored
from processor_host.errors import NotThereError, UserError
from processor_host.plurals import count_of
from processor_host.settings import check_id
from processor_host.urls import TableUrl, parse_table_url

if TYPE_CHECKING:
    from partitions.stores.dynamodb.tables import Finding
    from processor_host.cli.table_calls import TableCalls

__all__ = ["living_sessions", "table"]

TAG: Final = re.compile(r"(?P<key>[^=]{1,128})=(?P<value>.{0,256})", re.DOTALL)
TAGS_MAX: Final = 50
"""AWS's limit."""

CALL_TIMEOUT_S: Final = 10.0
WATCH_S_MAX: Final = 60.0
"""How long sessions are watched before a table is deleted; one that may live longer without a beat counts as alive."""
WATCH_EVERY_S: Final = 0.5

_URL = click.argument("url", metavar="dynamodb://TABLE")
_NO_BACKUPS = click.option("--no-point-in-time-recovery", "no_backups", is_flag=True, help="Go without it.")
_NO_PROTECTION = click.option("--no-deletion-protection", "no_protection", is_flag=True, help="Go without it.")


@click.group(cls=OneLineGroup)
def table() -> None:
    """
    Make, check and delete the DynamoDB table that keeps the leases.

    One table takes any number of groups: dynamodb://TABLE?region=REGION names it. Without the region, the one that the
    AWS SDK finds; with endpoint_url=URL, another server.
    """


table.add_command(restored)


@table.command()
@_URL
@_NO_BACKUPS
@_NO_PROTECTION
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="A tag of the table; may be repeated.")
def create(url: str, no_backups: bool, no_protection: bool, tags: tuple[str, ...]) -> None:
    """Make the table: on-demand, with point-in-time recovery and deletion protection. One that is there is checked."""
    named, given = parse_table_url(url), _tags(tags)
    anyio.run(_create, named, not no_backups, not no_protection, given)


@table.command()
@_URL
@_NO_BACKUPS
@_NO_PROTECTION
@click.option("--allow-replicas", is_flag=True, help="Take a table with replicas in other regions.")
@click.option("--group", default="processor-host", help="Whose keys the permissions are tried on; changes nothing.")
@click.option("--no-permissions", is_flag=True, help="Do not try what these credentials may do.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def check(
    url: str,
    no_backups: bool,
    no_protection: bool,
    allow_replicas: bool,
    group: str,
    no_permissions: bool,
    as_json: bool,
) -> None:
    """
    Tell what is found of the table and what is expected, and which calls of a host these credentials may make.

    Ends with 0 where a host can run on it, else with 3. Calls are tried with a condition that is never met.
    """
    check_id("group", group)
    named = parse_table_url(url)
    allow_replicas = allow_replicas or named.allow_replicas

    async def run() -> None:
        from processor_host.cli.table_calls import TableCalls

        async with TableCalls(named.table, named.place) as calls:
            findings = await _findings(
                calls,
                wants_backups=not no_backups,
                wants_protection=not no_protection,
                allow_replicas=allow_replicas,
                group=None if no_permissions else group,
            )
            _show(calls, findings, as_json)

    anyio.run(run)


@table.command()
@_URL
@click.option("--yes", is_flag=True, help="Do not ask for the table's name.")
@click.option("--force", is_flag=True, help="Also while hosts are alive in it.")
def delete(url: str, yes: bool, force: bool) -> None:
    """Delete the table with every lease, checkpoint and group in it. Refused while it is protected or in use."""
    anyio.run(_delete, parse_table_url(url), yes, force)


async def _create(named: TableUrl, wants_backups: bool, wants_protection: bool, tags: Mapping[str, str]) -> None:
    from partitions.stores.dynamodb.tables import problems_of
    from processor_host.cli.table_calls import TableCalls

    async with TableCalls(named.table, named.place) as calls:
        # Looked for first: whoever may not create tables may still check that theirs is there.
        is_there = await calls.describe() is not None
        with calls.told_if_interrupted(_tell):
            is_made = not is_there and await calls.create(is_protected=wants_protection, tags=tags)
            knows_backups = True
            description = await calls.wait_until("to be ACTIVE", _takes_requests, _tell)
            if is_made:
                knows_backups = not wants_backups or await calls.turn_backups_on()
                description = await calls.wait_until("to be ACTIVE", _takes_requests, _tell)
        if not is_made:
            findings = await _findings(
                calls,
                wants_backups=wants_backups,
                wants_protection=wants_protection,
                allow_replicas=named.allow_replicas,
                group=None,
            )
            click.echo(f"table {named.table!r} in {calls.region} is there already; nothing was changed")
            _show(calls, findings, as_json=False)
            return
        assert description is not None  # What `_takes_requests` says.
        if problems := problems_of(description):
            raise NotThereError(_problem(calls, problems[0]))
        backups = ("on" if wants_backups else "off") if knows_backups else "not known to this server"
        protection = {True: "on", False: "off", None: "not known to this server"}[
            description.get("DeletionProtectionEnabled")
        ]
        click.echo(
            f"made table {named.table!r} in {calls.region}: on-demand, point-in-time recovery {backups}, "
            f"deletion protection {protection}"
        )


async def _findings(
    calls: TableCalls, *, wants_backups: bool, wants_protection: bool, allow_replicas: bool, group: str | None
) -> tuple[Finding, ...]:
    """Look at everything; at what the credentials may do only where a group is given."""
    from partitions.stores.dynamodb.tables import findings_of

    description = await calls.describe()
    if description is None:
        raise _missing(calls)
    findings = findings_of(
        description,
        has_backups=await calls.has_backups(),
        wants_backups=wants_backups,
        wants_protection=wants_protection,
        allow_replicas=allow_replicas,
    )
    return findings if group is None else (*findings, *await calls.allowed(group))


def _show(calls: TableCalls, findings: Sequence[Finding], as_json: bool) -> None:
    """
    Print the findings.

    Raises:
        NotThereError: a host cannot run on the table; one line for each reason.
    """
    from partitions.stores.dynamodb.tables import Verdict

    wrong = [each for each in findings if each.verdict is Verdict.WRONG]
    if as_json:
        told = {
            "table": calls.table,
            "region": calls.region,
            "fit": not wrong,
            "findings": [asdict(each) for each in findings],
        }
        click.echo(json.dumps(told, indent=2))
    else:
        rows = [("PROPERTY", "FOUND", "EXPECTED", "", "")]
        rows += [(each.property, each.found, each.expected, each.verdict.value, each.remedy) for each in findings]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        for row in rows:
            click.echo(
                "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
            )
    if wrong:
        raise NotThereError("\n".join(_problem(calls, each) for each in wrong))


async def _delete(named: TableUrl, yes: bool, force: bool) -> None:
    from partitions.stores.dynamodb.tables import KEYS, keys_of
    from processor_host.cli.table_calls import TableCalls

    async with TableCalls(named.table, named.place) as calls:
        description = await calls.describe()
        if description is None:
            raise _missing(calls)
        if (keys := keys_of(description)) != KEYS:
            raise UserError(
                f"table {named.table!r} has the keys {keys}, expected {KEYS}: it keeps no leases; left as it is"
            )
        if description.get("DeletionProtectionEnabled"):
            address = "" if named.place.endpoint_url is None else f" --endpoint-url {named.place.endpoint_url}"
            raise UserError(
                f"table {named.table!r} in {calls.region} is protected from deletion; take the protection off first: "
                f"aws dynamodb update-table --table-name {named.table} --region {calls.region}{address} "
                "--no-deletion-protection-enabled"
            )
        if not force and (living := await _living(named, await calls.groups_with_sessions())):
            raise UserError(
                f"table {named.table!r} in {calls.region} is in use by {', '.join(living)}; "
                "stop its hosts first, or give --force"
            )
        if not yes:
            _confirm(named.table, calls.region)
        await calls.delete()
        await calls.wait_until("to be gone", lambda found: found is None, _tell)
        click.echo(f"deleted table {named.table!r} in {calls.region}")


async def _living(named: TableUrl, groups: Sequence[str]) -> list[str]:
    from partitions.stores.dynamodb import DynamoDBStore

    if not groups:
        return []
    store = DynamoDBStore(named.table, place=named.place, call_timeout_s=CALL_TIMEOUT_S, allow_replicas=True)
    try:
        await store.open()
        return await living_sessions(store, groups, _tell)
    finally:
        await store.close()


async def living_sessions(
    store: Store,
    groups: Sequence[str],
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> list[str]:
    """
    Watch the sessions of some groups for as long as the longest of them may live without a beat.

    Args:
        store: An open store.
        groups: The groups that have sessions.
        tell: Gets a line where sessions are watched.
        sleep: Waits between two looks.

    Returns:
        Those that were seen to be alive at the first look that showed any: their beats moved, or they are new. Also
        those that may live longer than anybody wants to wait.
    """
    began_s = anyio.current_time()
    first = await _sessions(store, groups)
    lives_s = {key: each.duration_s * (1 + CLOCK_DRIFT) for key, each in first.items()}
    if long_ones := [key for key, life_s in lives_s.items() if life_s > WATCH_S_MAX]:
        return _names(long_ones)
    if not first:
        return []
    longest_s = max(lives_s.values())
    tell(f"the table has {count_of(len(first), 'session')}; watching for {longest_s:.0f} s whether one is alive")
    while anyio.current_time() < began_s + longest_s:
        await sleep(WATCH_EVERY_S)
        found = await _sessions(store, groups)
        if living := [key for key, each in found.items() if key not in first or each.beat != first[key].beat]:
            return _names(living)
    return []


async def _sessions(store: Store, groups: Sequence[str]) -> dict[tuple[str, str], SessionItem]:
    return {
        (group, each.session_id): each for group in groups for each in await store.read_sessions(group, consistent=True)
    }


def _names(keys: Sequence[tuple[str, str]]) -> list[str]:
    return [f"session {session!r} of group {group!r}" for group, session in sorted(keys)]


def _confirm(name: str, region: str) -> None:
    """Have the user type the table's name."""
    try:
        typed = click.prompt(f"Every lease and checkpoint in {name!r} ({region}) is lost. Its name, to go on", err=True)
    except click.Abort:
        raise UserError(f"nothing was typed, and table {name!r} was left as it is; give --yes in a script") from None
    if typed != name:
        raise UserError(f"{typed!r} is not the table's name, {name!r}; nothing was deleted")


def _takes_requests(description: Mapping[str, Any] | None) -> bool:
    """Say whether a table that is being made can be used, or will never be."""
    return description is not None and description.get("TableStatus") != "CREATING"


def _tags(given: Sequence[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for each in given:
        match = TAG.fullmatch(each)
        if match is None or match["key"].startswith("aws:"):
            raise UserError(
                f"--tag {each!r} is no tag; use KEY=VALUE with at most 128 and 256 characters, and no key of 'aws:'"
            )
        if match["key"] in tags:
            raise UserError(f"--tag {match['key']} is given twice; a table has each tag once")
        tags[match["key"]] = match["value"]
    if len(tags) > TAGS_MAX:
        raise UserError(f"{len(tags)} tags, a table has at most {TAGS_MAX}; leave some out")
    return tags


def _missing(calls: TableCalls) -> NotThereError:
    return NotThereError(
        f"table {calls.table!r} is not there in {calls.region}; check its name and region, "
        f"or make it with: processor-host table create '{calls.url}'"
    )


def _problem(calls: TableCalls, finding: Finding) -> str:
    return (
        f"table {calls.table!r} in {calls.region}: {finding.property} is {finding.found}, "
        f"expected {finding.expected}; {finding.remedy}"
    )


def _tell(text: str) -> None:
    click.echo(text, err=True)
