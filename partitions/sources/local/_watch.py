"""
One thread that polls the file of a local stream for all readers of a source, and wakes those whose partition changed.

Knows no records.

Theory of operation: a poll asks SQLite whether any other connection has committed (`PRAGMA data_version`: a look at
shared memory, microseconds) and only then which partitions changed since. So waiting costs the same for one reader as
for a thousand. A reader waits with the last change of its partition that it has seen. Either the thread knows of a
later one, then the wait is over at once; or it learns of it by a later poll, since it begins to know a change only in
the poll that wakes for it. So no change is missed between a reader's fetch and its wait. The thread holds no read
transaction between polls, and sleeps while nobody waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from partitions.errors import SourceError, SourceUnavailable
from partitions.sources.local._faults import translated

__all__ = ["POLL_S", "Watch"]

POLL_S: Final = 0.02
"""Time between two polls: a record reaches a waiting reader within about this time of its commit."""

_RETRY_S: Final = 1.0
"""Time between two polls while they fail."""

_JOIN_S: Final = 1.0
"""How long `close` waits for the thread, which a stalled disk may hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiter:
    number: int
    seen: int
    loop: asyncio.AbstractEventLoop
    woken: anyio.Event


class Watch:
    """Waits for changes of partitions on behalf of one source. Its table is shared by the loop and the thread."""

    def __init__(
        self, path: Path, *, connect: Callable[[], sqlite3.Connection], check_file: Callable[[], None]
    ) -> None:
        """
        Make a watch that rests until the first wait.

        Args:
            path: The file.
            connect: Opens a connection to it, which the thread owns.
            check_file: Raises a `SourceError` once there is another file, or none, under the path.
        """
        self._path = path
        self._connect = connect
        self._check_file = check_file
        # All below is guarded by the condition.
        self._condition = threading.Condition()
        self._waiters: dict[int, set[_Waiter]] = {}
        self._changed: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._failure: SourceError | None = None
        self._closed = False

    async def wait(self, number: int, seen: int, wait_s: float) -> bool:
        """
        Wait until a partition has changed after its change `seen`, at most `wait_s` seconds.

        Returns:
            True if there may be something new, False if not.

        Raises:
            SourceError: the file cannot be watched, or the watch was closed.
        """
        waiter = _Waiter(number=number, seen=seen, loop=asyncio.get_running_loop(), woken=anyio.Event())
        with self._condition:
            self._check()
            if self._changed.get(number, 0) > seen:
                return True
            self._waiters.setdefault(number, set()).add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"watch {self._path.name}", daemon=True)
                self._thread.start()
            self._condition.notify()
        try:
            with anyio.move_on_after(wait_s):
                await waiter.woken.wait()
        finally:
            with self._condition:
                waiters = self._waiters.get(number, set())
                waiters.discard(waiter)
                if not waiters:
                    self._waiters.pop(number, None)
        with self._condition:
            self._check()
        return waiter.woken.is_set()

    def close(self) -> None:
        """End the thread and every wait. Blocks until the thread has ended, at most about a second."""
        with self._condition:
            self._closed = True
            thread, self._thread = self._thread, None
            self._wake(lambda waiter: True)
            self._condition.notify()
        if thread is not None:
            thread.join(_JOIN_S)

    def _check(self) -> None:
        if self._closed:
            raise SourceUnavailable(f"stream {str(self._path)!r} was closed by this process")
        if self._failure is not None:
            raise self._failure

    def _wake(self, chosen: Callable[[_Waiter], bool]) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                if chosen(waiter):
                    try:
                        waiter.loop.call_soon_threadsafe(waiter.woken.set)
                    except RuntimeError:
                        # Its loop has ended, and with it whoever waited.
                        continue

    def _run(self) -> None:
        while not self._closed:
            try:
                self._poll_until_closed()
                return
            except SourceError as error:
                failure = error
            except Exception as error:  # Containment: readers that wait for a thread that has died would wait for ever.
                failure = SourceUnavailable(f"watching {str(self._path)!r} failed: {error!r}")
            with self._condition:
                self._failure = failure
                self._wake(lambda waiter: True)
                self._condition.wait_for(lambda: self._closed, _RETRY_S)
                self._failure = None

    def _poll_until_closed(self) -> None:
        with translated(self._path):
            db = self._connect()
            try:
                version = last = -1
                while self._is_wanted():
                    self._check_file()
                    # Read before the changes: what is committed between the two is found by the next poll.
                    (now,) = db.execute("PRAGMA data_version").fetchone()
                    if now != version:
                        version = now
                        rows = db.execute("SELECT number, changed FROM partitions WHERE changed > ?", (last,))
                        last = max(last, self._learn(dict(rows.fetchall())))
                    with self._condition:
                        self._condition.wait_for(lambda: self._closed, POLL_S)
            finally:
                db.close()

    def _is_wanted(self) -> bool:
        """Rest while nobody waits; false once the watch is closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._waiters)
            return not self._closed

    def _learn(self, news: dict[int, int]) -> int:
        with self._condition:
            self._changed.update(news)
            self._wake(lambda waiter: news.get(waiter.number, 0) > waiter.seen)
        return max(news.values(), default=-1)
