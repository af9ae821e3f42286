"""
A lane: one thread with one connection to the lease file, and the bounded queue in front of it.

Knows no item and no verb: a call is a function of the connection. Callers may be on several event loops. Theory of
operation:

- **The lock first, the calls second.** A lane with waiting writes tries for the file's write lock and only then takes
  them from the queue. Up to that moment a caller can withdraw, and what has waited longer than `wait_max_s` is refused
  instead of written; so a write whose caller gave up is never held back and done late (DESIGN rule 17).
- **Writes that wait together are committed together**, each decided on what the one before it left, because a commit
  costs a flush of the disk and a decision does not. One that raises is undone alone. No answer goes out before the
  commit: it may show what another call of the same transaction wrote.
- **Reads do not wait for the write lock**: SQLite's log lets them pass, and between two tries for the lock the lane
  does the reads that have come in.
- **A lane leaves gaps.** The lock has no queue; who tries at the right moment gets it, and who has just let go of it is
  the first to try. So after a commit a lane stays away for a while, at least as long as the others need to try once,
  and the lane with the beats tries more often than the others, here and in every other process; so beats get in first.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from threading import Condition, Thread
from typing import Any, Final, TypeVar

from partitions.clocks import BootClock
from partitions.errors import StoreError, StoreUnavailable
from partitions.stores._sqlite_call import Call, Work
from partitions.stores._sqlite_errors import is_busy, label_of, translated
from partitions.stores._sqlite_file import LeaseFile

__all__ = ["Lane", "Pace"]

R = TypeVar("R")

QUEUE_MAX: Final = 1024
"""Calls of one kind that may wait in one lane: more than a host of 1,000 leases has under way at once."""

CHORE_S: Final = 1.0
"""An idle lane looks this often, seconds, whether other lanes left it something to do."""

GAP_SHARE: Final = 0.5
"""The gap after a commit that took long, as a share of it: the others have been waiting for as long."""

TRIES_AT_FULL_PACE: Final = 200
"""Tries for the lock before they become rarer: a process that was stopped in a transaction may keep it for long."""

DOUBLINGS_MAX: Final = 4
"""How often the wait between two tries doubles: once after each `TRIES_AT_FULL_PACE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a lane goes about its writes."""

    together_max: int
    """Writes in one transaction; bounds how long the lock is held."""
    poll_s: float
    """Between two tries for a lock that another connection holds."""
    gap_s: float
    """After a commit, at least, for the others to get in; 0 for the lane that the others make way for."""


class _State(Enum):
    NEW = "is not open"
    OPEN = "is open"
    CLOSING = "is being closed"
    CLOSED = "is closed"


class Lane:
    """See the module. `open` and `stop` it from one place; call it from anywhere in between."""

    def __init__(
        self,
        name: str,
        file: LeaseFile,
        *,
        wait_max_s: float,
        pace: Pace,
        chore: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        """
        Prepare a lane; nothing runs before `open`.

        Args:
            name: For the thread's name and for messages.
            file: The lease file.
            wait_max_s: How long a call may wait before it is begun, seconds.
            pace: How it goes about its writes.
            chore: Done after every round of calls, and every `CHORE_S` without one.
        """
        self._name = name
        self._file = file
        self._wait_max_s = wait_max_s
        self._pace = pace
        self._chore = chore
        # Counts suspend: what waited in the queue of a machine that slept is late.
        self._clock = BootClock()
        self._state = _State.NEW
        self._reads: deque[Call[Any]] = deque()
        self._writes: deque[Call[Any]] = deque()
        self._closers: list[Call[None]] = []
        self._tries = 0
        self._next_at_s = 0.0
        self._changed = Condition()
        """Guards the state, the queues and the closers; told when a call comes in and when the lane shall close."""

    # --- The callers' side ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the thread and connect. Raises what `LeaseFile.connect` raises."""
        opened: Call[None] = Call(lambda _: None, give_up_at_s=self._limit_s())
        with self._changed:
            self._state = _State.OPEN
        # A daemon: a process that ends without `close` must not hang, and SQLite undoes what was not committed.
        Thread(target=self._run, args=(opened,), name=f"leases {self._name}", daemon=True).start()
        await opened.future

    def stop(self) -> None:
        """Let what is running end, refuse what waits, and end the thread, without waiting for it."""
        with self._changed:
            if self._state is _State.OPEN:
                self._state = _State.CLOSING
                self._changed.notify()

    async def stopped(self) -> None:
        """Wait until the thread of a lane that was told to stop has let go of the file."""
        closed: Call[None] = Call(lambda _: None, give_up_at_s=self._limit_s())
        with self._changed:
            if self._state is not _State.CLOSING:
                return
            self._closers.append(closed)
        await closed.future

    async def read(self, work: Work[R]) -> R:
        """Run `work`, one statement that changes nothing, in the lane's thread."""
        return await self._wait_for(work, self._reads)

    async def write(self, work: Work[R]) -> R:
        """
        Run `work` in the lane's thread, inside a write transaction.

        A caller that is cancelled while the call waits takes it back; after that it may or may not be applied.
        """
        return await self._wait_for(work, self._writes)

    async def _wait_for(self, work: Work[R], queue: deque[Call[Any]]) -> R:
        call = Call(work, give_up_at_s=self._limit_s())
        with self._changed:
            if self._state is not _State.OPEN:
                raise self._unavailable(self._state.value)
            if len(queue) >= QUEUE_MAX:
                raise self._unavailable(f"has {QUEUE_MAX} calls waiting already")
            queue.append(call)
            self._changed.notify()
        try:
            return await call.future
        except asyncio.CancelledError:
            with self._changed:
                if call in queue:
                    queue.remove(call)
            raise

    def _limit_s(self) -> float:
        return self._clock.now_s() + self._wait_max_s

    def _unavailable(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(f"{label_of(self._file.path)}: the lane for {self._name} {what}")

    # --- The thread's side ----------------------------------------------------------------------------------------

    def _run(self, opened: Call[None]) -> None:
        try:
            connection = self._file.connect(wait_s=self._wait_max_s)
        except Exception as error:  # Containment: it is the opener's to handle.
            self._end()
            opened.fail(error)
            return
        opened.answer(None)
        try:
            while self._wait_for_calls():
                self._do_reads(connection)
                if self._writes:
                    self._do_writes(connection)
                if self._chore is not None:
                    self._chore(connection)
        finally:
            try:
                self._file.disconnect(connection)
            finally:
                self._end()

    def _wait_for_calls(self) -> bool:
        """Wait until there is something to do; false when the lane shall end."""
        with self._changed:
            if not (self._reads or self._writes) and self._state is _State.OPEN:
                self._changed.wait(None if self._chore is None else CHORE_S)
            return self._state is _State.OPEN

    def _end(self) -> None:
        with self._changed:
            self._state = _State.CLOSED
            left = [*self._reads, *self._writes]
            self._reads.clear()
            self._writes.clear()
            closers, self._closers = self._closers, []
        for call in left:
            call.fail(self._unavailable(_State.CLOSED.value))
        for closed in closers:
            closed.answer(None)

    def _do_reads(self, connection: sqlite3.Connection) -> None:
        with self._changed:
            calls = [*self._reads]
            self._reads.clear()
        for call in calls:
            self._do_read(connection, call)

    def _do_read(self, connection: sqlite3.Connection, call: Call[Any]) -> None:
        while True:
            try:
                self._file.check()
                call.answer(call.work(connection))
                return
            except Exception as error:  # Containment: a call that fails fails alone.
                # Rare: another process is recovering the log after a crash, or was the last one and takes it away.
                if not isinstance(error, sqlite3.Error) or not is_busy(error) or self._is_late(call):
                    call.fail(self._meant(error))
                    return
            time.sleep(self._pace.poll_s)

    def _do_writes(self, connection: sqlite3.Connection) -> None:
        if (left_s := self._next_at_s - time.monotonic()) > 0:
            self._rest(left_s)
            return
        try:
            self._file.check()
            connection.execute("BEGIN IMMEDIATE")
        except Exception as error:  # Containment: the calls that wait are told.
            busy = isinstance(error, sqlite3.Error) and is_busy(error)
            for call in self._take_late() if busy else self._take():
                call.fail(self._meant(error))
            if busy:
                self._tries += 1
                self._rest(self._pace.poll_s * 2 ** min(DOUBLINGS_MAX, self._tries // TRIES_AT_FULL_PACE))
            return
        self._tries = 0
        locked_at_s = time.monotonic()
        for call in self._take_late():
            call.fail(self._unavailable(f"did not come to it within {self._wait_max_s:g} s; it was not written"))
        calls = self._take()
        try:
            outcomes = [_decide(connection, call) for call in calls]
            connection.execute("COMMIT")
            self._file.log.commits += 1
        except Exception as error:  # Containment: nobody knows what of the commit reached the disk; each caller asks.
            for call in calls:
                call.fail(self._meant(error))
        else:
            for call, (result, failure) in zip(calls, outcomes, strict=True):
                if failure is None:
                    call.answer(result)
                else:
                    call.fail(self._meant(failure))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if self._pace.gap_s:
            ended_at_s = time.monotonic()
            self._next_at_s = ended_at_s + max(self._pace.gap_s, GAP_SHARE * (ended_at_s - locked_at_s))

    def _take(self) -> list[Call[Any]]:
        with self._changed:
            return [self._writes.popleft() for _ in range(min(len(self._writes), self._pace.together_max))]

    def _take_late(self) -> list[Call[Any]]:
        late = []
        with self._changed:
            # They stand in the order in which they came, so the first that is not late ends it.
            while self._writes and self._is_late(self._writes[0]):
                late.append(self._writes.popleft())
        return late

    def _is_late(self, call: Call[Any]) -> bool:
        return self._clock.now_s() >= call.give_up_at_s

    def _rest(self, seconds: float) -> None:
        """Wait before the lock is tried for again; less if a call comes in, since it may be a read."""
        with self._changed:
            if not self._reads and self._state is _State.OPEN:
                self._changed.wait(seconds)

    def _meant(self, error: Exception) -> Exception:
        # The other classes of sqlite3 say that the call was made wrongly, such as a number that fits no column.
        if type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError):
            assert isinstance(error, sqlite3.Error)
            meant = translated(error, self._file.path)
            meant.__cause__ = error
            return meant
        # One of its own for each caller: raising it adds to its traceback.
        return type(error)(*error.args) if isinstance(error, StoreError) else error


def _decide(connection: sqlite3.Connection, call: Call[R]) -> tuple[R | None, Exception | None]:
    """Do one call inside the open transaction; what it wrote is undone if it raises."""
    connection.execute("SAVEPOINT one")
    try:
        result = call.work(connection)
    except Exception as error:  # Containment: a call that fails fails alone.
        if not connection.in_transaction:
            # SQLite has undone the whole transaction, as for a full disk.
            raise
        connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return None, error
    connection.execute("RELEASE one")
    return result, None
