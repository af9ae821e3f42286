"""
`processor-host plan`: what each host would do next, and why; nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from partitions.sources.base import Source
from partitions.weights import load_rule_of
from processor_host.cli.administration import GROUP, JSON, STORE, administer, say
from processor_host.operating.explaining import Explained, HostPlan, Step, explain
from processor_host.operating.operator import Operator

__all__ = ["plan"]

_DOES = {"acquire": "acquires", "ask": "asks for", "wait": "waits for"}


@click.command()
@GROUP
@STORE
@click.option("--source", metavar="URL", help="Its stream, to see which parents are gone for good, as hosts do.")
@JSON
def plan(group: str, store: str, source: str | None, as_json: bool) -> None:
    """
    Tell what each host would do next, and why. Changes nothing.

    It is what the items say; hosts may hold back steps for delays of their own.
    """

    async def run(operator: Operator, stream: Source | None) -> Explained:
        load = load_rule_of(await operator.group_item())
        listed = None
        if stream is not None:
            await operator.check_source(stream)
        snapshot = await operator.snapshot()
        if stream is not None:
            # After the leases: only such a listing tells a parent that was deleted from one not discovered yet.
            listed = frozenset(info.partition for info in await stream.list_partitions())
        return explain(snapshot.leases.values(), snapshot.sessions.values(), listed=listed, load=load)

    found = administer(group, store, run, source=source)
    say({"settled": found.is_settled, **asdict(found)}, list(_lines(found)), as_json=as_json)


def _lines(found: Explained) -> Iterator[str]:
    if not found.hosts:
        yield "no hosts"
    for host in found.hosts:
        yield from _of_host(host)
    if found.hosts and found.is_settled:
        yield "no host has anything to do"
    for resting in found.resting:
        yield f"{resting.partition}: nobody is to have it; {resting.why}"


def _of_host(host: HostPlan) -> Iterator[str]:
    state = {"works": "", "drains": ", drains", "operator": ", an operator's, is given nothing"}[host.state]
    yield f"{host.host_id} ({host.session_id}{state}): owns {host.owned}, is to have {host.planned}"
    for step in host.steps:
        yield f"  {_step(step)}"


def _step(step: Step) -> str:
    return f"{_DOES[step.what]} {step.partition}: {step.why}"
