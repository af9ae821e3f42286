"""
What the operator's commands have in common: options, the question before a change, and an `Operator` to work with.

Knows no command. What is asked goes to stderr, so that the answer of a command can be piped on.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeVar

import anyio
import click

from partitions.clocks import BootClock
from partitions.sources.base import Source
from processor_host.errors import UserError
from processor_host.operating.operator import Operator
from processor_host.settings import check_id, default_host_id
from processor_host.status_table import printable
from processor_host.urls import is_made_at_start, open_source, open_store, parse_file_url

__all__ = [
    "GROUP",
    "JSON",
    "PARTITIONS",
    "STORE",
    "YES",
    "administer",
    "ask",
    "is_there",
    "once_each",
    "say",
    "table_of",
]

R = TypeVar("R")

CALL_TIMEOUT_S: Final = 5.0
NOT_DONE: Final = 1
"""Exit status where something that was asked for is not done, though nothing was wrong with the asking."""

GROUP = click.option("--group", required=True, help="The group.")
STORE = click.option("--store", required=True, metavar="URL", help="Its leases: sqlite:leases.db or dynamodb://TABLE.")
JSON = click.option("--json", "as_json", is_flag=True, help="As JSON.")
YES = click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
PARTITIONS = click.argument("partitions", metavar="PARTITION...", nargs=-1, required=True)


def administer(
    group: str,
    store: str,
    run: Callable[[Operator, Source | None], Awaitable[R]],
    *,
    source: str | None = None,
    makes_store: bool = False,
) -> R:
    """
    Open what is named and do something as an operator.

    Args:
        group: The group's name.
        store: The URL of its leases.
        run: Gets the operator, and the source where one is named.
        source: The URL of its stream.
        makes_store: Whether a lease file that is not there is made, as a host makes it.

    Raises:
        UserError: a name or a URL is malformed, or whatever `run` raises.
    """
    check_id("group", group)
    # A name may hold what the encoding of a pipe lacks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    async def main() -> R:
        leases = open_store(store, call_timeout_s=CALL_TIMEOUT_S)
        stream = None if source is None else open_source(source, beside=True)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(leases.close)
            if makes_store and is_made_at_start(store):
                await leases.create()
            await leases.open()
            if stream is not None:
                stack.push_async_callback(stream.close)
                await stream.open()
            operator = Operator(
                store=leases,
                group=group,
                clock=BootClock(),
                random=Random(),
                host_id=f"operator-{default_host_id()}"[:128],
                about=MappingProxyType({"command": " ".join(sys.argv[1:2])}),
                tell=_tell,
                call_timeout_s=CALL_TIMEOUT_S,
            )
            return await run(operator, stream)

    return anyio.run(main)


def is_there(store: str) -> bool:
    """
    Look at a store before anything is asked about it. False for a lease file that is not there, and can be made.

    Raises:
        UserError: the URL is malformed.
        StoreMisconfigured, StoreUnavailable: it cannot be used, or is no lease file and not there.
    """

    async def look() -> bool:
        leases = open_store(store, call_timeout_s=CALL_TIMEOUT_S)
        try:
            if (
                is_made_at_start(store)
                and not await leases.exists()
                and parse_file_url(store, "sqlite").parent.is_dir()
            ):
                return False
            await leases.open()
            return True
        finally:
            await leases.close()

    return anyio.run(look)


def ask(question: str, *, yes: bool) -> None:
    """
    Have the user confirm what is about to be done.

    Raises:
        UserError: it was not confirmed, or nobody is there to do so.
    """
    if yes:
        return
    try:
        is_meant = click.confirm(printable(question), err=True)
    except click.Abort:
        raise UserError("nobody confirmed it, and nothing was changed; give --yes in a script") from None
    if not is_meant:
        raise UserError("not confirmed; nothing was changed")


def say(value: Any, lines: Sequence[str], *, as_json: bool, all_done: bool = True) -> None:
    """
    Print what became of it, and end with a status of its own where not all is done.

    Args:
        value: For scripts; what JSON can hold.
        lines: For people.
        as_json: Which of the two.
        all_done: Whether everything that was asked for is done.
    """
    if as_json:
        click.echo(json.dumps(value, indent=2))
    else:
        for line in lines:
            click.echo(printable(line))
    if not all_done:
        raise click.exceptions.Exit(NOT_DONE)


def table_of(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with their columns side by side."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]


def once_each(partitions: Sequence[str]) -> tuple[str, ...]:
    """Return the names without repeats, in their order."""
    return tuple(dict.fromkeys(partitions))


def _tell(text: str) -> None:
    click.echo(printable(text), err=True)
