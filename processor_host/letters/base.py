"""
Dead letters: what is kept of a record that was given up, and the contract of whatever keeps it.

Knows no sink. A letter has everything that is needed to understand the failure and to handle the record later. Where a
record is larger than the sink takes, its payload is cut and the letter says where the source still has it.

Writing is at least once: a host that dies between the letter and the checkpoint writes the letter again. Within one
term its `id` stays the same, so a sink that can tell keeps one. A later term may write its own. Where the sink can join
the transactions of the lease store (`JoiningSink`), letter and checkpoint are stored together, and a letter is written
exactly once.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from partitions.errors import PartitionsError
from partitions.sources.base import Record

__all__ = [
    "Found",
    "JoiningSink",
    "Letter",
    "LetterBox",
    "LetterSink",
    "LettersUnavailable",
    "fitted",
    "letter_of",
    "record_of",
]

ERROR_CHARS_MAX: Final = 2_000
TRACEBACK_CHARS_MAX: Final = 16_000
"""The end of a traceback is kept, which names the place and the error."""

BASE64_BYTES: Final = 16
"""What the padding and a longer name of the field take beside the payload itself."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def _no_headers() -> Mapping[str, str]:
    return _NO_HEADERS


class LettersUnavailable(PartitionsError):
    """A sink did not answer, or not well; the letter may or may not be there. Try again with a growing wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One record that was given up."""

    group: str
    partition: str
    position: str
    after: str
    """The position before the record's own: a reader that starts there reads the record first."""
    key: str | None
    data: bytes
    """The payload, or its beginning where the sink takes no more."""
    data_bytes: int
    """Of the whole payload."""
    is_whole: bool = True
    """Whether `key`, `data` and `headers` are the record's; else something was cut, and only the source has it all."""
    headers: Mapping[str, str] = field(default_factory=_no_headers)
    record_time_s: float | None = None
    """When the record was written, on the source's clock."""
    source: str
    """How the host's user named the stream."""
    stage: str
    error: str
    traceback: str
    attempts: int
    host_id: str
    token: int
    """The fencing token of the term that gave it up."""
    time_s: float
    """When, on that host's wall clock, seconds since 1970; for people."""

    @property
    def id(self) -> str:
        """The letter's name within its group: the same for each try of one term to write it."""
        return f"{self.partition}@{self.token}/{self.position}"

    @property
    def pointer(self) -> str | None:
        """Where the whole record is, for as long as the source keeps it; None where the letter is whole."""
        if self.is_whole:
            return None
        return f"{self.source}, partition {self.partition}, the record after position {self.after}"


class LetterSink(Protocol):
    """
    Where letters go. A user may write one: `DeadLetter(MySink())`.

    A host opens it before its first term and closes it after the last. `write` may be called by several partitions at
    a time, and again for a letter that it has taken already. It is cancelled where the lease ends.
    """

    @property
    def url(self) -> str:
        """How a user names it, for messages."""
        ...

    async def open(self) -> None:
        """
        Connect; called once.

        Raises:
            NotThereError: it is not there or denied; the host does not start.
        """
        ...

    async def write(self, letter: Letter) -> None:
        """
        Keep the letter; once this returns, the record counts as done.

        Cuts what it cannot take (`fitted`). Whatever it raises, the letter counts as not written: the partition tries
        again after a growing pause.
        """
        ...

    async def close(self) -> None:
        """Let go of what `open` took. Twice does nothing."""
        ...


class JoiningSink(LetterSink, Protocol):
    """A sink whose letters can be a part of a transaction of the lease store, together with the checkpoint."""

    def joins(self, collector: object) -> bool:
        """Say whether it can write within the transaction that this collector of the lease store collects."""
        ...

    def join(self, collector: Any, letter: Letter) -> None:
        """Add the write of the letter to a transaction that it joins. Cuts what it cannot take."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a look into a sink brought."""

    letters: tuple[Letter, ...]
    """In the order in which they were written, as far as the sink knows it."""
    unreadable: tuple[str, ...] = ()
    """What stands there and is no letter, one line each."""
    has_more: bool = False
    """Whether it ended at the limit."""


