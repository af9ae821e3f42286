"""
Middleware: what a user puts around `process`, such as tracing, timing or decoding.

Knows no pump. A middleware is an `async def` that gets a batch and what comes next; it calls `await process(batch)`
once, with that batch or another one of the same records. The first of the list is the outermost: it sees the batch
first and the outcome last. It is user code like `process` itself: what it raises is a failure of the batch, it may be
cancelled at any await, and once it returns, all records of the batch count as done.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from processor_host.errors import SettingsError
from processor_host.processor import Batch

__all__ = ["Middleware", "NotHandedOn", "Process", "around", "check_middleware"]

Process = Callable[[Batch], Awaitable[None]]
"""A processor's `process`, or a middleware with everything inside of it."""

Middleware = Callable[[Batch, Process], Awaitable[None]]
"""`async def middleware(batch, process)`."""


class NotHandedOn(Exception):
    """A middleware returned without having handed the batch on, which would count its records as done."""

    def __init__(self, partition: str) -> None:
        self.where = partition
        super().__init__(
            f"partition {partition!r}: a middleware returned without `await process(batch)`; its records would count "
            "as done and nobody would have handled them. Raise an error, or filter in the processor"
        )


def check_middleware(value: object) -> tuple[Middleware, ...]:
    """
    Return what a user gave as `middleware`, the outermost first.

    Raises:
        SettingsError: it is no list of callables that take a batch and what comes next.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise SettingsError(f"middleware={value!r} is no list; write middleware=[…]")
    found = tuple(value)
    for each in found:
        if not callable(each) or inspect.isclass(each) or not _takes_two(each):
            raise SettingsError(
                f"middleware {getattr(each, '__qualname__', None) or repr(each)} is not one; give an "
                "`async def` that takes a batch and what comes next, and calls `await process(batch)`"
            )
    return found


def around(middleware: Iterable[Middleware], process: Process) -> Process:
    """
    Return `process` with the middleware around it, the first outermost; without any, `process` itself.

    What is returned raises `NotHandedOn` where a middleware returns and `process` did not.
    """
    layers = tuple(middleware)
    if not layers:
        return process

    async def run(batch: Batch) -> None:
        is_done = False

        async def innermost(inner: Batch) -> None:
            nonlocal is_done
            await process(inner)
            is_done = True

        inside: Process = innermost
        for layer in reversed(layers):
            inside = partial(_call, layer, inside)
        await inside(batch)
        if not is_done:
            raise NotHandedOn(batch.partition)

    return run


async def _call(layer: Middleware, inside: Process, batch: Batch) -> None:
    awaitable: object = layer(batch, inside)
    if not inspect.isawaitable(awaitable):
        name = getattr(layer, "__qualname__", None) or repr(layer)
        raise TypeError(f"middleware {name} is not async; write `async def`")
    await awaitable


def _takes_two(found: Callable[..., object]) -> bool:
    try:
        inspect.signature(found).bind(object(), object())
    except TypeError:
        return False
    except ValueError:
        return True  # Written in C; a call will show.
    return True
