"""
Measures the SQLite store on this machine: `python -m tests.stores.bench_sqlite`. No test; it prints figures.

Each is taken with group commit and without. "flood": one process, 100 leases, each checkpointed as fast as answers
come. "busy": four processes, 40 checkpoints/s each, and in each of them one session that beats every 50 ms.
"flooded": the same beats, while every process checkpoints 100 leases as fast as it can.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio

from partitions.errors import StoreUnavailable
from partitions.stores.sqlite import TOGETHER_MAX, SqliteStore
from partitions.verbs import Applied, Create, SaveCheckpoint
from tests.builders import a_beat, a_lease, a_register, an_acquire

__all__: list[str] = []

FOR_S = 5.0
BEAT_EVERY_S = 0.05
LEASES = 100
PROCESSES = 4
CALL_TIMEOUT_S = 1.6


async def owned(store: SqliteStore, host: str, partition: str) -> None:
    """Others may flood the file already, so both are tried until they are answered."""
    for verb in (Create(partition=partition, position="0"), an_acquire(a_lease(partition), f"{host}:1")):
        while True:
            try:
                await store.submit("g", verb)
                break
            except StoreUnavailable:
                continue


async def checkpoint(store: SqliteStore, host: str, partition: str, seq: int) -> None:
    verb = SaveCheckpoint(partition=partition, owner=f"{host}:1", token=1, position=str(seq), seq=seq)
    assert isinstance(await store.submit("g", verb), Applied)


async def host_life(path: Path, host: str, *, together_max: int, checkpoints_per_s: float | None) -> list[float]:
    """One process: checkpoints at a rate (None: no pause) and beats; returns [done, unavailable, *beat latencies]."""
    store = SqliteStore(path, call_timeout_s=CALL_TIMEOUT_S, together_max=together_max)
    await store.open()
    await store.submit("g", a_register(f"{host}:1"))
    count = LEASES if checkpoints_per_s is None else 10
    for number in range(count):
        await owned(store, host, f"{host}-{number}")
    done = refused = 0
    beats: list[float] = []
    until_s = time.monotonic() + FOR_S

    async def keep_checkpointing(partition: str) -> None:
        nonlocal done, refused
        seq = 0
        while time.monotonic() < until_s:
            seq += 1
            try:
                await checkpoint(store, host, partition, seq)
                done += 1
            except StoreUnavailable:
                refused += 1
            if checkpoints_per_s is not None:
                await anyio.sleep(count / checkpoints_per_s)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(keep_checkpointing, f"{host}-{number}")
        while time.monotonic() < until_s:
            began_s = time.perf_counter()
            await store.submit("g", a_beat(f"{host}:1"))
            beats.append(time.perf_counter() - began_s)
            await anyio.sleep(BEAT_EVERY_S)
    await store.close()
    return [done, refused, *beats]


def life(path: Path, host: str, together_max: int, checkpoints_per_s: float | None) -> list[float]:
    live = partial(host_life, path, host, together_max=together_max, checkpoints_per_s=checkpoints_per_s)
    return anyio.run(live)


def shown(name: str, lives: list[list[float]]) -> None:
    beats = sorted(latency for life in lives for latency in life[2:])
    rate = sum(life[0] for life in lives) / FOR_S
    refused = sum(life[1] for life in lives)
    p50, p99, worst = beats[len(beats) // 2], beats[int(len(beats) * 0.99)], beats[-1]
    print(
        f"{name:<40} {rate:8.0f} checkpoints/s   beat p50 {p50 * 1e3:6.2f} ms  p99 {p99 * 1e3:6.2f} ms  "
        f"max {worst * 1e3:6.2f} ms  ({len(beats)} beats, {refused:.0f} checkpoints unavailable)"
    )


async def alone(folder: Path, together_max: int) -> None:
    """One caller, one checkpoint after the other: the latency that a quiet host sees."""
    store = SqliteStore(folder / "alone.db", together_max=together_max)
    await store.create()
    await store.open()
    await owned(store, "a", "p")
    began_s = time.perf_counter()
    for seq in range(1, 2001):
        await checkpoint(store, "a", "p", seq)
    print(f"{'one after the other, together ' + str(together_max):<40} {2000 / (time.perf_counter() - began_s):8.0f}")
    await store.delete()


def many(folder: Path, together_max: int, checkpoints_per_s: float | None) -> list[list[float]]:
    path = folder / "many.db"

    async def make() -> None:
        await SqliteStore(path).create()

    anyio.run(make)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(path), f"h{number}", str(together_max), str(checkpoints_per_s)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    lives = [[float(word) for word in process.communicate()[0].split()] for process in processes]
    anyio.run(SqliteStore(path).delete)
    return lives


def main() -> None:
    if len(sys.argv) > 1:
        path, host, together, rate = sys.argv[1:]
        print(*life(Path(path), host, int(together), None if rate == "None" else float(rate)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for together_max in (1, TOGETHER_MAX):
            anyio.run(alone, folder, together_max)
            anyio.run(SqliteStore(folder / "flood.db").create)
            shown(f"flood, 1 process, together {together_max}", [life(folder / "flood.db", "a", together_max, None)])
            anyio.run(SqliteStore(folder / "flood.db").delete)
            shown(f"busy, {PROCESSES} x 40/s, together {together_max}", many(folder, together_max, 40.0))
            shown(f"flooded, {PROCESSES} processes, together {together_max}", many(folder, together_max, None))


if __name__ == "__main__":
    main()
