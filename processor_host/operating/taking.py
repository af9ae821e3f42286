"""
Take leases for a moment, under an operator's session, and do something with each: what reset and release are made of.

The operator is a host whose plan is what a person wants: its steps are those of a host (`processor_host.steps`), done
by the hosts' own session and asker. So an owner is asked and drains; force comes only after its whole hand-off time
(rule 14), an owner that died is fenced once it was watched for its duration (rule 12), and while the ask stands the
lease counts as the operator's: nobody snatches it.

A partition that is paused lets nobody acquire it. Once it is free the operator asks *itself* for it, so that it counts
as the operator's in every plan, resumes it, acquires it, and pauses it again under its own term. Only if the command
dies between the two is it left resumed, and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup

from partitions.clocks import CLOCK_DRIFT, wait_until
from partitions.errors import StoreUnavailable
from partitions.items import LeaseItem, SessionItem, ask_key
from partitions.leases import Lease
from partitions.liveness import LiveView, expired, observe
from partitions.planner import Plan
from partitions.rules import PAUSE_REASON
from partitions.sessions import Session
from partitions.verbs import Applied, Ask, Fence, Pause, Resume
from processor_host.asker import Asker
from processor_host.operating.operator import LOOK_S, Operator, Snapshot
from processor_host.steps import steps_of

__all__ = ["Work", "patience_of", "take"]

Work = Callable[[Lease], Awaitable[bool]]
"""Does what is to be done under a term and ends it; False where it is not sure that it is done: then once more."""

SPARE_S: Final = 5.0
"""Beyond what owners may take: for the calls themselves."""


def patience_of(partitions: Iterable[str], snapshot: Snapshot) -> float:
    """Return how long to wait for these partitions, seconds: twice what their owners may take, and some to spare."""
    owners = [snapshot.owner_of(snapshot.leases[name]) for name in partitions]
    return SPARE_S + 2 * max(
        ((each.handoff_s + each.duration_s) * (1 + CLOCK_DRIFT) for each in owners if each), default=0
    )


async def take(
    operator: Operator, session: Session, partitions: Iterable[str], work: Work, *, within_s: float
) -> frozenset[str]:
    """
    Take each of these leases and do `work` under the term.

    Args:
        operator: Who does it.
        session: A living session of the operator.
        partitions: Which; each has a lease that is not finished.
        work: Called once for each term; it must end it.
        within_s: How long to wait for owners.

    Returns:
        The partitions of which it is done.

    Raises:
        StoreMisconfigured: no retry helps.
    """
    return await _Taking(operator, session, partitions, work).run(within_s)


class _Taking:
    """One run of `take`. What is left and what is held is changed by its tasks only, between two awaits."""

    def __init__(self, operator: Operator, session: Session, partitions: Iterable[str], work: Work) -> None:
        self._operator = operator
        self._session = session
        self._work = work
        self._left = set(partitions)
        self._held: set[str] = set()
        self._done: set[str] = set()
        self._paused: dict[str, str | None] = {}
        """Those that were paused, with the reason."""
        self._view = LiveView.empty()
        self._news = anyio.Event()

    async def run(self, within_s: float) -> frozenset[str]:
        operator = self._operator
        until_s = operator.clock.now_s() + within_s
        asker = Asker(
            self._session,
            store=operator.store,
            group=operator.group,
            clock=operator.clock,
            call_timeout_s=operator.call_timeout_s,
            on_over=self._look_again,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asker.run, lambda lease: self._begin(lease, tasks), name="asker")
            while self._left and (operator.clock.now_s() < until_s or self._held):
                self._news = anyio.Event()
                try:
                    await self._round(asker, tasks)
                except StoreUnavailable as error:
                    operator.tell(f"{error}; trying again")
                await wait_until(operator.clock, operator.clock.now_s() + LOOK_S, self._news)
            tasks.cancel_scope.cancel()
        for name, lease in (await operator.some_leases(self._left & self._paused.keys())).items():
            # It was resumed to be taken, and was not got in time.
            await operator.submit(Pause(partition=name, seen_token=lease.token, reason=self._paused[name]))
        return frozenset(self._done)

    async def _round(self, asker: Asker, tasks: TaskGroup) -> None:
        """Look at what is left, and do the steps that bring it here."""
        leases = await self._operator.some_leases(self._left)
        sessions = await self._operator.sessions()
        # Finished or deleted meanwhile: nobody needs it any more.
        self._left = {name for name in self._left if name in leases and not leases[name].finished}
        sessions = await self._without_the_dead(leases, sessions)
        open_ones = [lease for name, lease in leases.items() if name in self._left and not lease.paused]
        steps = steps_of(
            Plan(targets={lease.partition: self._session.session_id for lease in open_ones}),
            open_ones,
            sessions.values(),
            session_id=self._session.session_id,
            is_busy=self._session.is_busy,
        )
        for lease, owner in steps.follow:
            asker.follow((lease,), owner)
        for owner_id, wanted in steps.ask.items():
            await asker.ask(sessions[owner_id], wanted)
        for step in steps.acquire:
            await self._acquire(step.lease, tasks)
        for name in sorted(self._left):
            if leases[name].paused and not self._session.is_busy(name):
                await self._take_paused(leases[name], sessions, tasks)

    async def _acquire(self, seen: LeaseItem, tasks: TaskGroup) -> None:
        lease = await self._session.acquire(seen, reason="operator")
        if lease is not None:
            self._begin(lease, tasks)

    async def _take_paused(self, lease: LeaseItem, sessions: Mapping[str, SessionItem], tasks: TaskGroup) -> None:
        key = ask_key(lease.partition, lease.token)
        if lease.owner is not None and lease.owner in sessions:
            # It drains, for it sees the pause; asked, it sees it sooner.
            if key not in sessions[lease.owner].asks:
                await self._operator.submit(Ask(session_id=lease.owner, keys=(key,), asker=""))
            return
        self._paused[lease.partition] = _reason_of(lease)
        me = self._session.session_id
        await self._operator.submit(Ask(session_id=me, keys=(key,), asker=me))
        result = await self._operator.submit(Resume(partition=lease.partition, seen_token=lease.token))
        if isinstance(result, Applied) and result.item is not None:
            await self._acquire(result.item, tasks)

    async def _without_the_dead(
        self, leases: Mapping[str, LeaseItem], sessions: Mapping[str, SessionItem]
    ) -> Mapping[str, SessionItem]:
        """Fence the owners that were watched for their whole duration without a beat; return the other sessions."""
        now_s = self._operator.clock.now_s()
        self._view = observe(self._view, sessions.values(), now_s)
        owners = {lease.owner for lease in leases.values()}
        gone = set()
        for session_id, beat in expired(self._view, now_s, besides=self._session.session_id):
            if session_id in owners and self._session.is_valid:
                result = await self._operator.submit(Fence(session_id=session_id, seen_beat=beat))
                if isinstance(result, Applied) or result.current is None:
                    gone.add(session_id)
        return {name: each for name, each in sessions.items() if name not in gone}

    def _begin(self, lease: Lease, tasks: TaskGroup) -> None:
        self._held.add(lease.partition)
        tasks.start_soon(self._hold, lease, name=f"work {lease.partition}")

    async def _hold(self, lease: Lease) -> None:
        try:
            if lease.partition in self._paused:
                reason = self._paused[lease.partition]
                await self._operator.submit(Pause(partition=lease.partition, seen_token=lease.token, reason=reason))
            if await self._work(lease):
                self._left.discard(lease.partition)
                self._done.add(lease.partition)
        except StoreUnavailable as error:
            self._operator.tell(f"{error}; trying again")
        finally:
            self._held.discard(lease.partition)
            self._look_again()

    def _look_again(self) -> None:
        self._news.set()


def _reason_of(lease: LeaseItem) -> str | None:
    reason = lease.extra.get(PAUSE_REASON)
    return reason if isinstance(reason, str) else None
