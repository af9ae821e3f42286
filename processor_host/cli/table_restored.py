"""
`processor-host table restored`: what must be done once a store came back from a backup, before any host starts.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from processor_host.cli.administration import JSON, YES, administer, ask, say
from processor_host.operating.restoring import RAISED_BY, Restored, note_restored
from processor_host.plurals import count_of

__all__ = ["restored"]


@click.command()
@click.argument("url", metavar="URL")
@click.option(
    "--group", "groups", multiple=True, required=True, help="A group in it; may be repeated. Name all of them."
)
@YES
@JSON
def restored(url: str, groups: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """
    Raise every fencing token, after a table, or a lease file, was restored from a backup.

    Stop all hosts first, and run it before any starts: the backup has old tokens, which were given out again else. The
    checkpoints are old too: what was handled since is handled again. URL is dynamodb://TABLE or sqlite:leases.db.
    """
    names = tuple(dict.fromkeys(groups))
    ask(f"Every token of {', '.join(names)} in {url} is raised by {RAISED_BY:,}. Go on?", yes=yes)
    found = [administer(name, url, lambda operator, _: note_restored(operator)) for name in names]
    say(
        [asdict(each) for each in found],
        [
            f"{each.group}: {count_of(each.partitions + each.locks, 'token')} raised{_counted(each)}" for each in found
        ],
        as_json=as_json,
    )


def _counted(done: Restored) -> str:
    # A group of locks alone has no item to count in.
    return f", restore {done.restore_count}" if done.restore_count else ""
