"""Where a host's beats run, with a real thread and a main loop that is really blocked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import anyio

from partitions.clocks import BootClock
from partitions.events import Event
from partitions.stores.sqlite import SqliteStore
from processor_host.beat_loop import beat_place
from processor_host.events import LoopBlocked
from processor_host.observed import ObservedStore
from processor_host.stalls import Pulse

__all__: list[str] = []

PATIENCE_S = 30.0
"""For a thread that has only to run; a loaded machine may let it wait."""
BEAT_S = 0.001


async def test_beats_go_on_while_whoever_is_told_of_the_blocked_loop_hangs(tmp_path: Path) -> None:
    """A log whose reader is away hangs whoever writes to it: the main loop, and then who tells that it is blocked."""
    hangs, leave, beaten = threading.Event(), threading.Event(), threading.Semaphore(0)

    def on_event(event: Event) -> None:
        if isinstance(event, LoopBlocked):
            hangs.set()
            leave.wait(PATIENCE_S)

    async def beats() -> NoReturn:
        while True:
            beaten.release()
            await anyio.sleep(BEAT_S)

    clock = BootClock()
    store = ObservedStore(SqliteStore(tmp_path / "leases.db"), clock=clock.now_s, on_event=on_event)
    async with (
        beat_place(store, clock=clock, pulse=Pulse(), limit_s=60.0, is_apart=True, on_event=on_event) as place,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(place.run, beats)
        await anyio.sleep(BEAT_S)
        assert hangs.wait(PATIENCE_S)
        while beaten.acquire(blocking=False):
            pass
        beats_meanwhile = [beaten.acquire(timeout=PATIENCE_S / 3) for _ in range(3)]
        still_hangs = not leave.is_set()
        leave.set()
        tasks.cancel_scope.cancel()

    assert (beats_meanwhile, still_hangs) == ([True, True, True], True)
