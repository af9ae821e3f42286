"""
Every kind of store that the suite is run against. To prove another store, add it to `KINDS`.

Knows no scenario.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from partitions.stores.base import Store
from partitions.stores.memory import MemoryStore
from partitions.stores.sqlite import SqliteStore

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of store: how to name one that nobody has made yet, in a folder of its own."""

    name: str
    absent: Callable[[Path], Awaitable[Store]]


async def _memory(_: Path) -> Store:
    store = MemoryStore()
    # It is there as soon as it is made.
    await store.delete()
    return store


async def _sqlite(folder: Path) -> Store:
    return SqliteStore(folder / "leases.db")


KINDS = (Kind(name="memory", absent=_memory), Kind(name="sqlite", absent=_sqlite))
