"""
A partitioned, append-only stream in one SQLite file: many writing processes, many reading ones.

`LocalSource` is the reader's side (the contract of `partitions.sources.base`), `LocalStream` the writer's.
"""

from __future__ import annotations

from partitions.sources.local._append import Entry, hash_of
from partitions.sources.local._file import PARTITIONS_MAX
from partitions.sources.local._shape import Description, PartitionDescription
from partitions.sources.local._source import LocalReader, LocalSource
from partitions.sources.local._stream import Imported, LocalStream

__all__ = [
    "PARTITIONS_MAX",
    "Description",
    "Entry",
    "Imported",
    "LocalReader",
    "LocalSource",
    "LocalStream",
    "PartitionDescription",
    "hash_of",
]
