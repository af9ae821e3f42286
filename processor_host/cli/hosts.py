"""
`processor-host hosts`: the sessions of a group, with what stands in their items.

When a beat was written stands in none: `status --watch` tells who is alive.
"""

from __future__ import annotations

import json
from typing import Any

import click

from partitions.items import SessionItem
from partitions.sources.base import Source
from processor_host.cli.administration import GROUP, JSON, STORE, administer, say, table_of
from processor_host.operating.operator import Operator, Snapshot

__all__ = ["hosts"]


@click.command()
@GROUP
@STORE
@JSON
def hosts(group: str, store: str, as_json: bool) -> None:
    """List the sessions of a group: who they are, what they own, and what they are asked for."""

    async def run(operator: Operator, _: Source | None) -> Snapshot:
        await operator.item_if_any()
        return await operator.snapshot()

    found = administer(group, store, run)
    rows = [_row(session, found) for _, session in sorted(found.sessions.items())]
    heads = ("HOST", "SESSION", "STATE", "OWNED", "ASKS", "BEAT", "CAPACITY", "MAX", "DURATION", "HANDOFF", "ABOUT")
    cells = [heads, *(_cells(row) for row in rows)]
    say(rows, table_of(cells) if rows else [f"group {group} has no hosts"], as_json=as_json)


def _row(session: SessionItem, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "host_id": session.host_id,
        "session_id": session.session_id,
        "state": _state(session),
        "owned": sum(lease.owner == session.session_id for lease in snapshot.leases.values()),
        "asks": dict(sorted(session.asks.items())),
        "beat": session.beat,
        "capacity": session.capacity,
        "max_leases": session.max_leases,
        "load": session.load,
        "duration_s": session.duration_s,
        "handoff_s": session.handoff_s,
        "about": dict(session.extra),
    }


def _state(session: SessionItem) -> str:
    if session.draining:
        return "draining"
    if session.drain_asked:
        return "asked to drain"
    if session.sick:
        return "sick"
    return "works" if session.capacity > 0 else "operator"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    most = row["max_leases"]
    return (
        row["host_id"],
        row["session_id"],
        row["state"],
        str(row["owned"]),
        str(len(row["asks"])),
        str(row["beat"]),
        f"{row['capacity']:g}",
        "" if most is None else str(most),
        f"{row['duration_s']:g} s",
        f"{row['handoff_s']:g} s",
        json.dumps(row["about"], ensure_ascii=False) if row["about"] else "",
    )
