"""
One of many processes that count to a number under one lock.

Knows no test. It never looks whether its lease goes on: what it writes late, the counter has to refuse. It notes what
it does in a journal of its own, and does to itself, while it holds the lock, what it finds ordered: "freeze" or "kill".
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import anyio

from partitions.errors import LeaseLost
from partitions.locks import LockLease, Session
from processor_host.urls import open_store
from tests.processes.locks.counters import Counter, FileCounter, TableCounter
from tests.servers.raw import caller

# Whoever forks these processes has it loaded already: that takes longer than all the rest of a start.
import partitions.stores.dynamodb  # isort: skip  # noqa: F401

__all__ = ["LOCK", "ORDER", "contend"]

LOCK = "counting"
ORDER = "order"
"""The file of an order; whoever holds the lock takes it."""
ACQUIRE_S = 60.0

PR_SET_PDEATHSIG = 1  # Of prctl(2).


class Contender:
    """One process."""

    def __init__(self, given: dict[str, Any], counter: Counter) -> None:
        self._folder = Path(given["folder"])
        self._goal = int(given["goal"])
        self._writes_max = int(given["writes_max"])
        self._random = Random(given["seed"])
        self._counter = counter
        # Unbuffered, so that a kill loses no line that was written.
        self._journal = (self._folder / f"journal-{os.getpid()}").open("ab", buffering=0)

    async def run(self, session: Session) -> None:
        """Count until the goal is reached."""
        value = 0
        while value < self._goal:
            async with await session.acquire(LOCK, timeout_s=ACQUIRE_S) as lease:
                value = await self._term(lease)

    async def _term(self, lease: LockLease) -> int:
        entered = await self._counter.entered(lease)
        if entered is None:
            self._note("refused", lease, 0)
            return 0
        value = entered
        self._note("began", lease, value)
        count = min(self._random.randint(1, self._writes_max), self._goal - value)
        for written in range(count):
            if written == count // 2:
                self._obey(lease, value)
            if not await self._write(value + 1, lease, is_first=written == 0):
                self._note("refused", lease, value + 1)
                return value
            value += 1
            self._note("wrote", lease, value)
        return value

    async def _write(self, value: int, lease: LockLease, *, is_first: bool) -> bool:
        try:
            return await self._counter.write(value, lease, is_first=is_first)
        except LeaseLost:
            return False

    def _obey(self, lease: LockLease, value: int) -> None:
        order = self._folder / ORDER
        try:
            what = order.read_text()
            order.unlink()
        except FileNotFoundError:
            return
        self._note(what, lease, value)
        os.kill(os.getpid(), signal.SIGSTOP if what == "freeze" else signal.SIGKILL)

    def _note(self, act: str, lease: LockLease, value: int) -> None:
        self._journal.write(f"{act} {lease.token} {value}\n".encode())


async def main(given: dict[str, Any]) -> None:
    """Open what is named, and contend."""
    async with AsyncExitStack() as stack:
        store = open_store(given["store"], call_timeout_s=5.0)
        stack.push_async_callback(store.close)
        await store.open()
        counter: Counter
        if "file" in given:
            counter = FileCounter(Path(given["file"]))
        else:
            counter = TableCounter(await stack.enter_async_context(caller(given["endpoint_url"])), given["table"])
        session = await stack.enter_async_context(
            Session(
                store, group="g", host_id=given["host_id"], duration_s=given["duration_s"], poll_s=given["poll_s"]
            )
        )
        await Contender(given, counter).run(session)


def contend(given: dict[str, Any], env: Mapping[str, str], log: Path) -> None:
    """Be one of the processes: the target of a `multiprocessing.Process`, which dies with whoever forked it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.update(env)
    anyio.run(main, given)
