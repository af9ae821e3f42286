"""
Letters in an SQLite file of their own, for one machine with many processes.

One row for each letter: its group and id, which are the key, when it was written, and the letter as JSON, which SQL can
look into (`json_extract(letter, '$.error')`). A letter that is written again in the same term changes nothing.
Each call opens the file anew, since letters are rare.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import anyio

from processor_host.errors import NotThereError
from processor_host.letters.base import Found, Letter, LettersUnavailable, fitted
from processor_host.letters.codec import from_json, to_json

__all__ = ["SqliteLetters"]

T = TypeVar("T")

APPLICATION_ID: Final = 0x4C455454
"""What a file of letters says it is ("LETT"), so that letters never get into somebody else's database."""
BUSY_TIMEOUT_S: Final = 5.0
LETTER_BYTES_MAX: Final = 900_000_000
"""SQLite refuses values of 1,000,000,000 bytes unless it was built otherwise."""

_SCHEMA: Final = """
CREATE TABLE letters (
    "group" TEXT NOT NULL,
    id TEXT NOT NULL,
    time_s REAL NOT NULL,
    letter TEXT NOT NULL,
    PRIMARY KEY ("group", id)
)
"""


class SqliteLetters:
    """A `LetterBox` in one SQLite file."""

    def __init__(self, path: str | Path, *, makes: bool = True) -> None:
        """
        Name the file.

        Args:
            path: Where it is.
            makes: Whether `open` makes it where it is not there.
        """
        self._path = Path(path).absolute()
        self._makes = makes

    @property
    def url(self) -> str:
        """See `LetterSink.url`."""
        return f"sqlite:{self._path}"

    async def open(self) -> None:
        """See `LetterSink.open`."""
        await self._in_thread(self._set_up)

    async def write(self, letter: Letter) -> None:
        """See `LetterSink.write`."""
        kept = fitted(letter, lambda each: len(to_json(each)), LETTER_BYTES_MAX)
        row = (kept.group, kept.id, kept.time_s, to_json(kept))
        await self._run(lambda db: db.execute("INSERT OR IGNORE INTO letters VALUES (?, ?, ?, ?)", row))

    async def read(self, *, group: str | None = None, letter_id: str | None = None, limit: int = 1000) -> Found:
        """See `LetterBox.read`."""
        query = (
            'SELECT rowid, letter FROM letters WHERE (?1 IS NULL OR "group" = ?1) AND (?2 IS NULL OR id = ?2) '
            "ORDER BY rowid LIMIT ?3"
        )
        rows: list[tuple[int, str]] = await self._run(
            lambda db: db.execute(query, (group, letter_id, limit + 1)).fetchall()
        )
        letters: list[Letter] = []
        unreadable: list[str] = []
        for row_id, text in rows[:limit]:
            try:
                letters.append(from_json(text))
            except ValueError as error:
                unreadable.append(f"{self.url}, row {row_id}: {error}")
        return Found(letters=tuple(letters), unreadable=tuple(unreadable), has_more=len(rows) > limit)

    async def remove(self, letters: Sequence[Letter]) -> None:
        """See `LetterBox.remove`."""
        names = [(letter.group, letter.id) for letter in letters]
        await self._run(lambda db: db.executemany('DELETE FROM letters WHERE "group" = ? AND id = ?', names))

    async def close(self) -> None:
        """See `LetterSink.close`."""

    async def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with closing(self._connect()) as db, db:
                return call(db)

        return await self._in_thread(run)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(call)
        except sqlite3.Error as error:
            raise LettersUnavailable(f"{self.url}: {error}; make room, or mend the file") from error

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S)
        # A letter must outlive a power cut: the record that it is about is done once it is written.
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _set_up(self) -> None:
        if not self._makes and not self._path.exists():
            raise NotThereError(f"{self.url} is not there; hosts make it, commands do not")
        try:
            with closing(self._connect()) as db:
                db.isolation_level = None
                db.execute("BEGIN IMMEDIATE")
                (found,) = db.execute("PRAGMA application_id").fetchone()
                (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if not tables:
                    db.execute(_SCHEMA)
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                elif found != APPLICATION_ID:
                    raise NotThereError(f"{self.url} is another database, not one of letters; name a file of its own")
                db.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise
            raise NotThereError(
                f"{self.url}: {error}; name a file that may be written, in a folder that is there"
            ) from error
