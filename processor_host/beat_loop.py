"""
Where the beats of one host run: on a loop of their own where the store can serve two, else on the host's.

Puts `partitions.beating` and the watch of stalls together; knows no session. A host with a clock that was given to it
(a simulation) beats on the loop of everything else: a thread waits in real time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from partitions.beating import BeatPlace, OwnLoop, SameLoop
from partitions.clocks import Clock
from partitions.events import Event, OnEvent, tell
from partitions.stores.base import store_for_beats
from processor_host.events import BeatsNotApart
from processor_host.observed import ObservedStore
from processor_host.stalls import Aside, LoopWatch, Pulse, stack_of

__all__ = ["beat_place"]


@asynccontextmanager
async def beat_place(
    store: ObservedStore, *, clock: Clock, pulse: Pulse, limit_s: float, is_apart: bool, on_event: OnEvent
) -> AsyncIterator[BeatPlace]:
    """
    Watch the loop of the caller, and say where beats run; until the end of the body.

    Args:
        store: The host's store, open.
        clock: This host's clock.
        pulse: Where the host's code on that loop notes that it runs.
        limit_s: No more beats once the loop of the caller has been blocked for so long.
        is_apart: Beats run on a loop of their own, if the store can serve one.
        on_event: Gets what is told, on the loop of the caller, but for `LoopBlocked` and `BeatsHeld`, which come in
            a thread of their own.

    Raises:
        StoreUnavailable, StoreMisconfigured: the store cannot be opened for the beats.
    """
    aside = Aside(on_event).on_event
    watch = LoopWatch(clock, pulse=pulse, limit_s=limit_s, on_event=on_event, on_blocked=aside, stack_of=stack_of)
    own: OwnLoop | None = None
    if is_apart:
        if (for_beats := store_for_beats(store.inner)) is None:
            tell(on_event, BeatsNotApart(store=store.url))
        else:
            # What this store tells, it tells in the thread; `own` is there before anything does.
            observed = ObservedStore(for_beats, clock=clock.now_s, on_event=lambda event: _pass(own, on_event, event))
            own = OwnLoop(observed, is_shared=for_beats is store.inner, why_held=watch.why_held, beside=watch.watch)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.tick, name="stalls")
        try:
            if own is not None:
                await own.open()
            yield SameLoop(store) if own is None else own
        finally:
            if own is not None:
                await own.close()
            tasks.cancel_scope.cancel()


def _pass(own: OwnLoop | None, on_event: OnEvent, event: Event) -> None:
    assert own is not None  # No call is made before it is.
    own.tell(tell, on_event, event)
