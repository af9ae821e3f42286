"""
`processor-host drain`: have a host give everything away and leave, from wherever the operator is.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from partitions.sources.base import Source
from processor_host.cli.administration import GROUP, JSON, STORE, YES, administer, ask, say
from processor_host.cli.numbers import Number
from processor_host.operating import draining
from processor_host.operating.operator import Operator
from processor_host.plurals import count_of

__all__ = ["drain"]

WAIT_S: Final = 60.0


@click.command()
@click.argument("host", metavar="HOST")
@GROUP
@STORE
@click.option(
    "--wait-s",
    type=Number(min=0),
    default=WAIT_S,
    show_default=True,
    help="How long to wait until it has left, seconds; 0 for not at all.",
)
@YES
@JSON
def drain(host: str, group: str, store: str, wait_s: float, yes: bool, as_json: bool) -> None:
    """
    Have a host hand over its partitions, leave, and end with status 0, as SIGTERM does.

    HOST is a host id, or a session id, as `hosts` shows them. Ends with 1 where it has not left in time.
    """

    async def run(operator: Operator, _: Source | None) -> tuple[draining.Drained, ...]:
        sessions = await operator.sessions()
        chosen = draining.sessions_of(host, sessions, group)
        takers = draining.takers_besides(chosen, sessions)
        left = f"{takers} other hosts take over" if takers else "NO OTHER HOST is there to take over"
        ask(f"{host} of {group!r} gives away its partitions and ends; {left}. Go on?", yes=yes)
        return await draining.drain(operator, host, wait_s=wait_s)

    found = administer(group, store, run)
    say(
        [asdict(each) for each in found],
        [_line(each) for each in found],
        as_json=as_json,
        all_done=not wait_s or all(each.has_left for each in found),
    )


def _line(drained: draining.Drained) -> str:
    if drained.has_left:
        return f"{drained.session_id} has handed over and left"
    return f"{drained.session_id} is asked to drain and has {count_of(drained.owned, 'partition')} left"
