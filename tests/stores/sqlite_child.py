"""
What a process of its own does to a lease file: `python -m tests.stores.sqlite_child <what> <path> <name>`.

It waits for a line on its standard input before it begins, so that several begin at the same moment, and writes a line
for everything that the store has answered.
"""

from __future__ import annotations

import sys
from functools import partial

import anyio

from partitions.stores.sqlite import SqliteStore
from partitions.verbs import Applied, Create, SaveCheckpoint
from tests.builders import a_lease, a_register, an_acquire

__all__: list[str] = []

G = "group"
CALL_TIMEOUT_S = 30.0
CONTESTED = "contested"
ACQUIRES = 8
LEASES = 5


async def begin(store: SqliteStore, name: str) -> None:
    """Start as a host does, on a file that may not be there; then everybody goes for one lease."""
    if not await store.exists():
        await store.create()
    await store.open()
    await store.submit(G, a_register(f"{name}:1"))
    await store.submit(G, Create(partition=CONTESTED, position="@earliest"))
    free = a_lease(CONTESTED)
    won = 0
    for _ in range(ACQUIRES):
        won += isinstance(await store.submit(G, an_acquire(free, f"{name}:1")), Applied)
    print(won, flush=True)
    await store.close()


async def checkpoint(store: SqliteStore, name: str) -> None:
    """Checkpoint several leases until killed; write `<partition> <seq>` after each answer."""
    await store.open()

    async def keep(partition: str) -> None:
        await store.submit(G, Create(partition=partition, position="0"))
        await store.submit(G, an_acquire(a_lease(partition), f"{name}:1"))
        seq = 0
        while True:
            seq += 1
            verb = SaveCheckpoint(partition=partition, owner=f"{name}:1", token=1, position=str(seq), seq=seq)
            assert isinstance(await store.submit(G, verb), Applied)
            print(partition, seq, flush=True)

    async with anyio.create_task_group() as tasks:
        for number in range(LEASES):
            tasks.start_soon(keep, f"{name}-{number}")


def main() -> None:
    what, path, name = sys.argv[1:]
    sys.stdin.readline()
    store = SqliteStore(path, call_timeout_s=CALL_TIMEOUT_S)
    anyio.run(partial({"begin": begin, "checkpoint": checkpoint}[what], store, name))


if __name__ == "__main__":
    main()
