"""
The write-ahead log beside the lease file, and when it is folded back into the file.

Knows no item and no lane. SQLite folds the log by itself, in the commit that makes it long; here that would be a beat
as often as a checkpoint. So the connections leave it alone, and one lane calls `fold` when it has time.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Final

__all__ = ["FOLD_COMMITS", "Log"]

FOLD_COMMITS: Final = 250
"""Commits of one store between two folds of the log: about SQLite's own 1,000 pages."""

FOLD_WAIT_MS: Final = 50
"""How long folding may keep the lock to wait for readers; a read takes well under a millisecond."""

FOLD_AGAIN_S: Final = 2.0
"""After a fold that found readers in its way."""

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""From this size on the log is cut when it is folded."""


class Log:
    """The log of one lease file, and how much this process has added to it."""

    __slots__ = ("_fold_at_commits", "_fold_at_s", "_path", "commits")

    def __init__(self, path: str) -> None:
        self._path = path
        self.commits = 0
        """Commits through this object, roughly: threads count without a lock, it only says when to fold."""
        self._fold_at_commits = FOLD_COMMITS
        self._fold_at_s = 0.0

    def fold(self, connection: sqlite3.Connection) -> None:
        """
        Fold the write-ahead log back into the file, once enough was committed here; else do nothing.

        RESTART lets the next commit begin the log anew in the same bytes: an append would make the disk keep the file's
        new size too, which takes longer. It works under the write lock, so no commit can begin the log anew meanwhile
        (which SQLite before 3.51.3 may answer with a damaged file), and the log ends even where readers are never all
        idle at once. A reader that stays, as a person's open transaction, makes it wait for `FOLD_WAIT_MS` in vain; the
        next try is then later. A log that grew meanwhile is cut.
        """
        if self.commits < self._fold_at_commits or time.monotonic() < self._fold_at_s:
            return
        mode = "RESTART" if self._bytes() <= LOG_BYTES_MAX else "TRUNCATE"
        try:
            connection.execute(f"PRAGMA busy_timeout = {FOLD_WAIT_MS}")
            busy = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0] != 0
        except sqlite3.Error:
            # The log still holds everything. A broken disk shows in the next write, which somebody waits for.
            busy = True
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
        if busy:
            self._fold_at_s = time.monotonic() + FOLD_AGAIN_S
        else:
            self._fold_at_commits = self.commits + FOLD_COMMITS

    def _bytes(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0
