"""
`processor-host status`: reads a group's items and shows them, once or again and again.

Writes nothing to the store, and makes none. Whether a host is alive shows only while its beats are watched.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Final, TypeVar

import anyio
import click
from rich.console import Console
from rich.live import Live

from partitions.clocks import BootClock
from partitions.errors import SourceError, SourceUnavailable, StoreUnavailable
from partitions.items import LeaseItem
from partitions.liveness import LiveView, observe
from partitions.sources.base import Source
from partitions.stores.base import Store
from processor_host.errors import UserError
from processor_host.plurals import count_of
from processor_host.settings import check_id
from processor_host.status import Status, status_of
from processor_host.status_table import status_tables
from processor_host.urls import open_source, open_store

__all__ = ["read_status", "status"]

R = TypeVar("R")

CALL_TIMEOUT_S: Final = 5.0

INTERVAL_S: Final = 1.0
"""Between two looks of a watch: a third of the shortest usual lease duration."""

LAG_READS_AT_ONCE: Final = 8
LAG_READ_S: Final = 5.0

PIPE_WIDTH: Final = 240


@click.command()
@click.option("--group", required=True, help="The group to show.")
@click.option("--store", required=True, metavar="URL", help="Its leases: sqlite:leases.db or dynamodb://TABLE.")
@click.option("--source", metavar="URL", help="Its stream, to show how far each partition lags behind.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch one a line.")
@click.option("--watch", is_flag=True, help="Look again every second, and tell which hosts are alive. Ctrl-C ends it.")
def status(group: str, store: str, source: str | None, as_json: bool, watch: bool) -> None:
    """Show who owns which partition, how far it is, and who waits for whom."""
    check_id("group", group)
    # A name may hold what the encoding of a pipe lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        anyio.run(_show, group, store, source, as_json, watch)
    except KeyboardInterrupt:
        if not watch:
            raise


async def _show(group: str, store_url: str, source_url: str | None, as_json: bool, watch: bool) -> None:
    store = open_store(store_url, call_timeout_s=CALL_TIMEOUT_S)
    source = None if source_url is None else open_source(source_url, beside=True)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.open()
        if source is not None:
            stack.push_async_callback(source.close)
            await source.open()
        show = stack.enter_context(_output(as_json, watch))
        clock = BootClock()
        view: LiveView | None = LiveView.empty() if watch else None
        while True:
            try:
                found, view = await read_status(store, group, source=source, view=view, now_s=clock.now_s)
                show(found)
            except (StoreUnavailable, SourceUnavailable) as error:
                if not watch:
                    raise
                click.echo(f"processor-host: {error}", err=True)
            if not watch:
                return
            await anyio.sleep(INTERVAL_S)


async def read_status(
    store: Store,
    group: str,
    *,
    source: Source | None = None,
    view: LiveView | None = None,
    now_s: Callable[[], float],
) -> tuple[Status, LiveView | None]:
    """
    Read a group's items and put its status together.

    Args:
        store: An open store.
        group: The group.
        source: An open source, to ask for the lags; None to leave them out.
        view: What was seen of the beats before, where they are watched.
        now_s: The clock of that view.

    Returns:
        The status, and the view to go on with.

    Raises:
        UserError: the store has no such group, or the group is of another stream than the source.
    """
    item = await _answer(store, partial(store.read_group, group))
    if item is None:
        raise UserError(await _why_none(store, group))
    if source is not None and (identity := await source.identity()) != item.source:
        # Positions mean nothing in another stream; a lag from there would look like good news.
        raise UserError(
            f"group {group!r} belongs to the stream {item.source!r}, but the source is {identity!r}; "
            "point --source at the group's own stream, or leave it out"
        )
    leases = await _answer(store, partial(store.read_leases, group))
    locks = await _answer(store, partial(store.read_locks, group))
    # After the leases and locks: an owner that is missing then is gone, not new.
    sessions = await _answer(store, partial(store.read_sessions, group, consistent=True))
    if view is not None:
        view = observe(view, sessions, now_s())
    lags_s = None if source is None else await _lags(source, leases)
    return status_of(group, item, leases, sessions, view=view, lags_s=lags_s, locks=locks), view


async def _why_none(store: Store, group: str) -> str:
    """Say what there is where no host has ever started."""
    if locks := await _answer(store, partial(store.read_locks, group)):
        return (
            f"{store.url} has no partitions of a group {group!r}, only {count_of(len(locks), 'lock')}; "
            f"'processor-host lock list --group {group}' shows who holds what"
        )
    return f"{store.url} has no group {group!r}; check --group and --store, or start a host of it first"


async def _answer(store: Store, read: Callable[[], Awaitable[R]]) -> R:
    try:
        with anyio.fail_after(CALL_TIMEOUT_S):
            return await read()
    except TimeoutError as error:
        text = f"{store.url} did not answer within {CALL_TIMEOUT_S:g} s; check that it is there and not overloaded"
        raise StoreUnavailable(text) from error


async def _lags(source: Source, leases: Iterable[LeaseItem]) -> dict[str, float | None]:
    """How far each partition's newest record is ahead of the first one that no checkpoint covers, seconds."""
    found: dict[str, float | None] = {}
    at_once = anyio.CapacityLimiter(LAG_READS_AT_ONCE)

    async def read(lease: LeaseItem) -> None:
        async with at_once:
            found[lease.partition] = await _lag(source, lease)

    async with anyio.create_task_group() as tasks:
        for lease in leases:
            if not lease.finished:
                tasks.start_soon(read, lease, name=f"lag {lease.partition}")
    return found


async def _lag(source: Source, lease: LeaseItem) -> float | None:
    """None where the source does not say, or not in time."""
    reader = source.reader(lease.partition, lease.position)
    try:
        with anyio.move_on_after(LAG_READ_S):
            return (await reader.read(records_max=1, bytes_max=1, wait_s=0.0)).lag_s
    except SourceError:
        return None
    finally:
        await reader.close()
    return None


@contextmanager
def _output(as_json: bool, watch: bool) -> Iterator[Callable[[Status], None]]:
    """Yield what shows a status: once or again and again, to a terminal, a file or a script."""
    console = Console()
    if as_json:
        yield lambda found: click.echo(json.dumps(found.as_json(), indent=None if watch else 2))
    elif not console.is_terminal:
        # No terminal says how wide it is, and no cell should be cut short.
        wide = Console(width=PIPE_WIDTH)
        yield lambda found: wide.print(status_tables(found), *([""] if watch else []))
    elif watch:
        with Live(console=console, auto_refresh=False, screen=False) as live:
            yield lambda found: live.update(status_tables(found), refresh=True)
    else:
        yield lambda found: console.print(status_tables(found))
