"""
Discovery: makes the lease of every partition that has none, and deletes those that are long over.

Runs beside the balancer's rounds, so that a source that is slow or away never delays a fail-over. A listing counts only
if it was asked for *after* the lease read that lacks the partition, else a lease that was deleted at its end is made
again and replayed. So a listing that shows something new is followed by a read of the leases and another listing; a
group at rest pays for listings alone.

One host looks at every interval, the first in session order; the others are its back-up and look half as often. Whoever
reads a partition to its end looks at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

import anyio

from partitions.clocks import Clock, wait_until
from partitions.errors import PartitionsError, SourceUnavailable
from partitions.events import OnEvent, tell
from partitions.items import LeaseItem, SessionItem
from partitions.retries import Waits, call, is_cancelled
from partitions.sources.base import PartitionInfo, Source
from partitions.stores.base import Store
from partitions.verbs import Applied, Child, Create, Delete
from processor_host.events import LeasesCreated, RoundFailed
from processor_host.retirement import Retirement

__all__ = ["SOURCE_CALL_S", "Discovery", "GroupView", "Listing", "is_first", "lacks_a_parent"]

R = TypeVar("R")

WRITES_AT_ONCE = 16
"""Creates, or deletes, on their way at the same time."""
CREATES_MAX = 64
"""Leases made before a look at what other hosts have made meanwhile; about three looks for a thousand and ten hosts."""
DELETES_MAX = 16
"""Finished leases deleted after one listing; there is no hurry."""
SOURCE_CALL_S = 10.0
"""How long one call of the source may take: a listing of many partitions has many pages."""
RETRY_S = 0.5
"""The first pause after a look that failed; it doubles up to the interval."""
JITTER = 0.1
"""By how much the interval varies, so that hosts which started together do not list together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the source listed."""

    partitions: frozenset[str]
    asked_s: float
    """When it was asked for, on this host's clock: it tells of leases that were read before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What became of one look."""

    is_new: bool
    """There are leases that the group as last seen lacks."""
    is_whole: bool
    """Nothing failed; else it is repeated soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The group as the balancer last saw it."""

    leases: Mapping[str, LeaseItem]
    sessions: Iterable[SessionItem]


