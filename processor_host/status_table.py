"""
The status of a group as tables for a terminal or a file.

Knows no store. Names come from whoever made the stream: nothing in them is taken for markup, and what cannot be printed
is escaped, so that a name can neither colour a terminal nor forge a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from processor_host.lock_rows import LockRow
from processor_host.plurals import count_of
from processor_host.status import HostRow, PartitionRow, State, Status

__all__ = ["printable", "shortened", "status_tables"]

POSITION_CHARACTERS: Final = 12
"""Positions may have 56 digits, and the last ones are those that move; `--json` shows them whole."""

REASON_CHARACTERS: Final = 120
"""Of a pause, on one line; `--json` shows it whole."""

_STYLES: Final[dict[State, str]] = {
    "owned": "green",
    "asked": "yellow",
    "free": "bold red",
    "paused": "magenta",
    "ended": "dim",
}


def status_tables(status: Status) -> RenderableType:
    """Return a line for the group, a table of its hosts and one of its partitions."""
    counts = status.counts()
    parts = [f"{count} {name}" for name, count in counts.items() if name != "hosts" and (count or name == "owned")]
    head = f"group {status.group} on {status.source}: {count_of(counts['hosts'], 'host')}; {', '.join(parts)}"
    locks: list[RenderableType] = [Text(), _locks(status.locks)] if status.locks else []
    return Group(Text(printable(head), style="bold"), Text(), _hosts(status.hosts), Text(), _partitions(status), *locks)


def printable(text: str) -> str:
    """Return `text` with what a terminal would act on escaped."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def shortened(position: str) -> str:
    """Return the end of a long position; the beginning hardly ever changes."""
    if len(position) <= POSITION_CHARACTERS:
        return position
    return "…" + position[-(POSITION_CHARACTERS - 1) :]


def _hosts(rows: Sequence[HostRow]) -> Table:
    # Only where one host id has two sessions do they need telling apart; a usual terminal has 80 columns.
    with_session = len({row.host_id for row in rows}) < len(rows)
    session = ["session"] if with_session else []
    table = _table("host", "state", ">owned", ">asked", ">beat", ">moved", ">capacity", ">max", *session)
    for row in rows:
        table.add_row(
            _cell(row.host_id),
            _host_state(row),
            *map(str, (row.owned, row.asks, row.beat)),
            "" if row.unchanged_s is None else f"{row.unchanged_s:.1f} s ago",
            f"{row.capacity:g}",
            "" if row.max_leases is None else str(row.max_leases),
            *([_cell(row.session_id.removeprefix(f"{row.host_id}:"))] if with_session else []),
        )
    return table


def _host_state(row: HostRow) -> Text:
    if row.alive is False:
        return Text("dead", style="bold red")
    if row.draining:
        return Text("draining", style="yellow")
    return Text("", style="dim") if row.alive is None else Text("alive", style="green")


def _partitions(status: Status) -> Table:
    with_lag = any(row.lag_s is not None for row in status.partitions)
    lag = [">lag"] if with_lag else []
    # Wide, and in most groups nobody pauses anything.
    why = ["paused because"] if any(row.reason is not None for row in status.partitions) else []
    table = _table("partition", "state", "owner", ">token", "position", *lag, "asked by", *why)
    for row in status.partitions:
        table.add_row(
            _cell(row.partition),
            Text(row.state, style=_STYLES[row.state]),
            _cell(row.host or ""),
            str(row.token),
            _cell(shortened(row.position)),
            *([_lag(row)] if with_lag else []),
            _cell("" if row.asker is None else row.asker_host or "nobody"),
            *([_cell(_cut(row.reason or ""))] if why else []),
        )
    return table


def _cut(reason: str) -> str:
    return reason if len(reason) <= REASON_CHARACTERS else reason[: REASON_CHARACTERS - 1] + "…"


def _locks(rows: Sequence[LockRow]) -> Table:
    table = _table("lock", "state", "holder", ">token")
    for row in rows:
        table.add_row(_cell(row.name), row.state, _cell(row.holder or ""), str(row.token))
    return table


def _lag(row: PartitionRow) -> str:
    return "" if row.lag_s is None else f"{row.lag_s:.1f} s"


def _table(*heads: str) -> Table:
    """A table without lines; a head that starts with ">" is of a column of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head.removeprefix(">"), justify="right" if head.startswith(">") else "left", no_wrap=True)
    return table


def _cell(text: str) -> Text:
    return Text(printable(text))
