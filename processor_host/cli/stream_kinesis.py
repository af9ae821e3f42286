"""
`processor-host stream` on a stream of Kinesis: what its commands do there, each one run of an event loop.

Knows no terminal and no group. Imported only where a URL of Kinesis is given, for it loads the client of AWS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TypeVar

import anyio

from partitions.sources.kinesis import Imported, KinesisPlace, KinesisStream, ShardDescription, parse_url
from partitions.sources.local import Entry
from processor_host.errors import UserError

__all__ = ["append", "create", "deregister", "describe", "description_text", "import_entries", "merge", "split"]

T = TypeVar("T")


def create(url: str, shards: int) -> None:
    """Make the stream, and return when it can be used."""
    _run(url, lambda stream: stream.create(shards))


def import_entries(
    url: str, entries: Callable[[], Iterable[Entry]], *, name: str, progress: Callable[[int], None]
) -> Imported:
    """Put all entries; see `KinesisStream.import_entries`."""
    return _run(url, lambda stream: stream.import_entries(entries, name=name, progress=progress))


def append(url: str, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """Put a few entries, and return shard and sequence number of each."""
    return _run(url, lambda stream: stream.put(entries))


def describe(url: str) -> list[dict[str, object]]:
    """Return the shards as plain data."""
    return [asdict(shard) for shard in _run(url, lambda stream: stream.describe())]


def description_text(url: str) -> str:
    """Return the shards as a table."""
    shards: tuple[ShardDescription, ...] = _run(url, lambda stream: stream.describe())
    rows: list[tuple[str, ...]] = [("PARTITION", "STATE", "PARENTS", "KEY HASHES")]
    for each in shards:
        state = "closed" if each.closed else "open"
        rows.append((each.shard, state, ",".join(each.parents) or "-", f"{each.hash_low:032x}-{each.hash_high:032x}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def split(url: str, shard: str) -> tuple[str, ...]:
    """Split a shard into halves, and return its children."""
    return _run(url, lambda stream: stream.split(shard))


def merge(url: str, first: str, second: str) -> tuple[str, ...]:
    """Merge two neighbours, and return their child."""
    return _run(url, lambda stream: stream.merge(first, second))


def deregister(url: str) -> str:
    """
    Remove the consumer that the URL names, and return its name.

    Raises:
        UserError: the URL names none, or there is no such consumer.
    """
    consumer = _place(url).consumer
    if consumer is None:
        raise UserError(f"{url!r} names no consumer; add mode=fanout&consumer=NAME")
    if not _run(url, lambda stream: stream.deregister(consumer)):
        raise UserError(f"{url!r}: the stream has no consumer {consumer!r}")
    return consumer


def _place(url: str) -> KinesisPlace:
    try:
        return parse_url(url)
    except ValueError as error:
        raise UserError(f"{url!r}: {error}") from error


def _run(url: str, do: Callable[[KinesisStream], Awaitable[T]]) -> T:
    place = _place(url)
    if len(place.streams) != 1:
        raise UserError(f"{url!r} names {len(place.streams)} streams; name the one that is meant")

    async def run() -> T:
        async with KinesisStream(place) as stream:
            return await do(stream)

    return anyio.run(run)
