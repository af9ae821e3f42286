"""
The lease file itself: making, finding, opening and deleting it.

Knows no item, no verb and no event loop; everything here blocks, for at most the time that it is given. Theory of
operation:

- Our file is known by `PRAGMA application_id`, its layout by `user_version`. Both are written in the transaction that
  makes the tables, so a file is ours as a whole or not at all; a file of zero bytes is one that somebody is making.
- Making goes in place, not by a rename: SQLite itself then drops a WAL that an earlier file of this name left behind.
  Who loses the race finds the tables there and does nothing. The change to WAL asks for the file alone and calls no
  busy handler, so it is tried again here.
- The file is reached through SQLite only. Opening it as plain bytes and closing it again would drop every POSIX lock
  that this process has on it, those of other stores too. `os.stat` opens nothing.
- A file that is deleted or replaced under a running host lives on unseen, and a host that starts later begins a second
  group at token 0. So every lane compares, before each use, the file that the path names with the one it opened.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import quote

from partitions.errors import StoreMisconfigured, StoreUnavailable
from partitions.stores._sqlite_errors import deleted, denied_files, is_busy, label_of, patiently, translated
from partitions.stores._sqlite_log import Log
from partitions.stores._sqlite_rows import SCHEMA

__all__ = ["APPLICATION_ID", "FILE_VERSION", "LeaseFile"]

R = TypeVar("R")

APPLICATION_ID: Final = 0x50484C53
"""`PHLS` in ASCII: processor host, leases."""

STREAM_ID: Final = 0x70687374
"""What `partitions.sources.local` writes into a stream, a file that is easily named in the place of this one."""

FILE_VERSION: Final = 1
"""Raised only where an older version could not read or write the tables."""


class LeaseFile:
    """One lease file by its path, and which file that was when it was first opened."""

    __slots__ = ("_absolute", "_disconnecting", "_opened", "log", "path")

    def __init__(self, path: str | os.PathLike[str], *, folder: Path) -> None:
        """
        Name the file; nothing is opened.

        Args:
            path: As the user named it, for messages.
            folder: Where a relative path begins: the process may change its folder later.
        """
        self.path = Path(path)
        self._absolute = folder / self.path
        # SQLite keeps it beside the file itself, not beside a link to it.
        self.log = Log(os.path.realpath(self._absolute) + "-wal")
        self._opened: tuple[int, int] | None = None
        self._disconnecting = Lock()

    def connect(self, *, wait_s: float) -> sqlite3.Connection:
        """
        Open the file that is there, checked to be ours and writable, for the thread that calls.

        Raises:
            StoreMisconfigured: missing, not ours, of another version, read-only, on a disk that is full.
            StoreUnavailable: busy for longer than `wait_s`.
        """
        self._check_folder()
        if self._named() is None:
            raise StoreMisconfigured(
                f"{self._label} does not exist; check the path, or start a host: 'processor-host run' makes it"
            )
        self._check_files()
        try:
            connection = self._connection("rw")
            try:
                self._prepare(connection, wait_s=wait_s)
            except BaseException:
                # Whatever it was: an error must not leave the file open.
                connection.close()
                raise
        except sqlite3.Error as error:
            raise translated(error, self.path, at_start=True) from error
        return connection

    def disconnect(self, connection: sqlite3.Connection) -> None:
        """Close a connection, in the thread that opened it."""
        # One after the other: of two that close at once each takes the other for a user, and the log stays behind.
        with self._disconnecting:
            connection.close()

    def check(self) -> None:
        """
        Make sure that the path still names the file that was opened. Costs one `stat`, microseconds.

        Raises:
            StoreMisconfigured: it was deleted, moved or replaced.
        """
        if self._opened is not None and self._named() != self._opened:
            raise deleted(self.path)

    def exists(self, *, wait_s: float) -> bool:
        """Say whether the store is there; see `Store.exists`. A file that is not ours raises."""
        status = self._looked_at()
        if status is None or status.st_size == 0:
            return False
        self._check_files()
        return self._apart("rw", lambda connection: patiently(lambda: self._is_ours(connection), wait_s=wait_s))

    def create(self, *, wait_s: float) -> None:
        """Make the store where it is not there, whoever else is making it at the same moment; see `Store.create`."""
        self._check_folder()
        self._check_files()

        def make(connection: sqlite3.Connection) -> None:
            patiently(lambda: self._fill(connection), wait_s=wait_s)
            patiently(lambda: self._use_wal(connection), wait_s=wait_s)

        self._apart("rwc", make)

    def delete(self, *, wait_s: float) -> None:
        """
        Delete the file, where it is there and ours.

        Raises:
            StoreUnavailable: another process, or another store in this one, has it open.
        """
        if not self.exists(wait_s=wait_s):
            return
        try:
            # Leaving WAL needs the file alone, so this fails while anybody uses it; and the log goes with it.
            self._apart(
                "rw",
                lambda connection: patiently(
                    lambda: connection.execute("PRAGMA journal_mode = DELETE").fetchone(), wait_s=wait_s
                ),
            )
            os.unlink(self._absolute)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{self._label} is in use, and deleting it would leave its hosts without leases; "
                "stop them, then delete it again"
            ) from error
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreMisconfigured(
                f"{self._label} cannot be deleted: {error.strerror}; check the permissions of its folder"
            ) from error

    @property
    def _label(self) -> str:
        return label_of(self.path)

    def _named(self) -> tuple[int, int] | None:
        """Return which file the path names at this moment, or None."""
        try:
            status = os.stat(self._absolute)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _looked_at(self) -> os.stat_result | None:
        """Return what the path names, None for nothing; a folder, or a place where this user may not look, raises."""
        try:
            status = os.stat(self._absolute)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreMisconfigured(
                f"{self._label} cannot be reached: {error.strerror}; "
                "check the path, and that this user may enter each folder of it"
            ) from error
        if stat.S_ISDIR(status.st_mode):
            raise StoreMisconfigured(f"{self._label} is a folder, expected a file in it; name the file")
        return status

    def _check_files(self) -> None:
        if (reason := denied_files(self._absolute)) is not None:
            raise StoreMisconfigured(f"{self._label} {reason}")

    def _check_folder(self) -> None:
        self._looked_at()
        if not self._absolute.parent.is_dir():
            raise StoreMisconfigured(
                f"{self._label}: folder {str(self._absolute.parent)!r} does not exist; make it, or name another file"
            )

    def _connection(self, mode: str) -> sqlite3.Connection:
        # As a URI for the sake of `mode`, so the letters ?, # and % of the path are quoted. No time-out: SQLite's own
        # wait grows to 100 ms a try, and does not end when nobody is waiting for the answer any more.
        uri = f"file:{quote(os.fsencode(self._absolute))}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)

    def _apart(self, mode: str, use: Callable[[sqlite3.Connection], R]) -> R:
        """Use a connection of its own, closed at the end, and translate what SQLite raises."""
        try:
            connection = self._connection(mode)
            try:
                return use(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise translated(error, self.path, at_start=True) from error

    def _prepare(self, connection: sqlite3.Connection, *, wait_s: float) -> None:
        before = self._named()
        if not patiently(lambda: self._is_ours(connection), wait_s=wait_s):
            raise StoreMisconfigured(f"{self._label} is empty, expected a lease file; create it first")
        # SQLite opened the file somewhere between the two looks; where they agree it was this one.
        if before is None or before != self._named() or self._opened not in (None, before):
            raise deleted(self.path)
        self._opened = before
        patiently(lambda: self._use_wal(connection), wait_s=wait_s)
        # FULL: every commit reaches the disk before it is answered; else a power cut takes tokens back (rule 17).
        connection.execute("PRAGMA synchronous = FULL")
        # On macOS an fsync alone stops in the drive's cache. Does nothing elsewhere.
        connection.execute("PRAGMA fullfsync = ON")
        # The log is folded back by one lane's chore, never in the middle of a beat.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._check_writable(connection)

    def _check_writable(self, connection: sqlite3.Connection) -> None:
        """Write and take it back: SQLite opens a read-only file without a word, and even begins a transaction."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {FILE_VERSION}")
        except sqlite3.OperationalError as error:
            # Busy is good enough: only one that may write is kept waiting for the lock.
            if not is_busy(error):
                raise
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """
        Say whether the file holds our tables (true) or nothing at all (false).

        Raises:
            StoreMisconfigured: it holds something else.
        """
        # One transaction, so that the three answers belong together.
        connection.execute("BEGIN")
        try:
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        finally:
            connection.execute("ROLLBACK")
        return self._told(application_id, version, tables)

    def _told(self, application_id: int, version: int, tables: int) -> bool:
        if application_id == 0 and tables == 0:
            return False
        if application_id == STREAM_ID:
            raise StoreMisconfigured(f"{self._label} is a stream, not a lease file; name another file with --store")
        if application_id != APPLICATION_ID:
            raise StoreMisconfigured(
                f"{self._label} is a database of another application (application_id {application_id:#x}, "
                f"expected {APPLICATION_ID:#x}); name another file"
            )
        if version != FILE_VERSION:
            raise StoreMisconfigured(
                f"{self._label} has layout version {version}, expected {FILE_VERSION}; "
                "use the version of this program that made it, or name another file"
            )
        return True

    def _fill(self, connection: sqlite3.Connection) -> None:
        if self._is_ours(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Again, now that nobody else can write: another process may have been faster.
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FILE_VERSION}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._is_ours(connection)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Read first: where it is WAL already, which is nearly always, no lock is asked for.
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreMisconfigured(
                f"{self._label} cannot use a write-ahead log (journal mode {mode!r}, expected 'wal'); "
                "put it on a local disk, not on a network file system"
            )
