"""
What faults of a local stream's file mean for a user, and what is refused before it can do harm.

Knows no table and no record. It looks at the file system only to say what this user may do.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partitions.errors import SourceError, SourceMisconfigured, SourceUnavailable

__all__ = ["absence", "check_beside", "translated"]


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite raises about a file into the errors of a source; what is a fault of the program stays."""
    try:
        yield
    except sqlite3.Error as error:
        if (meant := _meaning(error, path)) is None:
            raise
        raise meant from error


def _meaning(error: sqlite3.Error, path: Path) -> SourceError | None:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    name = f"stream {str(path)!r}"
    if code == sqlite3.SQLITE_READONLY_DIRECTORY:
        return SourceMisconfigured(
            f"{name}: SQLite must write '{path.name}-shm' beside it to read it, and this user may not write in that "
            "folder; allow it, or copy the file into a folder of your own"
        )
    match code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return SourceUnavailable(f"{name} is locked by another writer (a long import?); try again")
        case sqlite3.SQLITE_FULL:
            return SourceUnavailable(f"{name}: the disk is full; nothing was written; make room and try again")
        case sqlite3.SQLITE_IOERR:
            return SourceUnavailable(f"{name}: {error}; nothing was written; is the disk full, or a quota reached?")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return SourceMisconfigured(f"{name} is read-only for this user; allow writing to it and to its folder")
        case sqlite3.SQLITE_CANTOPEN if _may(os.R_OK, path):
            # As in a folder that is immutable: the stream may be read, but nothing be made beside it.
            return SourceMisconfigured(
                f"{name}: SQLite cannot make or open '{path.name}-shm' and '{path.name}-wal' beside it, which it needs "
                f"also to read ({error}); let this user write that folder, or copy the file into one of your own"
            )
        case sqlite3.SQLITE_CANTOPEN:
            return SourceMisconfigured(f"{name} cannot be opened ({error}); allow this user to read it")
        case sqlite3.SQLITE_NOTADB:
            return SourceMisconfigured(
                f"{str(path)!r} is no SQLite file at all; name a stream that 'processor-host stream create' made"
            )
        case sqlite3.SQLITE_CORRUPT:
            return SourceMisconfigured(f"{name} is damaged ({error}); restore it from a copy")
    return None


def check_beside(path: Path) -> None:
    """
    Refuse to open where the files that SQLite needs beside the stream would keep somebody out.

    Who may only read the stream would make them as their own, and leave them: its owner could write it no more.
    """
    beside = [Path(f"{os.path.realpath(path)}{end}") for end in ("-shm", "-wal")]
    if _may(os.W_OK, path):
        for each in beside:
            if _is_denied(each):
                # To delete it is no remedy to name: a log may hold what is not in the file yet.
                raise SourceMisconfigured(
                    f"stream {str(path)!r} cannot be used: {str(each)!r} belongs to {_owner_of(each)} and is read-only "
                    "for this user; give it the owner of the stream, as 'chown --reference' does"
                )
    elif _may(os.R_OK, path) and not all(os.path.exists(each) for each in beside):
        raise SourceMisconfigured(
            f"stream {str(path)!r} is read-only for this user and no writer has it open: SQLite must write "
            f"'{path.name}-shm' beside it to read it, which would keep its owner out; allow this user to write both "
            "the stream and its folder, or copy it into a folder of your own"
        )


def absence(path: Path, error: OSError) -> str:
    """Return what it means that the path of a stream cannot be looked at."""
    if isinstance(error, FileNotFoundError):
        return f"stream {str(path)!r} is not there; create it with 'processor-host stream create', or name another"
    return f"stream {str(path)!r} cannot be opened: {error.strerror}"


def _may(how: int, path: Path) -> bool:
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)


def _is_denied(path: Path) -> bool:
    """Others may be making or removing it at this moment: only one file, there before and after, was denied."""
    try:
        before = path.stat()
        return not _may(os.R_OK | os.W_OK, path) and os.path.samestat(before, path.stat())
    except OSError:
        return False


def _owner_of(path: Path) -> str:
    try:
        uid = path.stat().st_uid
    except OSError:
        return "another user"
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user id {uid}"
