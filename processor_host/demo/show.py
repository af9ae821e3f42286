"""
What a person sees: a table that moves on a terminal, plain lines elsewhere.

Knows nothing of processes or stores; it shows looks and acts as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from processor_host.demo.scene import HostLook, Look, PartitionLook

__all__ = ["Show", "line_of", "shown", "table_of"]

PLAIN_EVERY_S: Final = 2.0
ACTS_MAX: Final = 6
"""Acts that stand beside or below the table; the whole list is printed at the end."""
SIDE_BY_SIDE: Final = 100
"""Columns from which hosts and partitions stand beside one another."""

_STYLES: Final = {
    "alive": "green",
    "owned": "green",
    "asked": "yellow",
    "draining": "yellow",
    "starting": "cyan",
    "free": "bold red",
    "silent": "bold red",
    "killed": "bold red",
    "ended": "dim",
}


class Show(Protocol):
    """Where the play is shown."""

    def act(self, elapsed_s: float, text: str) -> None:
        """Tell of something that the demo did or saw."""
        ...

    def look(self, look: Look) -> None:
        """Show how things are."""
        ...


@contextmanager
def shown(console: Console) -> Iterator[Show]:
    """Yield what shows the play on this console: a live table on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        show = _Table(console, live)
        yield show
    # The table is gone; what happened stays.
    show.leave()


def line_of(look: Look) -> str:
    """Return how things are, in one line."""
    owned = sum(each.state in ("owned", "asked") for each in look.going_on)
    lag_s = max((each.lag_s for each in look.going_on if each.lag_s is not None), default=0.0)
    rate = sum(each.rate for each in look.partitions)
    hosts = ", ".join(f"{each.name} {each.state} {each.owned}" for each in look.hosts)
    return (
        f"{look.elapsed_s:6.1f} s  owned {owned} of {len(look.going_on)}, produced {look.produced}, "
        f"handled {look.handled}, {rate:.0f} records/s, worst lag {lag_s:.1f} s; {hosts}"
    )


def table_of(look: Look, acts: RenderableType, *, width: int) -> RenderableType:
    """Return how things are, as a table for a terminal of so many columns."""
    head = Text(
        f"{look.elapsed_s:5.1f} s   produced {look.produced}   handled {look.handled}   "
        f"waiting {look.missing}   repeats {look.repeats}",
        style="bold",
    )
    hosts, partitions = _hosts(look.hosts), _partitions(look.partitions)
    if width < SIDE_BY_SIDE:
        return Group(head, Text(), hosts, Text(), partitions, Text(), acts)
    both = Table.grid(padding=(0, 4))
    both.add_row(partitions, Group(hosts, Text(), acts))
    return Group(head, Text(), both)


class _Lines:
    """Plain lines, at once for what happens and now and then for how things are."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = 0.0

    def act(self, elapsed_s: float, text: str) -> None:
        """See `Show.act`."""
        self._print(_act(elapsed_s, text))

    def look(self, look: Look) -> None:
        """See `Show.look`."""
        if look.elapsed_s >= self._next_s:
            self._next_s = look.elapsed_s + PLAIN_EVERY_S
            self._print(line_of(look))

    def _print(self, text: str) -> None:
        # As it is: no markup, no colour, and never broken at the width of a terminal that is not there.
        self._console.out(text, highlight=False)


class _Table:
    """A table that is drawn anew with each look, above the latest acts."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._acts: list[str] = []
        self._latest: deque[str] = deque(maxlen=ACTS_MAX)

    def act(self, elapsed_s: float, text: str) -> None:
        """See `Show.act`."""
        self._acts.append(_act(elapsed_s, text))
        self._latest.append(self._acts[-1])

    def look(self, look: Look) -> None:
        """See `Show.look`."""
        acts = Text("\n".join(self._latest))
        self._live.update(table_of(look, acts, width=self._console.width), refresh=True)

    def leave(self) -> None:
        """Print what happened."""
        self._console.print(Text("\n".join(self._acts)), soft_wrap=True)


def _act(elapsed_s: float, text: str) -> str:
    return f"{elapsed_s:6.1f} s  {text}"


def _hosts(rows: tuple[HostLook, ...]) -> Table:
    table = _table("host", ">pid", "state", ">owned", ">last beat", ">records/s")
    for row in rows:
        beat = "" if row.beat_age_s is None else f"{row.beat_age_s:.1f} s ago"
        table.add_row(row.name, str(row.pid), _styled(row.state), str(row.owned), beat, f"{row.rate:.0f}")
    return table


def _partitions(rows: tuple[PartitionLook, ...]) -> Table:
    table = _table("partition", "state", "owner", ">token", ">lag", ">records/s")
    for row in rows:
        lag = "" if row.lag_s is None else f"{row.lag_s:.1f} s"
        table.add_row(row.partition, _styled(row.state), row.host or "", str(row.token), lag, f"{row.rate:.0f}")
    return table


def _table(*heads: str) -> Table:
    """A table without lines; a head that starts with ">" is of a column of numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in heads:
        table.add_column(head.removeprefix(">"), justify="right" if head.startswith(">") else "left", no_wrap=True)
    return table


def _styled(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))
