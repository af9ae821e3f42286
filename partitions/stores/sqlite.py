"""
A store in one SQLite file, for any number of processes on one machine.

Every write runs `rules.apply` inside a transaction that began with the file's write lock, so of any number of writers
each decides on what the one before it left. Needs a local disk: a network file system has neither the locks nor the
shared memory of the write-ahead log.

Three lanes (`_sqlite_lane`), each a thread with a connection of its own: one for sessions, so that no checkpoint can
stand in front of a beat; one for writes of leases and of the group's item; one for their reads. A call that cannot be
begun within `busy_timeout_s` raises `StoreUnavailable` and is not written. That is shorter than the caller's own
time-out, so what a caller gave up is not applied late (DESIGN rule 17).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import anyio.to_thread

from partitions import rules
from partitions.errors import StoreMisconfigured
from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.lock_verbs import LockVerb
from partitions.stores._sqlite_errors import label_of
from partitions.stores._sqlite_file import LeaseFile
from partitions.stores._sqlite_lane import Lane, Pace
from partitions.stores._sqlite_lock_rows import LOCKS, has_locks, make_locks
from partitions.stores._sqlite_rows import GROUPS, LEASES, SESSIONS
from partitions.stores._sqlite_table import Table
from partitions.stores._sqlite_transactions import SqliteTransaction, SqliteTransactions
from partitions.stores.base import check_some
from partitions.unreadable import is_stand_in
from partitions.verbs import Applied, Complete, LeaseVerb, Leave, Refused, Result, SessionVerb, Verb

__all__ = ["SqliteStore", "SqliteTransaction"]

T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)
R = TypeVar("R")

CALL_TIMEOUT_S: Final = 1.6
"""A sixth of the default lease duration: the longest that a beat may take."""

BUSY_SHARE: Final = 0.75
"""Of the call time-out, for waiting; the rest is left for the commit and for the way back to the caller."""

STATEMENTS_SHARE: Final = 0.2
"""Of the call time-out, for the statements of one user transaction, which everybody else who writes waits for."""

SCHEME: Final = "sqlite"
"""Of the URLs by which hosts and commands name such a store."""

TOGETHER_MAX: Final = 32
"""Writes in one transaction: their decisions take about as long as the one flush that they save each other."""


class SqliteStore:
    """See `partitions.stores.base.Store`. May be called from several event loops."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        call_timeout_s: float = CALL_TIMEOUT_S,
        together_max: int = TOGETHER_MAX,
    ) -> None:
        """
        Name the file; nothing is opened.

        Args:
            path: The file. Beside it lie `-wal` and `-shm`, so its folder must be writable.
            call_timeout_s: When callers give up a call, seconds; the shortest of them.
            together_max: Writes that may share a transaction; 1 commits each on its own.

        Raises:
            ValueError: the path is a URL, as hosts and commands take it. It would name a file of that very name.
        """
        self._path = os.fspath(path)
        if self._path.startswith(f"{SCHEME}:"):
            file = self._path.removeprefix(f"{SCHEME}:")
            file = file.removeprefix("//") if file.startswith("///") else file
            raise ValueError(f"{self._path!r} is a URL, expected a file; use SqliteStore({file!r})")
        self._file = partial(LeaseFile, self._path, folder=Path.cwd())
        self._busy_timeout_s = call_timeout_s * BUSY_SHARE
        self._together_max = together_max
        self._lanes: tuple[Lane, Lane, Lane] | None = None
        self._transactions = SqliteTransactions(
            self.url, lambda: self._opened()[1], time_max_s=call_timeout_s * STATEMENTS_SHARE
        )

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return f"{SCHEME}://{self._path}" if os.path.isabs(self._path) else f"{SCHEME}:{self._path}"

    @property
    def busy_timeout_s(self) -> float:
        """How long a call may wait before it is begun, seconds."""
        return self._busy_timeout_s

    @property
    def transactions(self) -> SqliteTransactions:
        """See `TransactionalStore.transactions`."""
        return self._transactions

    def for_beats(self) -> SqliteStore:
        """See `LoopStore.for_beats`: sessions have a lane of their own, with its own connection, for any loop."""
        return self

    async def open(self) -> None:
        """See `Store.open`."""
        if self._lanes is not None:
            return
        file = self._file()
        lane = partial(Lane, file=file, wait_max_s=self._busy_timeout_s)
        sessions = lane("sessions", pace=Pace(together_max=self._together_max, poll_s=0.0005, gap_s=0.0))
        writes = lane(
            "leases",
            pace=Pace(together_max=self._together_max, poll_s=0.001, gap_s=0.001),
            chore=file.log.fold,
        )
        reads = lane("reads of leases", pace=Pace(together_max=1, poll_s=0.001, gap_s=0.0))
        self._lanes = sessions, writes, reads
        try:
            for each in self._lanes:
                await each.open()
        except BaseException:
            # Also where the caller was cancelled: a thread that is still connecting then ends by itself.
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        """See `Store.close`."""
        lanes = self._lanes or ()
        self._lanes = None
        # All are told before the first is waited for, in case the caller is cancelled meanwhile.
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            await lane.stopped()

    async def exists(self) -> bool:
        """See `Store.exists`. A file of another application raises `StoreMisconfigured`."""
        return await self._apart(self._file().exists)

    async def create(self) -> None:
        """See `Store.create`. Any number of processes may do so at once."""
        await self._apart(self._file().create)

    async def delete(self) -> None:
        """See `Store.delete`. Closes this store first; raises `StoreUnavailable` while another one has it open."""
        await self.close()
        await self._apart(self._file().delete)

    async def submit(self, group: str, verb: Verb[T]) -> Result[T]:
        """See `Store.submit`."""
        return await self._lane_of(verb).write(lambda connection: decide(connection, group, verb))

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        """See `Store.read_leases`. One page."""
        _, _, reads = self._opened()
        return await reads.read(lambda connection: _read(connection, LEASES, LEASES.select_all, (group,)))

    async def read_some_leases(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """
        See `Store.read_some_leases`.

        Raises:
            ValueError: more than 100 partitions.
        """
        check_some(partitions)
        marks = ", ".join("?" for _ in partitions)
        statement = f"{LEASES.select_all} AND partition IN ({marks})"
        _, _, reads = self._opened()
        return await reads.read(lambda connection: _read(connection, LEASES, statement, (group, *partitions)))

    async def read_lease(self, group: str, partition: str) -> LeaseItem | None:
        """See `Store.read_lease`."""
        _, _, reads = self._opened()
        return await reads.read(lambda connection: _read_one(connection, LEASES, (group, partition)))

    async def read_sessions(self, group: str, *, consistent: bool) -> tuple[SessionItem, ...]:
        """See `Store.read_sessions`. Always consistent."""
        sessions, _, _ = self._opened()
        return await sessions.read(lambda connection: _read(connection, SESSIONS, SESSIONS.select_all, (group,)))

    async def read_session(self, group: str, session_id: str) -> SessionItem | None:
        """See `Store.read_session`."""
        sessions, _, _ = self._opened()
        return await sessions.read(lambda connection: _read_one(connection, SESSIONS, (group, session_id)))

    async def read_lock(self, group: str, name: str) -> LockItem | None:
        """See `Store.read_lock`."""
        found = await self.read_some_locks(group, (name,))
        return found[0] if found else None

    async def read_some_locks(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """
        See `Store.read_some_locks`.

        Raises:
            ValueError: more than 100 names.
        """
        check_some(names, what="locks")
        marks = ", ".join("?" for _ in names)
        return await self._read_locks(f"{LOCKS.select_all} AND name IN ({marks})", (group, *names))

    async def read_locks(self, group: str) -> tuple[LockItem, ...]:
        """See `Store.read_locks`."""
        return await self._read_locks(LOCKS.select_all, (group,))

    async def read_group(self, group: str) -> GroupItem | None:
        """See `Store.read_group`."""
        _, _, reads = self._opened()
        return await reads.read(lambda connection: _read_one(connection, GROUPS, (group,)))

    async def _read_locks(self, statement: str, values: tuple[str, ...]) -> tuple[LockItem, ...]:
        def read(connection: sqlite3.Connection) -> tuple[LockItem, ...]:
            return _read(connection, LOCKS, statement, values) if has_locks(connection) else ()

        _, _, reads = self._opened()
        return await reads.read(read)

    def _lane_of(self, verb: Verb[Any]) -> Lane:
        sessions, leases, _ = self._opened()
        return sessions if isinstance(verb, SessionVerb) else leases

    def _opened(self) -> tuple[Lane, Lane, Lane]:
        if self._lanes is None:
            raise StoreMisconfigured(f"{label_of(self._path)} is not open; call open() first")
        return self._lanes

    async def _apart(self, use: Callable[..., R]) -> R:
        """Run one of the rare calls that need no lane. Given up by its caller, it ends by itself soon after."""
        return await anyio.to_thread.run_sync(partial(use, wait_s=self._busy_timeout_s), abandon_on_cancel=True)


def decide(connection: sqlite3.Connection, group: str, verb: Verb[T]) -> Result[T]:
    """Do one verb inside an open write transaction."""
    if isinstance(verb, LockVerb):
        make_locks(connection)
    table, key = _place_of(group, verb)
    current = _read_one(connection, table, key)
    if is_stand_in(current) and not isinstance(verb, Leave):
        # What only stands for the stored row must not be written over it.
        return Refused(current=current)
    result = rules.apply(current, verb)
    if isinstance(result, Applied):
        if result.item is None:
            connection.execute(table.delete, key)
        else:
            connection.execute(table.write, table.to_row(group, result.item))
        if isinstance(verb, Complete):
            for child in verb.children:
                connection.execute(LEASES.write_if_absent, LEASES.to_row(group, rules.born(child)))
    return result


def _place_of(group: str, verb: Verb[T]) -> tuple[Table[T], tuple[str, ...]]:
    """Return the table and the key of the item that a verb is about."""
    place: tuple[Table[Any], tuple[str, ...]]
    if isinstance(verb, LeaseVerb):
        place = LEASES, (group, verb.partition)
    elif isinstance(verb, SessionVerb):
        place = SESSIONS, (group, verb.session_id)
    elif isinstance(verb, LockVerb):
        place = LOCKS, (group, verb.name)
    else:
        place = GROUPS, (group,)
    return cast("tuple[Table[T], tuple[str, ...]]", place)


def _read(connection: sqlite3.Connection, table: Table[T], statement: str, values: tuple[str, ...]) -> tuple[T, ...]:
    return tuple(table.from_row(row) for row in connection.execute(statement, values).fetchall())


def _read_one(connection: sqlite3.Connection, table: Table[T], key: tuple[str, ...]) -> T | None:
    row = connection.execute(table.select_one, key).fetchone()
    return None if row is None else table.from_row(row)
