"""
The network between the hosts of a virtual world and their store and source: it delays, fails, loses, repeats and cuts.

A request that was sent goes on in the world, whatever becomes of its sender. What happens to it is decided by the first
`Fault` that matches it, else it takes the usual latency both ways. Everything that the store applied is kept in
`Network.history`, from which the checks read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import anyio

from partitions.errors import SourceUnavailable, StoreUnavailable
from partitions.items import GroupItem, LeaseItem, LockItem, SessionItem
from partitions.positions import Start
from partitions.sources.base import Fetched, PartitionInfo, Reader
from partitions.sources.memory import MemorySource
from partitions.stores.memory import MemoryStore, MemoryTransaction
from partitions.transactions import Commit, Outcome
from partitions.verbs import Applied, Result, Verb
from tests.world.loop import PLACE, in_world, running_loop

__all__ = ["Call", "Fault", "Network", "PlaceSource", "PlaceStore", "Write"]

R = TypeVar("R")
T = TypeVar("T", LeaseItem, SessionItem, LockItem, GroupItem)

LOST_S = 3600.0  # When an answer that is lost gives up: long after every time-out.


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way."""

    place: str
    operation: str
    """The verb's name, or the read's: "Acquire", "Beat", "read_leases", "source.read", …"""
    verb: Any = None
    partition: str | None = None


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to the calls that it matches."""

    matches: Callable[[Call], bool]
    before_s: float | None = None
    """The way there takes this long instead of the usual latency."""
    after_s: float | None = None
    """The way back."""
    fail_before: bool = False
    """The request is refused with a passing fault before it is applied."""
    fail_after: bool = False
    """It is applied, then answered with a passing fault."""
    lose_request: bool = False
    """It never arrives and is never answered."""
    lose_answer: bool = False
    """It is applied and never answered."""
    repeat_after_s: float | None = None
    """It is applied once more so long after the first time, as a duplicate that nobody waits for."""
    changes: Callable[[Any], Any] | None = None
    """What the store answered becomes what this returns for it, as where a read is stale."""
    raises: Exception | None = None
    """Raised at once in the caller, as by a broken client."""
    times: int | None = None
    """How many more calls it disturbs; None for all."""
    hits: int = 0


FAIR = Fault(matches=lambda _: True)
"""The usual latency, and nothing else. Shared, because nearly every call has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One verb as it reached the store."""

    at_s: float
    place: str
    verb: Any
    result: Any
    sent_s: float
    """When its sender sent it."""
    answered_s: float = math.inf
    """When the answer reaches its sender, if that still waits; infinity for a lost answer, a fault or a duplicate."""
    is_repeat: bool = False
    """It is the late duplicate of a write that had been applied before."""


@dataclass(slots=True)
class Network:
    """All connections of a world."""

    store: MemoryStore
    source: MemorySource
    latency_s: float = 0.005
    faults: list[Fault] = field(default_factory=list)
    history: list[Write] = field(default_factory=list)
    calls: list[tuple[float, Call]] = field(default_factory=list)
    cut_off: set[str] = field(default_factory=set)
    """Places whose requests are lost."""
    deaf: set[str] = field(default_factory=set)
    """Places whose requests arrive and whose answers are lost."""
    fetched: Counter[str] = field(default_factory=Counter)
    """Records that readers were given, by partition."""
    on_write: Callable[[Write], None] = lambda _: None
    """Called with each write right after the store decided it."""
    weather: Callable[[Call], Fault | None] = lambda _: None
    """Decides the calls that no cut and no fault of `faults` decides."""
    loses_late: bool = False
    """Duplicates, and requests whose way a fault made longer, are lost instead of arriving from here on."""

    def disturb(self, matches: Callable[[Call], bool], **what: Any) -> Fault:
        """Add a fault; the first that matches a call decides."""
        fault = Fault(matches=matches, **what)
        self.faults.append(fault)
        return fault

    def fault_of(self, call: Call) -> Fault:
        """Return what happens to a call."""
        if call.place in self.cut_off:
            return Fault(matches=lambda _: True, lose_request=True)
        if call.place in self.deaf:
            return Fault(matches=lambda _: True, lose_answer=True)
        for fault in self.faults:
            if fault.times != 0 and fault.matches(call):
                fault.hits += 1
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return self.weather(call) or FAIR

    async def carry(self, call: Call, apply: Callable[[], R]) -> R:
        """Carry one call to the store and its answer back."""
        self.calls.append((running_loop().time(), call))
        fault = self.fault_of(call)
        if fault.raises is not None:
            raise fault.raises
        return await in_world(self._travel, call, fault, apply, expected=(StoreUnavailable,))

    async def _travel(self, call: Call, fault: Fault, apply: Callable[[], R]) -> R:
        sent_s = running_loop().time()
        await anyio.sleep(self.latency_s / 2 if fault.before_s is None else fault.before_s)
        if fault.lose_request or (self.loses_late and fault.before_s is not None):
            await anyio.sleep(LOST_S)
            raise StoreUnavailable(f"{call.operation}: lost on the way")
        if fault.fail_before:
            raise StoreUnavailable(f"{call.operation}: a fault on the way")
        result = apply()
        after_s = self.latency_s / 2 if fault.after_s is None else fault.after_s
        is_answered = not (fault.lose_answer or fault.fail_after)
        self._keep(call, result, sent_s, running_loop().time() + after_s if is_answered else math.inf)
        if fault.changes is not None:
            result = fault.changes(result)
        if fault.repeat_after_s is not None:
            # Beside the answer, which does not wait for it.
            running_loop().create_task(
                self._repeat(call, fault.repeat_after_s, apply, sent_s), name=f"late {call.operation}"
            )
        await anyio.sleep(after_s)
        if fault.lose_answer:
            await anyio.sleep(LOST_S)
        if fault.fail_after or fault.lose_answer:
            raise StoreUnavailable(f"{call.operation}: the answer was a fault")
        return result

    async def _repeat(self, call: Call, after_s: float, apply: Callable[[], Any], sent_s: float) -> None:
        await anyio.sleep(after_s)
        if not self.loses_late:
            self._keep(call, apply(), sent_s, math.inf, is_repeat=True)

    def _keep(self, call: Call, result: Any, sent_s: float, answered_s: float, *, is_repeat: bool = False) -> None:
        if call.verb is not None:
            write = Write(
                at_s=running_loop().time(),
                place=call.place,
                verb=call.verb,
                result=result,
                sent_s=sent_s,
                answered_s=answered_s,
                is_repeat=is_repeat,
            )
            self.history.append(write)
            self.on_write(write)

    def applied(self, *kinds: type) -> list[Write]:
        """Return the writes of these kinds that took effect."""
        return [write for write in self.history if isinstance(write.verb, kinds) and isinstance(write.result, Applied)]


class PlaceStore:
    """The store as one place sees it: `partitions.stores.base.Store` over the network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.url = "memory:"

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def exists(self) -> bool:
        """It is there."""
        return True

    async def create(self) -> None:
        """It is there."""

    async def delete(self) -> None:
        """It stays."""

    async def submit(self, group: str, verb: Verb[T]) -> Result[T]:
        """See the contract."""
        partition = getattr(verb, "partition", None)
        return await self._carry(
            type(verb).__name__, lambda: self._network.store.apply_now(group, verb), verb=verb, partition=partition
        )

    @property
    def transactions(self) -> PlaceStore:
        """User transactions travel as every other write."""
        return self

    def begin(self) -> MemoryTransaction:
        """See the contract."""
        return self._network.store.begin()

    async def commit(self, group: str, commit: Commit) -> Outcome:
        """See the contract."""
        return await self._carry(
            "Commit",
            lambda: self._network.store.commit_now(group, commit),
            verb=commit,
            partition=commit.save.partition,
        )

    def condition_check(self, group: str, *, partition: str, owner: str, token: int, resource: bool) -> NoReturn:
        """See the contract."""
        self._network.store.condition_check(group, partition=partition, owner=owner, token=token, resource=resource)

    async def read_leases(self, group: str) -> tuple[LeaseItem, ...]:
        """See the contract."""
        return await self._carry("read_leases", lambda: self._network.store.leases_now(group))

    async def read_some_leases(self, group: str, partitions: Sequence[str]) -> tuple[LeaseItem, ...]:
        """See the contract."""
        return await self._carry("read_some_leases", lambda: self._network.store.some_leases_now(group, partitions))

    async def read_lease(self, group: str, partition: str) -> LeaseItem | None:
        """See the contract."""
        return await self._carry(
            "read_lease", lambda: self._network.store.lease_now(group, partition), partition=partition
        )

    async def read_sessions(self, group: str, *, consistent: bool) -> tuple[SessionItem, ...]:
        """See the contract."""
        return await self._carry(
            "read_sessions" if consistent else "look_at_sessions",
            lambda: self._network.store.sessions_now(group),
        )

    async def read_session(self, group: str, session_id: str) -> SessionItem | None:
        """See the contract."""
        return await self._carry("read_session", lambda: self._network.store.session_now(group, session_id))

    def lock_check(self, group: str, *, name: str, owner: str, token: int, resource: bool) -> NoReturn:
        """See the contract."""
        self._network.store.lock_check(group, name=name, owner=owner, token=token, resource=resource)

    async def read_lock(self, group: str, name: str) -> LockItem | None:
        """See the contract."""
        return await self._carry("read_lock", lambda: self._network.store.lock_now(group, name))

    async def read_some_locks(self, group: str, names: Sequence[str]) -> tuple[LockItem, ...]:
        """See the contract."""
        return await self._carry("read_some_locks", lambda: self._network.store.some_locks_now(group, names))

    async def read_locks(self, group: str) -> tuple[LockItem, ...]:
        """See the contract."""
        return await self._carry("read_locks", lambda: self._network.store.locks_now(group))

    async def read_group(self, group: str) -> GroupItem | None:
        """See the contract."""
        return await self._carry("read_group", lambda: self._network.store.group_now(group))

    async def _carry(self, operation: str, apply: Callable[[], R], **about: Any) -> R:
        return await self._network.carry(Call(place=PLACE.get() or "world", operation=operation, **about), apply)


