"""
An example of a processor: counts flights and sums their distance per carrier, in a SQLite file of its own.

All hosts share the file. What a batch adds goes there in one transaction, with a note of each record, so that a record
that is handled again adds nothing; and under the fencing token, so that a host that has lost the partition adds nothing
either. `handled` is a log of every handling, for who wants to see orders and repeats.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from processor_host import Batch, PartitionProcessor
from processor_host.processor import ProcessorContext

__all__ = ["FILE", "PAUSE_S", "Carriers", "Sums", "lifespan"]

FILE: Final = "CARRIERS_FILE"
"""The environment variable that names the file."""
PAUSE_S: Final = "CARRIERS_PAUSE_S"
"""The one that says how long adding a batch takes beside, seconds on average, so that a test can act meanwhile."""

BUSY_S: Final = 20.0

TABLES: Final = """
CREATE TABLE IF NOT EXISTS carriers (carrier TEXT PRIMARY KEY, flights INTEGER, distance INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS done (partition TEXT, position TEXT, PRIMARY KEY (partition, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS terms (partition TEXT PRIMARY KEY, token INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS handled (
    n INTEGER PRIMARY KEY, partition TEXT, token INTEGER, position TEXT, flight INTEGER, host TEXT
);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """What of a record counts."""

    position: str
    number: int
    carrier: str
    distance: int


class Sums:
    """The file. Blocks its thread; may be shared by threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing that it has committed; a power cut is not what is tested.
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.executescript(TABLES)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def add(self, partition: str, token: int, host: str, flights: Sequence[Flight]) -> bool:
        """Add flights in one transaction; return False, adding nothing, where there was a higher token."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                is_owner = self._take_term(partition, token)
                if is_owner:
                    self._add(partition, token, host, flights)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        return is_owner

    def rows(self, statement: str) -> list[Any]:
        """Read."""
        with self._lock:
            return self._db.execute(statement).fetchall()

    def _take_term(self, partition: str, token: int) -> bool:
        (highest,) = self._db.execute("SELECT max(token) FROM terms WHERE partition = ?", (partition,)).fetchone()
        if highest is not None and highest > token:
            return False
        self._db.execute("INSERT OR REPLACE INTO terms VALUES (?, ?)", (partition, token))
        return True

    def _add(self, partition: str, token: int, host: str, flights: Sequence[Flight]) -> None:
        for flight in flights:
            self._db.execute(
                "INSERT INTO handled (partition, token, position, flight, host) VALUES (?, ?, ?, ?, ?)",
                (partition, token, flight.position, flight.number, host),
            )
            new = self._db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (partition, flight.position)).rowcount
            self._db.execute(
                "INSERT INTO carriers VALUES (?, ?, ?) ON CONFLICT DO UPDATE "
                "SET flights = flights + excluded.flights, distance = distance + excluded.distance",
                (flight.carrier, new, new * flight.distance),
            )


@asynccontextmanager
async def lifespan() -> AsyncIterator[Sums]:
    """Open the file once for a host."""
    sums = Sums(Path(os.environ[FILE]))
    try:
        yield sums
    finally:
        sums.close()


class Carriers(PartitionProcessor):
    """Adds each batch to the sums."""

    async def open(self, context: ProcessorContext) -> None:
        """Keep what is needed for every batch."""
        self._context = context
        self._pause_s = float(os.environ.get(PAUSE_S, "0"))

    async def process(self, batch: Batch) -> None:
        """Add a batch."""
        sums: Sums = self._context.resources
        flights = [flight_of(record.position, record.data) for record in batch]
        # Never in step with the other partitions.
        await anyio.sleep(self._pause_s * random.uniform(0.5, 1.5))
        add = partial(sums.add, batch.partition, batch.lease.token, self._context.host_id, flights)
        if not await anyio.to_thread.run_sync(add):
            raise RuntimeError(f"partition {batch.partition!r} has gone to another host")


def flight_of(position: str, data: bytes) -> Flight:
    values = json.loads(data)
    return Flight(position=position, number=values["id"], carrier=values["carrier"], distance=values["distance"])
