"""
`processor-host leases`: the leases of a group as JSON, out of a store and into one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from processor_host.cli.administration import GROUP, JSON, STORE, YES, administer, ask, is_there, say
from processor_host.cli.errors import OneLineGroup
from processor_host.errors import UserError
from processor_host.operating import carrying
from processor_host.plurals import count_of
from processor_host.settings import check_id

__all__ = ["leases"]


@click.group(cls=OneLineGroup)
def leases() -> None:
    """Carry the leases of a group, with their checkpoints and fencing tokens, from one store to another."""


@leases.command("export")
@GROUP
@STORE
@click.option("--json", "_", is_flag=True, help="It is JSON in any case.")
def export(group: str, store: str, _: bool) -> None:
    """Print the group's item, all its leases and all its locks as one JSON object. May run beside hosts."""
    found = administer(group, store, lambda operator, _: carrying.export_leases(operator))
    click.echo(json.dumps(found.as_json(), indent=2))


@leases.command("import")
@click.argument("file", metavar="FILE")
@GROUP
@STORE
@YES
@JSON
def import_(file: str, group: str, store: str, yes: bool, as_json: bool) -> None:
    """
    Bring a group to what FILE says, which `leases export` wrote; - is the standard input, and needs --yes.

    A lease file that is not there is made. All hosts of the group must be stopped. No token is lowered; one that would
    be makes it refuse the whole file. A lease that FILE lacks stays as it is. Run again, it goes on where it was cut
    short.
    """
    found = carrying.parse_export(_read(file))
    check_id("group", group)
    of_locks = [count_of(len(found.locks), "lock")] if found.locks else []
    many = " and ".join([count_of(len(found.leases), "lease"), *of_locks] if found.leases else of_locks or ["nothing"])
    where = store if is_there(store) else f"{store}, which will be made"
    ask(f"{many} of {found.group!r} will be brought into {group!r} in {where}. Go on?", yes=yes)
    done = administer(group, store, lambda operator, _: carrying.import_leases(operator, found), makes_store=True)
    say(
        [asdict(each) for each in done],
        [f"{each.partition} {each.outcome}, token {each.token}" for each in done]
        or [f"{many} of {found.group!r} brought into {group!r}"],
        as_json=as_json,
        all_done=all(each.outcome != "not done" for each in done),
    )


def _read(name: str) -> Any:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(
            f"{name}: {why}; name a file that 'leases export' wrote, or - for the standard input"
        ) from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not JSON ({error}); name a file that 'leases export' wrote") from error
