"""
Records from a file of lines, each one JSON object: `stream import`.

Knows no stream. What is wrong with a line or a file is said with the file's name, the line's number and the remedy.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from partitions.sources.local import Entry
from processor_host.errors import UserError

__all__ = ["LINE_BYTES_MAX", "Lines", "entries_of", "opened"]

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A longer line is taken for a file that has no lines."""

_GZIP: Final = b"\x1f\x8b"
_SPOOL_BYTES: Final = 64 * 1024 * 1024
"""Of what comes through a pipe this much is kept in memory, the rest in a temporary file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """An open file of lines."""

    name: str
    """As the user named it, for messages."""
    unpacked: IO[bytes]
    packed: IO[bytes]
    """The file itself, of which `unpacked` is read; its place shows how far the reading is."""
    size: int
    """Bytes of the file itself."""


@contextmanager
def opened(name: str) -> Iterator[Lines]:
    """
    Open a file of lines, packed with gzip or plain; "-" is the standard input.

    What is not a regular file is read to its end first: a slow pipe must not hold up other writers of the stream.

    Raises:
        UserError: it is not there, not readable, or is named like a gzip file and is none.
    """
    shown = "standard input" if name == "-" else name
    with _packed(name) as packed:
        size = packed.seek(0, os.SEEK_END)
        packed.seek(0)
        magic = packed.read(len(_GZIP))
        packed.seek(0)
        if name.endswith(".gz") and magic != _GZIP:
            raise UserError(f"{shown}: not a gzip file, though its name says so; rename it, or fetch it again")
        if magic != _GZIP:
            yield Lines(name=shown, unpacked=packed, packed=packed, size=size)
            return
        with gzip.GzipFile(fileobj=packed, mode="rb") as unpacked:
            yield Lines(name=shown, unpacked=cast("IO[bytes]", unpacked), packed=packed, size=size)


def entries_of(
    lines: Lines, *, key: str | None, missing_key: str | None, skip: Callable[[str], None] | None
) -> Iterator[Entry]:
    """
    Give one entry for each line: its data are the line's bytes without the newline.

    Args:
        lines: The open file.
        key: The field whose text is the record's key; a number is taken as it is written. None for no keys.
        missing_key: The key of lines where the field is absent or null.
        skip: Called with what is wrong with a line that is then left out; None to raise it.

    Raises:
        UserError: a line is bad and not to be skipped, a key is missing, or the gzip file is broken.
    """
    # Numbers stay as they are written: as keys they are text, and a long one must not lose digits.
    decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_json).decode
    for number, line in enumerate(_raw_lines(lines), 1):
        at = f"{lines.name}, line {number}"
        try:
            found = _object(line, decode)
            of_key = None if key is None else _key(found, key)
        except _BadLineError as bad:
            if skip is None:
                _read_on(lines)
                raise UserError(
                    f"{at}: {bad}; mend the line, or leave out bad lines with --skip-bad; nothing was imported"
                ) from None
            skip(f"{at}: {bad}")
            continue
        if of_key is None and key is not None:
            if missing_key is None:
                _read_on(lines)
                what = "is null" if key in found else "is absent"
                raise UserError(
                    f"{at}: the key field {key!r} {what}; name another one with --key, "
                    "or give such lines a key with --missing-key VALUE; nothing was imported"
                )
            of_key = missing_key
        yield Entry(data=line, key=of_key)


class _BadLineError(Exception):
    """What is wrong with a line."""


def _raw_lines(lines: Lines) -> Iterator[bytes]:
    try:
        while line := lines.unpacked.readline(LINE_BYTES_MAX + 1):
            whole = line
            while len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                # The rest of an endless line is passed over, so that the next one has its right number.
                line = lines.unpacked.readline(LINE_BYTES_MAX + 1)
            yield whole.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{lines.name}: broken gzip file ({str(error).rstrip('.')}); fetch or pack it again; nothing was imported"
        ) from error


def _read_on(lines: Lines) -> None:
    """
    Read a gzip file to its end, where it says whether it is whole.

    Raises:
        UserError: it is broken: then the lines that came out of it are not what somebody wrote, and not to be mended.
    """
    if lines.unpacked is not lines.packed:
        for _ in _raw_lines(lines):
            pass


def _object(line: bytes, decode: Callable[[str], object]) -> dict[str, object]:
    if len(line) > LINE_BYTES_MAX:
        raise _BadLineError(f"longer than {LINE_BYTES_MAX} bytes; expected one JSON object a line")
    try:
        found = decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _BadLineError(f"not UTF-8 (byte {error.start + 1}); expected one JSON object a line") from error
    except json.JSONDecodeError as error:
        what = "empty" if not line.strip() else f"not JSON ({error.msg} at column {error.colno})"
        raise _BadLineError(f"{what}; expected one JSON object a line") from error
    except (ValueError, RecursionError) as error:
        raise _BadLineError(f"not JSON ({error}); expected one JSON object a line") from error
    if not isinstance(found, dict):
        raise _BadLineError(f"JSON but no object ({line[:40].decode('utf-8', 'replace')!r}); expected {{…}}")
    return found


def _key(found: dict[str, object], key: str) -> str | None:
    match found.get(key):
        case None:
            return None
        case bool(value):
            return "true" if value else "false"
        case str(value) if not any("\ud800" <= each <= "\udfff" for each in value):
            return value
        case str(value):
            raise _BadLineError(f"the key field {key!r} has half a surrogate pair in it, which is no text")
        case _:
            raise _BadLineError(f"the key field {key!r} is a list or an object; expected text or a number")


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")


@contextmanager
def _packed(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        with _spooled(sys.stdin.buffer) as spool:
            yield spool
        return
    with _open(name) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield file
            return
        with _spooled(file) as spool:
            yield spool


def _open(name: str) -> IO[bytes]:
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; name a file of lines, or - for the standard input") from error


@contextmanager
def _spooled(pipe: IO[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
        shutil.copyfileobj(pipe, spool)
        yield cast("IO[bytes]", spool)
