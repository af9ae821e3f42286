"""
`processor-host run`: one host, from a class of the user's own.

The first SIGTERM or SIGINT asks for an orderly stop, the second cancels, and a process that does not end after that is
ended (`signals`). Exit statuses: 0 clean, 1 own failure or a full disk, 2 user input or settings, 3 store or source not
there or denied at start, 4 stopped while a processor was still running, 130 or 143 second signal.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
import structlog

from partitions.errors import PartitionsError
from partitions.events import Event
from processor_host.cli.flags import given_settings, settings_flags
from processor_host.cli.loading import load_lifespan, load_middleware, load_processor, load_singletons
from processor_host.cli.numbers import Whole
from processor_host.cli.policies import ON_FAILURE, policy_of
from processor_host.cli.signals import CANCEL_S, exit_later, exit_now, signals_to
from processor_host.errors import SettingsError, UserError
from processor_host.events import HostReady, ReplayDone
from processor_host.handling import handling_of
from processor_host.logs import LEVELS, EventLog, configure
from processor_host.plurals import count_of
from processor_host.rights import check_rights
from processor_host.settings import HostSettings, check_id, default_host_id
from processor_host.settings_text import as_given, read_settings, unknown_variables
from processor_host.urls import is_made_at_start, open_source, open_store

if TYPE_CHECKING:
    from partitions.items import Scalar
    from processor_host.host import ProcessorHost

__all__ = ["run"]

OWN_FAILURE: Final = 1
STILL_RUNNING: Final = 4


@click.command(context_settings={"show_default": True})
@click.argument("processor", metavar="MODULE:CLASS")
@click.option("--group", required=True, help="The application that shares the work; all its hosts name the same.")
@click.option("--source", required=True, metavar="URL", help="The stream: local:s.db or local:///data/s.db.")
@click.option("--store", required=True, metavar="URL", help="The leases: sqlite:leases.db, made if absent, or dynamodb://TABLE.")
@click.option("--lifespan", metavar="MODULE:FUNCTION", help="An async context manager; what it yields is shared.")
@click.option("--on-failure", default="retry", help=f"What becomes of records that fail: {ON_FAILURE}.")
@click.option("--failure-attempts", type=Whole(), help="Tries at the same records before that; 5 unless given.")
@click.option("--failure-bisect", is_flag=True, help="Cut a batch that fails up first, to find the record that does.")
@click.option("--middleware", multiple=True, metavar="MODULE:NAME", help="What is around process, the first outermost.")
@click.option("--singleton", multiple=True, metavar="NAME=MODULE:FUNCTION", help="Runs on one host at a time.")
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", help="How lines are written.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", help="The lowest level that is written.")
@settings_flags
def run(
    processor: str,
    group: str,
    source: str,
    store: str,
    lifespan: str | None,
    on_failure: str,
    failure_attempts: int | None,
    failure_bisect: bool,
    middleware: tuple[str, ...],
    singleton: tuple[str, ...],
    log_format: Any,
    log_level: Any,
    **flags: Any,
) -> int:
    """
    Run one host of a group with your own processor.

    MODULE:CLASS is a subclass of PartitionProcessor or RecordProcessor, or an async function that takes a batch or a
    record; the module is looked for in the current folder first. Start the command several times to share the work.
    SIGTERM or Ctrl-C stops it in order.
    """
    configure(log_format, log_level)
    for name, nearest in unknown_variables(os.environ).items():
        hint = "no setting has this name" if nearest is None else f"did you mean {nearest}?"
        structlog.get_logger("processor_host").warning("variable.ignored", variable=name, hint=hint)
    given = given_settings(flags)
    _, _, _, settings, found, shared, policy, singletons, *around = _all_of(
        partial(check_id, "group", group),
        partial(open_source, source),
        partial(open_store, store, call_timeout_s=CANCEL_S),
        partial(read_settings, given, os.environ),
        partial(load_processor, processor),
        partial(load_lifespan, lifespan) if lifespan is not None else lambda: None,
        partial(policy_of, on_failure, attempts=failure_attempts, bisect=failure_bisect),
        partial(load_singletons, singleton),
        *(partial(load_middleware, each) for each in middleware),
    )
    try:
        handling_of(found, settings, on_failure=policy, middleware=around)
    except SettingsError as error:
        raise SettingsError(as_given(str(error), given, os.environ)) from None
    host_id = settings.host_id or default_host_id()
    log = EventLog(group=group, host_id=host_id)
    was_ready = False

    def on_event(event: Event) -> None:
        nonlocal was_ready
        was_ready = was_ready or isinstance(event, HostReady)
        log.on_event(event)
        if isinstance(event, ReplayDone):
            print_handled(event)

    def make_host() -> ProcessorHost:
        from processor_host.host import ProcessorHost

        return ProcessorHost(
            group=group,
            source=open_source(source),
            store=open_store(store, call_timeout_s=settings.timings().call_timeout_s),
            processor=found,
            settings=settings,
            on_event=on_event,
            lifespan=shared,
            about=_about(),
            on_failure=policy,
            middleware=around,
            singletons=singletons,
        )

    def failed(error: Exception) -> int:
        sole = _sole(error)
        if isinstance(sole, UserError):
            sole = type(sole)(as_given(str(sole), given, os.environ))
        if isinstance(sole, UserError) or (isinstance(sole, PartitionsError) and not was_ready):
            raise sole from None
        # The text of a known error says what happened and what to do; the places it came through do not help with it.
        is_known = isinstance(sole, PartitionsError)
        shown = sole if not is_known or log_level == "debug" else None
        hint = "mend what the error names" if is_known else "read the traceback"
        hint += ", and start the host again once its cause is gone"
        structlog.get_logger("processor_host").error(
            "host.failed", group=group, host_id=host_id, error=str(sole), exc_info=shown, hint=hint
        )
        return OWN_FAILURE

    async def main() -> int:
        try:
            status = await _prepare_and_run(group, source, store, settings, make_host)
        except Exception as error:  # Containment: the end of the process; what a user can mend goes on to be one line.
            status = failed(error)
        # The loop waits for the threads of its executor as it closes, and user code may keep one busy for ever.
        exit_later(status)
        return status

    threads = frozenset(threading.enumerate())
    status = anyio.run(main)
    exit_later(None)
    _leave_threads(threads, status)
    return status


def print_handled(event: ReplayDone) -> None:
    """Print what this host has handled up to the end of a bounded replay, a line for each partition and their sum."""
    for partition, handled in zip(event.partitions, event.handled, strict=True):
        click.echo(f"{partition}\t{handled}")
    records, partitions = count_of(sum(event.handled), "record"), count_of(len(event.partitions), "partition")
    click.echo(f"handled {records} of {partitions}")


def _leave_threads(before: frozenset[threading.Thread], status: int) -> None:
    """Wait a moment for the threads that user code has started since; the interpreter would wait for ever."""
    until_s = time.monotonic() + CANCEL_S
    for thread in threading.enumerate():
        if thread not in before and not thread.daemon:
            thread.join(max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                exit_now(status)


async def _prepare_and_run(
    group: str, source: str, store: str, settings: HostSettings, make_host: Callable[[], ProcessorHost]
) -> int:
    """Check source and port before anything is made for them, make the store or try what it allows, and run."""
    probe = open_source(source)
    try:
        await probe.open()
    finally:
        await probe.close()
    if settings.metrics_port is not None:
        await _try_port(settings.metrics_host, settings.metrics_port)
    leases = open_store(store, call_timeout_s=CANCEL_S)
    if is_made_at_start(store):
        await leases.create()
    else:
        try:
            await leases.open()
            await check_rights(leases, group)
        finally:
            await leases.close()
    host = make_host()
    with signals_to(host) as signals:
        status = await _run(host)
        return status if signals.status is None else signals.status


async def _try_port(host: str, port: int) -> None:
    """Listen for a moment. The host takes the port itself; by then the store would be made."""
    from prometheus_client import CollectorRegistry

    from processor_host.http import Health, MetricsServer

    async with MetricsServer(host, port, CollectorRegistry(), lambda: Health(healthy=True, ready=False)):
        pass


async def _run(host: ProcessorHost) -> int:
    """Run the host; a processor that outlives it is told by the status and not waited for."""
    status = 0

    async def run_host() -> None:
        nonlocal status
        status = await host.run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_host, name="host")
        await host.stopped.wait()
        if host.still_running:
            exit_now(STILL_RUNNING)
    return status


def _all_of(*checks: Callable[[], Any]) -> list[Any]:
    """
    Return what each returns; none of them changes anything.

    Raises:
        UserError: with a line for each problem, so that who made three slips need not start three times.
    """
    results: list[Any] = []
    problems: list[UserError] = []
    for check in checks:
        try:
            results.append(check())
        except UserError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else UserError("\n".join(str(each) for each in problems))
    return results


def _about() -> dict[str, Scalar]:
    """What people may want to know of a host; no code reads it to decide."""
    return {
        "host_name": socket.gethostname(),
        "pid": os.getpid(),
        "version": _version(),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version() -> str:
    try:
        return version("processor-host")
    except PackageNotFoundError:
        return "unknown"


def _sole(error: BaseException) -> BaseException:
    """
    What a group of errors boils down to: its only member, or itself where it has several.

    Several that are all known are one: each is what another task saw of the same store or source.
    """
    while isinstance(error, BaseExceptionGroup):
        known = error.split(PartitionsError)[1] is None
        if not known and len(error.exceptions) > 1:
            return error
        error = error.exceptions[0]
    return error
