"""
`processor-host forget-host`: fence a dead host, after watching that it does not beat.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from partitions.sources.base import Source
from processor_host.cli.administration import GROUP, JSON, STORE, YES, administer, ask, say
from processor_host.operating import draining
from processor_host.operating.operator import Operator

__all__ = ["forget_host"]


@click.command(name="forget-host")
@click.argument("host", metavar="HOST")
@GROUP
@STORE
@YES
@JSON
def forget_host(host: str, group: str, store: str, yes: bool, as_json: bool) -> None:
    """
    Delete the sessions of a host that died, so that its partitions are free.

    Other hosts do so by themselves; this is for when none runs. It watches for as long as the host may live without a
    beat, and refuses a host that beats. HOST is a host id, or a session id, as `hosts` shows them.
    """

    async def run(operator: Operator, _: Source | None) -> tuple[draining.Forgotten, ...]:
        draining.sessions_of(host, await operator.sessions(), group)
        ask(f"The sessions of {host} in {group!r} are deleted unless one beats. Go on?", yes=yes)
        return await draining.forget_host(operator, host)

    found = administer(group, store, run)
    say([asdict(each) for each in found], [_line(each) for each in found], as_json=as_json)


def _line(forgotten: draining.Forgotten) -> str:
    how = "is fenced" if forgotten.fenced else "was gone already"
    freed = f"; free: {', '.join(forgotten.freed)}" if forgotten.freed else ""
    return f"{forgotten.session_id} {how}{freed}"
