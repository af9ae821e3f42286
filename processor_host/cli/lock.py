"""
`processor-host lock`: the locks of a group, and the release of one that nobody releases.
"""

from __future__ import annotations

import click

from partitions.sources.base import Source
from processor_host.cli.administration import GROUP, JSON, STORE, YES, administer, ask, say, table_of
from processor_host.cli.errors import OneLineGroup
from processor_host.lock_rows import LockRow
from processor_host.operating import locking
from processor_host.operating.operator import Operator

__all__ = ["lock"]

NAME = click.argument("name", metavar="NAME")


@click.group(cls=OneLineGroup)
def lock() -> None:
    """Look at the locks of a group, singletons of its hosts among them, and free one that is left behind."""


@lock.command("list")
@GROUP
@STORE
@JSON
def list_(group: str, store: str, as_json: bool) -> None:
    """List the locks: who holds each, and under which fencing token."""
    found = administer(group, store, lambda operator, _: locking.all_locks(operator))
    heads = ("LOCK", "STATE", "HOLDER", "TOKEN", "EXPIRES", "SESSION")
    cells = [heads, *(_cells(row) for row in found)]
    say(
        [row.as_json() for row in found],
        table_of(cells) if found else [f"group {group} has no locks"],
        as_json=as_json,
    )


@lock.command("show")
@NAME
@GROUP
@STORE
@JSON
def show(name: str, group: str, store: str, as_json: bool) -> None:
    """Show one lock with all that its item says."""
    row = administer(group, store, lambda operator, _: locking.lock_of(operator, name))
    about = [(key, str(value)) for key, value in sorted(row.about.items())]
    pairs = [
        ("lock", row.name),
        ("state", row.state),
        ("holder", row.holder or "nobody"),
        ("session", row.owner or ""),
        ("token", str(row.token)),
        ("expires", _expires(row)),
        *about,
    ]
    say(row.as_json(), table_of(pairs), as_json=as_json)


@lock.command("release")
@NAME
@GROUP
@STORE
@click.option("--force", is_flag=True, help="Also where its holder is registered, and may be at work.")
@YES
@JSON
def release(name: str, group: str, store: str, force: bool, yes: bool, as_json: bool) -> None:
    """
    Free a lock that its holder left behind, as one that does not expire whose process died.

    One whose owner is registered is left alone unless --force is given: nobody tells its holder, which finds out at its
    next beat, and what it writes until then only a fence refuses.
    """

    async def run(operator: Operator, _: Source | None) -> locking.ReleasedLock:
        # What would be refused is not asked for.
        row = (await locking.look_before_release(operator, name, force=force))[1]
        held = "is free" if row.holder is None else f"is held by {row.holder} ({row.owner}) under token {row.token}"
        ask(f"Lock {name} of {group!r} {held}, and is to be free for anybody. Go on?", yes=yes)
        return await locking.release_lock(operator, name, force=force)

    done = administer(group, store, run)
    line = f"{name} was free" if done.was_held_by is None else f"{name} was released; {done.was_held_by} held it"
    say(done.as_json(), [f"{line}, token {done.token}"], as_json=as_json)


def _cells(row: LockRow) -> tuple[str, ...]:
    return row.name, row.state, row.holder or "", str(row.token), _expires(row), row.owner or ""


def _expires(row: LockRow) -> str:
    # Of the term that goes on; the next one may have it otherwise.
    return "" if row.state == "free" else "yes" if row.expires else "no"
