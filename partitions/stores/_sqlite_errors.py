"""
What SQLite's errors mean for a user of the lease file: whether trying again can help, and what to change.

Knows no connection and no item. It looks at the file system only to say why a file was denied.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from partitions.errors import StoreError, StoreGone, StoreMisconfigured, StoreUnavailable

__all__ = ["deleted", "denied_files", "is_busy", "label_of", "patiently", "translated"]

R = TypeVar("R")

RETRY_S: Final = 0.002
"""Between two tries for a file that is busy: about as long as another process holds it for one commit."""

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_FOREIGN: Final = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
_DENIED: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_CANTOPEN}


def patiently(do: Callable[[], R], *, wait_s: float) -> R:
    """Do it, and again while the file is busy, for at most `wait_s`."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            return do()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until_s:
                raise
        time.sleep(RETRY_S)


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another connection is in the way, for the moment."""
    return _code(error) in _BUSY


def translated(error: sqlite3.Error, path: Path, *, at_start: bool = False) -> StoreError:
    """
    Return what an error of SQLite means: whether trying again can help, and what to do.

    Args:
        error: What SQLite raised.
        path: The lease file as the user named it.
        at_start: The store is being opened or made. A full disk is then for a person to mend; in a running host it may
            pass, and the host's session ends by itself if it lasts.
    """
    label = label_of(path)
    code = _code(error)
    if code in _BUSY:
        return StoreUnavailable(f"{label} is busy: {error}; another process is writing, try again")
    if code in _FOREIGN:
        return StoreMisconfigured(f"{label} is not a lease file or is damaged: {error}; name another file")
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_DBMOVED:
        return deleted(path)
    if code == sqlite3.SQLITE_FULL:
        text = f"{label}: the disk is full; make room in {str(path.absolute().parent)!r}"
        return StoreMisconfigured(text) if at_start else StoreUnavailable(text)
    if code in _DENIED and (reason := _denial(path.absolute(), reads_only=code == sqlite3.SQLITE_READONLY)) is not None:
        return StoreMisconfigured(f"{label} {reason}")
    if code == sqlite3.SQLITE_ERROR:
        return StoreMisconfigured(f"{label} is not laid out as expected: {error}; name another file")
    return StoreUnavailable(f"{label}: {error}; try again, and check the disk if it lasts")


def _denial(absolute: Path, *, reads_only: bool) -> str | None:
    """Return why the file cannot be opened or written, or None where the file system gives no reason."""
    folder = absolute.parent
    # Not those of pathlib: they raise where this user may not look.
    if not os.path.isdir(folder):
        return f"cannot be reached: folder {str(folder)!r} does not exist; make it, or name another file"
    if not _may_write(folder):
        # The write-ahead log lies beside the file, so writing the file alone is not enough.
        return f"cannot be written: its folder {str(folder)!r} is read-only for this user; allow writing, or move it"
    if (reason := denied_files(absolute)) is not None:
        return reason
    return "is read-only; allow writing, or name another file" if reads_only else None


def denied_files(absolute: Path) -> str | None:
    """
    Return why this user may not write the file, or what lies beside it; None where they may, or nothing is there.

    To be asked before the file is opened: SQLite opens a file that it may only read without a word and makes `-shm` and
    `-wal` beside it, which then belong to this user and keep the owner of the file out.
    """
    if _is_denied(absolute):
        return "cannot be written: it is read-only for this user; allow writing, or name another file"
    real = os.path.realpath(absolute)
    for beside in (Path(f"{real}-shm"), Path(f"{real}-wal")):
        if _is_denied(beside):
            # To delete it is no remedy to name: a log may hold what is not in the file yet.
            return (
                f"cannot be written: {str(beside)!r} belongs to {_owner_of(beside)} and is read-only for this user; "
                "give it the owner of the lease file, as 'chown --reference' does"
            )
    return None


def _is_denied(path: Path) -> bool:
    """Others may be making or removing it at this moment: only one file, there before and after, was denied."""
    try:
        before = os.stat(path)
        return not _may_write(path) and os.path.samestat(before, os.stat(path))
    except OSError:
        return False


def _owner_of(path: Path) -> str:
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return "another user"
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user id {uid}"


def _may_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, os.R_OK | os.W_OK, effective_ids=effective)


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary code; SQLite puts the details above the lowest byte."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def label_of(path: str | Path) -> str:
    """Return how every message names the file."""
    return f"lease file {str(path)!r}"


def deleted(path: Path) -> StoreGone:
    """Return the error for a path that no longer names the file that was opened."""
    return StoreGone(
        f"{label_of(path)} was deleted, moved or replaced while in use; "
        "stop every host that uses it, put it back or create it again, then start them"
    )
