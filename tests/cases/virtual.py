"""
How the cases are run: each test on a virtual-time loop of its own, and repeated scenarios once for each seed.

It knows nothing of hosts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from tests.world.loop import run_virtual

__all__ = ["repeats_of", "seeded", "virtual"]

P = ParamSpec("P")

IS_FULL = os.environ.get("PROCESSOR_HOST_CASES") == "full"


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Make a test of an async function: it runs on virtual time, and whatever it leaves running is ended after it."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(lambda: test(*args, **kwargs))

    return run


def repeats_of(count: int) -> range:
    """Return the seeds of a scenario that is to be repeated `count` times: a fifth, unless the cases run in full."""
    return range(count if IS_FULL else count // 5)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Name the seed where the body fails."""
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"seed {seed}")
        raise
