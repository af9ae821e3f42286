"""
Register, beat, leave: the writes that keep one session's item alive, and what their answers mean.

Writes the session's table (`partitions.table`); knows no lease and no plan. `partitions.sessions` owns one of these.

- **Count from before sending** (rule 1). `valid_until_s` is the moment the last successful beat was *sent* plus the
  duration, less the drift: others count from when they saw the beat, which is later. A register counts as a beat, dated
  from its first sending, because any of its tries may be the one that was applied.
- **Beats are sequential** (rule 3). The answer of an abandoned beat is never seen, and one that arrives after the end
  is ignored: losing a session is final (rule 4).
- **Each ask has a deadline** (rule 10), counted from the sending of the last successful beat that did not show it,
  because the ask was written after that beat was applied.
- **A beat removes exact ask keys**, only those it was shown, and only once their term is over (rule 11).

`run` belongs to the beats' loop, everything else to the session's (`partitions.beating`): from `run`, the table is
written at once, and the session's loop is told of it after that (rule 16).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import anyio

from partitions.beating import BeatPlace
from partitions.clocks import CLOCK_DRIFT, Clock, wait_until
from partitions.errors import StoreError, StoreMisconfigured, StoreUnavailable
from partitions.events import BeatAnswered, BeatFailed, Event, OnEvent, tell
from partitions.items import Known, SessionItem
from partitions.retries import Waits, call
from partitions.stores.base import Store
from partitions.table import IsOpen, SessionTable
from partitions.verbs import Applied, Beat, Leave, Register, Result, SessionVerb

__all__ = ["DRAIN_BEAT_S", "Beats", "Pace"]

DRAIN_BEAT_S = 1.0
"""A draining session beats at least this often, because each beat shows it the asks that it waits for."""

LEAVES_MAX = 3
"""Tries of the last write; after that the others fence the session once its duration is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The times of a session, seconds. `duration_s` and `handoff_s` stand in its item and never change."""

    duration_s: float
    handoff_s: float
    beat_interval_s: float
    call_timeout_s: float


class Beats:
    """
    Keeps the item of one session alive.

    Attributes:
        drain_asked: Set once an operator has asked this host to drain.
        moved: Set, and replaced by whoever waits for it, whenever the table or the count of answered beats changed.
        has_beaten: A beat was answered in time; the register alone does not count.
        denied: Why the last beat failed, where no retry helps; None after an answer, and where one may help.
        told_sick: How many beats in a row that told the others `sick` were answered.
    """

    def __init__(
        self,
        registration: Register,
        *,
        store: Store,
        place: BeatPlace,
        group: str,
        clock: Clock,
        random: Random,
        pace: Pace,
        table: SessionTable,
        is_open: IsOpen,
        on_ask: Callable[[str, str], None],
        owned: Callable[[], int],
        on_event: OnEvent | None,
    ) -> None:
        self.drain_asked = anyio.Event()
        self.moved = anyio.Event()
        self.has_beaten = False
        self.denied: StoreMisconfigured | None = None
        self.draining = registration.draining
        self.known: Known | None = None
        self.load = 0.0
        self.sick = False
        self.told_sick = 0
        self._registration = registration
        self._session_id = registration.session_id
        self._store = store
        self._place = place
        self._group = group
        self._clock = clock
        self._random = random
        self._pace = pace
        self._table = table
        self._is_open = is_open
        self._on_ask = on_ask
        self._owned = owned
        self._on_event = on_event
        self._waits = Waits(first_s=pace.call_timeout_s / 8, most_s=pace.call_timeout_s)
        self._hurry = anyio.Event()
        self._is_over = False
        self._last_sent_s = -math.inf
        """When the last successful beat was sent; the register counts as one."""
        self._sent = 0
        self._answered_to = 0
        """The number of the last beat sent that was answered in time."""

    def hurry(self) -> None:
        """Send the next beat at once."""
        self._place.reach(self._set_hurry)

    def close(self) -> None:
        """Beat no more; an answer that is still on its way is ignored."""
        self._is_over = True
        self.hurry()
        self.moved.set()

    def is_over(self) -> bool:
        """Say whether `close` was called."""
        return self._is_over

    async def renew(self) -> None:
        """Beat now; return once a beat sent after this call is answered, or the session is over."""
        wanted = self._sent + 1
        self.hurry()
        while not self._is_over and self._answered_to < wanted:
            await self.moved.wait()

    async def register(self) -> bool:
        """
        Make the session's item, trying again for as long as an answer could still be of use.

        Returns:
            True if the session lives; False if no try was answered in time.

        Raises:
            StoreMisconfigured: no retry helps.
        """
        first_sent_s = self._clock.now_s()
        until_s = first_sent_s + self._validity_s
        attempt = 0
        while (left_s := until_s - self._clock.now_s()) > 0:
            attempt += 1
            try:
                result = await self._call(self._store, self._registration, min(self._pace.call_timeout_s, left_s))
            except StoreUnavailable as error:
                tell(self._on_event, self._failed(error, attempt, until_s))
                await anyio.sleep(self._wait_s(attempt, until_s))
                continue
            # A session id is never used twice, so an item that is there already is one's own earlier try.
            item = result.item if isinstance(result, Applied) else result.current
            if item is None or self._clock.now_s() >= until_s:
                return False
            self._last_sent_s = first_sent_s
            self._told_of(item, self._take(item, first_sent_s))
            return True
        return False

    async def run(self) -> str:
        """Beat until the session is over; return why, for people."""
        attempt = 0
        next_s = self._last_sent_s + self._pace.beat_interval_s
        while True:
            await wait_until(self._clock, min(next_s, self._table.valid_until_s), self._hurry)
            self._hurry = anyio.Event()
            sent_s = self._clock.now_s()
            if self.is_over():
                return "it was ended"
            if sent_s >= self._table.valid_until_s:
                why = self._place.why_held() or self.denied
                return "its duration ran out before a beat was answered" + (f": {why}" if why else "")
            if self._place.why_held() is not None:
                # Looked at again soon: whoever is back may still have a session to save.
                next_s = sent_s + self._pace.call_timeout_s
                continue
            attempt += 1
            self._sent += 1
            number = self._sent
            beat = self._next()
            try:
                timeout_s = min(self._pace.call_timeout_s, self._table.valid_until_s - sent_s)
                result = await self._call(self._place.store, beat, timeout_s)
            except StoreError as error:
                # Also where no retry helps: rights that are being changed must not cost a session that still holds.
                self.denied = error if isinstance(error, StoreMisconfigured) else None
                self._tell(self._failed(error, attempt, self._table.valid_until_s))
                next_s = self._clock.now_s() + self._wait_s(attempt, self._table.valid_until_s)
                continue
            answered_s = self._clock.now_s()
            self.denied = None
            if self.is_over():
                return "it was ended"
            if answered_s >= self._table.valid_until_s:
                return "a beat was answered after its duration had run out"
            item = result.item if isinstance(result, Applied) else None
            if item is None:
                return "its item is gone: another host saw it dead and fenced it"
            new = self._take(item, sent_s)
            self._answered_to = number
            self.told_sick = self.told_sick + 1 if beat.sick else 0
            self.has_beaten = True
            self._place.tell(self._told_of, item, new)
            latency_s = answered_s - sent_s
            self._tell(BeatAnswered(session_id=self._session_id, beat=item.beat, latency_s=latency_s, attempt=attempt))
            attempt = 0
            next_s = sent_s + self._interval_s

    async def leave(self) -> bool:
        """
        Delete the session's item, with few tries; the others fence what is left.

        Shielded from cancellation.

        Returns:
            True if the store is known to have no such item.
        """
        with anyio.CancelScope(shield=True):
            for attempt in range(1, LEAVES_MAX + 1):
                try:
                    await self._call(self._store, Leave(session_id=self._session_id), self._pace.call_timeout_s)
                except StoreError:
                    if attempt < LEAVES_MAX:
                        await anyio.sleep(self._waits.after(attempt, self._random))
                else:
                    return True
        return False

    @property
    def _validity_s(self) -> float:
        return self._pace.duration_s * (1 - CLOCK_DRIFT)

    @property
    def _interval_s(self) -> float:
        interval_s = self._pace.beat_interval_s
        return min(interval_s, DRAIN_BEAT_S) if self.draining else interval_s

    def _next(self) -> Beat:
        return Beat(
            session_id=self._session_id,
            owned=self._owned(),
            load=self.load,
            draining=self.draining,
            known=self.known,
            sick=self.sick,
            handled=self._table.handled(self._is_open),
        )

    def _take(self, item: SessionItem, sent_s: float) -> tuple[str, ...]:
        """Write the answer of a beat or register that was sent at `sent_s` into the table; return the new asks."""
        previous_sent_s, self._last_sent_s = self._last_sent_s, sent_s
        new = self._table.show(item.asks, previous_sent_s + self._pace.handoff_s * (1 - CLOCK_DRIFT))
        self._table.extend(sent_s + self._validity_s)
        self._table.forget(self._is_open)
        return new

    def _told_of(self, item: SessionItem, new: tuple[str, ...]) -> None:
        """Pass on what an answer brought, once it is in the table (rule 16)."""
        for key in new:
            self._on_ask(key, item.asks[key])
        if item.drain_asked:
            self.drain_asked.set()
        self.moved.set()

    def _failed(self, error: StoreError, attempt: int, until_s: float) -> BeatFailed:
        left_s = max(0.0, until_s - self._clock.now_s())
        return BeatFailed(session_id=self._session_id, error=str(error), attempt=attempt, left_s=left_s)

    def _wait_s(self, attempt: int, until_s: float) -> float:
        """Return how long to wait after a call that failed."""
        return min(max(0.0, until_s - self._clock.now_s()), self._waits.after(attempt, self._random))

    def _set_hurry(self) -> None:
        self._hurry.set()

    def _tell(self, event: Event) -> None:
        self._place.tell(tell, self._on_event, event)

    async def _call(self, store: Store, verb: SessionVerb, timeout_s: float) -> Result[SessionItem]:
        return await call(lambda: store.submit(self._group, verb), timeout_s)
