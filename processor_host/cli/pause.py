"""
`processor-host pause`: take partitions out of the plan until somebody resumes them, also through a fail-over.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from processor_host.cli.administration import GROUP, JSON, PARTITIONS, STORE, YES, administer, ask, once_each, say
from processor_host.operating import pausing

__all__ = ["pause"]


@click.command()
@PARTITIONS
@GROUP
@STORE
@click.option("--reason", help="Why, for people; it stands beside the pause until it is resumed.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the owners have let go.")
@YES
@JSON
def pause(
    partitions: tuple[str, ...], group: str, store: str, reason: str | None, no_wait: bool, yes: bool, as_json: bool
) -> None:
    """
    Let nobody process these partitions until they are resumed.

    Each owner ends its running batch, stores its checkpoint and lets go. Ends with 1 where one is still at it.
    """
    names = once_each(partitions)
    ask(f"No host processes {', '.join(names)} of {group!r} until it is resumed. Go on?", yes=yes)
    found = administer(
        group, store, lambda operator, _: pausing.pause(operator, names, reason=reason, waits=not no_wait)
    )
    say(
        [asdict(each) for each in found],
        [_line(each) for each in found],
        as_json=as_json,
        all_done=no_wait or not any(each.owner for each in found),
    )


def _line(paused: pausing.Paused) -> str:
    was = "was paused already" if paused.was_paused else "is paused"
    rest = "" if paused.owner is None else f"; {paused.owner} has not let go yet: its running batch goes on"
    return f"{paused.partition} {was}{rest}"
