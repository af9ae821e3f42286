"""
Whether what a user names is there: partitions of a stream, and places in them.

Knows no setting and no command; who asks says what was named where. Positions are opaque, so a place is tried by
reading from it, as a host would.
"""

from __future__ import annotations

from collections.abc import Iterable

from partitions.errors import SourceMisconfigured
from partitions.sources.base import Source

__all__ = ["fault_of_place", "listing_text"]

NAMED_MAX = 10
"""Partitions named in a message; a stream may have thousands."""


async def fault_of_place(source: Source, partition: str, position: str) -> str | None:
    """
    Say why a position is no place in a partition, as one behind its last record; None where a host can read from it.

    Args:
        source: An open source.
        partition: A listed one.
        position: The last record that counts as done, as a user wrote it.

    Raises:
        SourceUnavailable: the source does not answer for now.
    """
    reader = source.reader(partition, position)
    try:
        await reader.read(records_max=1, bytes_max=1, wait_s=0.0)
    except (SourceMisconfigured, ValueError) as error:
        return str(error)
    finally:
        await reader.close()
    return None


def listing_text(partitions: Iterable[str]) -> str:
    """Return names for a message: the first few, and how many more there are."""
    names = sorted(partitions)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
