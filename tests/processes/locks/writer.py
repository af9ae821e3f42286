"""
A holder of a lock that writes to PostgreSQL: `python -m tests.processes.locks.writer JSON`.

Knows no test. It writes once, freezes itself where it is told to, and writes once more without a look at its lease.
What became of each write it tells on its standard error, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import anyio
import psycopg

from partitions.locks import LockLease, Session
from partitions.sql import FenceRefused, SqlFence, fenced_update
from processor_host.urls import open_store

__all__ = ["FENCE", "LOCK"]

LOCK = "report"
FENCE = SqlFence(style="pyformat")


def tell(did: str, lease: LockLease) -> None:
    """Tell what became of a write."""
    print(json.dumps({"did": did, "token": lease.token}), file=sys.stderr, flush=True)


def write(base: psycopg.Connection[Any], lease: LockLease, host_id: str, *, freezes: bool = False) -> None:
    """Write in one transaction behind the fence, maybe standing still in the middle of it."""
    try:
        with base.transaction(), base.cursor() as cursor:
            FENCE.check(cursor.execute(*FENCE.raised_to(LOCK, lease.token)).rowcount, LOCK, lease.token)
            cursor.execute("INSERT INTO lines (host_id, token) VALUES (%s, %s)", (host_id, lease.token))
            if freezes:
                tell("frozen", lease)
                os.kill(os.getpid(), signal.SIGSTOP)
    except FenceRefused:
        tell("refused", lease)
    except psycopg.Error as error:
        tell(f"failed: {type(error).__name__}", lease)
    else:
        tell("wrote", lease)


def write_row(base: psycopg.Connection[Any], lease: LockLease, host_id: str) -> None:
    """Write one row that is its own fence."""
    statement = fenced_update("reports", {"writer": host_id}, {"id": 1}, token=lease.token)
    tell("row written" if base.execute(*statement).rowcount == 1 else "row refused", lease)


async def main(given: dict[str, Any]) -> None:
    """Acquire the lock, and write under it."""
    store = open_store(given["store"], call_timeout_s=5.0)
    await store.open()
    host_id = given["host_id"]
    session = Session(store, group="g", host_id=host_id, duration_s=given["duration_s"], poll_s=0.05)
    async with session, await session.acquire(LOCK, timeout_s=60.0) as lease:
        with psycopg.connect(given["conninfo"], autocommit=True) as base:
            write(base, lease, host_id, freezes=given["freezes"] == "inside a transaction")
            if not base.closed:
                write_row(base, lease, host_id)
            if given["freezes"] == "between two":
                tell("frozen", lease)
                os.kill(os.getpid(), signal.SIGSTOP)
                write(base, lease, host_id)
                write_row(base, lease, host_id)
    await store.close()


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
