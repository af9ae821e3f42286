"""
User transactions on the lease file: SQL statements in the database transaction that stores the checkpoint.

Knows the lane's connection, the rows and `transactions.decide`. Theory of operation:

- **Statements are collected and run at the end of the block**, in the lane's thread, under the file's write lock. None
  is kept open while a user's code waits, so no host can hold up the beats of another.
- **They may write everything but what is ours.** SQLite asks an authorizer about each thing that a statement would
  touch, also inside triggers and views; our tables, the transaction itself, settings, other files and temporary tables
  (which would hide ours) are denied. Setting it makes SQLite prepare every statement anew, so that one which was
  prepared without it is asked about too.
- **They are bounded.** A statement that runs past its time, or whose caller has gone, is interrupted, and nothing is
  applied late.
- **A statement can still end the transaction** (`INSERT OR ROLLBACK`, or SQLite's own answer to an interrupt), and with
  it the writes of others that waited together with it. Those are told that the store was not available, and come again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from partitions.clocks import BootClock
from partitions.errors import StoreUnavailable
from partitions.items import LeaseItem
from partitions.stores._sqlite_call import Work
from partitions.stores._sqlite_lane import Lane
from partitions.stores._sqlite_lock_rows import LOCKS
from partitions.stores._sqlite_rows import LEASES, SCHEMA_TABLES
from partitions.transactions import (
    Commit,
    Failed,
    Outcome,
    TransactionInvalid,
    TransactionsUnsupported,
    decide,
    limit_operations,
    no_such_call,
)
from partitions.verbs import Applied, Result

__all__ = ["SqliteTransaction", "SqliteTransactions", "Statement"]

Parameters = Sequence[Any] | Mapping[str, Any]

STEPS_BETWEEN_LOOKS: Final = 1000
"""Instructions of SQLite's machine between two looks at the time; some ten microseconds."""

_ALLOWED: Final = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_CREATE_TABLE,
    sqlite3.SQLITE_CREATE_INDEX,
    sqlite3.SQLITE_CREATE_TRIGGER,
    sqlite3.SQLITE_CREATE_VIEW,
    sqlite3.SQLITE_DROP_TABLE,
    sqlite3.SQLITE_DROP_INDEX,
    sqlite3.SQLITE_DROP_TRIGGER,
    sqlite3.SQLITE_DROP_VIEW,
    sqlite3.SQLITE_ALTER_TABLE,
    sqlite3.SQLITE_REINDEX,
}
"""What a statement may do at all; a list of what it may not would miss what a later SQLite adds."""

_STORE_CODES: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_NOMEM,
}
"""Errors that say something of the file and nothing of the statement that met them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a user and its parameters."""

    sql: str
    parameters: Parameters = ()


class SqliteTransaction:
    """Collects the SQL statements of one transaction; what `batch.transaction()` gives on a SQLite store."""

    __slots__ = ("_is_taken", "_statements", "_url")

    def __init__(self, url: str) -> None:
        self._url = url
        self._statements: list[Statement] = []
        self._is_taken = False

    def __getattr__(self, name: str) -> NoReturn:
        raise no_such_call(self._url, name, ("execute",))

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """
        Add one statement. It runs at the end of the block, with the others in their order; it returns no rows.

        Args:
            sql: One statement on tables of your own in the lease file; they may be made by it.
            parameters: As for `sqlite3`: a sequence for `?`, a mapping for `:name`. A copy is taken.

        Raises:
            TransactionInvalid: more than 99 statements, or the block has ended.
        """
        if self._is_taken:
            raise TransactionInvalid("the transaction has ended; call `tx.execute` inside `async with`")
        limit_operations(len(self._statements) + 1)
        copied: Parameters = dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)
        self._statements.append(Statement(sql=sql, parameters=copied))

    def taken(self) -> tuple[Statement, ...]:
        """See `Collector.taken`."""
        self._is_taken = True
        return tuple(self._statements)


