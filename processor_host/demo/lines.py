"""
The lines that the demo's processes write, and how they are read back: what happened, one JSON object a line.

Knows neither hosts nor verdict. Each process has a file of its own and appends each line with one write and without a
buffer, so that a SIGKILL loses at most the line being written. Such a line lacks its newline; only there may a reader
find something that it cannot read. Anything else that cannot be read is an error with file and line, because a verdict
that passes over what it does not understand could not fail.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_type_hints

__all__ = ["Act", "Birth", "JournalError", "Kill", "Line", "LineReader", "LineWriter", "Produced", "read_all"]


class Act(StrEnum):
    """What a host did."""

    OPENED = "opened"
    """A term began, or went on after a failure; `position` is where."""
    STARTED = "started"
    """The handling of the record at `position` began."""
    ENDED = "ended"
    """It was done."""
    CUT = "cut"
    """It was given up, as when its lease ended; somebody has to handle the record again."""
    CHECKPOINT = "checkpoint"
    """The store has `position` as the checkpoint of this term."""
    CLOSED = "closed"
    """The processor was closed; `reason` says why, `position` is the last record it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a host's journal."""

    act: Act
    partition: str
    token: int
    """The fencing token of the term."""
    position: str
    pid: int
    at_s: float
    """The machine's clock that counts suspend, seconds: the same for all processes."""
    reason: str = ""
    """Of `CLOSED`: the name of the `CloseReason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """One line of the producer's list: the stream answered that it has this record."""

    partition: str
    position: str
    at_s: float
    key: str = ""
    """Whose order is kept over partitions; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """A partition that is born of another one, by a split or a merge; one line for each parent."""

    partition: str
    parent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A host was killed by the demo."""

    pid: int
    at_s: float
    """Right before the signal was sent, seconds."""


class _Data(Protocol):
    """A dataclass of texts and numbers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T", bound=_Data)


class JournalError(ValueError):
    """A line that is not the last one cannot be read: its writer is broken, or the file was changed."""

    def __init__(self, path: Path, number: int, problem: str) -> None:
        self.path = path
        self.number = number
        self.problem = problem
        super().__init__(f"{path}, line {number}: {problem}; no verdict is possible on what cannot be read")


class LineWriter:
    """Appends lines to a file that only this process writes."""

    def __init__(self, path: Path) -> None:
        """Open the file; it is made where it is not there."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, *rows: _Data) -> None:
        """Append one line for each row; once this returns they outlive the process."""
        text = b"".join(json.dumps(asdict(row), separators=(",", ":")).encode() + b"\n" for row in rows)
        # A write may be short, as on a disk that is nearly full; the rest follows, or raises.
        while text:
            text = text[os.write(self._file, text) :]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


class LineReader(Generic[T]):
    """Reads a file of lines while it grows."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        """Name the file, which need not be there yet, and what each of its lines is."""
        self._path = path
        self._kind = kind
        self._at = 0
        self._number = 0
        self._rest = b""

    def read(self) -> list[T]:
        """
        Return the whole lines that were written since the last call.

        Raises:
            JournalError: one of them cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                read = file.read()
        except FileNotFoundError:
            return []
        self._at += len(read)
        *whole, self._rest = (self._rest + read).split(b"\n")
        return [self._decoded(line) for line in whole]

    def last(self) -> list[T]:
        """Return the line that lacks its newline if it is whole otherwise; to be called once the writer is gone."""
        try:
            return [_decode(self._kind, self._rest)] if self._rest else []
        except ValueError:
            return []

    def _decoded(self, line: bytes) -> T:
        self._number += 1
        try:
            return _decode(self._kind, line)
        except ValueError as error:
            raise JournalError(self._path, self._number, str(error)) from error


def read_all(path: Path, kind: type[T]) -> list[T]:
    """
    Return every line of a file whose writer is gone.

    Args:
        path: The file.
        kind: What each line is.

    Raises:
        JournalError: a line that has its newline cannot be read.
        OSError: the file cannot be read.
    """
    path.stat()
    reader = LineReader(path, kind)
    return reader.read() + reader.last()


def _decode(kind: type[T], line: bytes) -> T:
    """
    Return the row in a line.

    Raises:
        ValueError: it is none of that kind; also a `UnicodeDecodeError` or `JSONDecodeError`.
    """
    values = json.loads(line)
    hints = _hints_of(kind)
    if not isinstance(values, dict) or values.keys() != hints.keys():
        raise ValueError(f"expected an object with {', '.join(hints)}, found {values!r:.100}")
    return kind(**{name: _checked(name, hints[name], value) for name, value in values.items()})


@cache
def _hints_of(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _checked(name: str, hint: Any, value: Any) -> Any:
    """Return a value as its field holds it; a number must be one that can be compared."""
    if hint is Act and isinstance(value, str):
        return Act(value)
    if hint is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if hint is not float and type(value) is hint:
        return value
    raise ValueError(f"{name}={value!r:.60} is not of the kind {hint.__name__}")
