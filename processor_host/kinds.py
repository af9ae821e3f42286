"""
What a user gives as `processor`, and how the pump runs it: every kind becomes one `process` between `open` and `close`.

Knows no pump. A processor of batches is handed batches, one of records batches of a single record; methods that are
plain `def` run in worker threads. So whatever hands on, decodes, traces or counts failures knows one shape only.
"""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from partitions.sources.base import Record
from processor_host.errors import SettingsError
from processor_host.failures import Failure
from processor_host.middleware import Process
from processor_host.processor import Batch, CloseReason, PartitionProcessor, ProcessorContext, RecordProcessor
from processor_host.threads import SyncBatch, in_threads

__all__ = [
    "FunctionProcessor",
    "Kind",
    "ProcessorFactory",
    "RecordFunctionProcessor",
    "factory_of",
    "handles_records",
    "kind_of",
    "misfit",
]

ProcessorFactory = Callable[[], PartitionProcessor | RecordProcessor]
"""Makes a processor; called once for each term."""


class FunctionProcessor(PartitionProcessor):
    """A plain `async def handle(batch)` as a processor."""

    def __init__(self, handle: Callable[[Batch], Awaitable[None]]) -> None:
        self._handle = handle

    async def process(self, batch: Batch) -> None:
        """See `PartitionProcessor.process`."""
        await self._handle(batch)


class RecordFunctionProcessor(RecordProcessor):
    """A plain `async def handle(record)` as a processor."""

    def __init__(self, handle: Callable[[Record], Awaitable[None]]) -> None:
        self._handle = handle

    async def handle(self, record: Record) -> None:
        """See `RecordProcessor.handle`."""
        await self._handle(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One processor as the pump runs it."""

    open: Callable[[ProcessorContext], Awaitable[None]]
    process: Process
    """Gets batches of one record where `is_single`."""
    close: Callable[[CloseReason], Awaitable[None]]
    on_failure: Callable[[Failure], object]
    """The processor's own choice, or an awaitable of it; None for the host's policy."""
    is_single: bool
    """It handles single records, and stays open where one fails."""


def factory_of(processor: object) -> ProcessorFactory:
    """
    Turn what a user gives as `processor` into a factory.

    Args:
        processor: A subclass of `PartitionProcessor` or `RecordProcessor`, a callable without arguments that returns
            one, or a plain `async def` that takes a batch; one that takes a `Record`, by its annotation or as an
            argument of the name `record`, gets single records.

    Raises:
        SettingsError: it is none of these.
    """
    if inspect.iscoroutinefunction(processor):
        handle: Callable[[Any], Awaitable[None]] = processor
        if not _takes_one(handle):
            raise SettingsError(
                f"processor {_name(handle)} takes ({', '.join(inspect.signature(handle).parameters)}); "
                "an async def as processor takes a batch or a record, and nothing else"
            )
        if _takes_record(handle):
            return lambda: RecordFunctionProcessor(handle)
        return lambda: FunctionProcessor(handle)
    if inspect.isclass(processor) and issubclass(processor, PartitionProcessor | RecordProcessor):
        if inspect.isabstract(processor):
            kind: type[ABC] = processor
            missing = ", ".join(sorted(kind.__abstractmethods__))
            raise SettingsError(f"processor {_name(processor)} does not define {missing}; add it to the class")
        return processor
    if not inspect.isclass(processor) and callable(processor) and not _needs_arguments(processor):
        return processor
    raise SettingsError(
        f"processor {_name(processor)} is not a processor; give a subclass of PartitionProcessor or RecordProcessor, "
        "a function without arguments that returns one, or an async def that takes a batch or a record"
    )


def handles_records(processor: object) -> bool | None:
    """Say whether what a user gives handles single records; None where only its factory knows."""
    if inspect.iscoroutinefunction(processor):
        return _takes_record(processor)
    if inspect.isclass(processor):
        return issubclass(processor, RecordProcessor)
    return None


def misfit(*, handles_records: bool, checkpoint: str, concurrency: int) -> str | None:
    """Say why a kind of processor cannot run with these settings; None where it can."""
    if concurrency > 1 and not handles_records:
        return (
            f"concurrency={concurrency} needs a processor of single records, for a batch has no key; "
            "subclass RecordProcessor, or take a `record`"
        )
    if checkpoint == "manual" and handles_records:
        return (
            "checkpoint='manual' needs a processor of batches, for only a batch can be checkpointed; "
            "subclass PartitionProcessor, or use checkpoint='automatic'"
        )
    return None


def kind_of(processor: object, *, threads: anyio.CapacityLimiter) -> Kind:
    """
    Return how a processor that a factory made is run.

    Args:
        processor: What was made.
        threads: Bounds the worker threads of all processors of the host.

    Raises:
        TypeError: it is no processor.
    """
    if isinstance(processor, RecordProcessor):
        process = _process_of_records(processor, threads)
    elif isinstance(processor, PartitionProcessor):
        process = processor.process if _is_async(processor.process) else _in_threads(processor.process, threads)
    else:
        raise TypeError(f"the processor factory returned {processor!r}, which is not a PartitionProcessor")
    return Kind(
        open=processor.open if _is_async(processor.open) else _off_loop(processor.open, "open", threads),
        process=process,
        close=processor.close if _is_async(processor.close) else _off_loop(processor.close, "close", threads),
        on_failure=processor.on_failure,
        is_single=isinstance(processor, RecordProcessor),
    )


def _process_of_records(processor: RecordProcessor, threads: anyio.CapacityLimiter) -> Process:
    handle = processor.handle
    if _is_async(handle):

        async def process(batch: Batch) -> None:
            for record in batch:
                await handle(record)

        return process

    def process_in_thread(batch: SyncBatch) -> None:
        for record in batch:
            _refuse_awaitable(handle(record), "handle")

    return in_threads(process_in_thread, threads)


def _in_threads(process: Callable[[Any], object], threads: anyio.CapacityLimiter) -> Process:
    def run(batch: SyncBatch) -> None:
        _refuse_awaitable(process(batch), "process")

    return in_threads(run, threads)


def _off_loop(
    method: Callable[[Any], object], name: str, threads: anyio.CapacityLimiter
) -> Callable[[Any], Awaitable[None]]:
    async def run(argument: Any) -> None:
        # Not abandoned where it is cancelled: no lease may be free while code of its term runs.
        _refuse_awaitable(await anyio.to_thread.run_sync(partial(method, argument), limiter=threads), name)

    return run


def _refuse_awaitable(returned: object, name: str) -> None:
    """Fail where a method only looked as if it were not async: its work would never be done, and count as done."""
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError(f"{name} returned something to be awaited; write `async def {name}`")


def _is_async(method: object) -> bool:
    # A decorator with `functools.wraps` hides what it wraps, and passes its coroutine on.
    return inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(inspect.unwrap(method))  # type: ignore[arg-type]


def _takes_record(handle: Callable[..., object]) -> bool:
    parameter = next(iter(inspect.signature(handle).parameters.values()), None)
    return parameter is not None and (
        parameter.name == "record" or parameter.annotation is Record or parameter.annotation == Record.__name__
    )


def _takes_one(handle: Callable[..., object]) -> bool:
    try:
        inspect.signature(handle).bind(object())
    except TypeError:
        return False
    return True


def _name(processor: object) -> str:
    return getattr(processor, "__qualname__", None) or repr(processor)


def _needs_arguments(processor: Callable[..., object]) -> bool:
    return any(
        parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in inspect.signature(processor).parameters.values()
    )
