"""
The balancer: looks at the group every interval, plans for all and acts for this host.

A thin loop around pure decisions: `partitions.liveness` (whom to fence), `processor_host.reads` (when to read the
leases), `partitions.planner` (who should own what) and `processor_host.steps` (what of that is this host's to do).

The order of reads is a rule (13): leases first, sessions second and strongly consistent. A session registers before it
acquires, so an owner that is missing from the later read is gone.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

import anyio

from partitions.clocks import wait_until
from partitions.errors import StoreError
from partitions.events import EndReason, Event, SessionFenced, tell
from partitions.items import LeaseItem, SessionItem, known_of
from partitions.leases import Lease
from partitions.liveness import LiveView, expired, observe, observe_one
from partitions.retries import call
from partitions.sessions import Session
from partitions.verbs import Applied, Fence
from partitions.weights import LoadRule, load_rule_of
from processor_host.asker import Asker
from processor_host.balancer_parts import BalancerParts
from processor_host.delays import Comings, Delays, note_sessions
from processor_host.discovery import GroupView, lacks_a_parent
from processor_host.events import PlanRound, RoundFailed
from processor_host.looks import next_look_s
from processor_host.news import GroupNews
from processor_host.outlook import Outlook, has_target_besides, outlook_of
from processor_host.reads import Evidence, ReadState, due, is_news, note_round, read_done
from processor_host.steps import AcquireStep, Steps, steps_of

__all__ = ["Balancer", "BalancerParts"]

READ_CALLS = 4  # Call time-outs that a read may take: it has many pages, and holds up nothing but the next round.


class Balancer:
    """
    Keeps one host's share of the leases, through all of its sessions.

    Attributes:
        leases: All leases of the group as last read, by partition, with what this host has since written itself.
        sessions: All sessions as last read.
    """

    def __init__(self, parts: BalancerParts) -> None:
        self.leases: dict[str, LeaseItem] = {}
        self.sessions: tuple[SessionItem, ...] = ()
        self._parts = parts
        self._view = LiveView.empty()
        self._reads = ReadState()
        self._leases_read_s = -math.inf
        self._reads_wanted = 0
        self._reads_done = 0
        """How many of the reads that were wanted are answered."""
        self._acts_first = False
        self._outlook: Outlook | None = None
        """None before the first read."""
        self._comings = Comings()
        settings = parts.settings
        self._delays = Delays(steal_delay_s=settings.steal_delay_s, rejoin_grace_s=settings.rejoin_grace_s)
        self._load: LoadRule | None = None
        self._poked = anyio.Event()
        self._news = GroupNews(parts.on_event)

    def read_anew(self) -> None:
        """Begin the next round at once, with a read of the leases: something in them is known to have changed."""
        self._reads_wanted += 1
        self._poked.set()

    async def run(self, session: Session) -> None:
        """Balance for one session, until cancelled."""
        self._reads = ReadState()
        asker = Asker(
            session,
            store=self._parts.store,
            group=self._parts.group,
            clock=self._parts.clock,
            call_timeout_s=self._parts.call_timeout_s,
            on_over=self.read_anew,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asker.run, self._parts.on_lease, name=f"asker {session.session_id}")
            tasks.start_soon(
                self._parts.discovery.run,
                session.session_id,
                lambda: GroupView(leases=self.leases, sessions=self.sessions),
                self._source_listed,
                name=f"discovery {session.session_id}",
            )
            while True:
                began_s = self._parts.clock.now_s()
                self._poked = anyio.Event()
                try:
                    await self._round(session, asker)
                    self._parts.on_round()
                except StoreError as error:
                    self._tell(RoundFailed(error=str(error)))
                self._parts.on_try()
                next_s = next_look_s(
                    self._view,
                    began_s=began_s,
                    now_s=self._parts.clock.now_s(),
                    interval_s=self._parts.interval_s,
                    besides=session.session_id,
                )
                await wait_until(self._parts.clock, next_s, self._poked)

    # --- One round --------------------------------------------------------------------------------------------------

    async def _round(self, session: Session, asker: Asker) -> None:
        began_s = self._parts.clock.now_s()
        reason = await self._reason_to_read(session)
        if reason is not None:
            await self._read_all(session)
        assert self._outlook is not None  # The first reason is that there is none.
        steps = steps_of(
            self._outlook.plan,
            self.leases.values(),
            self.sessions,
            session_id=session.session_id,
            is_busy=session.is_busy,
            waiting=self._outlook.waiting,
        )
        acquired, asked = await self._do(steps, session, asker)
        self._publish(session)
        self._tell_of(session, acquired, asked, reason, began_s)

    async def _reason_to_read(self, session: Session) -> str | None:
        """Read what is cheap, and say why all leases must be read; None if they need not."""
        parts = self._parts
        if self._reads.signature is None:
            return "first"
        await self._look_at_sessions(session, consistent=False)
        evidence = self._evidence(session)
        self._reads = note_round(self._reads, evidence)
        acts_first, self._acts_first = self._acts_first, False
        if self._reads_wanted > self._reads_done:
            return "partitions changed"
        if acts_first:
            return None
        return due(self._reads, evidence, parts.clock.now_s(), audit_s=parts.settings.audit_interval_s)

    async def _read_all(self, session: Session) -> None:
        """Read leases, then sessions; end and resolve what the answers contradict."""
        parts = self._parts
        before = self.leases
        wanted = self._reads_wanted
        if self._reads.signature is None:
            group = await call(partial(parts.store.read_group, parts.group), parts.call_timeout_s)
            self._load = load_rule_of(group)
            parts.scales.weighed_by = None if group is None or self._load is None else group.weighed_by
        read = await call(lambda: parts.store.read_leases(parts.group), READ_CALLS * parts.call_timeout_s)
        read_s = parts.clock.now_s()
        leases = {item.partition: item for item in read}
        await self._end_missing(session, leases)
        session.compare(leases.values())
        await self._look_at_sessions(session, consistent=True)
        self.leases = leases
        self._leases_read_s = read_s
        self._reads_done = wanted
        self._publish(session)
        evidence = self._evidence(session)
        self._reads = read_done(
            self._reads,
            evidence,
            parts.clock.now_s(),
            mended=is_news(before, leases),
            interval_s=parts.interval_s,
            audit_s=parts.settings.audit_interval_s,
        )

    def _source_listed(self, is_new: bool) -> None:
        """Go on from a look of the discovery: leases may have been made, or parents found to be gone."""
        if is_new:
            self.read_anew()
        elif lacks_a_parent(self.leases):
            # Before the leases are read again, which would make them newer than the listing.
            self._acts_first = True
            self._poked.set()

    async def _end_missing(self, session: Session, leases: dict[str, LeaseItem]) -> None:
        """End the terms whose item is gone; a second, single read makes sure of it."""
        parts = self._parts
        for partition, lease in tuple(session.held.items()):
            if partition not in leases:
                item = await call(partial(parts.store.read_lease, parts.group, partition), parts.call_timeout_s)
                if item is None:
                    lease.end(EndReason.SEEN_TAKEN)
                else:
                    leases[partition] = item

    async def _look_at_sessions(self, session: Session, *, consistent: bool) -> None:
        """Read the sessions, note who has beaten, fence those seen dead and drop them."""
        parts = self._parts
        sessions = await call(
            lambda: parts.store.read_sessions(parts.group, consistent=consistent), READ_CALLS * parts.call_timeout_s
        )
        # Kept, because a look beside this one, as at a stop, may replace the view while a fence awaits its answer.
        view = self._view = observe(self._view, sessions, parts.clock.now_s())
        fenced: set[str] = set()
        for session_id, beat in expired(view, parts.clock.now_s(), besides=session.session_id):
            unchanged_s = parts.clock.now_s() - view.seen[session_id].since_s
            if session.is_valid and await self._fence(session_id, beat, unchanged_s, sessions):
                fenced.add(session_id)
        self.sessions = tuple(
            # One's own draining enters the plan at once, not only when a beat has published it.
            replace(item, draining=True) if item.session_id == session.session_id and session.draining else item
            for item in sessions
            if item.session_id not in fenced
        )
        self._comings = note_sessions(self._comings, self.sessions, parts.clock.now_s(), self._delays)

    async def _fence(self, session_id: str, beat: int, unchanged_s: float, sessions: Iterable[SessionItem]) -> bool:
        """Delete a session that was seen dead, on condition of the beat that was seen; say whether it is gone."""
        parts = self._parts
        fence = Fence(session_id=session_id, seen_beat=beat)
        result = await call(partial(parts.store.submit, parts.group, fence), parts.call_timeout_s)
        if isinstance(result, Applied):
            host_id = next(item.host_id for item in sessions if item.session_id == session_id)
            self._tell(SessionFenced(session_id=session_id, host_id=host_id, unchanged_s=unchanged_s))
            return True
        if result.current is None:
            return True
        self._view = observe_one(self._view, result.current, parts.clock.now_s())
        return False

    async def _do(self, steps: Steps, session: Session, asker: Asker) -> tuple[int, int]:
        """Take the steps side by side, within a bound; return how many leases were acquired and asked for."""
        acquired = 0
        asked = 0
        at_once = anyio.CapacityLimiter(self._parts.settings.acquires_at_once)

        async def acquire(step: AcquireStep) -> None:
            nonlocal acquired
            lease = await session.acquire(step.lease, reason=step.reason)
            if lease is not None:
                acquired += 1
                self.leases[lease.partition] = replace(
                    step.lease, owner=session.session_id, token=lease.token, seq=0, last_host=session.host_id
                )
                self._parts.on_lease(lease)

        async def ask(owner: SessionItem, leases: tuple[LeaseItem, ...]) -> None:
            nonlocal asked
            asked += await asker.ask(owner, leases)

        async def alone(step: Callable[[], Awaitable[None]]) -> None:
            async with at_once:
                try:
                    await step()
                except Exception as error:  # Containment: what is odd about one lease must not end the rounds of all.
                    self._tell(RoundFailed(error=_text_of(error)))

        owners = {item.session_id: item for item in self.sessions}
        for lease, owner in steps.follow:
            asker.follow((lease,), owner)
        async with anyio.create_task_group() as tasks:
            for step in steps.acquire:
                tasks.start_soon(alone, lambda step=step: acquire(step), name=f"acquire {step.lease.partition}")
            # Not while the processor of a term that has ended still runs: rather is it taken by force, later.
            for lease in (lease for lease in steps.give_back if lease.partition not in self._parts.running()):
                tasks.start_soon(alone, lambda lease=lease: session.give_back(lease), name=f"free {lease.partition}")
            for owner_id, leases in steps.ask.items():
                owner = owners[owner_id]
                tasks.start_soon(alone, lambda owner=owner, leases=leases: ask(owner, leases), name=f"ask {owner_id}")
        return acquired, asked

    def note_freed(self, lease: Lease, session_id: str) -> None:
        """Note that this host has freed a lease, so that its own next plan does not take it for a lost acquire."""
        item = self.leases.get(lease.partition)
        if item is not None and item.owner == session_id and item.token == lease.token:
            self.leases[lease.partition] = replace(item, owner=None)

    # --- What is known ----------------------------------------------------------------------------------------------

    def _evidence(self, session: Session) -> Evidence:
        """Plan with what is known now, and return what that shows."""
        self._outlook = outlook_of(
            self.leases.values(),
            self.sessions,
            session_id=session.session_id,
            held=len(session.held),
            listed=self._parts.discovery.listed_since(self._leases_read_s, self.leases),
            load=self._load,
            comings=self._comings,
            delays=self._delays,
            now_s=self._parts.clock.now_s(),
        )
        return self._outlook.evidence

    def _publish(self, session: Session) -> None:
        """Set what the next beats tell of the leases: those that were read, and what one's own weigh by now."""
        load = self._parts.scales.total(self._parts.clock.now_s())
        session.publish(known=known_of(self.leases.values()), load=load)

    def silent_s(self, session_id: str) -> float:
        """Return for how long a session that was read has not been seen to beat, seconds."""
        seen = self._view.seen.get(session_id)
        # The view may be of a later look than the sessions, while a fence of that look awaits its answer.
        return math.inf if seen is None else self._parts.clock.now_s() - seen.since_s

    def has_target_besides(self, session_id: str) -> bool:
        """Say whether some other session could take a lease, by the sessions as last read."""
        return has_target_besides(session_id, self.sessions)

    async def refresh_sessions(self, session: Session) -> None:
        """Read the sessions consistently, as before a stop."""
        await self._look_at_sessions(session, consistent=True)

    def _tell_of(self, session: Session, acquired: int, asked: int, reason: str | None, began_s: float) -> None:
        now_s = self._parts.clock.now_s()
        self._news.round_done(
            self.leases.values(),
            self.sessions,
            self._view,
            session_id=session.session_id,
            host_id=session.host_id,
            plannable=() if self._outlook is None else self._outlook.plan.targets,
            now_s=now_s,
        )
        if acquired or asked or reason is not None:
            self._tell(
                PlanRound(
                    leases=len(self.leases),
                    hosts=len(self.sessions),
                    acquired=acquired,
                    asked=asked,
                    full_read=reason,
                    duration_s=now_s - began_s,
                )
            )

    def _tell(self, event: Event) -> None:
        tell(self._parts.on_event, event)


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
