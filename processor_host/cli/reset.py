"""
`processor-host reset`: let partitions go on from another position.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from partitions.sources.base import Source
from processor_host.cli.administration import GROUP, JSON, PARTITIONS, STORE, YES, administer, ask, once_each, say
from processor_host.operating import resetting
from processor_host.operating.operator import Operator

__all__ = ["reset"]


@click.command()
@PARTITIONS
@GROUP
@STORE
@click.option("--source", required=True, metavar="URL", help="The group's stream, which says what --to means.")
@click.option(
    "--to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, a time such as 2026-01-31T06:00:00Z, or a position: the last record that counts as done.",
)
@YES
@JSON
def reset(partitions: tuple[str, ...], group: str, store: str, source: str, to: str, yes: bool, as_json: bool) -> None:
    """
    Let these partitions go on from another position.

    The owner of each is asked, ends its running batch and lets go; then the position is stored and the hosts go on from
    there. What is before it is never handled, or handled again. A paused partition stays paused. Ends with 1 where an
    owner has not let go in time.
    """
    names = once_each(partitions)
    ask(f"{', '.join(names)} of {group!r} goes on from {to}, wherever it is now. Go on?", yes=yes)

    async def run(operator: Operator, stream: Source | None) -> tuple[resetting.Reset, ...]:
        assert stream is not None  # The option is required.
        return await resetting.reset(operator, stream, names, to)

    found = administer(group, store, run, source=source)
    say(
        [asdict(each) for each in found],
        [_line(each) for each in found],
        as_json=as_json,
        all_done=all(each.done for each in found),
    )


def _line(one: resetting.Reset) -> str:
    if not one.done:
        return f"{one.partition} was NOT reset: {one.owner or 'its owner'} has not let go in time; try again"
    if one.paused:
        return f"{one.partition} is at {one.position} (was {one.before}) and paused"
    who = "no host has it yet" if one.owner is None else f"{one.owner} has it"
    return f"{one.partition} is at {one.position} (was {one.before}); {who}"
