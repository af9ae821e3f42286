"""
The session: one life of a host in its group, with every term it holds. It ends each term in time.

Uses a store and a clock; knows no plan and no processor. `run` does everything that waits: it beats
(`partitions.beats`), here or in a thread (`partitions.beating`), and watches the moments at which terms end.

- **At most one acquire per partition is on its way** (rule 8). A term is marked as held before its acquire is marked as
  answered (rule 16), so that an ask finds one or the other. An acquire whose answer was lost is never adopted.
- **Losing a session is final** (rule 4): every term ends, and the host goes on under a new id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from types import MappingProxyType

import anyio

from partitions.beating import BeatPlace, SameLoop
from partitions.beats import Beats, Pace
from partitions.clocks import Clock, wait_until
from partitions.events import (
    AcquireRefused,
    Event,
    LeaseAcquired,
    OnEvent,
    SessionBegan,
    SessionEnded,
    tell,
)
from partitions.held import HeldTerms
from partitions.items import Known, LeaseItem, Scalar
from partitions.leases import Lease
from partitions.liveness import may_have_died
from partitions.retries import call
from partitions.stores.base import Store
from partitions.table import SessionTable
from partitions.terms import Terms
from partitions.verbs import Acquire, Applied, Register, Release

__all__ = ["Session"]


class Session:
    """
    One life of a host in a group, from `register` to the end of `run`. Never used again after that.

    Attributes:
        session_id: `<host id>:<random>`.
        host_id: The stable name of the host.
        table: How long its terms may go on.
        has_left: The store is known to have no item of it.
    """

    def __init__(
        self,
        *,
        store: Store,
        group: str,
        host_id: str,
        session_id: str,
        clock: Clock,
        random: Random,
        pace: Pace,
        capacity: float = 1.0,
        max_leases: int | None = None,
        draining: bool = False,
        extra: Mapping[str, Scalar] = MappingProxyType({}),
        earlier: Collection[str] = (),
        place: BeatPlace | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """Name a session; nothing is sent. Its beats run in `place`, else on the loop of the caller."""
        self.session_id = session_id
        self.host_id = host_id
        self.table = SessionTable(clock)
        self._store = store
        self._place = SameLoop(store) if place is None else place
        self._group = group
        self._clock = clock
        self._call_timeout_s = pace.call_timeout_s
        self._on_event = on_event
        self._mine = frozenset((session_id, *earlier))
        """Ids of the sessions of this very process, which lives."""
        self._held = HeldTerms(session_id, self.table, on_event)
        self._over: str | None = None
        self._living = anyio.CancelScope()
        """Around everything that `run` does."""
        self.has_left = False
        self._beats = Beats(
            Register(
                session_id=session_id,
                host_id=host_id,
                duration_s=pace.duration_s,
                handoff_s=pace.handoff_s,
                capacity=capacity,
                max_leases=max_leases,
                draining=draining,
                extra=extra,
            ),
            store=store,
            place=self._place,
            group=group,
            clock=clock,
            random=random,
            pace=pace,
            table=self.table,
            is_open=self._held.is_open,
            on_ask=self._held.pass_on,
            owned=lambda: len(self._held.leases),
            on_event=on_event,
        )
        self._terms = Terms(
            store=store,
            group=group,
            session_id=session_id,
            clock=clock,
            random=random,
            table=self.table,
            call_timeout_s=pace.call_timeout_s,
            renew=self.renew,
            releasing=self._held.releasing,
            on_ended=self._held.ended,
            on_event=on_event,
        )

    @property
    def held(self) -> Mapping[str, Lease]:
        """The terms that go on here, by partition."""
        return self._held.leases

    @property
    def is_valid(self) -> bool:
        """Say whether the session lives at this moment, by its own clock."""
        return self._over is None and self._clock.now_s() < self.table.valid_until_s

    @property
    def draining(self) -> bool:
        """Say whether the session gives everything away."""
        return self._beats.draining

    @property
    def beats(self) -> Beats:
        """What keeps its item alive; it knows whether a beat was ever answered, and whether no retry helps."""
        return self._beats

    @property
    def drain_asked(self) -> anyio.Event:
        """Set once an operator has asked this host to drain."""
        return self._beats.drain_asked

    def drain(self) -> None:
        """Give everything away from here on: publish it at once, and beat more often to see the asks."""
        if not self._beats.draining:
            self._beats.draining = True
            self._beats.hurry()

    def publish(self, *, known: Known | None, load: float = 0.0) -> None:
        """Set what the next beats tell the others about the leases that this host last read; tell news at once."""
        before = self._beats.known
        self._beats.known = known
        self._beats.load = load
        # Who knows other leases than this reads them; until then the children of a partition that has ended may wait.
        # The first leases of all are no news: whoever starts reads them.
        if before is not None and before.count and known != before:
            self._beats.hurry()

    def publish_sick(self, is_sick: bool) -> None:
        """Set whether the next beats tell the others that everything fails here."""
        self._beats.sick = is_sick

    def is_busy(self, partition: str) -> bool:
        """Say whether a term of the partition goes on here, or an acquire or release of it waits for its answer."""
        return self._held.is_busy(partition)

    @property
    def is_over(self) -> bool:
        """Say whether the session has ended for good on this host."""
        return self._over is not None

    async def renew(self) -> bool:
        """
        Beat now.

        Returns:
            True once a beat sent after this call is answered; False if the session ended first.
        """
        await self._beats.renew()
        return self.is_valid

    async def register(self) -> bool:
        """
        Make the session's item, trying again for as long as an answer could still be of use.

        Returns:
            True if the session lives. False if no try was answered in time: `leave`, then take a new session id.

        Raises:
            StoreMisconfigured: no retry helps.
        """
        if not await self._beats.register():
            self._finish("it could not be registered in time", lost=True)
            return False
        self._tell(SessionBegan(session_id=self.session_id))
        return True

    async def run(self) -> str:
        """Beat until the session is over, and end every term in time; return why it is over, for people."""
        try:
            with self._living:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch, name=f"watch {self.session_id}")
                    self._finish(await self._place.run(self._beats.run), lost=True)
        finally:
            # Also when it is cancelled or fails: nothing may go on under a session that nobody keeps alive.
            self._finish("its loop was stopped", lost=True)
        return self._over or ""

    def end(self, reason: str) -> None:
        """End the session and every term here, and send nothing: the others fence it once its duration is over."""
        self._finish(reason, lost=True)

    def at_end(self, do: Callable[[], object]) -> None:
        """Call `do` once the session is over on this host, with its terms, before anybody else can know of it."""
        self._held.at_end(do)

    async def leave(self) -> bool:
        """
        End the session here, every term with it, then delete its item, so that others need not wait for its end.

        Shielded from cancellation. Also for a session that was lost.

        Returns:
            True if the store is known to have no such item.
        """
        self._finish("it left", lost=False)
        self.has_left = await self._beats.leave() or self.has_left
        return self.has_left

    async def acquire(self, seen: LeaseItem, *, reason: str) -> Lease | None:
        """
        Begin a term of a lease, on condition that it is as it was seen.

        Args:
            seen: The lease as it was read: free, of an owner that is gone, or one's own whose acquire was lost.
            reason: For people: why it is taken.

        Returns:
            The term; it may have ended already, where the answer was late. None where it was refused, or one is busy.

        Raises:
            StoreUnavailable: no answer; a snapshot will show what became of it (rule 8).
            StoreMisconfigured: no retry helps.
        """
        partition = seen.partition
        sent_s = self._clock.now_s()
        if self.is_busy(partition) or not self.is_valid:
            return None
        verb = Acquire(
            partition=partition,
            seen_owner=seen.owner,
            seen_token=seen.token,
            session_id=self.session_id,
            host_id=self.host_id,
            is_suspect=may_have_died(seen.owner, self._mine),
        )
        with self._held.acquiring(partition):
            result = await call(
                lambda: self._store.submit(self._group, verb),
                min(self._call_timeout_s, self.table.valid_until_s - sent_s),
            )
            lease = None
            if isinstance(result, Applied) and result.item is not None:
                lease = Lease(self._terms, result.item)
                self._held.begin(lease)
                self._beats.moved.set()
        if lease is None:
            current = None if isinstance(result, Applied) else result.current
            self._tell(
                AcquireRefused(
                    partition=partition,
                    seen_token=seen.token,
                    found_token=None if current is None else current.token,
                    found_owner=None if current is None else current.owner,
                )
            )
            return None
        duration_s = self._clock.now_s() - sent_s
        self._tell(
            LeaseAcquired(
                partition=partition,
                token=lease.token,
                reason=reason,
                previous_owner=seen.owner,
                position=lease.position,
                duration_s=duration_s,
            )
        )
        # Told first, so that every end is preceded by its beginning. The answer may have come too late (rule 5).
        if not lease.is_held():
            lease.end(lease.reason_of_time())
        return lease

    def compare(self, leases: Iterable[LeaseItem]) -> None:
        """End each term that a read of the store contradicts, and drain each that is paused."""
        self._held.compare(leases)

    async def give_back(self, seen: LeaseItem) -> None:
        """
        Release a lease that the store has as this session's but that is not held here: its acquire's answer was lost.

        Args:
            seen: The lease as it was read, with this session as its owner.

        Raises:
            StoreUnavailable: no answer; the next snapshot shows it again.
            StoreMisconfigured: no retry helps.
        """
        if self.is_busy(seen.partition) or seen.owner != self.session_id:
            return
        verb = Release(partition=seen.partition, owner=self.session_id, token=seen.token)
        self._held.releasing.add(seen.partition)
        try:
            await call(lambda: self._store.submit(self._group, verb), self._call_timeout_s)
        finally:
            self._held.releasing.discard(seen.partition)

    async def _watch(self) -> None:
        """End each term at its moment, whatever the beat is waiting for."""
        while True:
            if self._beats.moved.is_set():
                # Not replaced while unset: somebody else may be waiting on it.
                self._beats.moved = anyio.Event()
            await wait_until(self._clock, self._held.end_overdue(), self._beats.moved)

    def _finish(self, reason: str, *, lost: bool) -> None:
        """End everything of this session, once."""
        if self._over is not None:
            return
        self._over = reason
        self.table.close()
        self._held.end_all()
        self._beats.close()
        # A beat that is on its way is not waited for: a host that stops would hang on it for a whole time-out.
        self._living.cancel()
        self._tell(SessionEnded(session_id=self.session_id, reason=reason, lost=lost))

    def _tell(self, event: Event) -> None:
        tell(self._on_event, event)