class PlaceSource:
    """The source as one place sees it: `partitions.sources.base.Source` over the network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.url = "memory:"

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def identity(self) -> str:
        """See the contract."""
        fault = await self.disturbed("source.identity")
        answer = await self._network.source.identity()
        await self.answered(fault, "source.identity")
        return answer

    async def list_partitions(self) -> tuple[PartitionInfo, ...]:
        """See the contract."""
        fault = await self.disturbed("source.list")
        answer = await self._network.source.list_partitions()
        await self.answered(fault, "source.list")
        return answer

    async def resolve_start(self, start: Start) -> str:
        """See the contract."""
        fault = await self.disturbed("source.resolve")
        answer = await self._network.source.resolve_start(start)
        await self.answered(fault, "source.resolve")
        return answer

    async def first_position(self, partition: str, point: str) -> str:
        """See the contract."""
        fault = await self.disturbed("source.first", partition)
        answer = await self._network.source.first_position(partition, point)
        await self.answered(fault, "source.first")
        return answer

    def reader(self, partition: str, position: str) -> Reader:
        """See the contract."""
        return _PlaceReader(self, self._network.source.reader(partition, position), partition)

    async def disturbed(self, operation: str, partition: str | None = None) -> Fault:
        """Let the network do on the way there what it does; return it, for `answered` to do the rest."""
        call = Call(place=PLACE.get() or "world", operation=operation, partition=partition)
        self._network.calls.append((running_loop().time(), call))
        fault = self._network.fault_of(call)
        if fault.raises is not None:
            raise fault.raises
        latency_s = self._network.latency_s if fault.before_s is None else fault.before_s
        await anyio.sleep(latency_s)
        if fault.lose_request:
            await anyio.sleep(LOST_S)
        if fault.fail_before or fault.lose_request:
            raise SourceUnavailable(f"{operation}: a fault on the way")
        return fault

    async def answered(self, fault: Fault, operation: str) -> None:
        """Let the network do to an answer what it does: the source has read, and whoever asked may never know."""
        if fault.after_s is not None:
            await anyio.sleep(fault.after_s)
        if fault.lose_answer:
            await anyio.sleep(LOST_S)
        if fault.fail_after or fault.lose_answer:
            raise SourceUnavailable(f"{operation}: the answer was a fault")


class _PlaceReader:
    def __init__(self, source: PlaceSource, reader: Reader, partition: str) -> None:
        self._source = source
        self._reader = reader
        self._partition = partition

    async def read(self, *, records_max: int, bytes_max: int, wait_s: float) -> Fetched:
        fault = await self._source.disturbed("source.read", self._partition)
        fetched = await self._reader.read(records_max=records_max, bytes_max=bytes_max, wait_s=wait_s)
        await self._source.answered(fault, "source.read")
        self._source._network.fetched[self._partition] += len(fetched.records)
        return fetched

    async def close(self) -> None:
        await self._reader.close()