class SqliteTransactions:
    """See `partitions.stores.base.Transactions`."""

    def __init__(self, url: str, lane: Callable[[], Lane], *, time_max_s: float) -> None:
        """
        Name what they work with.

        Args:
            url: Of the store, for messages.
            lane: Returns the lane that writes leases.
            time_max_s: How long the statements of one transaction may take together, seconds.
        """
        self._url = url
        self._lane = lane
        self._time_max_s = time_max_s

    def begin(self) -> SqliteTransaction:
        """See `Transactions.begin`."""
        return SqliteTransaction(self._url)

    async def commit(self, group: str, commit: Commit) -> Outcome:
        """See `Transactions.commit`."""
        run = _Run(group, commit, time_max_s=self._time_max_s)
        work: Work[Result[LeaseItem]] = run.work
        try:
            return await self._lane().write(work)
        except _StatementFailed as failed:
            return Failed(error=failed.error)
        except StoreUnavailable:
            if run.failure is not None:
                return Failed(error=run.failure)
            raise
        except asyncio.CancelledError:
            run.is_called_off = True
            raise

    def condition_check(self, group: str, *, partition: str, owner: str, token: int, resource: bool) -> NoReturn:
        """See `Transactions.condition_check`. A statement of your own belongs into `batch.transaction()`."""
        raise TransactionsUnsupported(
            self._url, "condition checks, which are DynamoDB's", remedy="use `batch.transaction()` and `tx.execute`"
        )

    def lock_check(self, group: str, *, name: str, owner: str, token: int, resource: bool) -> NoReturn:
        """See `Transactions.lock_check` and `condition_check`."""
        raise TransactionsUnsupported(
            self._url, "condition checks, which are DynamoDB's", remedy="compare tokens in your own database"
        )


class _StatementFailed(Exception):
    """Makes the lane undo what this transaction wrote, and nothing else."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Run:
    """One commit in the lane's thread; `is_called_off` is set from the caller's."""

    def __init__(self, group: str, commit: Commit, *, time_max_s: float) -> None:
        self._group = group
        self._commit = commit
        self._time_max_s = time_max_s
        self._clock = BootClock()
        self._until_s = 0.0
        self.is_called_off = False
        self.failure: Exception | None = None
        """The user's error, where it took the whole database transaction with it."""

    def work(self, connection: sqlite3.Connection) -> Result[LeaseItem]:
        """Decide the lease, run the statements, write the lease; the lane commits."""
        key = (self._group, self._commit.save.partition)
        row = connection.execute(LEASES.select_one, key).fetchone()
        result = decide(None if row is None else LEASES.from_row(row), self._commit)
        if isinstance(result, Applied) and result.item is not None:
            if self._commit.operations:
                self._run_statements(connection)
            connection.execute(LEASES.write, LEASES.to_row(self._group, result.item))
        return result

    def _run_statements(self, connection: sqlite3.Connection) -> None:
        self._until_s = self._clock.now_s() + self._time_max_s
        connection.set_progress_handler(self._is_to_stop, STEPS_BETWEEN_LOOKS)
        connection.set_authorizer(_authorized)
        try:
            for index, statement in enumerate(self._commit.operations):
                self._run_statement(connection, index, statement)
                if self._is_to_stop():
                    self._stopped(connection, index)
        finally:
            connection.set_authorizer(None)
            connection.set_progress_handler(None, 0)

    def _run_statement(self, connection: sqlite3.Connection, index: int, statement: Statement) -> None:
        try:
            # To its end: one that returns rows has done its work only once they are fetched.
            for _ in connection.execute(statement.sql, statement.parameters):
                pass
        except Exception as error:  # Containment: it is raised at the user, whose statement and parameters it is about.
            if isinstance(error, sqlite3.Error) and _code(error) in _STORE_CODES:
                raise
            if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_INTERRUPT:
                self._stopped(connection, index)
            error.add_note(f"statement {index} of the transaction, nothing of which was applied: {statement.sql}")
            self._fail(connection, error)

    def _stopped(self, connection: sqlite3.Connection, index: int) -> NoReturn:
        if self.is_called_off:
            raise StoreUnavailable("the transaction was called off while its statements ran; it was not applied")
        self._fail(
            connection,
            TransactionInvalid(
                f"the statements of the transaction took longer than {self._time_max_s:.3g} s together (at statement "
                f"{index}); make them smaller: everybody who writes to the lease file waits for them"
            ),
        )

    def _fail(self, connection: sqlite3.Connection, error: Exception) -> NoReturn:
        if connection.in_transaction:
            raise _StatementFailed(error)
        self.failure = error
        # Also at those whose writes went with it: they try again.
        raise StoreUnavailable("a user's statement rolled back the transaction in which this was to be written")

    def _is_to_stop(self) -> bool:
        return self.is_called_off or self._clock.now_s() >= self._until_s


def _authorized(action: int, first: str | None, second: str | None, _: str | None, __: str | None) -> int:
    """Say whether a statement may do this: SQLite's authorizer callback."""
    names = {name.lower() for name in (first, second) if name is not None}
    if action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_UPDATE):
        # The second name is a column's, which may well be called as one of our tables is.
        names = {(first or "").lower()}
    is_ours = bool(names & {*SCHEMA_TABLES, LOCKS.name})
    return sqlite3.SQLITE_DENY if action not in _ALLOWED or is_ours else sqlite3.SQLITE_OK


def _code(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
