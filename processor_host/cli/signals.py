"""
What the signals that stop a process do to a host: the first asks it to stop, the second cancels it, the third ends it.

The only place that installs signal handlers. Two signals within a moment are one: GNU `timeout`, a terminal and a
supervisor may each signal both the process and its group, and nobody asked twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

if TYPE_CHECKING:
    from processor_host.host import ProcessorHost

__all__ = ["CANCEL_S", "Asked", "Signals", "exit_later", "exit_now", "signals_to"]

CANCEL_S: Final = 5.0
"""How long a cancelled host may take: code that blocks the loop, or swallows its cancellation, is not waited for."""

DOUBLED_S: Final = 1.0
"""After the first signal; another one within it is the same wish. Less than a person takes to see that nothing ends."""


class Asked(Enum):
    """What one signal asks for."""

    STOP = auto()
    CANCEL = auto()
    END = auto()
    NOTHING = auto()
    """It is the first one once more."""


class Signals:
    """The signals that came, in their order, without doubled ones."""

    __slots__ = ("_first_at_s", "received")

    def __init__(self) -> None:
        self.received: list[int] = []
        self._first_at_s = 0.0

    def take(self, number: int, now_s: float) -> Asked:
        """Note a signal that came at `now_s` of any steady clock, seconds, and return what it asks for."""
        if not self.received:
            self._first_at_s = now_s
        elif len(self.received) == 1 and now_s - self._first_at_s < DOUBLED_S:
            return Asked.NOTHING
        self.received.append(number)
        return (Asked.STOP, Asked.CANCEL, Asked.END)[min(len(self.received), 3) - 1]

    @property
    def status(self) -> int | None:
        """The exit status of a host that was asked twice; None where it was not."""
        return 128 + self.received[-1] if len(self.received) > 1 else None


@contextmanager
def signals_to(host: ProcessorHost) -> Iterator[Signals]:
    """
    Turn signals into calls of `host`, on the loop that runs now.

    Plain handlers, not those of the loop: they are called also while something blocks it. A process that is forked
    meanwhile has its signals as they were before. Once a signal has come, more
    are ignored from the end on: a double may come while the process ends, which must not change how it ended.
    """
    loop = asyncio.get_running_loop()
    signals = Signals()
    own = os.getpid()

    def cancel(number: int) -> None:
        structlog.get_logger("processor_host").warning(
            "host.cancelled", reason="second signal, stopping at once", signal=signal.Signals(number).name
        )
        host.cancel()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:
            # A process that user code has forked is no host: a pool that ends its processes would wait for ever.
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
            return
        match signals.take(number, time.monotonic()):
            case Asked.STOP:
                loop.call_soon_threadsafe(host.stop)
            case Asked.CANCEL:
                # On the loop also for the sake of the log: a handler may come in the middle of another line.
                loop.call_soon_threadsafe(cancel, number)
                exit_later(128 + number)
            case Asked.END:
                exit_now(128 + number)
            case Asked.NOTHING:
                pass

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        if len(signals.received) == 1:
            exit_later(128 + signals.received[0])
        for number, handler in before.items():
            # Python itself puts the usual handlers back while it ends, but leaves this one.
            signal.signal(number, signal.SIG_IGN if signals.received else handler)


def exit_later(status: int | None) -> None:
    """End the process with `status` in `CANCEL_S`, whatever hangs then; None takes that back."""
    if status is None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return
    signal.signal(signal.SIGALRM, lambda *_: exit_now(status))
    signal.setitimer(signal.ITIMER_REAL, CANCEL_S)


def exit_now(status: int) -> NoReturn:
    """End the process without waiting for threads or tasks: what still runs has lost its lease."""
    logging.shutdown()
    os._exit(status)