class LetterBox(LetterSink, Protocol):
    """A sink that can be looked into, as by `processor-host dead-letters`."""

    async def read(self, *, group: str | None = None, letter_id: str | None = None, limit: int = 1000) -> Found:
        """
        Return letters that were not removed.

        Args:
            group: Only of this group.
            letter_id: Only with this id.
            limit: At most so many, at least 1.

        Raises:
            LettersUnavailable: it could not be read.
        """
        ...

    async def remove(self, letters: Sequence[Letter]) -> None:
        """
        Drop letters that `read` returned. Those that are gone already are no error.

        Raises:
            LettersUnavailable: some of them may still be there.
        """
        ...


def letter_of(
    record: Record,
    *,
    error: BaseException,
    stage: str,
    attempts: int,
    after: str,
    source: str,
    group: str,
    host_id: str,
    token: int,
    time_s: float,
) -> Letter:
    """Return the letter of a record that is given up; see `Letter` for the arguments."""
    # A user's `__str__` may raise; the letter must be written all the same.
    try:
        text = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
    except Exception:  # Containment: to tell of a failure must not be another one.
        text, trace = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
    return Letter(
        group=group,
        partition=record.partition,
        position=record.position,
        after=after,
        key=record.key,
        data=record.data,
        data_bytes=len(record.data),
        headers=record.headers,
        record_time_s=record.time_s,
        source=source,
        stage=stage,
        error=text[:ERROR_CHARS_MAX],
        traceback=trace[-TRACEBACK_CHARS_MAX:],
        attempts=attempts,
        host_id=host_id,
        token=token,
        time_s=time_s,
    )


def record_of(letter: Letter) -> Record:
    """
    Return the record of a whole letter.

    Raises:
        ValueError: the letter is not whole; read the record at its pointer.
    """
    if not letter.is_whole:
        raise ValueError(f"letter {letter.id!r} has {len(letter.data)} of {letter.data_bytes} bytes: {letter.pointer}")
    return Record(
        partition=letter.partition,
        position=letter.position,
        key=letter.key,
        data=letter.data,
        time_s=letter.record_time_s,
        headers=letter.headers,
    )


def fitted(letter: Letter, size_of: Callable[[Letter], int], bytes_max: int) -> Letter:
    """
    Return the letter, cut so that it takes at most `bytes_max`.

    The payload goes first, then the headers, the traceback and the key. The names of the record always stay.

    Args:
        letter: A whole one.
        size_of: How many bytes a letter takes in the sink.
        bytes_max: The sink's limit.

    Raises:
        ValueError: not even the bare letter fits.
    """
    if size_of(letter) <= bytes_max:
        return letter
    bare = replace(letter, data=b"", is_whole=False)
    if size_of(bare) > bytes_max:
        bare = replace(bare, headers=_NO_HEADERS, traceback=bare.traceback[-ERROR_CHARS_MAX:])
    if size_of(bare) > bytes_max:
        bare = replace(bare, key=None, traceback="", error=bare.error[:200])
    left = bytes_max - size_of(bare)
    if left < 0:
        raise ValueError(f"a letter for {letter.id!r} takes {size_of(bare)} bytes without payload, limit {bytes_max}")
    # Base64 takes four bytes for three, and pads the last ones; an escaped text may take more.
    count = max(0, left - BASE64_BYTES) * 3 // 4
    while size_of(kept := replace(bare, data=_beginning(letter.data, count))) > bytes_max:
        count = count * 3 // 4
    return kept


def _beginning(data: bytes, count: int) -> bytes:
    """At most so many bytes, cut between two characters where it is UTF-8, so that it stays a text."""
    for _ in range(3):
        if 0 < count < len(data) and data[count] & 0b1100_0000 == 0b1000_0000:
            count -= 1
    return data[:count]