class Discovery:
    """
    Looks for partitions without a lease.

    Attributes:
        listing: The last answer of the source; None before the first.
    """

    def __init__(
        self,
        *,
        store: Store,
        source: Source,
        group: str,
        point: str,
        clock: Clock,
        random: Random,
        interval_s: float,
        call_timeout_s: float,
        on_event: OnEvent | None,
        positions: Mapping[str, str] | None = None,
    ) -> None:
        """
        Keep what is needed to look.

        Args:
            store: Where the leases are made.
            source: What is listed.
            group: Whose leases they are.
            point: Where the group started.
            clock: This host's clock.
            random: Spreads the waits.
            interval_s: Time between two looks, seconds.
            call_timeout_s: How long one call of the store may take, seconds.
            on_event: Gets what was made, and what failed.
            positions: Partitions that start elsewhere: the last record that counts as done.
        """
        self.listing: Listing | None = None
        self._store = store
        self._source = source
        self._group = group
        self._point = point
        self._clock = clock
        self._random = random
        self._interval_s = interval_s
        self._call_timeout_s = call_timeout_s
        self._on_event = on_event
        self._positions = positions or {}
        self._retirement = Retirement()
        self._session_id = ""
        self._wanted = anyio.Event()
        self._wanted.set()

    def want(self) -> None:
        """Look now, and at the leases too: something is known to have changed."""
        self._wanted.set()

    async def run(self, session_id: str, view: Callable[[], GroupView], on_listed: Callable[[bool], None]) -> None:
        """
        Look at every interval and whenever it is wanted, until cancelled.

        Args:
            session_id: This host's session.
            view: Returns the group as last seen.
            on_listed: Called after each look, with whether there are leases that the group as last seen lacks.
        """
        self._session_id = session_id
        waits = Waits(first_s=RETRY_S, most_s=self._interval_s)
        failures = 0
        while True:
            was_wanted = self._wanted.is_set()
            self._wanted = anyio.Event()
            is_whole = False
            try:
                look = await self._look(view(), is_wanted=was_wanted or failures > 0)
                on_listed(look.is_new)
                is_whole = look.is_whole
            except PartitionsError as error:
                self._tell_failure(str(error))
            if is_whole:
                failures = 0
                factor = 1 if is_first(view().sessions, session_id) else 2
                pause_s = factor * self._interval_s * (1 + JITTER * (2 * self._random.random() - 1))
            else:
                failures += 1
                pause_s = waits.after(failures, self._random)
            await wait_until(self._clock, self._clock.now_s() + pause_s, self._wanted)

    def listed_since(self, read_s: float, leases: Mapping[str, LeaseItem]) -> frozenset[str] | None:
        """
        Return what the source listed, if it was asked after the leases were read; look where a plan needs to know.

        Args:
            read_s: When these leases were read, on this host's clock.
            leases: All leases of the group, by partition.
        """
        if self.listing is not None and self.listing.asked_s >= read_s:
            return self.listing.partitions
        if lacks_a_parent(leases):
            self.want()
        return None

    async def children_of(self, partition: str) -> Sequence[Child]:
        """Return the children of a partition that has just been read to its end, as far as the source lists them."""
        infos = await self._ask(self._source.list_partitions)
        return [
            Child(partition=info.partition, parents=info.parents, position=await self._first_position(info.partition))
            for info in infos
            if partition in info.parents
        ]

    async def _look(self, view: GroupView, *, is_wanted: bool) -> _Look:
        """List the source, delete what is over, make what is missing."""
        infos = await self._list()
        is_whole = await self._retire(view)
        if not is_wanted and all(info.partition in view.leases for info in infos):
            return _Look(is_new=False, is_whole=is_whole)
        leases = await call(partial(self._store.read_leases, self._group), 4 * self._call_timeout_s)
        known = {lease.partition for lease in leases}
        # Asked for again, after the read: only this listing tells what lacks a lease.
        missing = [info for info in await self._list() if info.partition not in known]
        there = await self._create(missing)
        return _Look(
            is_new=not view.leases.keys() >= {*known, *there}, is_whole=is_whole and len(there) == len(missing)
        )

    async def _list(self) -> Sequence[PartitionInfo]:
        asked_s = self._clock.now_s()
        infos = await self._ask(self._source.list_partitions)
        self.listing = Listing(partitions=frozenset(info.partition for info in infos), asked_s=asked_s)
        return infos

    async def _create(self, missing: Sequence[PartitionInfo]) -> list[str]:
        """
        Make these leases; return those that are there now, made by this host or by another that was faster.

        Hosts that start together on many partitions each begin with others of them, and leave out what was made
        meanwhile; or each would write all of them, which costs the same and can be too much for the store.
        """
        there: list[str] = []
        made: list[str] = []
        left = list(missing)
        if len(left) > CREATES_MAX:
            left.sort(key=lambda info: hashlib.sha256(f"{self._session_id}/{info.partition}".encode()).digest())

        async def create(info: PartitionInfo) -> None:
            position = await self._first_position(info.partition)
            verb = Create(partition=info.partition, position=position, parents=info.parents)
            result = await call(partial(self._store.submit, self._group, verb), self._call_timeout_s)
            there.append(info.partition)
            if isinstance(result, Applied):
                made.append(info.partition)

        try:
            while left:
                part, left = left[:CREATES_MAX], left[CREATES_MAX:]
                await self._each({info.partition: partial(create, info) for info in part})
                if left and len(there) > len(made):
                    # It only leaves out: what it lacks as well is made by the listing that came after the first read.
                    leases = await call(partial(self._store.read_leases, self._group), 4 * self._call_timeout_s)
                    known = {lease.partition for lease in leases}
                    there += [info.partition for info in left if info.partition in known]
                    left = [info for info in left if info.partition not in known]
        finally:
            if made:
                tell(self._on_event, LeasesCreated(partitions=tuple(sorted(made))))
        return there

    async def _retire(self, view: GroupView) -> bool:
        """Delete finished leases that the source has long stopped listing; say whether none failed."""
        assert self.listing is not None  # Called right after a listing.
        over = self._retirement.note(view.leases.values(), self.listing.partitions, self._clock.now_s())
        if not is_first(view.sessions, self._session_id):
            # One host is enough for it.
            return True

        async def delete(lease: LeaseItem) -> None:
            verb = Delete(partition=lease.partition, seen_token=lease.token)
            await call(partial(self._store.submit, self._group, verb), self._call_timeout_s)
            # Refused or not: it is not as it was seen, and what was seen may stay for as long as the audit takes.
            self._retirement.forget(lease.partition)

        return await self._each({lease.partition: partial(delete, lease) for lease in over[:DELETES_MAX]})

    async def _each(self, writes: Mapping[str, Callable[[], Awaitable[None]]]) -> bool:
        """Do one thing for each of these partitions, side by side within a bound; say whether none failed."""
        is_whole = True
        at_once = anyio.CapacityLimiter(WRITES_AT_ONCE)

        async def alone(partition: str, write: Callable[[], Awaitable[None]]) -> None:
            nonlocal is_whole
            async with at_once:
                try:
                    await write()
                except Exception as error:  # Containment: what is odd about one partition must not hold up the others.
                    is_whole = False
                    self._tell_failure(f"{partition}: {type(error).__name__}: {error}")

        async with anyio.create_task_group() as tasks:
            for partition, write in writes.items():
                tasks.start_soon(alone, partition, write, name=f"lease of {partition}")
        return is_whole

    async def _first_position(self, partition: str) -> str:
        if (position := self._positions.get(partition)) is not None:
            return position
        return await self._ask(partial(self._source.first_position, partition, self._point))

    async def _ask(self, send: Callable[[], Awaitable[R]]) -> R:
        try:
            with anyio.fail_after(SOURCE_CALL_S):
                return await send()
        except TimeoutError as error:
            raise SourceUnavailable(f"{self._source.url}: no answer within {SOURCE_CALL_S:g} s") from error
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled():
                raise
            # The source's own; passed on it would end the rounds of the balancer without a word.
            raise SourceUnavailable(f"{self._source.url}: something that the call waited for was cancelled") from error

    def _tell_failure(self, text: str) -> None:
        tell(self._on_event, RoundFailed(error=text))


def is_first(sessions: Iterable[SessionItem], session_id: str) -> bool:
    """Say whether this session is the first of those that may work, by their ids."""
    able = (session.session_id for session in sessions if session.capacity > 0 and not session.draining)
    return session_id == min(able, default=session_id)


def lacks_a_parent(leases: Mapping[str, LeaseItem]) -> bool:
    """Say whether a lease that nobody has started has a parent without an item: a listing tells whether it ended."""
    return any(lease.token == 0 and any(parent not in leases for parent in lease.parents) for lease in leases.values())
