"""
`processor-host release`: have the owners of partitions let go of them, so that they are placed anew.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from processor_host.cli.administration import GROUP, JSON, PARTITIONS, STORE, YES, administer, ask, once_each, say
from processor_host.operating import resetting

__all__ = ["release"]


@click.command()
@PARTITIONS
@GROUP
@STORE
@YES
@JSON
def release(partitions: tuple[str, ...], group: str, store: str, yes: bool, as_json: bool) -> None:
    """
    Have the owners finish with these partitions and let go; the plan places them anew, maybe on the same host.

    Nothing is lost or repeated. Ends with 1 where an owner has not let go in time.
    """
    names = once_each(partitions)
    ask(f"The owners of {', '.join(names)} of {group!r} let go. Go on?", yes=yes)
    found = administer(group, store, lambda operator, _: resetting.release(operator, names))
    say(
        [asdict(each) for each in found],
        [_line(each) for each in found],
        as_json=as_json,
        all_done=all(each.done for each in found),
    )


def _line(one: resetting.Released) -> str:
    if not one.done:
        return f"{one.partition} is still with {one.owner or one.was_owned_by}, which has not let go in time; try again"
    if one.was_owned_by is None:
        return f"{one.partition} was free"
    who = "no host has it yet" if one.owner is None else f"{one.owner} has it"
    return f"{one.partition} was released by {one.was_owned_by}; {who}"
