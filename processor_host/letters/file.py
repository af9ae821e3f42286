"""
Letters in a local file: JSON lines that are only ever appended to.

A letter is one line (`processor_host.letters.codec`), on the disk before `write` returns. Removing letters appends a
line too, which names them: whoever follows the file sees everything that happened. Processes and threads of one machine
may write and read at the same time, one after the other (`flock`). A line that a crash left unfinished is no letter:
its writer was never told that it is there.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TypeVar

import anyio

from processor_host.errors import NotThereError
from processor_host.letters.base import Found, Letter, LettersUnavailable
from processor_host.letters.codec import from_json, to_json

__all__ = ["FileLetters"]

T = TypeVar("T")

REMOVED: Final = "removed"
"""The one field of a line that takes letters away: a list of [group, id]."""
_REMOVING: Final = f'{{"{REMOVED}":'.encode("ascii")


class FileLetters:
    """A `LetterBox` in one file."""

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
        return f"file:{self._path}"

    async def open(self) -> None:
        """See `LetterSink.open`."""

        def attempt() -> None:
            if not self._makes and not self._path.exists():
                raise NotThereError(f"{self.url} is not there; hosts make it, commands do not")
            try:
                with self._path.open("ab"):
                    return
            except OSError as error:
                raise NotThereError(
                    f"{self.url}: {error.strerror}; name a file that may be written, in a folder that is there"
                ) from error

        await anyio.to_thread.run_sync(attempt)

    async def write(self, letter: Letter) -> None:
        """See `LetterSink.write`. A letter that is written twice stands there twice and is read once."""
        await self._in_thread(lambda: self._append(to_json(letter)))

    async def read(self, *, group: str | None = None, letter_id: str | None = None, limit: int = 1000) -> Found:
        """See `LetterBox.read`."""
        return await self._in_thread(lambda: self._read(group, letter_id, limit))

    async def remove(self, letters: Sequence[Letter]) -> None:
        """See `LetterBox.remove`."""
        names = [[letter.group, letter.id] for letter in letters]
        if names:
            await self._in_thread(lambda: self._append(json.dumps({REMOVED: names})))

    async def close(self) -> None:
        """See `LetterSink.close`."""

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            # Never abandoned: a line that is written in part would be one that nobody has been told of.
            return await anyio.to_thread.run_sync(call)
        except OSError as error:
            raise LettersUnavailable(f"{self.url}: {error.strerror}; make room, or mend the file") from error

    def _append(self, line: str) -> None:
        with self._locked("ab+", fcntl.LOCK_EX) as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    # What a crash left unfinished must not swallow this line.
                    file.write(b"\n")
            file.write(line.encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, group: str | None, letter_id: str | None, limit: int) -> Found:
        """First find out which lines count, then read those: payloads may be large, and most letters old."""
        places: dict[tuple[str, str], int] = {}
        unreadable: list[str] = []
        with self._locked("rb", fcntl.LOCK_SH) as file:
            for number, (place, line) in enumerate(_lines(file), 1):
                try:
                    if (removed := _removed(line)) is not None:
                        for name in removed:
                            places.pop(name, None)
                        continue
                    letter = from_json(line)
                except ValueError as error:
                    unreadable.append(f"{self.url}, line {number}: {error}")
                    continue
                if group in (None, letter.group) and letter_id in (None, letter.id):
                    places.setdefault((letter.group, letter.id), place)
            chosen = list(places.values())[:limit]
            letters = [from_json(_line_at(file, place)) for place in chosen]
        return Found(letters=tuple(letters), unreadable=tuple(unreadable), has_more=len(places) > len(letters))

    @contextmanager
    def _locked(self, mode: str, how: int) -> Iterator[IO[bytes]]:
        with self._path.open(mode) as file:
            fcntl.flock(file, how)
            yield file


def _removed(line: bytes) -> list[tuple[str, str]] | None:
    """The groups and ids that a line takes away; None where it does not."""
    if not line.startswith(_REMOVING):
        return None
    try:
        return [(str(group), str(name)) for group, name in json.loads(line)[REMOVED]]
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a list of [group, id]: {error}") from error


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    place = 0
    for line in file:
        if line.strip():
            yield place, line
        place += len(line)


def _line_at(file: IO[bytes], place: int) -> bytes:
    file.seek(place)
    return file.readline()
