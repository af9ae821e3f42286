"""
What a play stands on: a stream for its records, a store for its leases, and a producer that fills the stream.

Knows neither hosts nor acts. `LocalGround` is two files in the folder of the play; the other kind, on servers that
speak the protocols of AWS, is `processor_host.demo.kinesis`, which is loaded only where it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from partitions.sources.local import LocalStream
from partitions.stores.base import Store
from partitions.stores.sqlite import SqliteStore
from processor_host.demo.folder import Folder

__all__ = ["Ground", "LocalGround", "Resharding"]


class Resharding(Protocol):
    """Changes the partitions of a stream while records flow."""

    async def split(self, partition: str) -> tuple[str, ...]:
        """Split a partition, and return its children."""
        ...

    async def neighbours(self) -> Sequence[tuple[str, str]]:
        """Return the pairs of open partitions that can be merged."""
        ...

    async def merge(self, first: str, second: str) -> tuple[str, ...]:
        """Merge two neighbours, and return their child."""
        ...


class Ground(Protocol):
    """A stream and a store that are made for one play."""

    @property
    def source_url(self) -> str:
        """The stream, as a host names it."""
        ...

    @property
    def store_url(self) -> str:
        """The store, as a host names it."""
        ...

    @property
    def resharding(self) -> Resharding | None:
        """What changes the partitions; None where they stay as they are."""
        ...

    async def make(self, partitions: int) -> Store:
        """Make the stream and the store, and return the store, not open yet."""
        ...

    def producer(self, rate: float) -> list[str]:
        """Return the command of the producer, which makes so many records a second."""
        ...


@dataclass(frozen=True, slots=True)
class LocalGround:
    """Two SQLite files."""

    folder: Folder

    @property
    def source_url(self) -> str:
        """See `Ground.source_url`."""
        return f"local://{self.folder.stream}"

    @property
    def store_url(self) -> str:
        """See `Ground.store_url`."""
        return f"sqlite://{self.folder.leases}"

    @property
    def resharding(self) -> Resharding | None:
        """None: the acts of this play leave the partitions alone."""
        return None

    async def make(self, partitions: int) -> Store:
        """See `Ground.make`."""
        LocalStream.create(self.folder.stream, partitions=partitions).close()
        store = SqliteStore(self.folder.leases)
        await store.create()
        return store

    def producer(self, rate: float) -> list[str]:
        """See `Ground.producer`."""
        command = [sys.executable, "-m", "processor_host.demo.producer"]
        return [*command, str(self.folder.stream), str(self.folder.produced), "--rate", str(rate)]
