"""
`processor-host resume`: put paused partitions back into the plan, and make the hosts look.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from processor_host.cli.administration import GROUP, JSON, PARTITIONS, STORE, administer, once_each, say
from processor_host.operating import pausing

__all__ = ["resume"]


@click.command()
@PARTITIONS
@GROUP
@STORE
@JSON
def resume(partitions: tuple[str, ...], group: str, store: str, as_json: bool) -> None:
    """Let hosts process paused partitions again, from their checkpoints."""
    names = once_each(partitions)
    found = administer(group, store, lambda operator, _: pausing.resume(operator, names))
    say([asdict(each) for each in found], [_line(each) for each in found], as_json=as_json)


def _line(resumed: pausing.Resumed) -> str:
    did = "is resumed" if resumed.was_paused else "was not paused"
    who = "no host has it yet" if resumed.owner is None else f"{resumed.owner} has it"
    return f"{resumed.partition} {did}; {who}"
